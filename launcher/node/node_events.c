/* node_events.c -- see node.h. What happened becomes an event for the core.
 *
 * It can go wrong when the store cannot be reached or does not answer in time (125, nothing was started);
 * once workers run, a lost store is a note: they will see for themselves what they need. */
#include "node/node.h"

#include "tables/exit_codes.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { STOOD_STILL_MS = 500, CATCH_UP_MS = 20, REAPED_PER_TURN = 256 };

/* Ask the core. Its wishes are copied behind those that are still waiting, because they are valid
 * until the next step only, and carrying one out may cause the next event. */
void node_feed(struct node *n, struct agent_event event)
{
    size_t count;
    event.now_ms = clock_ms();
    const struct agent_wish *wishes = agent_step(n->agent, &event, &count);
    if (!buf_append(&n->wishes, wishes, count * sizeof(*wishes)))
        abort(); /* a launcher that cannot remember what to do: the guardian cleans up */
}

/* Only output is left, somebody does not read it, and the user has told us to stop. */
void node_leave_output(struct node *n)
{
    log_warn("stopped before all output was written");
    node_finish(n, n->exit_code);
}

static void on_timer(uv_timer_t *timer);

/* Wake up at the core's deadline, or when the store has been silent for too long. */
void node_set_timer(struct node *n)
{
    uint64_t at = agent_deadline(n->agent), now = clock_ms();
    if (n->store_deadline_ms < at)
        at = n->store_deadline_ms;
    if (n->unread_deadline_ms < at)
        at = n->unread_deadline_ms;
    n->due_ms = at;
    if (at == UINT64_MAX || n->ended)
        uv_timer_stop(&n->timer);
    else
        uv_timer_start(&n->timer, on_timer, at > now ? at - now : 0, 0);
}

/* Much too late: this process stood still (stopped, or its virtual machine was). What came meanwhile, ends of workers
 * and answers of the store, is taken in before anybody is judged for being late. */
static bool stood_still(struct node *n)
{
    n->caught_up = !n->caught_up && clock_ms() > n->due_ms + STOOD_STILL_MS;
    if (n->caught_up)
        uv_timer_start(&n->timer, on_timer, CATCH_UP_MS, 0);
    return n->caught_up;
}

static void on_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    if (stood_still(n))
        return;
    if (clock_ms() >= n->store_deadline_ms) {
        node_on_lost(n, "it did not answer in time (--timeout)");
        return;
    }
    if (clock_ms() >= n->unread_deadline_ms) {
        node_leave_output(n);
        return;
    }
    node_feed(n, (struct agent_event){ .type = AGENT_TICK });
    node_pump(n);
}

static int local_rank_of(const struct node *n, pid_t pid)
{
    for (int i = 0; i < n->plan->nproc; i++)
        if (n->pids[i] == pid)
            return i;
    return -1;
}

/* A child was waited for: a worker, or an orphan that was adopted. */
static void child_ended(struct node *n, pid_t pid, int status)
{
    int local_rank = local_rank_of(n, pid);
    if (local_rank < 0)
        return;
    n->pids[local_rank] = 0;
    input_ended(n->input, local_rank);
    node_feed(n, (struct agent_event){ .type = AGENT_EXITED,
                                       .local_rank = local_rank,
                                       .pid = pid,
                                       .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                       .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                       .unasked = !n->asked[local_rank] });
    const struct agent_worker *w = agent_worker(n->agent, local_rank);
    if (w->verdict == WORKER_FAILED)
        evidence_ended(n->evidence, local_rank, pid, status);
    announce_worker_ended(&n->announce, local_rank, w);
}

/* Whom exits knows comes first, in the order of their ends. Returns how many were taken, at most `most`;
 * `n->alone` is set when no child is left. Orphans that we have adopted are taken like workers, else they
 * would stay as zombies; libuv's own process handles would leave them. */
static int reap_some(struct node *n, int most)
{
    int status, taken = 0;
    pid_t pid = 0;
    for (; taken < most && (pid = exits_next(&n->exits)) > 0; taken++)
        if (waitpid(pid, &status, WNOHANG) == pid)
            child_ended(n, pid, status);
    for (; taken < most && (pid = waitpid(-1, &status, WNOHANG)) > 0; taken++)
        child_ended(n, pid, status);
    n->alone = taken < most && pid < 0 && errno == ECHILD;
    return taken;
}

/* SIGCHLD says only that there is at least one. Processes that fork and die for ever may end as fast as we
 * take them, and the loop has other duties, to kill them for one: so there are turns. */
void node_reap(struct node *n)
{
    n->reap = reap_some(n, REAPED_PER_TURN) == REAPED_PER_TURN;
    if (n->alone)
        node_feed(n, (struct agent_event){ .type = AGENT_ALONE });
}

/* Before the first worker: a store that does not answer is the end. Later the agent decides. */
static bool is_setting_up(const struct node *n)
{
    return agent_state(n->agent) == AGENT_IDLE;
}

/* A new attempt: the old one's files are left, and the core may give the start. */
static void begin_next(struct node *n)
{
    struct ddp_err err;
    struct agent_event event = { .type = AGENT_START };
    if (node_begin_attempt(n, agent_attempt(n->agent) + 1, &err) != DDP_OK) {
        output_note(n->output, "error: %s", err.msg);
        event.type = AGENT_NOT_READY;
    }
    node_feed(n, event);
}

/* The store knows the attempt: its keys are those of this one alone. Now, and not earlier, workers may come. */
void node_on_ready(void *user)
{
    struct node *n = user;
    n->store_deadline_ms = UINT64_MAX;
    if (is_setting_up(n)) {
        announce_job(&n->announce, n->port_note);
        node_feed(n, (struct agent_event){ .type = AGENT_START });
    } else if (agent_state(n->agent) == AGENT_PREPARING) {
        begin_next(n);
    }
    node_pump(n);
}

/* Workers that run will see for themselves what they need. */
void node_on_lost(void *user, const char *why)
{
    struct node *n = user;
    n->store_lost = true;
    n->store_deadline_ms = UINT64_MAX;
    if (is_setting_up(n)) {
        log_error("cannot use the store on port %d: %s", n->plan->master_port, why);
        node_finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    output_note(n->output, "warning: lost the connection to the store: %s", why);
    if (agent_state(n->agent) == AGENT_ASKING)
        node_feed(n, (struct agent_event){ .type = AGENT_PROGRESS, .step = -1 });
    else
        node_feed(n, (struct agent_event){ .type = AGENT_NOT_READY });
    node_pump(n);
}

/* The answer of the store, or -1 when it has none to give: the core only decides when it has heard either. */
void node_on_progress(void *user, int64_t step)
{
    struct node *n = user;
    n->store_deadline_ms = UINT64_MAX;
    node_feed(n, (struct agent_event){ .type = AGENT_PROGRESS, .step = step });
    node_pump(n);
}

/* The first of them is the one to know: the others follow from the same mistake. */
void node_on_left_waiting(void *user, int rank, const char *barrier, const char *waiting)
{
    struct node *n = user;
    if (n->left_waiting[0] != '\0')
        return;
    snprintf(n->left_waiting, sizeof(n->left_waiting),
             "rank %d ended with 0 while rank%s %s waited for it at barrier '%.100s'", rank,
             strpbrk(waiting, ",-") != NULL ? "s" : "", waiting, barrier);
    output_note(n->output, "warning: %s", n->left_waiting);
}
