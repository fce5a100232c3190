/* node.c -- see node.h and node_run.h.
 *
 * Happy path: store and link -> node_on_ready -> AGENT_START -> WISH_SPAWN ... -> SIGCHLD -> AGENT_EXITED ... ->
 * AGENT_ALONE -> WISH_FINISH -> the output is drained -> report -> exit code. */
#include "node/node.h"

#include "node/final_report.h"
#include "node/node_run.h"
#include "output/logdir.h"
#include "tables/exit_codes.h"

#include "base/clock.h"
#include "base/endpoint.h"
#include "base/log.h"

#include <stdlib.h>

enum { STORE_ANSWER_MS = 60000 }; /* without --timeout */

/* Only a life that has come to its end is reported; what failed before the first worker has said so
 * already. */
static void report(struct node *n)
{
    const char *path = env_find(n->plan->facts->environ_block, "PATH");
    final_report(&(struct final_facts){ .plan = n->plan,
                                        .agent = n->agent,
                                        .output = n->output,
                                        .evidence = n->evidence,
                                        .started_ms = n->started_ms,
                                        .stop = &n->stop_heard,
                                        .program = n->spawner.failed,
                                        .attempt_words = buf_slice(&n->attempt_words),
                                        .stuck = n->stuck,
                                        .n_stuck = n->n_stuck,
                                        .left_waiting = n->left_waiting,
                                        .path = path });
}

/* Close every handle; the loop then ends by itself. */
void node_finish(struct node *n, int exit_code)
{
    if (n->ended)
        return;
    n->ended = true;
    n->exit_code = exit_code;
    node_close_signals(n);
    uv_close((uv_handle_t *)&n->timer, NULL);
    uv_close((uv_handle_t *)&n->more, NULL);
    input_close(n->input);
    store_link_close(n->link);
    if (n->agent != NULL && agent_state(n->agent) == AGENT_DONE)
        report(n);
    output_close(n->output);
}

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

static bool init_handles(struct node *n, int lifeline)
{
    if (!node_watch_signals(n, lifeline))
        return false;
    uv_timer_init(&n->loop, &n->timer);
    uv_idle_init(&n->loop, &n->more);
    n->timer.data = n->more.data = n;
    return true;
}

/* Nothing else would end the wait for a store that hangs. */
void node_expect_answer(struct node *n)
{
    const uint64_t limit_ms = n->plan->cli->timeout_ms;
    n->store_deadline_ms = clock_ms() + (limit_ms > 0 ? limit_ms : STORE_ANSWER_MS);
    node_set_timer(n);
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

ddp_status node_begin_attempt(struct node *n, int attempt, struct ddp_err *err)
{
    n->left_waiting[0] = '\0';
    n->spawner.failed = NULL;
    input_attempt(n->input);
    ddp_status status = contain_attempt(n->contain, attempt, err);
    evidence_attempt(n->evidence, contain_cgroup_fd(n->contain));
    return status == DDP_OK ? output_attempt(n->output, attempt, err) : status;
}

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
    n->evidence = evidence_new();
    return status == DDP_OK ? node_begin_attempt(n, 0, err) : status;
}

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

int node_run(void *arg, int lifeline)
{
    const struct node_job *job = arg;
    struct ddp_err err;
    struct node n = { .plan = job->plan,
                      .contain = job->contain,
                      .started_ms = clock_ms(),
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
