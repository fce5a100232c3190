/* store_events.c -- turns messages from the store into events for the agent. It also fills in heartbeats, finds the
 * owners of connections and the stacks that the store requests, and watches the port of rank 0. All functions run in
 * the loop, so none may block. */
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/timed_call.h"
#include "contain/contain.h"
#include "contain/descendants.h"
#include "contain/procfs.h"
#include "node/node.h"
#include "output/log_files.h"
#include "report/cause.h"
#include "report/host_checks.h"
#include "server/listen.h"
#include "base/exit_codes.h"
#include "node/effects.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Read the kernel function in which a process sleeps. The kernel prints "0" for a running process, and also if this
 * user has no permission to read the function. */
static void read_wchan(pid_t pid, struct heartbeat_sample *sample)
{
    if (sample->state != 'R')
        procfs_line(pid, "wchan", sample->where, sizeof(sample->where));
    if (strcmp(sample->where, "0") == 0)
        sample->where[0] = '\0';
}

/* Return a sample of a process. The state 0 means that the process is gone. */
static struct heartbeat_sample sample_process(pid_t pid)
{
    struct heartbeat_sample sample = { .at_us = clock_us() };
    struct proc_stat stat;
    if (!procfs_stat(pid, &stat))
        return sample;
    sample.state = stat.state;
    sample.cpu_ticks = stat.cpu_ticks;
    read_wchan(pid, &sample);
    return sample;
}

/* Return a sample of a worker. If the worker is a script that waits for its program, return a sample of the program,
 * and set *pid to the pid of the program. */
static struct heartbeat_sample sample_worker(pid_t *pid)
{
    const struct heartbeat_sample sample = sample_process(*pid);
    if (strcmp(sample.where, "do_wait") != 0)
        return sample;
    *pid = descendants_program(*pid);
    return sample_process(*pid);
}

/* Append the error of a worker's latest traceback to the heartbeat. Append "" if the worker has made progress since
 * this error. */
static void add_error(struct progress_rank *r, int local_rank, cJSON *errors)
{
    cJSON *row = cJSON_CreateArray();
    json_append(row, cJSON_CreateNumber(local_rank));
    json_append(row, cJSON_CreateString(r->error));
    json_append(errors, row);
    r->has_news = false;
}

/* Add two things to the heartbeat: how long ago the last sign of progress was, and the new errors. The store gets a
 * duration, because the clocks of two machines may differ. */
static void add_progress(struct node *n, struct message_heartbeat *beat)
{
    struct progress *p = &n->out.progress;
    const uint64_t now_ms = clock_ms();
    if (p->moved_ms != n->out.moved_ms && p->moved_ms != 0)
        beat->moved_ms = (int64_t)(now_ms - p->moved_ms);
    n->out.moved_ms = p->moved_ms;
    for (int i = 0; p->ranks != NULL && i < p->n; i++) {
        if (!p->ranks[i].has_news)
            continue;
        if (beat->errors == NULL)
            beat->errors = cJSON_CreateArray();
        add_error(&p->ranks[i], i, beat->errors);
    }
}

/* Fill in the next heartbeat. Read the state of every worker from /proc, and send only changes. While the user has
 * suspended the job, send no states, because the store would report the stopped workers as the reason for a hang. */
static void on_beat(void *user, struct message_heartbeat *beat)
{
    struct node *n = user;
    const uint64_t ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    beat->workers = cJSON_CreateArray();
    beat->steps = n->run.pages.n > 0 ? cJSON_CreateArray() : NULL;
    node_find_python(n);
    for (int i = 0; i < n->plan->nproc; i++) {
        if (n->run.pids[i] == 0 || n->run.resting)
            continue;
        pid_t pid = n->run.pids[i];
        const struct heartbeat_sample sample = sample_worker(&pid);
        const int program = pid != n->run.pids[i] ? (int)contain_shown_pid(n->run.contain, pid) : 0;
        /* a stopped worker causes a SIGCHLD, but a stopped program of a worker does not, so report the
         * program here */
        if (program != 0 && sample.state == 'T' && n->run.known[i].state != 'T')
            announce_worker_stopped(&n->out.announce, i, program, 0);
        heartbeat_compare(&n->run.known[i], i, pid, program, &sample, ticks_per_s, beat->workers);
        const struct heartbeat_step_sample step = beat_read_step(flight_shm_page(&n->run.pages, i));
        heartbeat_compare_step(&n->run.steps[i], i, n->run.pids[i], &step, beat->steps);
    }
    add_progress(n, beat);
}

/* --- owner of a connection --------------------------------------------------------------------------------- */

/* The store asks for the owner of a connection. Only the owner's node answers. */

/* A search for a process may take 100 ms, and this node sends no heartbeat during a search. So, on average, this node
 * may spend at most one tenth of its time on searches. */
enum {
    WHOSE_SHARE = 10,      /* on average, searches use at most 1/WHOSE_SHARE of the time */
    WHOSE_AT_ONCE_MS = 500 /* total time that searches may take without a pause between them */
};

/* Search all processes for the holder of a socket. Return false without a search if earlier searches have used up
 * their share of the time, which `whose_ms` (node.h) records. */
static bool find_holder(struct node *n, uint64_t inode, struct port_holder *holder)
{
    const uint64_t now_ms = clock_ms();
    if (n->meet.whose_ms < now_ms)
        n->meet.whose_ms = now_ms;
    if (n->meet.whose_ms - now_ms > WHOSE_SHARE * WHOSE_AT_ONCE_MS)
        return false;
    const bool found = port_holder_of_socket(inode, holder);
    n->meet.whose_ms += WHOSE_SHARE * (clock_ms() - now_ms);
    return found;
}

/* Find the owner of a socket among all processes of this machine, and report the owner to the store. Send nothing if
 * the process is not visible, or if the searches have used up their share of the time. */
static void send_socket_owner(struct node *n, int64_t conn, uint64_t inode)
{
    char words[256];
    struct port_holder holder;
    if (!find_holder(n, inode, &holder))
        return;
    holder.pid = contain_shown_pid(n->run.contain, holder.pid);
    holder.age_s = 0;
    store_link_send(n->meet.link,
                    encode_owner(conn, holder.pid, port_holder_words(&holder, words, sizeof(words))));
}

/* Report to the store which worker owns a connection. The message contains the pid outside the PID namespace, because
 * users need this pid. */
static void send_socket_worker(struct node *n, int64_t conn, const struct peer_process *found)
{
    store_link_send(n->meet.link,
                    encode_vouch(conn, found->rank, contain_shown_pid(n->run.contain, found->pid)));
}

/* Search /proc for the sockets of all workers and of their descendants. */
static void walk(struct node *n)
{
    size_t count = 0;
    struct peer_process *workers = calloc((size_t)n->plan->nproc, sizeof(*workers));
    for (int i = 0; workers != NULL && i < n->plan->nproc; i++)
        if (n->run.pids[i] != 0)
            workers[count++] = (struct peer_process){ .pid = n->run.pids[i], .rank = node_rank(n, i) };
    peer_lookup_walk(&n->meet.lookup, workers, count, clock_ms());
    free(workers);
}

/* Return true if a worker, or a descendant of a worker, holds the socket. */
static bool holds_socket(struct node *n, uint64_t inode)
{
    walk(n);
    return peer_lookup_knows(&n->meet.lookup, inode);
}

/* Search /proc once for the workers' sockets, and answer all questions that wait for this search. */
static void answer_all(struct node *n)
{
    struct peer_question question;
    struct peer_process found;
    bool is_found;
    walk(n);
    while (peer_lookup_next(&n->meet.lookup, &question, &is_found, &found)) {
        if (is_found)
            send_socket_worker(n, question.conn, &found);
        else if (question.any)
            send_socket_owner(n, question.conn, question.inode);
    }
}

static void on_walk(uv_timer_t *timer)
{
    answer_all(timer->data);
}

/* Keep a question until the next search of /proc. Many questions arrive together when all workers connect, and one
 * search answers all of them. */
static void put_off(struct node *n, const struct peer_question *question)
{
    const uint64_t now_ms = clock_ms(), walk_ms = peer_lookup_put_off(&n->meet.lookup, question, now_ms);
    if (walk_ms == now_ms)
        answer_all(n);
    else if (walk_ms != UINT64_MAX && !uv_is_active((uv_handle_t *)&n->meet.lookup_timer))
        uv_timer_start(&n->meet.lookup_timer, on_walk, walk_ms - now_ms, 0);
}

/* Handle the store's request for the owner of a connection. `peer` is the client's address as the store sees it: the
 * address of this node's end of the connection. If `any` is true, the store also wants an owner that is not a worker.
 * If the TLS relay has made the connection, the owner is the worker that uses the relay. */
static void on_who(void *user, int64_t conn, const char *peer, const char *store, bool any)
{
    struct node *n = user;
    struct peer_process found;
    struct socket_owner owner;
    char worker[ENDPOINT_TEXT_MAX], relay[ENDPOINT_TEXT_MAX];
    const enum tls_relay_found carried = tls_relay_find(n->meet.relay, peer, worker, relay);
    if (carried == TLS_RELAY_GONE)
        return; /* send no answer: the worker has disconnected, and a search would find only the relay */
    if (carried == TLS_RELAY_WORKER) {
        peer = worker;
        store = relay;
    }
    const enum peer_answer answer = peer_lookup_find(&n->meet.lookup, peer, store, &found, &owner);
    if (answer == PEER_FOUND) {
        send_socket_worker(n, conn, &found);
    } else if (answer == PEER_UNKNOWN) { /* the next search of /proc may find the owner */
        store_link_send(n->meet.link, encode_vouch(conn, -1, 0));
        put_off(n, &(struct peer_question){ .conn = conn, .inode = owner.inode, .any = any });
    } else if (answer == PEER_FOREIGN && any) {
        send_socket_owner(n, conn, owner.inode);
    }
}

/* --- GPUs -------------------------------------------------------------------------------------------------- */

/* At each sample of a suspected hang, the agent asks the driver which other processes use the GPUs. It sends the answer
 * with the next sample, so the loop never waits for the driver. */

enum { GPU_ANSWER_MS = 60000 }; /* longest age of an answer; an older answer is not used */

/* Send the findings about GPUs, for ddpctl and the reports of hangs. */
static void send_busy_gpus(struct node *n)
{
    for (int i = 0; i < n->run.n_busy_gpus; i++)
        store_link_send(n->meet.link, encode_notice(&n->run.busy_gpus[i]));
}

static bool has_busy_gpu(const struct node *n, const struct finding *f)
{
    for (int i = 0; i < n->run.n_busy_gpus; i++)
        if (n->run.busy_gpus[i].code == f->code && strcmp(n->run.busy_gpus[i].subject, f->subject) == 0)
            return true;
    return false;
}

/* Send the new findings, and withdraw findings that are no longer true. If the driver's answer is incomplete, keep the
 * earlier findings. The answer is incomplete if the driver could not read a GPU, for example because the GPU has
 * failed. The answer is also incomplete if the driver reports a pid that does not exist here, which may happen in a
 * container. */
static void renew_busy_gpus(struct node *n)
{
    struct finding before[GPU_FINDINGS_MAX];
    const int count = n->run.n_busy_gpus;
    if (!gpu_query_is_complete(n->run.gpu_query))
        return;
    memcpy(before, n->run.busy_gpus, sizeof(before));
    n->run.n_busy_gpus = gpu_query_findings(n->run.gpu_query, n->plan, n->run.busy_gpus);
    for (int i = 0; i < count; i++) {
        before[i].sentence[0] = '\0';
        if (!has_busy_gpu(n, &before[i]))
            store_link_send(n->meet.link, encode_notice(&before[i]));
    }
    send_busy_gpus(n);
}

void node_drop_gpu_call(struct node *n)
{
    if (n->run.gpu_call != NULL && timed_call_end(n->run.gpu_call))
        free(n->run.gpu_query);
    n->run.gpu_call = NULL;
}

/* Use the answer to the previous query, then start the next query. While the driver has not answered, start no query,
 * so that at most one thread waits. */
static void check_gpus(struct node *n)
{
    struct node_run *run = &n->run;
    if (run->gpu_call != NULL && !timed_call_has_returned(run->gpu_call))
        return;
    if (run->gpu_call != NULL && clock_ms() - run->gpu_query_ms < GPU_ANSWER_MS)
        renew_busy_gpus(n);
    node_drop_gpu_call(n);
    run->gpu_query = gpu_query_new(n->plan, true);
    run->gpu_call = run->gpu_query != NULL ? timed_call_begin(gpu_query_run, free, run->gpu_query) : NULL;
    run->gpu_query_ms = clock_ms();
    if (run->gpu_call == NULL)
        free(run->gpu_query);
}

/* --- stacks ------------------------------------------------------------------------------------------------ */

/* Send the rows of a dump to the store. The message then owns the rows. */
static void on_sampled(struct node *n, struct stacks *stacks, const struct stack_request *request)
{
    store_link_send(n->meet.link, encode_sampled(request->id, stacks->rows,
                                                 cJSON_Duplicate(request->calls, true), stacks->is_cut));
    stacks->rows = NULL;
}

/* Handle a request for the stacks of `ranks`; "" means all ranks. If no dump is possible now, the answer has no rows,
 * so that the store does not wait for this node. */
static void on_sample(void *user, int64_t id, const char *ranks, bool is_native, int64_t still_ms)
{
    struct node *n = user;
    struct rank_set set = { 0 };
    const int world = n->meet.round != NULL ? n->meet.round->world_size : 1;
    const bool some = ranks[0] != '\0' && rank_set_parse(&set, ranks, world, NULL) == DDP_OK;
    const struct stack_request request = { .ranks = some ? &set : NULL,
                                           .is_native = is_native,
                                           .with_calls = still_ms >= 0,
                                           .still_ms = still_ms,
                                           .id = id,
                                           .done = on_sampled };
    if (request.with_calls)
        check_gpus(n);
    if (!node_dump_stacks(n, &request))
        store_link_send(n->meet.link, encode_sampled(id, cJSON_CreateArray(), NULL, true));
    rank_set_free(&set);
}

/* --- the port of rank 0 ------------------------------------------------------------------------------------ */

/* Watch the port that is held for the store of rank 0.
 *
 * The held socket is bound but does not listen. So a process of another user could listen on the port before rank 0
 * does. The ranks would then connect to this process, which could attack the ranks. Therefore the port is checked until
 * a process listens. If this user owns the listener, the watch ends. If another user owns the listener, the attempt
 * ends. */

enum {
    PORT_CHECK_MS = 20,    /* time between two checks of the port; a check takes 20 us */
    QUICK_MS = 60000,      /* frequent checks end after this time, because rank 0 may never open a store */
    PORT_RECHECK_MS = 1000 /* time between two checks after QUICK_MS */
};

/* Return true if the listener belongs to another user. If ddprun runs as root, a worker may listen as any user, so a
 * worker's socket is not foreign. */
static bool is_foreign(struct node *n, const struct socket_owner *owner)
{
    return owner->uid != geteuid() && !(geteuid() == 0 && holds_socket(n, owner->inode));
}

/* Write an error message to `words`: a process of another user listens on the port for the store of rank 0. */
static void print_taken(const struct node *n, const struct socket_owner *owner, char *words, size_t size)
{
    snprintf(words, size,
             "port %d, reserved for the store of rank 0, is in use by a process of uid %u; to find this "
             "process, run 'ss -ltnp sport = :%d' as root",
             n->plan->offered_port, owner->uid, n->plan->offered_port);
}

/* Report that another user has the port. Kill rank 0, so that the end of rank 0 is the first failure. */
static void kill_rank0(struct node *n, const struct socket_owner *owner)
{
    char words[NOTE_MAX];
    print_taken(n, owner, words, sizeof(words));
    output_note(n->out.output, "error: %s", words);
    evidence_port_taken(n->run.evidence, 0, n->plan->offered_port, owner->uid);
    kill(-n->run.pids[0], SIGKILL);
}

/* Check the port of rank 0 once, if the attempt still runs. If another user listens, kill rank 0. Set the timer for the
 * next check if no listener is found, or if rank 0 has no process to kill yet. */
static void on_port_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    struct socket_owner owner;
    const enum socket_state state =
        socket_listener_find(&n->meet.lookup.owners, n->plan->offered_port, geteuid(), &owner);
    if (agent_state(n->agent) != AGENT_RUNNING)
        return;
    const bool taken = state == SOCKET_OPEN && is_foreign(n, &owner);
    if (taken && n->run.pids[0] != 0) {
        kill_rank0(n, &owner);
        return;
    }
    if (state == SOCKET_OPEN && !taken)
        return;
    const bool is_early = clock_ms() - n->run.attempt_started_ms < QUICK_MS;
    uv_timer_start(timer, on_port_timer, is_early ? PORT_CHECK_MS : PORT_RECHECK_MS, 0);
}

/* Check the port that this node holds for the store of rank 0, and begin to watch it. Call this function before the
 * attempt. Return DDP_ERR_IO if another user already listens at this port. Only node 0 watches a port, because rank 0
 * runs on node 0. */
static ddp_status watch_port(struct node *n, struct ddp_err *err)
{
    struct socket_owner owner;
    char words[NOTE_MAX];
    uv_timer_stop(&n->meet.port_timer);
    if (n->meet.held_port < 0 || n->plan->rank0_port != n->plan->offered_port || n->plan->node_rank != 0)
        return DDP_OK;
    const enum socket_state state =
        socket_listener_find(&n->meet.lookup.owners, n->plan->offered_port, geteuid(), &owner);
    if (state == SOCKET_UNKNOWN) {
        output_note(n->out.output,
                    "warning: cannot check which user listens on port %d, reserved for the store of rank 0: "
                    "sock_diag does not answer",
                    n->plan->offered_port);
        return DDP_OK;
    }
    if (state == SOCKET_OPEN && is_foreign(n, &owner)) {
        print_taken(n, &owner, words, sizeof(words));
        return ddp_fail(err, DDP_ERR_IO, "%s", words);
    }
    uv_timer_start(&n->meet.port_timer, on_port_timer, PORT_CHECK_MS, 0);
    return DDP_OK;
}

/* --- the job ----------------------------------------------------------------------------------------------- */

/* The store's messages about the job become events for the agent, and text for the user.
 *
 * The round of the rendezvous assigns the ranks, and the names of log files may contain a rank. So an attempt is
 * prepared only after its round is known. A single-node job knows its ranks before the round, so its first attempt is
 * prepared earlier (make_ready in node.c).
 *
 * The link keeps the order of the store's messages. Each callback ends with node_run_effects(), so that its effects
 * precede the next message. */

/* time until the first line about missing nodes, and between further lines */
enum { WAITING_PRINT_MS = 2000, STILL_WAITING_MS = 60000 };

/* --- a round -------------------------------------------------------------------------------------------- */

/* Prepare an attempt. Set up the containment first, so that no files are left if this step fails. Close the old log
 * files before plan_round(), because plan_round() replaces their paths. Prepare the input last, because the input needs
 * the ranks that plan_round() has set. */
ddp_status node_begin_attempt(struct node *n, const struct plan_round *round, struct ddp_err *err)
{
    n->run.left_waiting[0] = '\0';
    n->run.stop_asked_ms = 0;
    n->run.hang.code = FINDING_NONE;
    n->run.cause = (struct failure){ .node_rank = -1, .rank = -1, .local_rank = -1 };
    n->run.step = -1;
    n->run.has_gpu_answer = false;
    node_begin_samples(n);
    n->run.spawner.failed = NULL;
    n->run.attempt_started_ms = clock_ms();
    progress_reset(&n->out.progress);
    n->out.moved_ms = 0;
    n->out.kept_flights = false;
    flight_shm_close(&n->run.pages);
    flight_shm_open(&n->run.pages, n->plan->nproc);
    n->plan->page = flight_shm_first(&n->run.pages);
    ddp_status status = contain_attempt(n->run.contain, err);
    evidence_attempt(n->run.evidence, contain_cgroup_fd(n->run.contain));
    output_end_attempt(n->out.output);
    if (status == DDP_OK)
        status = plan_round(n->plan, round, err);
    if (status == DDP_OK)
        status = logdir_attempt(n->plan, err);
    if (status == DDP_OK)
        status = output_begin_attempt(n->out.output, err);
    return status == DDP_OK ? input_attempt(n->out.input, err) : status;
}

/* Set the address and port of the store of rank 0, if node 0 has offered a port. Other nodes cannot use a loopback
 * address. A node 0 with a loopback address runs on the host of ddprun's store, so use master_addr, the address of this
 * store. */
static void apply_rank0_store(const struct node *n, const struct heard_round *r, struct plan_round *round)
{
    const struct heard_node *first = &r->nodes[0];
    if (r->n_nodes == 0 || first->node_rank != 0 || first->store_port == 0)
        return;
    round->rank0_port = first->store_port;
    round->rank0_addr = endpoint_is_loopback(first->addr) ? n->plan->master_addr : first->addr;
}

/* Warn if PyTorch on this node needs a store that rank 0 hosts, but node 0 does not offer such a store. */
static void warn_of_rank0_store(const struct node *n, const struct heard_round *r)
{
    const struct heard_node *first = &r->nodes[0];
    if (!n->plan->rank0_store || r->n_nodes == 0 || first->node_rank != 0 || first->store_port != 0)
        return;
    output_note(n->out.output,
                "warning: the workers of this node need PyTorch's own store, but node 0 (%s) does not start "
                "that store; these workers use ddprun's store and may fail; set --torch_store=rank0 on every "
                "node",
                first->host);
}

/* Convert a round of the store to a round of the plan. If node 0 offers a store that rank 0 hosts, include the address
 * of that store. */
static struct plan_round plan_round_of(const struct node *n, const struct heard_round *r)
{
    struct plan_round round = { .attempt = r->attempt,
                                .restarts = r->restarts,
                                .node_rank = r->node_rank,
                                .nnodes = r->nnodes,
                                .first_rank = r->first_rank,
                                .role_rank = r->role_rank,
                                .role_size = r->role_size,
                                .world_size = r->world_size };
    apply_rank0_store(n, r, &round);
    return round;
}

/* Report that this node cannot begin the attempt, and pass the failure to the agent, so that the other nodes do not
 * wait. */
static void cannot_begin(struct node *n, const struct ddp_err *err)
{
    output_note(n->out.output, "error: %s", err->msg);
    node_handle_event(n, (struct agent_event){ .type = AGENT_NOT_READY });
    node_run_effects(n);
}

/* Begin the attempt of a round. The start of the job is announced only in this node's first round. */
static void begin_round(struct node *n)
{
    struct ddp_err err;
    uv_timer_stop(&n->meet.waiting_timer);
    n->meet.waiting_due = n->meet.waiting_printed = false;
    if (watch_port(n, &err) != DDP_OK) {
        cannot_begin(n, &err);
        return;
    }
    if (n->out.announce.events != NULL)
        event_log_round(n->out.announce.events, n->meet.round->round);
    if (agent_state(n->agent) == AGENT_GATHERING && !n->meet.announced) {
        n->meet.announced = true;
        announce_job(&n->out.announce, n->meet.port_note);
    }
    node_handle_event(n, (struct agent_event){ .type = AGENT_START,
                                               .attempt = n->meet.round->attempt,
                                               .hosts = n->meet.store != NULL });
    node_run_effects(n);
}

/* Begin the prepared attempt if its round is known. The preparation may end before or after the round arrives. */
void node_begin_prepared(struct node *n)
{
    n->run.prepared = true;
    if (n->meet.round != NULL)
        begin_round(n);
}

/* Handle a round: the ranks and nodes of the next attempt. The node keeps the received round in place of the
 * earlier one. Prepare the attempt now. But in a single-node job, make_ready() prepares the first attempt, perhaps after
 * this call. */
static void on_round(void *user, struct heard_round *received)
{
    struct node *n = user;
    struct ddp_err err;
    const bool is_first = n->meet.round == NULL;
    const struct plan_round round = plan_round_of(n, received);
    node_expect_nothing(n);
    if (is_first)
        n->plan->first_nnodes = received->nnodes;
    free(n->meet.round);
    n->meet.round = received;
    if (is_first)
        warn_of_rank0_store(n, received);
    if (is_first && n->plan->settled) {
        if (n->run.prepared)
            begin_round(n);
        return;
    }
    if (node_begin_attempt(n, &round, &err) == DDP_OK)
        begin_round(n);
    else
        cannot_begin(n, &err);
}

/* --- gathering ------------------------------------------------------------------------------------------ */

/* Print which nodes are missing, and the time that remains since the store's last message. */
static void on_waiting_timer(uv_timer_t *timer)
{
    struct node *n = timer->data;
    struct heard_waiting now = n->meet.waiting;
    const int64_t since_ms = (int64_t)(clock_ms() - n->meet.waiting_received_ms);
    n->meet.waiting_due = false;
    if (agent_state(n->agent) != AGENT_GATHERING)
        return;
    if (now.left_ms >= 0)
        now.left_ms = now.left_ms > since_ms ? now.left_ms - since_ms : 0;
    n->meet.waiting_printed = true;
    announce_gathering(&n->out.announce, &now);
    uv_timer_start(timer, on_waiting_timer, STILL_WAITING_MS, 0);
}

/* Write an event of the store to the event log, if there is a log. */
static void on_event(void *user, const cJSON *event)
{
    struct node *n = user;
    char *text = n->out.announce.events != NULL ? cJSON_PrintUnformatted(event) : NULL;
    if (text != NULL)
        event_log_append_store(n->out.announce.events, slice_str(text));
    cJSON_free(text);
}

/* Handle a message about the wait for other nodes. Only changes are printed. A node that waits for the next round
 * prints nothing. Changes within WAITING_PRINT_MS are collected in one line, because 100 nodes may join at the same
 * time. */
static void on_waiting(void *user, const struct heard_waiting *waiting)
{
    struct node *n = user;
    const bool changed = strcmp(n->meet.waiting.hosts, waiting->hosts) != 0 ||
                         strcmp(n->meet.waiting.missing, waiting->missing) != 0;
    n->meet.waiting = *waiting;
    n->meet.waiting_received_ms = clock_ms();
    if (agent_state(n->agent) != AGENT_GATHERING || waiting->spare > 0 ||
        (n->meet.waiting_printed && !changed))
        return;
    if (!n->meet.waiting_due)
        uv_timer_start(&n->meet.waiting_timer, on_waiting_timer, WAITING_PRINT_MS, 0);
    n->meet.waiting_due = true;
}

/* Keep the finding about a hang, for the report. */
static void keep_hang(struct node *n, const cJSON *findings)
{
    const cJSON *row;
    cJSON_ArrayForEach(row, findings)
    {
        struct message_finding m;
        message_read_finding(row, &m);
        const enum finding_code code = finding_by_name(m.code);
        if (!finding_names_hang(code, n->run.hang.code))
            continue;
        n->run.hang = (struct finding){ .code = code };
        text_copy(n->run.hang.subject, sizeof(n->run.hang.subject), m.subject);
        text_copy(n->run.hang.sentence, sizeof(n->run.hang.sentence), m.sentence);
        text_copy(n->run.hang.advice, sizeof(n->run.hang.advice), m.advice);
    }
}

/* Print findings of the store. A message with neither text nor findings means that the hang is over. */
static void on_findings(void *user, const cJSON *push)
{
    struct node *n = user;
    struct message_findings m;
    message_read_findings(push, &m);
    n->meet.first_cause_code = decode_first_cause(push, n->meet.first_cause, sizeof(n->meet.first_cause));
    if (m.text[0] == '\0' && cJSON_GetArraySize(m.findings) == 0) {
        n->run.hang.code = FINDING_NONE;
        return;
    }
    keep_hang(n, m.findings);
    announce_findings(&n->out.announce, m.text, push);
}

/* Send this node's warnings to the other nodes. */
static void send_notices(struct node *n)
{
    struct finding found[HOST_FINDINGS_MAX];
    const int count = host_check_limits(n->plan->nproc, n->plan->facts->host, found);
    for (int i = 0; i < count; i++)
        store_link_send(n->meet.link, encode_notice(&found[i]));
}

/* Handle the answer to a join. From now on, no deadline for an answer applies, because the store itself limits the
 * wait for other nodes. */
static void on_joined(void *user, bool spare, const char *instance, uint64_t store_ms)
{
    struct node *n = user;
    node_expect_nothing(n);
    if (n->meet.round == NULL && n->plan->meeting.elsewhere)
        send_notices(n);
    if (n->meet.round == NULL)
        send_busy_gpus(n);
    /* a store in this process uses the clock of clock_ms(), so `store_ms` is not needed */
    if (n->out.announce.events != NULL)
        event_log_clock(n->out.announce.events, n->meet.store != NULL ? clock_ms() : store_ms, instance);
    if (spare && !n->plan->cli->quiet)
        output_note(n->out.output, "the job already runs; this node waits to join at the next restart");
}

/* Handle the rejection of this node by the store. Before the first round, print an error and exit. Between two
 * rounds, let the agent end this node, because the report of the last attempt must still be printed. */
static void on_refused(void *user, const char *code, const char *why, const char *advice)
{
    struct node *n = user;
    const char *semicolon = advice[0] != '\0' ? "; " : "";
    n->meet.refused = true;
    node_expect_nothing(n);
    if (n->meet.round == NULL) {
        log_error("this node cannot join the job: %s%s%s [%s]", why, semicolon, advice, code);
        log_explain(code);
        node_send_end(n, code, why);
        node_finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    output_note(n->out.output, "error: this node cannot join the next round: %s%s%s [%s]", why, semicolon,
                advice, code);
    announce_hint(&n->out.announce, code);
    node_handle_event(n, (struct agent_event){ .type = AGENT_NOT_READY });
    node_run_effects(n);
}

/* --- the end -------------------------------------------------------------------------------------------- */

/* Return the code of the store's finding about missing nodes. A timeout gets this code if no other finding explains the
 * timeout. */
static enum finding_code timeout_code(const struct node *n)
{
    if (!n->plan->meeting.elastic)
        return FINDING_NODE_MISSING;
    return n->meet.round != NULL ? FINDING_TOO_FEW_LEFT : FINDING_TOO_FEW_NODES;
}

/* Describe a timeout of the rendezvous: which nodes are missing, and the first finding that explains their absence. */
static void describe_timeout(struct node *n)
{
    const struct heard_waiting *w = &n->meet.waiting;
    struct failure *c = &n->run.cause;
    char absence[LIMIT_WORDS];
    const bool has_news = node_explain_absence(n, NULL, absence, sizeof(absence));
    const char *first = has_news ? absence : n->meet.first_cause;
    const enum finding_code cause = has_news ? finding_by_name(n->meet.news.code) : n->meet.first_cause_code;
    *c = (struct failure){ .node_rank = -1, .rank = -1, .local_rank = -1 };
    snprintf(c->why, sizeof(c->why), "timeout");
    text_copy(c->code, sizeof(c->code), finding_code_name(cause != FINDING_NONE ? cause : timeout_code(n)));
    snprintf(c->words, sizeof(c->words), "only %d of %d nodes joined within %.10g s (%s)%s%.80s%s%.300s",
             w->joined, w->min, (double)n->plan->meeting.join_ms / 1000, n->plan->meeting.join_knob,
             w->missing[0] == '\0'             ? ""
             : strchr(w->missing, ',') != NULL ? "; missing: node ranks "
                                               : "; missing: node rank ",
             w->missing, first[0] != '\0' ? "; first cause: " : "", first);
}

/* Check whether a node has left because its relay has reported a lost host. If so, set the reason to FAILURE_HOST_LOST
 * and return true. Return false for any other failure. */
static bool find_lost_host(struct failure *c)
{
    if (strcmp(c->why, "node_left") != 0 || c->rank >= 0 || c->signal != 0 || c->code[0] == '\0' ||
        strcmp(c->code, finding_code_name(FINDING_NODE_LEFT)) == 0)
        return false;
    text_copy(c->why, sizeof(c->why), FAILURE_HOST_LOST);
    return true;
}

/* Return true if a node of --hosts has left because of SIGINT. The ddprun that the user started forwards a Ctrl-C to
 * all nodes. So this node usually receives SIGINT, too, but perhaps later than the message about the other node. */
static bool is_stop_of_job(const struct node *n, const struct failure *cause)
{
    return n->meet.has_news_socket && strcmp(cause->why, "node_left") == 0 && cause->signal == SIGINT;
}

/* Set the cause of the attempt's end. A message without a reason keeps the cause of an earlier message. If the cause
 * names a host but no rank, append the latest finding that this host has sent. */
static void set_cause(struct node *n, const struct failure *cause)
{
    char absence[LIMIT_WORDS];
    if (node_has_lost_host(n) || is_stop_of_job(n, cause))
        return;
    if (cause->words[0] != '\0')
        n->run.cause = *cause;
    else if (strcmp(cause->why, "timeout") == 0)
        describe_timeout(n);
    if (find_lost_host(&n->run.cause)) {
        agent_lose_host(n->agent);
        return;
    }
    if (cause->rank < 0 && cause->words[0] != '\0' &&
        node_explain_absence(n, cause->host, absence, sizeof(absence))) {
        const size_t len = strlen(n->run.cause.words);
        snprintf(n->run.cause.words + len, sizeof(n->run.cause.words) - len, "; %s", absence);
    }
}

/* Handle the store's message that the workers must stop because of `cause`. If the cause is on this node, the agent has
 * already begun to stop. The message then only confirms that the store has the cause. */
static void on_stop(void *user, const struct failure *cause)
{
    struct node *n = user;
    const bool by_user = is_stop_of_job(n, cause);
    n->run.stop_asked_ms = clock_ms();
    set_cause(n, cause);
    /* The sender of the signal is the user, or a process on the node that `cause` names. This agent cannot distinguish
     * these two senders, so it records that node as the sender. If the same Ctrl-C arrives here later, stop_asked()
     * records the terminal as the sender instead. */
    if (by_user && agent_stop_signal(n->agent) == 0) {
        n->stop_received = (struct received_signal){ .signal = cause->signal };
        snprintf(n->stop_received.sender.name, sizeof(n->stop_received.sender.name), "node %d",
                 cause->node_rank);
    }
    if (by_user || node_cause_is_elsewhere(n)) {
        announce_remote_stop(&n->out.announce, cause);
        node_handle_event(n, (struct agent_event){ .type = AGENT_NOTIFIED,
                                                   .exit_code = failure_code(cause),
                                                   .signal = by_user ? cause->signal : 0 });
    } else {
        if (n->meet.round != NULL && n->meet.round->nnodes > 1 &&
            /* in a job of several nodes, every node prints this line, even the node of the failed rank */
            cause->rank >= 0)
            announce_remote_stop(&n->out.announce, cause);
        node_handle_event(n, (struct agent_event){ .type = AGENT_ACKNOWLEDGED });
    }
    node_run_effects(n);
}

/* Handle a verdict, which may have more facts about the cause than the earlier stop message. After a final verdict the
 * link is closed, because no further message matters. */
static void on_verdict(void *user, const struct heard_verdict *verdict)
{
    struct node *n = user;
    set_cause(n, &verdict->cause);
    n->run.step = verdict->step;
    n->run.best_step = verdict->best > n->run.best_step ? verdict->best : n->run.best_step;
    n->meet.next_attempt = verdict->attempt;
    node_add_survivors(n, verdict->stacks);
    node_handle_event(n, (struct agent_event){ .type = AGENT_VERDICT, .verdict = verdict->what });
    if (agent_state(n->agent) == AGENT_DONE) {
        store_link_close(n->meet.link);
        n->meet.link = NULL;
    }
    node_run_effects(n);
}

/* Handle a finding about a rank that left while other ranks waited. Only the first finding is kept, because later
 * findings usually have the same cause. The finding does not count as a failure, because a program may end a rank early
 * on purpose. */
static void on_left_waiting(void *user, const cJSON *push)
{
    struct node *n = user;
    struct message_findings m;
    struct message_finding first;
    if (n->run.left_waiting[0] != '\0')
        return;
    message_read_findings(push, &m);
    decode_first_finding(push, &first);
    snprintf(n->run.left_waiting, sizeof(n->run.left_waiting), "%s", first.sentence);
    snprintf(n->run.left_subject, sizeof(n->run.left_subject), "%s", first.subject);
    n->run.left_code = finding_by_name(first.code);
    announce_findings(&n->out.announce, m.text, push);
}

/* Format " on node 0 (n0)" for the node that hosts the store, or "" if the host is unknown. If several nodes have the
 * address of the store, the first of these nodes hosts the store in a job with a fixed number of nodes. In an elastic
 * job any of these nodes may host the store, so write "". */
static void name_store_node(const struct node *n, char *out, size_t size)
{
    const struct heard_node *found = NULL;
    int same = 0;
    for (int i = 0; n->meet.round != NULL && i < n->meet.round->n_nodes; i++) {
        const bool is_there = strcmp(n->meet.round->nodes[i].addr, n->plan->master_addr) == 0;
        same += is_there;
        if (is_there && found == NULL)
            found = &n->meet.round->nodes[i];
    }
    out[0] = '\0';
    if (found != NULL && (same == 1 || !n->plan->meeting.elastic))
        snprintf(out, size, " on node %d (%s)", found->node_rank, found->host);
}

/* Keep the reason why this node has lost the store, for the report. This node may have caused the loss, for example
 * because its process was stopped. In this case, keep the finding about this cause, and write its code to `code`, as
 * "  [NODE_FROZEN]". Otherwise do not change `code`. */
static void explain_loss(struct node *n, const char *why, char code[FINDING_SUBJECT_MAX])
{
    const struct link_fate *fate = store_link_fate(n->meet.link);
    const uint64_t asked_ms = n->run.stop_asked_ms;
    const struct store_loss loss = { .host = n->plan->facts->host,
                                     .node_rank = n->meet.round != NULL ? n->meet.round->node_rank : -1,
                                     .pid = getpid(),
                                     .how = why,
                                     .dropped = fate->dropped,
                                     .stood_ms = fate->stood_ms,
                                     .asked_ms = asked_ms != 0 ? clock_ms() - asked_ms : 0,
                                     .node_timeout_ms = n->plan->meeting.node_timeout_ms };
    snprintf(n->meet.store_lost, sizeof(n->meet.store_lost), "%s", why);
    n->meet.store_lost_ms = clock_ms();
    if (!store_loss_finding(&loss, &n->meet.store_finding))
        return;
    snprintf(n->meet.store_lost, sizeof(n->meet.store_lost), "%s", n->meet.store_finding.sentence);
    snprintf(code, FINDING_SUBJECT_MAX, "  [%s]", finding_code_name(n->meet.store_finding.code));
}

/* Handle the loss of the store. Print nothing if the job has ended, because the store is then no longer needed. */
void node_on_lost(void *user, const char *why)
{
    struct node *n = user;
    const enum agent_state state = agent_state(n->agent);
    char code[FINDING_SUBJECT_MAX] = "";
    node_expect_nothing(n);
    join_dial_close(n->meet.dial);
    n->meet.dial = NULL;
    if (state == AGENT_DONE)
        return;
    explain_loss(n, why, code);
    const char *hint = code[0] != '\0' ? finding_code_name(n->meet.store_finding.code) : NULL;
    if (state == AGENT_GATHERING && n->meet.round == NULL) {
        log_error("store %s:%d: cannot be used: %s%s", n->plan->master_addr, n->plan->master_port,
                  n->meet.store_lost, code);
        log_explain(hint);
        node_send_end(n, NULL, n->meet.store_lost);
        node_finish(n, EXIT_CODE_DDPRUN);
        return;
    }
    name_store_node(n, n->meet.store_node, sizeof(n->meet.store_node));
    /* With --hosts, do not print this warning: the finding about the lost host, or the report, contains the
     * reason for the loss. After a stop by the user, the loss is expected, because the stop also ends the
     * host of the store. */
    if (!n->meet.has_news_socket) {
        output_note(n->out.output, "warning: lost the store of the job at %s:%d%s: %s%s%s",
                    n->plan->master_addr, n->plan->master_port, n->meet.store_node, n->meet.store_lost,
                    state == AGENT_RUNNING || state == AGENT_SETTLING ? "; stopping the workers" : "", code);
        announce_hint(&n->out.announce, hint);
    }
    node_handle_event(n, (struct agent_event){ .type = AGENT_STORE_LOST });
    /* the loss of the store is now the cause; the lost peer was only a consequence */
    if (agent_lost_store(n->agent) && n->run.cause.rank >= 0 && n->run.cause.victim)
        n->run.cause = (struct failure){ .node_rank = -1, .rank = -1, .local_rank = -1 };
    node_run_effects(n);
}

const struct store_link_calls node_store_calls = { .round = on_round,
                                                   .waiting = on_waiting,
                                                   .stop = on_stop,
                                                   .verdict = on_verdict,
                                                   .findings = on_findings,
                                                   .joined = on_joined,
                                                   .event = on_event,
                                                   .refused = on_refused,
                                                   .beat = on_beat,
                                                   .who = on_who,
                                                   .sample = on_sample,
                                                   .status = node_on_status,
                                                   .left_waiting = on_left_waiting,
                                                   .lost = node_on_lost };

/* Handle the end of output_drain(): all output of the attempt was read and written. After EFFECT_FINISH the node
 * ends. After EFFECT_DRAIN another attempt may follow. */
void node_on_output_idle(void *user)
{
    struct node *n = user;
    if (n->out.finishing) {
        node_await_news(n);
        node_finish(n, node_has_lost_host(n) ? agent_exit_code(n->agent) : n->exit_code);
    } else {
        node_handle_event(n, (struct agent_event){ .type = AGENT_DRAINED });
        node_run_effects(n);
    }
}
