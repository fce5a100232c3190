/* agent.c -- see agent.h.
 *
 * The state machine is one table of states by events. A cell of the table is a function that changes `struct agent`,
 * appends effects and returns the next state. Every cell has a function, so an empty cell is a mistake. */
#include "agent/agent.h"

#include "ddp/error.h"
#include "base/exit_codes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The state of the current stop of the workers. */
struct stop {
    int by_user;         /* signal of the first stop request, here or on another node; 0 without a request */
    int requests;        /* number of AGENT_STOP events */
    int signal;          /* signal that the current stop sends to workers; 0 before any stop */
    bool sweep_hard;     /* SIGKILL was sent to the leftovers (see agent.h) */
    uint64_t give_up_ms; /* when to stop waiting for processes that have survived SIGKILL */
    bool stuck;          /* a process survived until give_up_ms */
};

struct agent {
    struct agent_options options;
    int nproc;
    enum agent_state state;
    uint64_t now_ms;              /* time of the current event */
    uint64_t deadline_ms;         /* when AGENT_TICK must be sent; UINT64_MAX if never */
    int attempt;                  /* number of the attempt; the first attempt is 0 */
    uint64_t wait_peers_until_ms; /* in AGENT_WAIT_PEERS: when to stop waiting for the other nodes */
    struct agent_verdict verdict; /* the latest verdict of the store */
    bool judged;                  /* the store has sent a verdict that ends the job */
    int peer_code;                /* exit code of another node's failure; 0 if no failure was reported */
    bool stopped_by_store;        /* the store has requested a stop of this node */
    bool failure_received;        /* the store has received this node's failure */
    bool hosts;                   /* this process hosts the store */
    bool left;                    /* EFFECT_LEAVE was emitted */
    bool host_lost;               /* see agent_lose_host */
    bool store_lost;
    bool not_ready;             /* this node cannot start the next round */
    enum no_restart no_restart; /* why no further attempt follows, for the report */
    int spawning; /* local rank of the worker whose start was requested but not answered yet; -1 if none */
    int alive;    /* number of workers that run */
    struct stop stop;
    /* in AGENT_SETTLING: when to stop waiting for workers that the kernel is still cleaning up */
    uint64_t settle_until_ms;
    bool dying_reported; /* ddprun has reported that the kernel is still cleaning up a worker */
    int first_failure;   /* local rank of the worker that failed first; -1 without a failure */
    /* local rank of the first worker that lost a peer (see agent.h); -1: none */
    int first_victim;
    struct agent_worker *workers;
    struct agent_effect *effects; /* allocated for the largest number of effects of one step */
    size_t n_effects;
};

static void agent_emit(struct agent *a, enum agent_effect_type type, int local_rank, int sig);
static void agent_forget(struct agent *a);
static enum agent_state agent_stop_all(struct agent *a, int sig);
static enum agent_state agent_sweep_kill(struct agent *a);
static void agent_blame_victim(struct agent *a);
static void agent_explain(struct agent *a, enum no_restart why);
static void agent_note_stop(struct agent *a, const struct agent_event *e);
static void agent_leave(struct agent *a);
static void agent_lose_store(struct agent *a);
static void agent_handle_notice(struct agent *a, const struct agent_event *e);

typedef enum agent_state agent_cell(struct agent *a, const struct agent_event *e);
static agent_cell run_started, run_started_settling, run_started_late, run_not_started, run_ended,
    run_wait_over, run_user_stops, run_user_insists, run_acknowledged, run_notified, run_notified_late,
    run_lose_store, run_note_lost, run_kill_all, run_begin;

struct agent *agent_new(const struct agent_options *options)
{
    size_t nproc = (size_t)options->nproc;
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    *a = (struct agent){ .options = *options, .nproc = options->nproc, .deadline_ms = UINT64_MAX };
    a->workers = calloc(nproc, sizeof(*a->workers));
    /* one step emits at most two signals for each worker, and a few other effects */
    a->effects = calloc(2 * nproc + 8, sizeof(*a->effects));
    if (a->options.settle_ms == 0)
        a->options.settle_ms = AGENT_DOUBT_MS;
    if (a->workers == NULL || a->effects == NULL) {
        agent_free(a);
        return NULL;
    }
    agent_forget(a);
    return a;
}

void agent_free(struct agent *a)
{
    if (a == NULL)
        return;
    free(a->workers);
    free(a->effects);
    free(a);
}

static enum agent_state ignore(struct agent *a, const struct agent_event *e)
{
    (void)e;
    return a->state;
}

/* End the agent, and emit EFFECT_FINISH with ddprun's exit code. */
static enum agent_state finish(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_FINISH, -1, 0);
    a->effects[a->n_effects - 1].exit_code = agent_exit_code(a);
    return AGENT_DONE;
}

/* --- the end of an attempt ------------------------------------------------------------------------------ */

/* The agent sends these reports to the store, in this order: "failed" as soon as the first failure is known, "exited"
 * for each worker that ends, "cause" with the facts about the first failure, and "stopped" when no process is left. The
 * agent also sends "stopped" when it stops waiting for processes that have survived SIGKILL. If all workers have
 * succeeded, the agent sends "done" in place of "cause" and "stopped". After the last report, the agent waits for the
 * verdict. */

/* Return true if this node must not wait long for the other nodes, because the user has requested a stop, or because a
 * process has survived SIGKILL. */
static bool in_hurry(const struct agent *a)
{
    return a->stop.by_user != 0 || a->stop.stuck;
}

/* Report the end of the attempt to the store, and wait for the verdict. Report the cause before `stopped`, because the
 * store may send the verdict as soon as all nodes have reported `stopped`. If in_hurry() returns true, wait only
 * AGENT_LEAVE_MS. */
static enum agent_state wait_verdict(struct agent *a)
{
    if (a->store_lost || a->judged)
        return finish(a, NULL);
    if (a->first_failure >= 0 && !a->stopped_by_store)
        agent_emit(a, EFFECT_REPORT_CAUSE, a->first_failure, 0);
    agent_emit(a, EFFECT_REPORT_STOPPED, -1, 0);
    a->deadline_ms = a->now_ms + (in_hurry(a) ? AGENT_LEAVE_MS : AGENT_SILENT_MS);
    return AGENT_WAIT_VERDICT;
}

/* Stop waiting for processes that survived SIGKILL. No new attempt follows, because these processes may still use the
 * GPUs. */
static enum agent_state give_up(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->stop.stuck = true;
    agent_blame_victim(a);
    agent_explain(a, NO_RESTART_UNKILLABLE);
    return wait_verdict(a);
}

/* Send SIGKILL to the leftovers again. Give up at `give_up_ms`, but not before one SIGKILL was sent. */
static enum agent_state sweep_on(struct agent *a, const struct agent_event *e)
{
    return a->stop.sweep_hard && e->now_ms >= a->stop.give_up_ms ? give_up(a, e) : agent_sweep_kill(a);
}

/* Wait for the other nodes, because every worker of this node ended with exit code 0. If the job has only one node, the
 * job has succeeded, so end the agent at once. */
static enum agent_state wait_peers(struct agent *a)
{
    agent_emit(a, EFFECT_REPORT_DONE, -1, 0);
    if (a->options.alone)
        return finish(a, NULL);
    a->wait_peers_until_ms = a->now_ms + a->options.wait_peers_ms;
    a->deadline_ms =
        a->now_ms + (a->options.wait_peers_ms < AGENT_SILENT_MS ? a->options.wait_peers_ms : AGENT_SILENT_MS);
    return AGENT_WAIT_PEERS;
}

/* Handle the end of an attempt when no process is left. The last output of the workers may contain the reason of a
 * failure. So read this output before reporting to the store. */
static enum agent_state attempt_over(struct agent *a, const struct agent_event *e)
{
    agent_blame_victim(a);
    if (a->store_lost || a->judged)
        return finish(a, e);
    if (a->first_failure < 0 && !a->stopped_by_store && a->stop.by_user == 0)
        return wait_peers(a);
    if (a->stop.by_user != 0)
        return wait_verdict(a);
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_DRAIN, -1, 0);
    return AGENT_DRAINING;
}

static enum agent_state drained(struct agent *a, const struct agent_event *e)
{
    (void)e;
    return wait_verdict(a);
}

/* --- next step of the job ------------------------------------------------------------------------------- */

static enum agent_state back_off(struct agent *a)
{
    a->deadline_ms = a->now_ms + agent_backoff(a);
    agent_emit(a, EFFECT_PRINT_RESTART, -1, 0);
    return AGENT_BACKING_OFF;
}

/* Handle a verdict that ends the job or requests a restart. A node that already waits for the next round ignores
 * another request to restart. After a stop by the user, this node takes part in no further round. */
static enum agent_state judged(struct agent *a, const struct agent_event *e)
{
    const bool waits = a->state == AGENT_BACKING_OFF || a->state == AGENT_GATHERING;
    if (e->verdict.restart && waits)
        return a->state;
    a->verdict = e->verdict;
    if (e->verdict.restart && !in_hurry(a))
        return back_off(a);
    a->judged = !e->verdict.restart;
    agent_explain(a, a->judged ? e->verdict.no_restart : NO_RESTART_STOPPED);
    return finish(a, e);
}

/* Handle a verdict that arrives before this node has reported the end of the attempt. Such a verdict means that the
 * store has declared this node lost. Ignore a verdict that requests a restart, and ignore a second final verdict. */
static enum agent_state judged_early(struct agent *a, const struct agent_event *e)
{
    if (e->verdict.restart || a->judged)
        return a->state;
    a->verdict = e->verdict;
    a->judged = a->stopped_by_store = true;
    return a->stop.signal == 0 ? agent_stop_all(a, SIGTERM) : a->state;
}

/* Handle the failure of another node after the workers of this node have succeeded. */
static enum agent_state notified_waiting(struct agent *a, const struct agent_event *e)
{
    agent_handle_notice(a, e);
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_DRAIN, -1, 0);
    return AGENT_DRAINING;
}

/* Print that this node still waits for the other nodes, or that it leaves the job. After `wait_peers_until_ms`, end the
 * agent with exit code 0. If this node hosts the store, continue to wait, because the other nodes still need the
 * store. */
static enum agent_state wait_peers_on(struct agent *a, const struct agent_event *e)
{
    const bool is_up = e->now_ms >= a->wait_peers_until_ms;
    agent_emit(a, EFFECT_PRINT_WAITING, -1, 0);
    if (is_up && !a->hosts)
        return finish(a, e);
    a->deadline_ms = is_up ? UINT64_MAX : a->wait_peers_until_ms;
    return a->state;
}

/* End the agent without the store's verdict if in_hurry() returns true. Otherwise print that this node still waits, and
 * continue to wait: the other nodes may take their full grace period. This wait needs no limit, because this node
 * detects a lost store by missing heartbeats. */
static enum agent_state wait_on(struct agent *a, const struct agent_event *e)
{
    if (in_hurry(a))
        return finish(a, e);
    agent_emit(a, EFFECT_PRINT_WAITING, -1, 0);
    a->deadline_ms = UINT64_MAX;
    return a->state;
}

static enum agent_state join_again(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_JOIN, -1, 0);
    return AGENT_GATHERING;
}

/* End at once when the user requests a stop, because no worker runs. */
static enum agent_state user_leaves(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    return finish(a, e);
}

/* Handle the user's request to stop when no process of the attempt is left. Wait for the verdict, but at most
 * AGENT_LEAVE_MS. */
static enum agent_state user_hurries(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    return wait_verdict(a);
}

/* Handle a user's request to stop while this node waits for the verdict. After the first request, wait at most
 * AGENT_LEAVE_MS. At the second request, end at once. With --hosts, the store may report a Ctrl-C before this node
 * receives the signal. Such a report is another event (AGENT_NOTIFIED) and does not count as a request. */
static enum agent_state user_waits(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    a->deadline_ms = a->now_ms + AGENT_LEAVE_MS;
    return a->stop.requests > 1 ? finish(a, e) : a->state;
}

/* Leave the job, because this node cannot begin the next round: the log directory is missing, or the store rejects
 * this node. An earlier failure stays the cause of the job's end. */
static enum agent_state not_ready(struct agent *a, const struct agent_event *e)
{
    a->not_ready = true;
    agent_explain(a, NO_RESTART_NOT_READY);
    agent_leave(a);
    return finish(a, e);
}

/* End the agent, because no further round can begin without the store. */
static enum agent_state lost_between(struct agent *a, const struct agent_event *e)
{
    agent_lose_store(a);
    agent_explain(a, NO_RESTART_STORE_LOST);
    return finish(a, e);
}

/* The whole state machine. The functions about workers have names that begin with run_, and are defined below the
 * table. All other functions of the table are defined above the table. */

/* clang-format off */
static agent_cell *const table[AGENT_STATES][AGENT_EVENTS] = {
    /* START SPAWNED SPAWN_FAILED EXITED STOP ALONE DRAINED NOTIFIED ACKNOWLEDGED VERDICT STORE_LOST NOT_READY TICK */
    [AGENT_GATHERING]    = { run_begin, ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,            ignore,           judged,       lost_between,   not_ready, ignore        },
    [AGENT_RUNNING]      = { ignore,    run_started,          run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_notified,      run_acknowledged, judged_early, run_lose_store, ignore,    ignore        },
    [AGENT_SETTLING]     = { ignore,    run_started_settling, run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_notified,      run_acknowledged, judged_early, run_lose_store, ignore,    run_wait_over },
    [AGENT_STOPPING]     = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_notified_late, run_acknowledged, judged_early, run_note_lost,  ignore,    run_kill_all  },
    [AGENT_KILLING]      = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_notified_late, run_acknowledged, judged_early, run_note_lost,  ignore,    give_up       },
    [AGENT_SWEEPING]     = { ignore,    ignore,               ignore,          ignore,    run_user_insists, attempt_over, ignore,  run_notified_late, run_acknowledged, judged_early, run_note_lost,  ignore,    sweep_on      },
    [AGENT_DRAINING]     = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       drained, run_notified_late, run_acknowledged, judged_early, run_note_lost,  ignore,    ignore        },
    [AGENT_WAIT_PEERS]   = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       ignore,  notified_waiting,  ignore,           judged,       lost_between,   ignore,    wait_peers_on },
    [AGENT_WAIT_VERDICT] = { ignore,    ignore,               ignore,          ignore,    user_waits,       ignore,       ignore,  run_notified_late, run_acknowledged, judged,       lost_between,   ignore,    wait_on      },
    [AGENT_BACKING_OFF]  = { ignore,    ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,            ignore,           judged,       lost_between,   ignore,    join_again    },
    [AGENT_DONE]         = { ignore,    ignore,               ignore,          ignore,    ignore,           ignore,       ignore,  ignore,            ignore,           ignore,       ignore,         ignore,    ignore        },
};
/* clang-format on */

const struct agent_effect *agent_step(struct agent *a, const struct agent_event *e, size_t *n)
{
    bool about_worker = e->type == AGENT_SPAWNED || e->type == AGENT_SPAWN_FAILED || e->type == AGENT_EXITED;
    bool known = e->local_rank >= 0 && e->local_rank < a->nproc;
    bool too_early = e->type == AGENT_TICK && e->now_ms < a->deadline_ms;
    a->n_effects = 0;
    a->now_ms = e->now_ms;
    if (e->type < AGENT_EVENTS && (known || !about_worker) && !too_early)
        a->state = table[a->state][e->type](a, e);
    *n = a->n_effects;
    return a->effects;
}

/* --- workers ------------------------------------------------------------------------------------------------ */

/* The cells about workers: start, end, and the steps of a stop.
 *
 * If the agent has not stopped a worker that fails, the worker has failed by itself. A worker may also end during a
 * stop, before the agent has sent the signal to this worker. The shell (agent.h) then sets `unasked` in the event. Such
 * an end is a failure, but never the first failure.
 *
 * If a peer dies, a worker that is connected to the peer may end before the peer, because the kernel is still cleaning
 * up the peer or writing its core file. The worker reports the lost peer by its exit code (DDP_EXIT_PEER_LOST), or in
 * its output (`lost_peer`). The agent then waits at most settle_ms and stops no worker. A worker that fails in this
 * time has failed by itself and is the cause. If the kernel is still cleaning up a worker after this time, the agent
 * waits for the exit status of that worker. */

/* Reset the agent to its state before the first start. */
static void agent_forget(struct agent *a)
{
    memset(a->workers, 0, (size_t)a->nproc * sizeof(*a->workers));
    a->spawning = a->first_failure = a->first_victim = -1;
    a->alive = a->stop.signal = a->peer_code = 0;
    a->stop.sweep_hard = a->stopped_by_store = a->failure_received = a->dying_reported = false;
    a->no_restart = NO_RESTART_NONE;
}

/* --- effects --------------------------------------------------------------------------------------------- */

/* Append an effect. agent_new has allocated room for all effects of one step. */
static void agent_emit(struct agent *a, enum agent_effect_type type, int local_rank, int sig)
{
    a->effects[a->n_effects++] =
        (struct agent_effect){ .type = type, .local_rank = local_rank, .signal = sig };
}

/* Request the start of a worker. Only one start is in progress at a time. `spawning` is the local rank of this worker.
 * The agent ignores an answer for another rank. */
static void effect_spawn(struct agent *a, int local_rank)
{
    a->spawning = local_rank;
    agent_emit(a, EFFECT_SPAWN, local_rank, 0);
}

/* Send the stop signal to a worker, then SIGCONT, because a process suspended by SIGSTOP handles the stop signal only
 * after SIGCONT. SIGKILL needs no SIGCONT, because it also ends a suspended process. */
static void effect_stop_worker(struct agent *a, int local_rank)
{
    struct agent_worker *w = &a->workers[local_rank];
    agent_emit(a, EFFECT_SIGNAL, local_rank, a->stop.signal);
    if (a->stop.signal != SIGKILL)
        agent_emit(a, EFFECT_SIGNAL, local_rank, SIGCONT);
    w->stop_requested = true;
}

/* Send `sig` to all workers. Keep `sig`, because a worker whose start is still in progress gets this signal later. */
static void signal_all(struct agent *a, int sig)
{
    a->stop.signal = sig;
    for (int r = 0; r < a->nproc; r++)
        if (a->workers[r].verdict == WORKER_ALIVE)
            effect_stop_worker(a, r);
}

/* --- going from state to state -------------------------------------------------------------------------- */

/* Send SIGKILL to the leftovers (agent.h). The leftovers may still fork, so each AGENT_TICK sends SIGKILL again until
 * `give_up_ms`. */
static enum agent_state agent_sweep_kill(struct agent *a)
{
    a->stop.sweep_hard = true;
    a->deadline_ms = a->now_ms + AGENT_RESCAN_MS;
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGKILL);
    return AGENT_SWEEPING;
}

/* Stop the leftovers. If SIGKILL was already sent in this stop, give the leftovers no grace period. */
static enum agent_state sweep(struct agent *a)
{
    const uint64_t grace_ms = a->options.grace_ms < AGENT_SWEEP_MS ? a->options.grace_ms : AGENT_SWEEP_MS;
    if (a->stop.signal == SIGKILL)
        return agent_sweep_kill(a);
    a->deadline_ms = a->now_ms + grace_ms;
    a->stop.give_up_ms = a->deadline_ms + AGENT_UNKILLABLE_MS;
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGTERM);
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGCONT);
    return AGENT_SWEEPING;
}

/* Stop leftover processes if no worker runs and every requested start was answered. A start without an answer may
 * already have created a process. */
static enum agent_state sweep_if_gone(struct agent *a)
{
    return a->alive == 0 && a->spawning < 0 ? sweep(a) : a->state;
}

/* Return true if the stop follows a failure of a running worker, or a hang. Stacks are recorded only in these cases.
 * After any other stop, such as a stop by the user, the stacks explain nothing. */
static bool is_stopped_by_failure(const struct agent *a)
{
    const bool not_started =
        a->first_failure >= 0 && a->workers[a->first_failure].verdict == WORKER_NOT_STARTED;
    return a->alive > 0 && a->stop.by_user == 0 && !not_started &&
           (!a->stopped_by_store || a->peer_code != 0);
}

/* Stop all workers. If no worker runs and no start is in progress, stop the leftovers (agent.h). */
static enum agent_state agent_stop_all(struct agent *a, int sig)
{
    a->state = AGENT_STOPPING;
    a->deadline_ms = a->now_ms + a->options.grace_ms;
    if (is_stopped_by_failure(a))
        agent_emit(a, EFFECT_SAMPLE, -1, 0);
    signal_all(a, sig);
    return sweep_if_gone(a);
}

/* Make a worker the first failure, and report the failure to the store before any other message. If several nodes
 * fail, the store uses the report that arrives first as the cause of the job's end. */
static void make_cause(struct agent *a, int local_rank)
{
    a->first_failure = local_rank;
    agent_emit(a, EFFECT_REPORT_FAILED, local_rank, 0);
}

/* Record that a worker has failed. A worker that is being stopped may end in any way. So record nothing if the user
 * or the store has stopped the job, or if the store is lost. */
static void note_failure(struct agent *a, int local_rank)
{
    if (a->stop.by_user != 0 || a->stopped_by_store || a->store_lost)
        return;
    if (a->workers[local_rank].verdict == WORKER_VICTIM)
        a->first_victim = a->first_victim < 0 ? local_rank : a->first_victim;
    else if (a->first_failure < 0)
        make_cause(a, local_rank);
}

/* Record the first worker that lost its peer as the first failure, if no worker has failed by itself. */
static void agent_blame_victim(struct agent *a)
{
    if (a->first_failure < 0 && a->first_victim >= 0 && !a->stopped_by_store && !a->store_lost)
        make_cause(a, a->first_victim);
}

static bool has_failed(const struct agent *a)
{
    return a->first_failure >= 0 || a->stopped_by_store;
}

/* Record why no restart follows. Record nothing if the job has not failed, or if no restarts were allowed. */
static void agent_explain(struct agent *a, enum no_restart why)
{
    if (has_failed(a) && a->options.max_restarts > 0)
        a->no_restart = why;
}

/* Report once to the store that this node leaves the job. */
static void agent_leave(struct agent *a)
{
    if (!a->left && !a->store_lost)
        agent_emit(a, EFFECT_LEAVE, -1, 0);
    a->left = true;
}

/* --- cells of the table --------------------------------------------------------------------------------- */

/* Begin an attempt. The store has already removed the keys of the previous attempt. */
static enum agent_state run_begin(struct agent *a, const struct agent_event *e)
{
    agent_forget(a);
    a->attempt = e->attempt;
    a->hosts = e->hosts;
    a->deadline_ms = UINT64_MAX;
    effect_spawn(a, 0);
    return AGENT_RUNNING;
}

/* Record that the requested worker has started. Return false if the event is about another worker. */
static bool mark_started(struct agent *a, const struct agent_event *e)
{
    if (e->local_rank != a->spawning)
        return false;
    struct agent_worker *w = &a->workers[e->local_rank];
    w->verdict = WORKER_ALIVE;
    w->pid = e->pid;
    w->started_ms = e->now_ms;
    a->alive++;
    a->spawning = -1;
    return true;
}

/* Start the next worker. Workers start one after the other. After a failed start, the remaining workers are not
 * started. */
static enum agent_state run_started(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e) && e->local_rank + 1 < a->nproc)
        effect_spawn(a, e->local_rank + 1);
    return a->state;
}

/* Mark the worker as started, but start no more workers, because another worker has already failed or lost its peer. */
static enum agent_state run_started_settling(struct agent *a, const struct agent_event *e)
{
    mark_started(a, e);
    return a->state;
}

/* Stop a worker whose start was in progress when the stop began. This worker missed the stop signal. */
static enum agent_state run_started_late(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e))
        effect_stop_worker(a, e->local_rank);
    return a->state;
}

/* Handle a worker that could not be started. If no stop is in progress yet, stop the running workers. */
static enum agent_state run_not_started(struct agent *a, const struct agent_event *e)
{
    if (e->local_rank != a->spawning)
        return a->state;
    struct agent_worker *w = &a->workers[e->local_rank];
    w->verdict = WORKER_NOT_STARTED;
    w->error = e->error;
    w->started_ms = w->ended_ms = e->now_ms;
    a->spawning = -1;
    note_failure(a, e->local_rank);
    return a->stop.signal == 0 ? agent_stop_all(a, SIGTERM) : sweep_if_gone(a);
}

/* Wait at most settle_ms for a peer to end. A worker has just ended because it lost its connection to this peer. */
static enum agent_state wait_for_lost_peer(struct agent *a)
{
    a->deadline_ms = a->now_ms + a->options.settle_ms;
    a->settle_until_ms = a->deadline_ms + AGENT_DYING_MS;
    return AGENT_SETTLING;
}

/* Return true if a worker ended soon after its start by the same import error as the first failure. Such an error
 * usually ends every worker, and then a restart is useless. So the caller waits for more workers with this error
 * before it stops the remaining workers. */
static bool repeats_import_error(const struct agent *a, const struct agent_worker *w)
{
    const struct agent_worker *first = a->first_failure >= 0 ? &a->workers[a->first_failure] : NULL;
    return a->options.max_restarts > 0 && first != NULL && w->import_error != 0 &&
           w->import_error == first->import_error && w->ended_ms - w->started_ms < AGENT_USAGE_MS;
}

/* Wait for another worker to end by the same import error. The wait is as long as the first failed worker has run,
 * because a busy machine slows all workers in the same way. The wait is at least AGENT_SAME_MS and at most
 * AGENT_DOUBT_MS. */
static enum agent_state wait_for_same(struct agent *a)
{
    const struct agent_worker *first = &a->workers[a->first_failure];
    const uint64_t took_ms = first->ended_ms - first->started_ms;
    a->deadline_ms = a->now_ms + (took_ms < AGENT_SAME_MS    ? AGENT_SAME_MS
                                  : took_ms < AGENT_DOUBT_MS ? took_ms
                                                             : AGENT_DOUBT_MS);
    a->settle_until_ms = a->deadline_ms;
    return AGENT_SETTLING;
}

/* Return the verdict about a worker that has ended. The first matching rule applies:
 *   - Exit code 0: WORKER_OK.
 *   - Exit code DDP_EXIT_PEER_LOST: WORKER_VICTIM.
 *   - ddprun sent a signal before the worker ended: WORKER_CONSEQUENCE. This rule does not apply if SIGKILL ended the
 *     worker, but ddprun has sent only other signals.
 *   - The output of the worker reports a lost peer: WORKER_VICTIM.
 *   - Any other end: WORKER_FAILED. */
static enum worker_verdict verdict_of(const struct agent *a, const struct agent_worker *w,
                                      const struct agent_event *e)
{
    if (w->signal == 0 && w->exit_code == 0)
        return WORKER_OK;
    if (w->signal == 0 && w->exit_code == DDP_EXIT_PEER_LOST)
        return WORKER_VICTIM;
    const bool foreign = w->signal == SIGKILL && a->stop.signal != SIGKILL;
    if (w->stop_requested && !e->unasked && !foreign)
        return WORKER_CONSEQUENCE;
    return e->lost_peer ? WORKER_VICTIM : WORKER_FAILED;
}

/* Handle the end of a worker. Report every end to the store, even with exit code 0, because this rank can no longer
 * arrive at barriers. */
static enum agent_state run_ended(struct agent *a, const struct agent_event *e)
{
    struct agent_worker *w = &a->workers[e->local_rank];
    if (w->verdict != WORKER_ALIVE)
        return a->state;
    w->exit_code = e->exit_code;
    w->signal = e->signal;
    w->import_error = e->import_error;
    w->ended_ms = e->now_ms;
    w->verdict = verdict_of(a, w, e);
    w->stop_requested = w->stop_requested && !e->unasked;
    a->alive--;
    if (w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM)
        note_failure(a, e->local_rank);
    if (!a->store_lost)
        agent_emit(a, EFFECT_REPORT_EXITED, e->local_rank, 0);
    if (w->verdict == WORKER_FAILED && a->stop.signal == 0 && a->alive > 0 && repeats_import_error(a, w))
        return wait_for_same(a);
    if (w->verdict == WORKER_FAILED && a->stop.signal == 0)
        return agent_stop_all(a, SIGTERM);
    if (w->verdict == WORKER_VICTIM && a->state == AGENT_RUNNING && (a->alive > 0 || a->spawning >= 0))
        return wait_for_lost_peer(a);
    return sweep_if_gone(a);
}

/* Wait for the end of a worker that the kernel is still cleaning up. Print once why this node waits. */
static enum agent_state wait_for_end_of(struct agent *a, int local_rank)
{
    a->deadline_ms = a->now_ms + AGENT_CHECK_MS;
    if (!a->dying_reported)
        agent_emit(a, EFFECT_PRINT_DYING, local_rank, 0);
    a->dying_reported = true;
    return a->state;
}

/* Stop the workers when the wait of AGENT_SETTLING is over. Wait longer while the kernel is still cleaning up a
 * worker. If no worker has failed by itself, the first worker that lost its peer becomes the first failure. */
static enum agent_state run_wait_over(struct agent *a, const struct agent_event *e)
{
    if (e->dying && e->now_ms < a->settle_until_ms)
        return wait_for_end_of(a, e->local_rank);
    agent_blame_victim(a);
    return agent_stop_all(a, SIGTERM);
}

static enum agent_state run_user_stops(struct agent *a, const struct agent_event *e)
{
    /* a worker may have lost its peer before the user stopped the job */
    agent_blame_victim(a);
    a->stop.by_user = e->signal;
    a->stop.requests = 1;
    agent_leave(a);
    return agent_stop_all(a, e->signal);
}

/* Record that the store has stopped this node, usually because another node has failed. */
static void agent_handle_notice(struct agent *a, const struct agent_event *e)
{
    a->stopped_by_store = true;
    a->peer_code = e->exit_code;
    if (a->stop.by_user == 0)
        a->stop.by_user = e->signal;
}

static enum agent_state run_notified(struct agent *a, const struct agent_event *e)
{
    agent_handle_notice(a, e);
    return agent_stop_all(a, SIGTERM);
}

/* Record that the store has stopped this node. The attempt of this node is already ending, so nothing else changes. */
static enum agent_state run_notified_late(struct agent *a, const struct agent_event *e)
{
    agent_handle_notice(a, e);
    return a->state;
}

/* Record that the store has received this node's failure. The failure stays the cause of the job's end, even if the
 * store is lost later. */
static enum agent_state run_acknowledged(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->failure_received = true;
    return a->state;
}

/* Forget another node's failure if the failed worker had only lost a peer. Such a failure is not the real cause. The
 * store would report the real cause later, but the store is lost. */
static void forget_victim_elsewhere(struct agent *a)
{
    if (a->judged || a->peer_code != DDP_EXIT_PEER_LOST)
        return;
    a->stopped_by_store = false;
    a->peer_code = 0;
}

/* Record that the store is lost. A worker may detect the loss earlier than this node, and fail. So discard the failures
 * of this node. Keep these failures in two cases:
 *
 *   - The first failed worker could not be started. The loss did not cause this failure.
 *   - The store has received the first failure. If this failure is only a lost peer, the final verdict must have
 *     arrived, too, because a lost peer is not the real cause. */
static void agent_lose_store(struct agent *a)
{
    const int first = a->first_failure;
    const bool victim = !a->judged && first >= 0 && a->workers[first].verdict == WORKER_VICTIM;
    a->store_lost = true;
    forget_victim_elsewhere(a);
    if ((a->failure_received && !victim) || (first >= 0 && a->workers[first].verdict == WORKER_NOT_STARTED))
        return;
    for (int r = 0; r < a->nproc; r++)
        if (a->workers[r].verdict == WORKER_FAILED || a->workers[r].verdict == WORKER_VICTIM)
            a->workers[r].verdict = WORKER_CONSEQUENCE;
    a->first_failure = a->first_victim = -1;
}

/* Stop all workers, because without the store this node cannot know whether other nodes still run. */
static enum agent_state run_lose_store(struct agent *a, const struct agent_event *e)
{
    (void)e;
    agent_lose_store(a);
    return agent_stop_all(a, SIGTERM);
}

/* Record the loss of the store during a stop. The end of the stop can then no longer be reported to the store. */
static enum agent_state run_note_lost(struct agent *a, const struct agent_event *e)
{
    (void)e;
    agent_lose_store(a);
    agent_explain(a, NO_RESTART_STORE_LOST);
    return a->state;
}

/* Kill the workers and their children, because the grace period is over or the user has requested the stop again. */
static enum agent_state run_kill_all(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = a->stop.give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    signal_all(a, SIGKILL);
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGKILL);
    return AGENT_KILLING;
}

/* Kill the leftover processes at the user's second request to stop. Restart the time limit for unkillable processes. */
static enum agent_state sweep_now(struct agent *a)
{
    a->stop.give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    return agent_sweep_kill(a);
}

/* Record and count a user's request to stop while no attempt runs, or while the attempt is already ending. Otherwise
 * run_user_stops() records the request. */
static void agent_note_stop(struct agent *a, const struct agent_event *e)
{
    if (a->stop.by_user == 0)
        a->stop.by_user = e->signal;
    a->stop.requests++;
    if (!a->host_lost)
        agent_explain(a, NO_RESTART_STOPPED);
    agent_leave(a);
}

/* Handle a user's request while a stop is in progress. The first request is only recorded. At the second request, kill
 * all processes at once. */
static enum agent_state run_user_insists(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    if (a->stop.requests < 2)
        return a->state;
    if (a->state == AGENT_STOPPING)
        return run_kill_all(a, e);
    if (a->state == AGENT_SWEEPING && !a->stop.sweep_hard)
        return sweep_now(a);
    return a->state;
}

/* --- agent facts ------------------------------------------------------------------------------------------ */

/* The functions of this part only read the agent. Some of them compute ddprun's exit code. The exit code of a worker
 * that ddprun stopped never determines ddprun's exit code. */

uint64_t agent_deadline(const struct agent *a)
{
    return a->deadline_ms;
}

enum agent_state agent_state(const struct agent *a)
{
    return a->state;
}

const struct agent_worker *agent_worker(const struct agent *a, int local_rank)
{
    return &a->workers[local_rank];
}

/* Return the local rank of the worker that failed first, or -1 without a failure. Every report and every exit code
 * refers to this worker. */
int agent_first_failure(const struct agent *a)
{
    return a->first_failure;
}

int agent_stop_signal(const struct agent *a)
{
    return a->stop.by_user;
}

int agent_attempt(const struct agent *a)
{
    return a->attempt;
}

int agent_max_restarts(const struct agent *a)
{
    return a->options.max_restarts;
}

uint64_t agent_backoff(const struct agent *a)
{
    return a->verdict.backoff_ms;
}

enum no_restart agent_no_restart(const struct agent *a)
{
    return a->no_restart;
}

void agent_lose_host(struct agent *a)
{
    a->host_lost = true;
}

bool agent_is_stuck(const struct agent *a)
{
    return a->stop.stuck;
}

enum exit_policy agent_exit_policy(const struct agent *a)
{
    return a->options.exit_policy;
}

bool agent_overstays(const struct agent *a)
{
    return a->state == AGENT_WAIT_PEERS && a->hosts && a->now_ms >= a->wait_peers_until_ms;
}

bool agent_lost_store(const struct agent *a)
{
    return a->store_lost && !a->judged;
}

/* --- failures that a restart cannot change -------------------------------------------------------------- */

/* Return true if a start failed because the machine lacked a resource for a moment. */
static bool is_shortage(int error)
{
    return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE || error == ETXTBSY;
}

static bool is_usage_error(const struct agent_worker *w)
{
    bool usual = w->exit_code == EXIT_CODE_USAGE || w->exit_code == EXIT_CODE_CANNOT_RUN ||
                 w->exit_code == EXIT_CODE_NOT_FOUND;
    return w->verdict == WORKER_FAILED && w->signal == 0 && usual &&
           w->ended_ms - w->started_ms < AGENT_USAGE_MS;
}

/* Return true if the same import error ended every started worker soon after its start. Then a new attempt would fail
 * in the same way. */
static bool is_import_error_of_all(const struct agent *a, const struct agent_worker *first)
{
    for (int r = 0; r < a->nproc; r++) {
        const struct agent_worker *w = &a->workers[r];
        const bool same = w->verdict == WORKER_FAILED && w->import_error == first->import_error &&
                          w->ended_ms - w->started_ms < AGENT_USAGE_MS;
        if (w->verdict != WORKER_PENDING && !same)
            return false;
    }
    return first->import_error != 0;
}

enum no_restart agent_never_again(const struct agent *a)
{
    const struct agent_worker *w = a->first_failure >= 0 ? &a->workers[a->first_failure] : NULL;
    if (w == NULL)
        return NO_RESTART_NONE;
    if (w->verdict == WORKER_NOT_STARTED && !is_shortage(w->error))
        return NO_RESTART_CANNOT_START;
    if (is_import_error_of_all(a, w))
        return NO_RESTART_IMPORT;
    return is_usage_error(w) ? NO_RESTART_USAGE : NO_RESTART_NONE;
}

/* --- exit codes ----------------------------------------------------------------------------------------- */

/* Return true if the end of a worker counts for the exit code. The first matching row applies:
 *
 *   - No: ddprun sent a stop signal, and the worker then ended with exit code 0 or DDP_EXIT_PEER_LOST.
 *   - Yes: the worker succeeded, failed by itself, lost a peer, or could not be started.
 *   - No: any other state, for example if ddprun stopped the worker. */
static bool has_own_code(const struct agent_worker *w)
{
    if (w->verdict == WORKER_OK || (w->verdict == WORKER_VICTIM && w->signal == 0))
        return !w->stop_requested;
    return w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM || w->verdict == WORKER_NOT_STARTED;
}

int ending_code(const struct agent_worker *worker)
{
    if (worker->verdict == WORKER_NOT_STARTED)
        return worker->error == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_RUN;
    return worker->signal != 0 ? EXIT_CODE_SIGNAL + worker->signal : worker->exit_code;
}

/* Return the highest exit code of this node's workers. Ignore workers that ddprun stopped. Some scripts return higher
 * exit codes for worse failures. */
int agent_max_code(const struct agent *a)
{
    int highest = 0;
    for (int r = 0; r < a->nproc; r++) {
        const struct agent_worker *w = &a->workers[r];
        if (has_own_code(w) && ending_code(w) > highest)
            highest = ending_code(w);
    }
    return highest;
}

/* Return the exit code of local rank 0 for --exit_code=rank0. This policy is for jobs in which rank 0 controls the
 * other ranks. */
int agent_rank0_code(const struct agent *a)
{
    return has_own_code(&a->workers[0]) ? ending_code(&a->workers[0]) : -1;
}

/* Return the exit code that --exit_code selects: `first` (the code of the first failure), `max` or `rank0`.
 * EXIT_POLICY_WORKERS differs from EXIT_POLICY_FIRST only in stop_succeeded(). */
static int by_policy(const struct agent *a, int first, int max, int rank0)
{
    switch (a->options.exit_policy) {
    case EXIT_POLICY_MAX:
        return max;
    case EXIT_POLICY_RANK0:
        return rank0;
    case EXIT_POLICY_FIRST:
    case EXIT_POLICY_WORKERS:
        break;
    }
    return first;
}

/* Compute the exit code from the facts that are known on this node, because no verdict has arrived. */
static int code_known_here(const struct agent *a)
{
    if (a->stopped_by_store && a->peer_code != 0)
        return a->peer_code;
    if (a->first_failure >= 0) {
        const int first = ending_code(&a->workers[a->first_failure]), rank0 = agent_rank0_code(a);
        return by_policy(a, first, agent_max_code(a), rank0 >= 0 ? rank0 : first);
    }
    if (a->stop.by_user != 0)
        return EXIT_CODE_SIGNAL + a->stop.by_user;
    if (a->not_ready)
        return EXIT_CODE_DDPRUN;
    return a->store_lost ? EXIT_CODE_STORE_LOST : EXIT_CODE_OK;
}

/* Return true if --exit_code=workers makes ddprun's exit code 0. The user must have stopped the job before any failure,
 * and every worker of this node must have ended with exit code 0. The job's exit code must also be 0, or 128 + the stop
 * signal. Any other code reports a failure: for example, a signal may have killed a rank of another node. */
static bool stop_succeeded(const struct agent *a)
{
    const bool stopped = a->stop.by_user != 0 || (a->judged && a->verdict.no_restart == NO_RESTART_STOPPED);
    const int code = a->judged ? a->verdict.exit_first : code_known_here(a);
    const int sig = a->judged && a->verdict.stop_signal != 0 ? a->verdict.stop_signal : a->stop.by_user;
    bool all_well = stopped && (code == 0 || (sig != 0 && code == EXIT_CODE_SIGNAL + sig));
    for (int r = 0; r < a->nproc && all_well; r++)
        all_well = a->workers[r].verdict == WORKER_OK;
    return all_well;
}

/* Return ddprun's exit code. If a process could not be killed, the code is 124 in any case, because a scheduler must
 * not give this host to another job. If the user has requested a stop and the verdict reports success, the code is 128
 * + the signal of the user. */
int agent_exit_code(const struct agent *a)
{
    if (a->stop.stuck)
        return EXIT_CODE_UNKILLABLE;
    if (a->host_lost)
        return EXIT_CODE_DDPRUN;
    if (a->options.exit_policy == EXIT_POLICY_WORKERS && stop_succeeded(a))
        return EXIT_CODE_OK;
    if (!a->judged)
        return code_known_here(a);
    const int code = by_policy(a, a->verdict.exit_first, a->verdict.exit_max, a->verdict.exit_rank0);
    const bool well = a->verdict.exit_first == 0;
    return well && a->stop.by_user != 0 ? EXIT_CODE_SIGNAL + a->stop.by_user : code;
}
