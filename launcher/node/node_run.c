/* node_run.c -- see node_core.h and node_run.h.
 *
 * Happy path: store and link -> a round -> AGENT_START -> WISH_SPAWN ... -> SIGCHLD -> AGENT_EXITED ... ->
 * AGENT_ALONE -> the verdict -> WISH_FINISH -> the output is drained -> report -> exit code. */
#include "node/node_core.h"

#include "node/aside.h"
#include "node/node_run.h"
#include "output/log_files.h"
#include "tables/exit_codes.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>

enum { LOG_DIR_MS = 8000, LINGER_MS = 5000, LINGER_STOPPED_MS = 2000, LINGER_REFUSED_MS = 3000 };

/* All output of an attempt is written: of the last one, or of one that may be followed by another. */
static void on_output_idle(void *user)
{
    struct node *n = user;
    if (n->finishing) {
        node_finish(n, n->exit_code);
    } else {
        node_feed(n, (struct agent_event){ .type = AGENT_DRAINED });
        node_pump(n);
    }
}

/* Before the output is there, or after it has gone, to stderr. */
static void on_event_log_trouble(void *user, const char *words)
{
    struct node *n = user;
    if (n->output != NULL && !n->ended)
        output_note(n->output, "%s", words);
    else
        log_info("%s", words);
}

/* Signals first: from here on a stop of the user is heard, even before there is anything to stop. */
static bool init_handles(struct node *n, int lifeline)
{
    if (!node_watch_signals(n, lifeline))
        return false;
    uv_timer_init(&n->loop, &n->timer);
    uv_timer_init(&n->loop, &n->waiting_timer);
    uv_timer_init(&n->loop, &n->vouch_timer);
    uv_timer_init(&n->loop, &n->port_timer);
    uv_timer_init(&n->loop, &n->missing_timer);
    uv_idle_init(&n->loop, &n->more);
    n->timer.data = n->waiting_timer.data = n->vouch_timer.data = n->port_timer.data = n->missing_timer.data =
        n->more.data = n;
    return true;
}

/* The agent is pure and knows no command line: what it needs of that is copied. A log of events wants the store's verdict,
 * too. */
static struct agent_options agent_options_of(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    const uint64_t loss_ms = plan->meeting.node_timeout_ms + AGENT_DOUBT_MS;
    return (struct agent_options){ .nproc = plan->nproc,
                                   .grace_ms = cli->grace_ms,
                                   .doubt_ms = plan->meeting.nnodes_max > 1 ? loss_ms : 0,
                                   .linger_ms = cli->exit_barrier_ms,
                                   .exit_policy = cli->exit_policy,
                                   .max_restarts = cli->max_restarts,
                                   .alone = !plan->meeting.elsewhere && cli->events == NULL };
}

/* One turn of the loop sees the connection, the next one writes. The store's thread then reads the greeting and
 * answers while this one makes ready. */
static void send_greeting(struct node *n)
{
    for (int turn = 0; turn < 2 && !n->ended; turn++)
        uv_run(&n->loop, UV_RUN_NOWAIT);
}

/* Where the rendezvous can change nothing, the first attempt is made ready while the store answers. */
static ddp_status make_ready(struct node *n, struct ddp_err *err)
{
    const struct plan_round first = plan_same_round(n->plan, 0);
    if (!n->plan->settled)
        return DDP_OK;
    ddp_status status = node_begin_attempt(n, &first, err);
    if (status == DDP_OK)
        node_begin_prepared(n);
    return status;
}

/* What the thread that makes the log directory needs. It may outlive the node and the plan. */
struct log_dir_work {
    char *root;
    bool latest;
    struct ddp_err err;
    ddp_status status;
};

static void log_dir_run(void *user)
{
    struct log_dir_work *work = user;
    work->status = logdir_make(work->root, work->latest, &work->err);
}

static void log_dir_free(void *user)
{
    struct log_dir_work *work = user;
    free(work->root);
    free(work);
}

/* The first touch of the log directory is where a file system that does not answer shows. */
static ddp_status make_log_dir(const struct plan *plan, struct ddp_err *err)
{
    if (plan->log_root == NULL)
        return DDP_OK;
    struct log_dir_work *work = calloc(1, sizeof(*work));
    char *root = strdup(plan->log_root);
    if (work == NULL || root == NULL) {
        free(work);
        free(root);
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for the log directory");
    }
    *work = (struct log_dir_work){ .root = root, .latest = plan->cli->log_dir != NULL };
    if (!aside_run(&(struct aside){ log_dir_run, log_dir_free, work }, LOG_DIR_MS))
        return ddp_fail(
            err, DDP_ERR_IO,
            "cannot make the log directory %s: the file system has not answered for %d s; check the "
            "file system or give another --log_dir",
            plan->log_root, LOG_DIR_MS / 1000);
    const ddp_status status = work->status;
    if (err != NULL && status != DDP_OK)
        *err = work->err;
    log_dir_free(work);
    return status;
}

/* Files and directories of the user first: what is wrong with them is said before a port is taken. Then the
 * store, whose thread begins on another processor while this one goes on. What was opened is closed by
 * node_finish(), also when a later step fails. */
static ddp_status open_node(struct node *n, struct ddp_err *err)
{
    const struct agent_options options = agent_options_of(n->plan);
    const struct output_options output = {
        .loop = &n->loop, .plan = n->plan, .started_ms = n->started_ms, .idle = on_output_idle, .user = n
    };
    n->pids = calloc((size_t)n->plan->nproc, sizeof(*n->pids));
    n->asked = calloc((size_t)n->plan->nproc, sizeof(*n->asked));
    n->known = calloc((size_t)n->plan->nproc, sizeof(*n->known));
    n->steps = calloc((size_t)n->plan->nproc, sizeof(*n->steps));
    n->agent = agent_new(&options);
    if (n->pids == NULL || n->asked == NULL || n->known == NULL || n->steps == NULL || n->agent == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d workers", n->plan->nproc);
    ddp_status status = spawner_init(&n->spawner, n->plan, err);
    if (status == DDP_OK)
        status = make_log_dir(n->plan, err);
    if (status == DDP_OK)
        status = output_new(&output, &n->output, err);
    if (status == DDP_OK)
        status = input_new(&n->loop, n->plan, n->guardian, &n->input, err);
    if (status == DDP_OK)
        status = node_open_timers(n, err);
    n->announce = (struct announce){ .plan = n->plan, .output = n->output, .started_ms = n->started_ms };
    if (n->plan->cli->events != NULL)
        n->announce.events = event_log_new(n->plan, on_event_log_trouble, n);
    announce_launched(&n->announce);
    n->spawner.output = n->output;
    n->spawner.contain = n->contain;
    n->spawner.input = n->input;
    n->spawner.hurry = &n->hurry;
    exits_open(&n->exits);
    if (status == DDP_OK)
        node_check_program(n);
    if (status == DDP_OK && !n->ended)
        status = node_meet(n, err);
    n->evidence = evidence_new(contain_mounts(n->contain), contain_groups(n->contain));
    if (status == DDP_OK && !n->ended)
        send_greeting(n);
    return status == DDP_OK && !n->ended ? make_ready(n, err) : status;
}

/* Other nodes may still be on their way to the verdict. They are not waited for long, least of all by a user who wants
 * the end. */
static void linger(struct node *n)
{
    if (n->store != NULL && n->refused) /* by the rules of one who came before: that one is to hear of it */
        store_server_linger(n->store, LINGER_REFUSED_MS);
    const bool others = n->round != NULL && n->round->nnodes > 1;
    if (n->store != NULL && (others || n->waiting.joined > 1))
        store_server_linger(n->store, agent_stop_signal(n->agent) != 0 ? LINGER_STOPPED_MS : LINGER_MS);
}

/* The loop first: node_finish() has closed all handles, and what their callbacks used is freed behind them. The store's
 * thread ends meanwhile. Only when nobody is left may the control group go. */
static void close_node(struct node *n)
{
    uv_loop_close(&n->loop);
    if (n->held_port >= 0)
        close(n->held_port);
    input_free(n->input);
    linger(n);
    store_server_begin_stop(n->store);
    agent_free(n->agent);
    evidence_free(n->evidence);
    event_log_close(n->announce.events);
    if (n->alone)
        contain_leave(n->contain);
    buf_free(&n->wishes);
    buf_free(&n->failed);
    free(n->round);
    free(n->pids);
    free(n->asked);
    free(n->known);
    free(n->steps);
    rank_pages_close(&n->pages);
    vouch_free(&n->vouch);
    spawner_close(&n->spawner);
    exits_close(&n->exits);
    store_server_stop(n->store);
}

/* On the stack, since this process does nothing else and returns the exit code. Whatever fails once there is a
 * loop, it runs until all handles are closed: there is one way out. */
int node_run(void *arg, int lifeline)
{
    const struct node_job *job = arg;
    struct ddp_err err;
    struct node n = { .plan = job->plan,
                      .contain = job->contain,
                      .started_ms = clock_ms(),
                      .gathers_ms = clock_ms(),
                      .on_timer = node_on_timer,
                      .exits.epoll = -1,
                      .alone = true,
                      .held_port = -1,
                      .step = -1,
                      .best_step = -1,
                      .store_deadline_ms = UINT64_MAX,
                      .unread_deadline_ms = UINT64_MAX };
    if (uv_loop_init(&n.loop) != 0 || !init_handles(&n, lifeline)) {
        log_error("cannot make an event loop: out of descriptors or memory");
        return EXIT_CODE_DDPRUN;
    }
    if (open_node(&n, &err) != DDP_OK) {
        log_error("%s", err.msg);
        node_finish(&n, EXIT_CODE_DDPRUN);
    }
    uv_run(&n.loop, UV_RUN_DEFAULT);
    close_node(&n);
    return n.exit_code;
}
