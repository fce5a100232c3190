/* node_run.c -- see node_core.h and node_run.h.
 *
 * Happy path: store and link -> node_on_ready -> AGENT_START -> WISH_SPAWN ... -> SIGCHLD -> AGENT_EXITED ... ->
 * AGENT_ALONE -> WISH_FINISH -> the output is drained -> report -> exit code. */
#include "node/node_core.h"

#include "node/node_run.h"
#include "output/logdir.h"
#include "tables/exit_codes.h"

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/log.h"

#include <stdlib.h>

/* Only when an attempt has failed: whether it came further than the one before decides about the next. */
static void ask_progress(struct node *n)
{
    node_expect_answer(n);
    store_link_ask_progress(n->link);
}

/* All output of an attempt is written: of the last one, or of one that may be followed by another. */
static void on_output_idle(void *user)
{
    struct node *n = user;
    if (n->finishing)
        node_finish(n, n->exit_code);
    else if (n->store_lost)
        node_on_progress(n, -1);
    else
        ask_progress(n);
}

/* Signals first: from here on a stop of the user is heard, even before there is anything to stop. */
static bool init_handles(struct node *n, int lifeline)
{
    if (!node_watch_signals(n, lifeline))
        return false;
    uv_timer_init(&n->loop, &n->timer);
    uv_idle_init(&n->loop, &n->more);
    n->timer.data = n->more.data = n;
    return true;
}

/* The agent is a client of its own store, over TCP like everybody: with the store on another host
 * nothing changes here. */
static ddp_status connect_store(struct node *n, struct ddp_err *err)
{
    struct endpoint store;
    ddp_status status = endpoint_parse(store_server_address(n->store), 0, &store, err);
    if (status != DDP_OK)
        return status;
    const struct store_link_options options = { .loop = &n->loop,
                                                .address = store.host,
                                                .port = store.port,
                                                .job = n->plan->job,
                                                .host = n->plan->facts->host,
                                                .world_size = n->plan->world_size,
                                                .ready = node_on_ready,
                                                .lost = node_on_lost,
                                                .status = node_on_status,
                                                .progress = node_on_progress,
                                                .left_waiting = node_on_left_waiting,
                                                .user = n };
    node_expect_answer(n);
    return store_link_open(&options, &n->link, err);
}

/* The agent is pure and knows no command line: what it needs of that is copied. */
static struct agent_options agent_options_of(const struct plan *plan)
{
    const struct cli *cli = plan->cli;
    return (struct agent_options){ .nproc = plan->nproc,
                                   .grace_ms = cli->grace_ms,
                                   .exit_policy = cli->exit_policy,
                                   .max_restarts = cli->max_restarts,
                                   .backoff_ms = cli->backoff_ms,
                                   .backoff_cap_ms = cli->backoff_cap_ms,
                                   .max_no_progress = cli->max_no_progress };
}

/* One turn of the loop sees the connection, the next one writes. The store's thread then reads the greeting and
 * answers while this one makes ready. */
static void send_greeting(struct node *n)
{
    for (int turn = 0; turn < 2 && !n->ended; turn++)
        uv_run(&n->loop, UV_RUN_NOWAIT);
}

/* For the first attempt. An answer that came already was only noted. */
static ddp_status make_ready(struct node *n, struct ddp_err *err)
{
    ddp_status status = node_begin_attempt(n, 0, err);
    n->prepared = true;
    if (status == DDP_OK && n->store_ready)
        node_on_ready(n);
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
    n->agent = agent_new(&options);
    if (n->pids == NULL || n->asked == NULL || n->agent == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d workers", n->plan->nproc);
    ddp_status status = spawner_init(&n->spawner, n->plan, err);
    if (status == DDP_OK)
        status = logdir_make(n->plan, err);
    if (status == DDP_OK)
        status = output_new(&output, &n->output, err);
    if (status == DDP_OK)
        status = input_new(&n->loop, n->plan, n->guardian, &n->input, err);
    n->announce = (struct announce){ .plan = n->plan, .output = n->output, .started_ms = n->started_ms };
    n->spawner.output = n->output;
    n->spawner.contain = n->contain;
    n->spawner.input = n->input;
    exits_open(&n->exits);
    if (status == DDP_OK)
        status = store_host_start(n->plan, &n->store, n->port_note, err);
    if (status == DDP_OK)
        status = connect_store(n, err);
    n->evidence = evidence_new(contain_mounts(n->contain));
    if (status == DDP_OK)
        send_greeting(n);
    return status == DDP_OK && !n->ended ? make_ready(n, err) : status;
}

/* The loop first: node_finish() has closed all handles, and what their callbacks used is freed behind them. Only
 * when nobody is left may the control group go. */
static void close_node(struct node *n)
{
    uv_loop_close(&n->loop);
    input_free(n->input);
    store_server_stop(n->store);
    agent_free(n->agent);
    evidence_free(n->evidence);
    if (n->alone)
        contain_leave(n->contain);
    buf_free(&n->wishes);
    buf_free(&n->attempt_words);
    free(n->pids);
    free(n->asked);
    spawner_close(&n->spawner);
    exits_close(&n->exits);
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
                      .on_timer = node_on_timer,
                      .exits.epoll = -1,
                      .alone = true,
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
