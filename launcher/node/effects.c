/* effects.c -- connects the agent with the machine: node_handle_event passes an event to the agent, and
 * node_run_effects carries out the agent's effects. Effects start processes, send signals, and notify the store and the
 * user. The agent itself does none of this, so that its state machine can be tested without processes. */
#include "agent/agent.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "net/dial.h"
#include "net/store_host.h"
#include "output/disk_watch.h"
#include "node/effects.h"
#include "plan/worker.h"
#include "report/cause.h"
#include "report/exit_text.h"
#include "report/spawn_error.h"
#include "report/report.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- the agent and its deadline --------------------------------------------------------------------------- */

/* longest wait for an answer of the store, if the user has not set --timeout */
enum { STORE_ANSWER_MS = 60000 };

static void finish_probe(struct node *n);

/* Pass an event to the agent. Append a copy of the agent's effects to the queue, because the agent reuses their memory
 * at the next event. After a stop, or after the loss of the store, end a running probe (struct cause_probe), because
 * the effects must not wait for the probe. */
void node_handle_event(struct node *n, struct agent_event event)
{
    size_t count;
    event.now_ms = clock_ms();
    const struct agent_effect *effects = agent_step(n->agent, &event, &count);
    if (!buf_append(&n->effects, effects, count * sizeof(*effects)))
        /* memory is short and effects are lost, so processes might survive; after the abort the guardian kills them */
        abort();
    /* these effects must not wait for a probe */
    if (agent_stop_signal(n->agent) != 0 || agent_lost_store(n->agent))
        finish_probe(n);
}

/* Set the timer to the earliest of three deadlines: the agent's deadline, the deadline of the store's answer, and the
 * deadline for a slow reader of the output. */
static void node_set_timer(struct node *n)
{
    uint64_t at = agent_deadline(n->agent), now = clock_ms();
    if (n->meet.store_deadline_ms < at)
        at = n->meet.store_deadline_ms;
    if (n->out.unread_deadline_ms < at)
        at = n->out.unread_deadline_ms;
    n->due_ms = at;
    if (at == UINT64_MAX || n->ended)
        uv_timer_stop(&n->timer);
    else
        uv_timer_start(&n->timer, n->on_timer, at > now ? at - now : 0, 0);
}

/* Set the deadline of the store's answer. A store that hangs would otherwise block this node forever. */
void node_expect_answer(struct node *n)
{
    const uint64_t limit_ms = n->plan->cli->timeout_ms;
    n->meet.store_deadline_ms = clock_ms() + (limit_ms > 0 ? limit_ms : STORE_ANSWER_MS);
    node_set_timer(n);
}

void node_expect_nothing(struct node *n)
{
    n->meet.store_deadline_ms = UINT64_MAX;
}

/* Return true while waitpid has not yet returned all workers. */
static bool node_has_workers(const struct node *n)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0)
            return true;
    return false;
}

/* --- the order of ends ------------------------------------------------------------------------------------ */

/* The kernel adds the pidfd of an ended process to the ready list of the epoll set. So epoll_wait returns the workers
 * in the order of their ends, and waitpid returns how each worker ended. */

void exits_open(struct exits *x)
{
    x->epoll = epoll_create1(EPOLL_CLOEXEC);
}

/* Add a worker to the set. The event data have the pidfd in the upper 32 bits and the pid in the lower 32 bits, so no
 * table of pidfds is needed. A worker that cannot be added is still collected by reap_others(). */
static void exits_watch(struct exits *x, pid_t pid)
{
    int pidfd = x->epoll < 0 ? -1 : pids_hold(pid);
    if (pidfd < 0)
        return;
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = (uint64_t)pidfd << 32 | (uint32_t)pid };
    if (epoll_ctl(x->epoll, EPOLL_CTL_ADD, pidfd, &event) != 0)
        close(pidfd);
}

/* Return the pid of the worker that ended first, or 0 if no worker in the set has ended. Remove its pidfd from the set
 * explicitly, because close() does not remove the pidfd if another process has a copy of this descriptor. */
static pid_t exits_next(struct exits *x)
{
    struct epoll_event event;
    /* Read one event at a time. epoll_wait moves each returned event to the end of the ready list, so a second event
     * would lose its place in the order. */
    if (x->epoll < 0 || epoll_wait(x->epoll, &event, 1, 0) != 1)
        return 0;
    const int pidfd = (int)(event.data.u64 >> 32);
    epoll_ctl(x->epoll, EPOLL_CTL_DEL, pidfd, NULL);
    close(pidfd);
    return (pid_t)(uint32_t)event.data.u64;
}

/* Close the set, and the pidfds of ended workers that are still in the set. */
void exits_close(struct exits *x)
{
    while (exits_next(x) > 0)
        continue;
    if (x->epoll >= 0)
        close(x->epoll);
    x->epoll = -1;
}

/* --- ends ------------------------------------------------------------------------------------------------- */

enum {
    REAPED_PER_TURN = 256, /* limit of children that one call of reap_workers() or reap_others() collects */
    LAST_LINES = 50 /* how many of a worker's last lines are searched for the reason why the worker ended */
};

/* Return the local rank of a worker, or -1 if `pid` is another child. */
static int local_rank_of(const struct node *n, pid_t pid)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] == pid)
            return i;
    return -1;
}

/* Return true if the worker ended because it lost a peer. PyTorch has no exit code for a lost peer: the worker ends
 * by abort() or with any other failure. So the last lines of its output decide. */
static bool has_lost_peer(struct node *n, int local_rank, int status)
{
    struct buf lines = { 0 };
    const bool may = WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT : WEXITSTATUS(status) != 0;
    const bool lost = may &&
                      tail_lines(output_last_lines(n->out.output, local_rank), LAST_LINES, &lines) > 0 &&
                      hint_is_of_lost_rank(buf_slice(&lines));
    buf_free(&lines);
    return lost;
}

/* Return a hash of the import error that ended the worker, or 0 if the worker ended for another reason. Python exits
 * with code 1 after an import error. */
static uint64_t import_error_of(struct node *n, int local_rank, int status)
{
    struct buf lines = { 0 };
    uint64_t found = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 1 && n->plan->cli->max_restarts > 0 &&
        tail_lines(output_last_lines(n->out.output, local_rank), LAST_LINES, &lines) > 0)
        found = hint_import_error(buf_slice(&lines));
    buf_free(&lines);
    return found;
}

/* Handle the end of a child: a worker, a helper of a stack dump, or an adopted orphan. Delete the pid of a worker
 * first: after wait4, another process may get this pid, and must not be signalled. Collect evidence only if the agent
 * counts the end as a failure or as the loss of a peer. */
static void child_ended(struct node *n, pid_t pid, int status, const struct rusage *usage)
{
    int local_rank = local_rank_of(n, pid);
    if (local_rank < 0) {
        node_helper_ended(n, pid, status);
        return;
    }
    n->run.pids[local_rank] = 0;
    input_ended(n->out.input, local_rank, status != 0);
    node_handle_event(n, (struct agent_event){ .type = AGENT_EXITED,
                                               .local_rank = local_rank,
                                               .pid = pid,
                                               .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                               .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                               .unasked = !n->run.asked[local_rank],
                                               .lost_peer = has_lost_peer(n, local_rank, status),
                                               .import_error = import_error_of(n, local_rank, status) });
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    if (w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM)
        evidence_ended(n->run.evidence, local_rank, pid, status, usage);
    announce_worker_ended(&n->out.announce, local_rank, w);
}

/* Collect the workers that have ended, in the order of their ends, and return their number. */
static int reap_workers(struct node *n)
{
    struct rusage usage;
    int status, taken = 0;
    pid_t pid;
    for (; taken < REAPED_PER_TURN && (pid = exits_next(&n->run.exits)) > 0; taken++)
        if (wait4(pid, &status, WNOHANG, &usage) == pid)
            child_ended(n, pid, status, &usage);
    return taken;
}

/* Collect the ended children that reap_workers() does not collect: adopted orphans, and workers that are not in the
 * epoll set. Return false if more children may have ended. Set `n->run.alone` if no child is left. */
static bool reap_others(struct node *n)
{
    struct rusage usage;
    int status, taken = 0;
    pid_t pid = 0;
    for (; taken < REAPED_PER_TURN && (pid = wait4(-1, &status, WNOHANG, &usage)) > 0; taken++)
        child_ended(n, pid, status, &usage);
    n->run.alone = taken < REAPED_PER_TURN && pid < 0 && errno == ECHILD;
    return taken < REAPED_PER_TURN;
}

/* Collect ended children. SIGCHLD only sets `reap`, and on_more() calls this function in the next iteration of the
 * event loop.
 *
 * reap_workers() collects workers in the order of their ends, but wait4(-1) in reap_others() does not. So call
 * reap_others() only if reap_workers() has found no ended worker, or if no worker is left. If a worker ends between
 * these two calls, reap_others() collects this worker. So call reap_workers() again, which removes the pidfd of this
 * worker. */
static void reap_children(struct node *n)
{
    n->run.reap = true;
    if (reap_workers(n) > 0 && node_has_workers(n))
        return;
    n->run.reap = !reap_others(n);
    reap_workers(n);
    if (n->run.alone)
        node_handle_event(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* --- timers of workers ------------------------------------------------------------------------------------- */

/* When a timer of torchrun (file_timer.h) expires, its process gets the signal that the timer names. Any process may
 * write to the FIFO, so only processes in the process group of a worker get a signal. */

/* Return the local rank of the worker whose process group contains `pid`, or -1. */
static int local_rank_of_group(const struct node *n, pid_t pid)
{
    const pid_t group = getpgid(pid);
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0 && n->run.pids[i] == group)
            return i;
    return -1;
}

/* Return true if the timer names a valid signal number. */
static bool has_signal(const struct timer_row *row)
{
    return row->signal > 0 && row->signal <= SIGRTMAX;
}

/* Print "rank 1 (pid 71): the timer "step" has expired; sending signal 9". */
static void print_timer(struct node *n, const struct timer_row *row, int local_rank)
{
    char words[NOTE_MAX], whose[64] = "a process that does not belong to this job";
    if (local_rank >= 0)
        snprintf(whose, sizeof(whose), "rank %d", node_rank(n, local_rank));
    snprintf(words, sizeof(words), "%s (pid %d): the timer \"%s\" has expired; %s %d", whose, row->pid,
             row->scope,
             !has_signal(row)  ? "not sending the invalid signal"
             : local_rank >= 0 ? "sending signal"
                               : "not sending the requested signal",
             row->signal);
    output_note(n->out.output, "%s", words);
}

/* Handle an expired timer. Record the expiry before the signal, because the report names the timer as the cause. */
static void on_expired(void *user, const struct timer_row *row)
{
    struct node *n = user;
    const int local_rank = local_rank_of_group(n, row->pid);
    if (local_rank < 0 && getpgid(row->pid) < 0) /* the process has ended, and its timer remained */
        return;
    print_timer(n, row, local_rank);
    if (local_rank < 0 || !has_signal(row))
        return;
    /* Record the timer as the cause only if the worker itself gets SIGKILL. After another signal the worker may still
     * run. If a child of the worker gets the signal, the worker may still run, too. */
    if (row->signal == SIGKILL && row->pid == n->run.pids[local_rank])
        evidence_timer(n->run.evidence, local_rank, row->scope);
    kill(row->pid, row->signal);
}

static void on_note(void *user, const char *words)
{
    struct node *n = user;
    output_note(n->out.output, "%s", words);
}

ddp_status node_open_timers(struct node *n, struct ddp_err *err)
{
    const struct file_timer_calls calls = { .expired = on_expired, .note = on_note, .user = n };
    if (n->plan->timer_file == NULL)
        return DDP_OK;
    return file_timer_open(&n->loop, n->plan->timer_file, &calls, &n->run.file_timer, err);
}

/* --- messages to the store and the user -------------------------------------------------------------------- */

/* The store gets this node's first failure in two messages. `failed` is sent as soon as the worker has ended. `cause`
 * is sent later, because it contains the last lines of the worker's output. */

/* Print why the program cannot be started, with its path on this node. */
bool node_print_not_started(const struct node *n, int error, struct buf *words)
{
    static struct program_file file; /* static, because its paths are too large for the stack */
    const char *failed = n->run.spawner.failed;
    const bool is_script = failed != NULL && failed == n->plan->script;
    const struct start_failure failure = { .error = error,
                                           .program = is_script ? failed : n->plan->workers[0].argv[0],
                                           .path = plan_user_value(n->plan, "PATH"),
                                           .file = &file };
    memset(&file, 0, sizeof(file));
    (void)program_examine_failed(failed, n->plan->script, &file);
    bool ok = start_cause(&failure, words);
    const size_t len = words->len;
    ok = ok && buf_printf(words, "; ") && start_remedy(&failure, words);
    if (words->len == len + 2) /* start_remedy() has appended nothing */
        words->len = len;
    ok = ok && buf_append(words, "", 1);
    if (ok)
        log_error("%s", (const char *)words->data);
    return ok;
}

/* Return a report with the facts that are known now. This report serves only to describe the first failure. */
static struct report report_now(const struct node *n)
{
    static struct program_file file; /* static, because its paths are too large for the stack */
    const bool seen = program_examine_failed(n->run.spawner.failed, n->plan->script, &file);
    return (struct report){ .plan = n->plan,
                            .agent = n->agent,
                            .stdout_tails = output_tails(n->out.output, STD_OUT),
                            .stderr_tails = output_tails(n->out.output, STD_ERR),
                            .path = plan_user_value(n->plan, "PATH"),
                            .file = seen ? &file : NULL,
                            .evidence = evidence_of(n->run.evidence, agent_first_failure(n->agent)) };
}

/* Append `n` lines to the failure, up to the limit of the message. Each line ends with a newline. */
static void add_lines(struct failure *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n && f->n_lines < LIMIT_LAST_LINES; i++) {
        const size_t len = strcspn(text, "\n");
        snprintf(f->lines[f->n_lines++], LIMIT_WORDS, "%.*s", (int)len, text);
        text += len + 1;
    }
}

/* Send the failure, without the worker's last lines, which are not read yet. Send nothing if the store was lost while
 * this effect was in the queue, because the failure no longer matters. */
static void send_failed(struct node *n)
{
    struct failure room;
    const struct report r = report_now(n);
    const struct failure *f = cause_failure(&r, &room);
    if (f != NULL)
        store_link_send(n->meet.link, message_encode_failure(MESSAGE_FAILED, f));
}

/* Describe this node's first failure in *f, with the last lines of the failed worker. Return false if this node has no
 * failure. */
static bool read_cause(const struct node *n, struct failure *f)
{
    struct buf lines = { 0 };
    bool from_stdout;
    const struct report r = report_now(n);
    memset(f, 0, sizeof(*f));
    if (cause_failure(&r, f) == NULL)
        return false;
    const size_t got = cause_last_lines(&r, LIMIT_LAST_LINES, &lines, &from_stdout);
    f->from_stdout = got > 0 && from_stdout;
    if (got > 0 && buf_append(&lines, "", 1))
        add_lines(f, (const char *)lines.data, got);
    buf_free(&lines);
    return true;
}

static void on_more(uv_idle_t *idle);

/* --- evidence that takes time -------------------------------------------------------------------------------- */

/* A probe looks for evidence before the messages `cause` and `stopped` are sent:
 *
 *  - A worker has lost its peer on another node: the agent tests whether the path loses large packets (up to a second).
 *  - A GPU was full or busy: the agent asks the driver for the processes on the GPUs. */
struct cause_probe {
    struct node *node;
    uv_poll_t poll;   /* polls the descriptor of `call` */
    uv_timer_t timer; /* the time limit of the probe */
    struct timed_call *call;
    struct path_question *path; /* owned by `call`; exactly one of `path` and `gpus` is not NULL */
    struct gpu_query *gpus;
    struct failure failure; /* sent to the store when the result is known */
};

/* Argument of path_question_run: the address to probe, and the result. */
struct path_question {
    char address[HEARD_NAME_MAX];
    int lost_bytes;
};

static void path_question_run(void *user)
{
    struct path_question *q = user;
    (void)path_probe(q->address, &q->lost_bytes);
}

static void free_probe(uv_handle_t *timer)
{
    free(timer->data);
}

static void close_probe_timer(uv_handle_t *poll)
{
    struct cause_probe *p = poll->data;
    uv_close((uv_handle_t *)&p->timer, free_probe);
}

/* Add the driver's answer to the failure, and keep the answer for the report. `query` is NULL if the driver has not
 * answered. */
static void add_gpu_users(struct node *n, const struct gpu_query *query, struct failure *f)
{
    struct gpu_answer *answer = &n->run.gpu_answer;
    *answer = (struct gpu_answer){ 0 };
    if (query != NULL)
        gpu_query_answer(query, n->plan, f->rank - n->plan->workers[0].rank, answer);
    n->run.has_gpu_answer = true;
    text_copy(f->gpu, sizeof(f->gpu), answer->gpu);
    text_copy(f->gpu_users, sizeof(f->gpu_users), answer->users);
}

/* End the probe. If the probe has a result, add the result to p->failure. */
static void end_probe(struct node *n)
{
    struct cause_probe *p = n->probe;
    if (p == NULL)
        return;
    const bool has_expired = !uv_is_active((const uv_handle_t *)&p->timer);
    n->probe = NULL;
    uv_timer_stop(&p->timer);
    /* close the handle before timed_call_end() closes the descriptor */
    uv_close((uv_handle_t *)&p->poll, close_probe_timer);
    const bool is_done = timed_call_end(p->call);
    /* If the GPU query has neither ended nor expired, add no answer. The report then asks the driver again. */
    if (p->path == NULL && (is_done || has_expired))
        add_gpu_users(n, is_done ? p->gpus : NULL, &p->failure);
    if (p->path != NULL && is_done)
        p->failure.lost_bytes = p->path->lost_bytes;
    if (is_done) { /* if the thread is still running, the thread frees this memory */
        free(p->path);
        free(p->gpus);
    }
}

/* End the running probe. If no probe runs, do nothing. If the store is not lost, send the worker's failure to the
 * store, with the result of the probe if known. Then let on_more() carry out the effects that have waited. */
static void finish_probe(struct node *n)
{
    const struct cause_probe *p = n->probe; /* freed in a later iteration of the event loop */
    if (p == NULL)
        return;
    end_probe(n);
    if (!agent_lost_store(n->agent))
        store_link_send(n->meet.link, message_encode_failure(MESSAGE_EXPLAIN, &p->failure));
    n->run.holds = false;
    uv_idle_start(&n->more, on_more);
}

static void on_probe_result(uv_poll_t *poll, int status, int events)
{
    const struct cause_probe *p = poll->data;
    (void)status;
    (void)events;
    finish_probe(p->node);
}

static void on_probe_limit(uv_timer_t *timer)
{
    const struct cause_probe *p = timer->data;
    finish_probe(p->node);
}

/* Begin a probe for this failure. Probe the path to `address`, or the GPUs if `address` is NULL. Return false if the
 * workers use no GPU, memory is short, or no thread can be started. */
static bool begin_probe(struct node *n, const char *address, const struct failure *f)
{
    struct cause_probe *p = calloc(1, sizeof(*p));
    struct path_question *path = address != NULL ? calloc(1, sizeof(*path)) : NULL;
    struct gpu_query *gpus = address == NULL ? gpu_query_new(n->plan, true) : NULL;
    const int limit_ms = address != NULL ? PATH_PROBE_MS + PATH_PROBE_MS / 4 : GPU_FAILURE_MS;
    if (path != NULL)
        snprintf(path->address, sizeof(path->address), "%s", address);
    if (p != NULL && path != NULL)
        p->call = timed_call_begin(path_question_run, free, path);
    else if (p != NULL && gpus != NULL)
        p->call = timed_call_begin(gpu_query_run, free, gpus);
    if (p == NULL || p->call == NULL || uv_poll_init(&n->loop, &p->poll, timed_call_fd(p->call)) != 0) {
        /* if timed_call_end() returns false, the thread frees `path` or `gpus` */
        if (p == NULL || p->call == NULL || timed_call_end(p->call)) {
            free(path);
            free(gpus);
        }
        free(p);
        return false;
    }
    p->node = n;
    p->path = path;
    p->gpus = gpus;
    p->failure = *f;
    uv_timer_init(&n->loop, &p->timer);
    p->poll.data = p->timer.data = p;
    uv_poll_start(&p->poll, UV_READABLE, on_probe_result);
    uv_timer_start(&p->timer, on_probe_limit, (uint64_t)limit_ms, 0);
    n->probe = p;
    n->run.holds = true;
    return true;
}

static bool has_peer(const struct failure *f, const char *name)
{
    for (int i = 0; i < f->n_lines; i++)
        if (text_has_peer(f->lines[i], name))
            return true;
    return false;
}

/* Return the address of `node` if a line of the failure names this node as a peer. The line may contain one of the
 * node's two addresses or its host name. Return NULL if no line names the node. The store uses the same rule
 * (hub/lost_rank.c). */
static const char *find_named(const struct failure *f, const struct heard_node *node)
{
    if (has_peer(f, node->own))
        return node->own;
    return has_peer(f, node->addr) || has_peer(f, node->host) ? node->addr : NULL;
}

/* Return the address of the only node that a victim (a worker that lost its peer) names as its peer. If the victim
 * names several nodes or its own node, the lost connection is unknown, so return NULL. */
static const char *find_lost_peer(const struct node *n, const struct failure *f)
{
    const char *found = NULL;
    for (int i = 0; f->victim && n->meet.round != NULL && i < n->meet.round->n_nodes; i++) {
        const struct heard_node *node = &n->meet.round->nodes[i];
        const char *address = find_named(f, node);
        if (address == NULL)
            continue;
        if (found != NULL || node->node_rank == n->plan->node_rank)
            return NULL;
        found = address;
    }
    return found;
}

/* Begin the probe that this failure needs. Return false if no probe runs: the failure needs no probe, the attempt ends
 * for a reason other than this failure, or the probe cannot start. */
static bool probe_cause(struct node *n, const struct failure *f)
{
    if (node_cause_is_elsewhere(n) || agent_stop_signal(n->agent) != 0 || agent_is_stuck(n->agent))
        return false;
    const char *peer = find_lost_peer(n, f);
    const struct report r = report_now(n);
    return (peer != NULL || cause_is_gpu_in_use(&r)) && begin_probe(n, peer, f);
}

/* Send this node's first failure as the message `cause`, with the last lines of the failed worker. If the failure needs
 * a probe, finish_probe() sends the message after the probe. */
static void send_cause(struct node *n)
{
    struct failure f;
    if (read_cause(n, &f) && !probe_cause(n, &f))
        store_link_send(n->meet.link, message_encode_failure(MESSAGE_EXPLAIN, &f));
}

/* Report the end of a worker to the store. Ranks that wait in a barrier for this worker then get the reason before
 * ddprun stops these ranks. After exit code 0 the message is not urgent. */
static void send_exited(struct node *n, int local_rank)
{
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    cJSON *json = encode_exited(node_rank(n, local_rank), w->pid, w->exit_code, w->signal, w->stop_requested);
    if (w->exit_code == 0 && w->signal == 0)
        store_link_mention(n->meet.link, json);
    else
        store_link_send(n->meet.link, json);
}

/* Report to the store that the attempt has ended on this node. Add the exit codes of agent_max_code() and
 * agent_rank0_code(). The code of rank 0 is -1 if rank 0 is on another node. With several nodes, also add the stacks of
 * the workers that survived the failure, because the other nodes print these stacks. */
static void send_stopped(struct node *n)
{
    cJSON *rows = NULL; /* owned by the message */
    const int rank0 = node_rank(n, 0) == 0 ? agent_rank0_code(n->agent) : -1;
    if (n->meet.round != NULL && n->meet.round->nnodes > 1)
        rows = cJSON_Duplicate(n->run.sample.stacks, true);
    store_link_send(n->meet.link, message_encode_stopped(&(struct message_stopped){
                                      .unkillable = agent_is_stuck(n->agent),
                                      .max_code = agent_max_code(n->agent),
                                      .rank0_code = rank0 >= 0 ? rank0 : MESSAGE_NONE,
                                      .stacks = rows,
                                      .round = MESSAGE_NONE }));
}

/* Report to the store that this node leaves the job. After a stop by the user, add the signal, and its sender if known.
 * After the loss of a host, add the finding about the lost host. */
static void send_leave(struct node *n)
{
    const int signal = agent_stop_signal(n->agent);
    struct buf by = { 0 };
    if (n->run.stop_asked_ms == 0)
        n->run.stop_asked_ms = clock_ms();
    if (node_has_lost_host(n))
        store_link_send(n->meet.link, encode_leave(0, n->run.cause.words, n->run.cause.code));
    else if (signal != 0 && signal_sender_text(&n->stop_received, &by) && buf_append(&by, "", 1))
        store_link_send(n->meet.link, encode_leave(signal, (const char *)by.data, ""));
    else
        store_link_send(n->meet.link, encode_leave(signal, "", ""));
    buf_free(&by);
}

/* Describe an attempt that failed on another node. The clocks of two machines may differ. So the time of the failure is
 * the start of the attempt on this node plus the duration after_ms, which the store has sent. */
static void note_elsewhere(const struct node *n, struct failed_attempt *a)
{
    a->failure = n->run.cause;
    a->verdict = n->run.cause.error != 0 ? WORKER_NOT_STARTED : WORKER_FAILED;
    a->worker_started_ms = n->run.attempt_started_ms;
    a->failed_ms = n->run.attempt_started_ms + n->run.cause.after_ms;
}

/* Describe an attempt that failed here. The text is formatted now, because the next attempt drops the evidence. */
static void note_here(const struct node *n, struct failed_attempt *a)
{
    const struct agent_worker *w = agent_worker(n->agent, agent_first_failure(n->agent));
    const struct report r = report_now(n);
    (void)cause_failure(&r, &a->failure);
    a->verdict = w->verdict;
    a->worker_started_ms = w->started_ms;
    a->failed_ms = w->ended_ms;
}

/* Record the failed attempt for the final report. Several effects call this function for one attempt; only the first
 * call records the attempt. An attempt that ended because the job restarts with more nodes has not failed. */
static void note_failed(struct node *n)
{
    struct failed_attempt a = { .attempt = agent_attempt(n->agent),
                                .started_ms = n->run.attempt_started_ms,
                                .ended_ms = clock_ms(),
                                .step = n->run.step };
    const bool elsewhere = node_cause_is_elsewhere(n);
    const size_t count = n->run.failed.len / sizeof(a);
    const struct failed_attempt *all = (const struct failed_attempt *)n->run.failed.data;
    if (count > 0 && all[count - 1].attempt == a.attempt)
        return;
    if (elsewhere && failure_code(&n->run.cause) != 0)
        note_elsewhere(n, &a);
    else if (!elsewhere && agent_first_failure(n->agent) >= 0)
        note_here(n, &a);
    else
        return;
    buf_append(&n->run.failed, &a, sizeof(a));
}

/* Print why the job restarts. The reason is the failed attempt if note_failed() records one, otherwise `run.cause`. */
static void print_restart(struct node *n)
{
    const size_t before = n->run.failed.len;
    note_failed(n);
    if (n->run.failed.len > before)
        node_keep_flights(n);
    if (n->run.failed.len > before)
        announce_restart(&n->out.announce, n->agent,
                         (const struct failed_attempt *)(n->run.failed.data + before), n->meet.next_attempt);
    else
        announce_again(&n->out.announce, &n->run.cause);
}

/* Print why the agent still waits: other workers have lost the connection to worker `local_rank`, and the kernel is
 * still cleaning up this worker. */
static void print_dying(struct node *n, int local_rank)
{
    output_note(n->out.output,
                "rank %d (pid %d) is ending and has lost its connections to other ranks; waiting at most %d "
                "s while the kernel frees its memory or writes its core file",
                node_rank(n, local_rank), agent_worker(n->agent, local_rank)->pid, AGENT_DYING_MS / 1000);
}

/* Print which nodes this node waits for. If the agent is not done, first ask the store for these nodes, and print the
 * nodes when the answer arrives. */
static void print_waiting_nodes(struct node *n)
{
    n->meet.waiting_asked = agent_state(n->agent) != AGENT_DONE && store_link_ask_status(n->meet.link);
    if (!n->meet.waiting_asked)
        announce_waiting_for_end(&n->out.announce, n->meet.unfinished, n->agent);
}

/* Bind a socket to a new port without listening, so that the port stays free for the store of rank 0. Close the socket
 * of the previous port. Port 0 in the plan means that this node offers no port. */
void node_offer_port(struct node *n)
{
    int port = 0;
    if (n->meet.held_port >= 0)
        close(n->meet.held_port);
    n->meet.held_port = n->plan->rank0_store ? port_hold(&port) : -1;
    if (n->plan->rank0_store && n->meet.held_port < 0)
        output_note(
            n->out.output,
            "warning: cannot reserve a port for the workers' store on rank 0: %s; the workers use ddprun's "
            "store",
            strerror(errno));
    plan_offer_port(n->plan, port);
}

/* --- the effects -------------------------------------------------------------------------------------------- */

/* One turn of the event loop carries out only some effects, so that a start of many workers does not block other
 * events. */

enum {
    EFFECTS_PER_TURN = 32,
    /* limit for reading the workers' pipes, which a process outside the job may hold open */
    DRAIN_MS = 1000,
    STUCK_DRAIN_MS = 200, /* limit in place of DRAIN_MS, if a process or a disk hangs */
    KILL_SLICE_MS = 50,   /* limit for killing leftovers in one iteration of the event loop */
    UNREAD_MS = 2000      /* after a stop by the user: how long to wait for a slow reader of the output */
};

/* Start a worker, and pass the result to the agent as an event. */
static void spawn(struct node *n, int local_rank)
{
    pid_t pid = 0;
    int error = spawner_start(&n->run.spawner, local_rank, &pid);
    if (error != 0) {
        evidence_not_started(n->run.evidence, local_rank);
        node_handle_event(
            n, (struct agent_event){ .type = AGENT_SPAWN_FAILED, .local_rank = local_rank, .error = error });
        announce_worker_ended(&n->out.announce, local_rank, agent_worker(n->agent, local_rank));
        return;
    }
    exits_watch(&n->run.exits, pid);
    n->run.pids[local_rank] = pid;
    n->run.asked[local_rank] = false;
    n->run.alone = false;
    /* the user has suspended the job, and this worker has missed the SIGSTOP */
    if (n->run.resting)
        kill(pid, SIGSTOP);
    pid = contain_shown_pid(n->run.contain, pid); /* from here on the pid is only displayed */
    store_link_mention(n->meet.link,
                       encode_started(node_rank(n, local_rank), n->plan->workers[local_rank].local_rank, pid,
                                      n->plan->facts->host));
    announce_worker_started(&n->out.announce, local_rank, pid);
    node_handle_event(n, (struct agent_event){ .type = AGENT_SPAWNED, .local_rank = local_rank, .pid = pid });
}

/* Send a signal to all descendants, which are mostly leftovers (see agent.h). For SIGKILL, descendants_kill_all() also
 * reaps the children. This would lose the exit status of a worker, so descendants_kill_all() is called only after all
 * workers were collected. If a descendant survives, the agent requests SIGKILL again. */
static void signal_rest(struct node *n, int sig)
{
    node_end_dumps(n);
    if (!n->run.alone && sig == SIGKILL)
        contain_kill(n->run.contain);
    if (!n->run.alone && sig == SIGKILL && !node_has_workers(n))
        n->run.alone = descendants_kill_all(KILL_SLICE_MS);
    else if (!n->run.alone)
        descendants_signal(sig);
    if (!n->run.alone)
        return;
    node_close_dumps(n); /* descendants_kill_all() may have reaped the helpers of dumps */
    node_handle_event(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* Keep the rows of the stack dump for the report. The next iteration of the event loop carries out the effects that
 * have waited for the dump. */
static void on_sampled(struct node *n, struct stacks *stacks, const struct stack_request *request)
{
    (void)request;
    n->run.sample.stacks = stacks->rows;
    stacks->rows = NULL;
    n->run.holds = false;
    if (!n->ended)
        uv_idle_start(&n->more, on_more);
}

/* Start a dump of the stacks of the surviving workers. The effects that signal the workers stay in the queue until the
 * dump is complete. */
static void sample(struct node *n)
{
    node_end_dumps(n);
    n->run.holds = true;
    if (!node_dump_stacks(n, &(struct stack_request){ .is_failure = true, .done = on_sampled }))
        n->run.holds = false;
}

/* Begin the last phase: collect everything that the report needs, and read the last lines of the workers. All processes
 * are already gone, or cannot be killed. node_on_output_idle() prints the report after the last lines. If a process or
 * a disk hangs, wait only STUCK_DRAIN_MS for these lines. */
static void begin_to_finish(struct node *n, int exit_code)
{
    n->out.finishing = true;
    n->exit_code = exit_code;
    note_failed(n);
    if (exit_code != 0)
        node_keep_flights(n);
    if (agent_stop_signal(n->agent) != 0 || n->stop_memory.at_ms != 0)
        n->out.unread_deadline_ms = clock_ms() + UNREAD_MS;
    if (agent_is_stuck(n->agent))
        n->run.n_stuck = stuck_find(n->run.stuck, n->run.pids, n->plan);
    for (size_t i = 0; i < n->run.n_stuck; i++)
        n->run.stuck[i].pid = contain_shown_pid(n->run.contain, n->run.stuck[i].pid);
    output_finish(n->out.output, n->exit_code == 0);
    const bool stuck = agent_is_stuck(n->agent) || disk_hangs(DISK_HUNG_MS, NULL);
    output_drain(n->out.output, stuck ? STUCK_DRAIN_MS : DRAIN_MS);
}

/* Send a signal to the process group of a worker. Set `asked` only if the worker still runs, because a worker that has
 * already ended did not end because of this signal. */
static void signal_worker(struct node *n, int local_rank, int sig)
{
    const pid_t pid = n->run.pids[local_rank];
    siginfo_t end = { 0 };
    if (pid == 0)
        return;
    /* WNOWAIT leaves the exit status for wait4 */
    if (waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0)
        n->run.asked[local_rank] = true;
    kill(-pid, sig);
}

/* Carry out one effect. If the agent expects a result, pass the result to the agent as an event, at once or later. */
static void carry_out(struct node *n, struct agent_effect effect)
{
    switch (effect.type) {
    case EFFECT_SPAWN:
        spawn(n, effect.local_rank);
        break;
    case EFFECT_SAMPLE:
        sample(n);
        break;
    case EFFECT_SIGNAL:
        signal_worker(n, effect.local_rank, effect.signal);
        break;
    case EFFECT_SIGNAL_REST:
        signal_rest(n, effect.signal);
        break;
    case EFFECT_DRAIN: /* node_on_output_idle() then passes AGENT_DRAINED to the agent */
        output_drain(n->out.output, DRAIN_MS);
        break;
    case EFFECT_FINISH:
        begin_to_finish(n, effect.exit_code);
        break;
    case EFFECT_REPORT_FAILED:
        send_failed(n);
        break;
    case EFFECT_REPORT_EXITED:
        send_exited(n, effect.local_rank);
        break;
    case EFFECT_REPORT_CAUSE:
        send_cause(n);
        break;
    case EFFECT_REPORT_STOPPED:
        send_stopped(n);
        break;
    case EFFECT_REPORT_DONE:
        store_link_send(n->meet.link, message_encode_done(&(struct message_done){ .round = MESSAGE_NONE }));
        break;
    case EFFECT_LEAVE:
        send_leave(n);
        break;
    case EFFECT_JOIN:
        node_offer_port(n);
        store_link_join(n->meet.link);
        break;
    case EFFECT_PRINT_DYING:
        print_dying(n, effect.local_rank);
        break;
    case EFFECT_PRINT_WAITING:
        print_waiting_nodes(n);
        break;
    case EFFECT_PRINT_RESTART:
        print_restart(n);
        break;
    }
}

/* Take the next effect out of the queue. Return false if the queue is empty, or if the effects wait for a stack dump or
 * a probe. The effect is copied, because carry_out() may append effects and so move the queue in memory. */
static bool next_effect(struct node *n, struct agent_effect *effect)
{
    if (n->run.holds)
        return false;
    if (n->done * sizeof(*effect) == n->effects.len) {
        n->done = n->effects.len = 0;
        return false;
    }
    memcpy(effect, n->effects.data + n->done++ * sizeof(*effect), sizeof(*effect));
    return true;
}

/* Continue the work in a new iteration of the event loop: collect ended children, then carry out more effects. */
static void on_more(uv_idle_t *idle)
{
    struct node *n = idle->data;
    if (n->run.reap)
        reap_children(n);
    node_run_effects(n);
}

/* Carry out some effects. Between two calls the loop reads pipes and handles signals. Otherwise the start of 256
 * workers would block the loop for 0.1 s. */
void node_run_effects(struct node *n)
{
    struct agent_effect effect;
    for (int i = 0; i < EFFECTS_PER_TURN && !n->ended && next_effect(n, &effect); i++)
        carry_out(n, effect);
    if (n->ended)
        return;
    node_set_timer(n);
    if ((n->effects.len > 0 && !n->run.holds) || n->run.reap)
        uv_idle_start(&n->more, on_more);
    else
        uv_idle_stop(&n->more);
}

/* --- the end ------------------------------------------------------------------------------------------------ */

/* Print the report of the job. */
static void report(struct node *n)
{
    const struct finding *loss = &n->meet.store_finding;
    /* a job that has succeeded did not hang: ignore a finding about a hang, even if no progress followed the
     * finding */
    const bool is_ok = agent_exit_code(n->agent) == 0 && agent_stop_signal(n->agent) == 0;
    const bool hangs = n->run.hang.code != FINDING_NONE && !is_ok;
    struct report r = {
        .plan = n->plan,
        .agent = n->agent,
        .started_ms = n->started_ms,
        .stop = agent_stop_signal(n->agent) != 0 && !node_has_lost_host(n) ? &n->stop_received : NULL,
        .path = plan_user_value(n->plan, "PATH"),
        .elsewhere = node_cause_is_elsewhere(n) ? &n->run.cause : NULL,
        .failed = (const struct failed_attempt *)n->run.failed.data,
        .n_failed = n->run.failed.len / sizeof(struct failed_attempt),
        .best_step = n->run.best_step,
        .store = { .how = agent_lost_store(n->agent) ? n->meet.store_lost : NULL,
                   .lost_ms = n->meet.store_lost_ms,
                   .node = n->meet.store_node,
                   .advice = loss->advice,
                   .code = loss->code != FINDING_NONE ? finding_code_name(loss->code) : "" },
        .hang = hangs ? &n->run.hang : NULL,
        .gpus = n->run.busy_gpus,
        .n_gpus = hangs ? n->run.n_busy_gpus : 0,
        .gpu_answer = n->run.has_gpu_answer ? &n->run.gpu_answer : NULL,
        .left = { n->run.left_subject, n->run.left_waiting, n->run.left_code },
        .stuck = n->run.stuck,
        .n_stuck = n->run.n_stuck,
        .explain = log_hint_is_due(),
        .stacks = n->run.sample.stacks,
        .flights = n->out.kept_flights ? plan_flight(n->plan) : NULL,
    };
    final_report(&r, n->out.output, n->run.evidence, n->run.spawner.failed);
}

/* Close the sources of signals. All signals stay blocked, so that no signal can end this process before the report is
 * printed. */
static void close_signals(struct node *n)
{
    uv_close((uv_handle_t *)&n->lifeline, NULL);
    uv_close((uv_handle_t *)&n->signals, NULL);
    uv_close((uv_handle_t *)&n->out.status_timer, NULL);
    close(n->signal_fd);
}

/* Close the handles whose callbacks could start new work, then print the report. Close the output last, because the
 * report is printed through the output. The structs are freed in close_node(), after the close callbacks. */
void node_finish(struct node *n, int exit_code)
{
    if (n->ended)
        return;
    n->ended = true;
    n->exit_code = exit_code;
    node_close_dumps(n);
    end_probe(n);
    announce_end(&n->out.announce, exit_code, exit_code != 0 ? n->run.cause.words : "");
    close_signals(n);
    uv_close((uv_handle_t *)&n->timer, NULL);
    uv_close((uv_handle_t *)&n->more, NULL);
    uv_close((uv_handle_t *)&n->meet.waiting_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.lookup_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.port_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.missing_timer, NULL);
    uv_close((uv_handle_t *)&n->meet.refusing_timer, NULL);
    if (n->meet.has_news_socket)
        uv_close((uv_handle_t *)&n->meet.news_poll, NULL);
    n->meet.has_news_socket = false;
    store_host_close(n->meet.host);
    join_dial_close(n->meet.dial);
    input_close(n->out.input);
    file_timer_close(n->run.file_timer);
    store_link_close(n->meet.link);
    tls_relay_close(n->meet.relay);
    if (n->agent != NULL && agent_state(n->agent) == AGENT_DONE)
        report(n);
    /* close the output last, because the report is printed through the output */
    output_close(n->out.output);
}

/* End without writing the pending output, because the user has requested a stop and must not wait for a slow reader. */
void node_leave_output(struct node *n)
{
    log_warn("output of the workers is lost: the reader is too slow, and the user requested a stop");
    node_finish(n, n->exit_code);
}
