/* agent.c -- see agent.h.
 *
 * One table, states by events; a cell changes the struct, appends effects and returns the next state. Every cell is
 * filled: where nothing has to happen it is `ignore`, so that a missing reaction is a decision and not an oversight.
 * Cells about the job come first: the consequences of an attempt's end, and the store's decisions. Those about
 * workers (run_) stand below.
 *
 * The store is notified in this order: failed (at once), exited (each worker), cause and stopped (when nothing is
 * left). After `stopped`, or `done` when all succeeded, this node does nothing until the verdict arrives. */
#include "agent/agent.h"

#include "agent/failure.h"
#include "ddp/error.h"
#include "base/exit_codes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The ladder of a stop: how far it has got. */
struct stop {
    int by_user, requests; /* signal of the user's first request, 0 = none; how many there were */
    int signal;            /* what is being sent to workers now; 0 before any stop */
    bool sweep_hard;       /* leftovers were sent SIGKILL */
    uint64_t give_up_ms;   /* what lives on after that cannot be killed */
    bool stuck;            /* something did */
};

struct agent {
    struct agent_options options;
    int nproc;
    enum agent_state state;
    uint64_t now_ms, deadline_ms;
    int attempt; /* from 0 */
    uint64_t linger_until_ms;
    struct agent_verdict verdict; /* once `judged` */
    bool judged;                  /* the job is over, by the store's word */
    int told_code;                /* exit code of another node's failure; 0 = none was reported */
    bool told;                    /* to stop */
    bool heard;                   /* the store has the failure of this node */
    bool hosts;                   /* the store is in this process */
    bool left, store_lost, not_ready;
    enum no_restart no_restart;
    int spawning; /* asked for, no answer yet; -1 = none */
    int alive;
    struct stop stop;
    uint64_t settle_until_ms; /* then the agent stops waiting for workers that the kernel still takes apart */
    bool said_dying;          /* that one is */
    int first_failure,
        first_victim; /* local ranks, -1 = none; one whose peer was lost only counts without another */
    struct agent_worker *workers;
    struct agent_effect *effects; /* room for what one step can cause at most */
    size_t n_effects;
};

static void agent_emit(struct agent *a, enum agent_effect_type type, int local_rank, int sig);
static void agent_forget(struct agent *a);
static enum agent_state agent_stop_all(struct agent *a, int sig);
static enum agent_state agent_sweep_kill(struct agent *a);
static void agent_settle(struct agent *a);
static void agent_explain(struct agent *a, enum no_restart why);
static void agent_note_stop(struct agent *a, const struct agent_event *e);
static void agent_leave(struct agent *a);
static void agent_lose_store(struct agent *a);
static void agent_hear_told(struct agent *a, const struct agent_event *e);

/* A cell of the table: does its work and returns the next state. */
typedef enum agent_state agent_cell(struct agent *a, const struct agent_event *e);
static agent_cell run_started, run_started_settling, run_started_late, run_not_started, run_ended,
    run_settled, run_user_stops, run_user_insists, run_heard, run_told, run_told_late, run_lose_store,
    run_note_lost, run_kill_all, run_begin;

struct agent *agent_new(const struct agent_options *options)
{
    size_t nproc = (size_t)options->nproc;
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    *a = (struct agent){ .options = *options, .nproc = options->nproc, .deadline_ms = UINT64_MAX };
    a->workers = calloc(nproc, sizeof(*a->workers));
    a->effects = calloc(2 * nproc + 8, sizeof(*a->effects)); /* two signals each, and a few for the job */
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

/* The end, for whatever reason; the exit code goes with the effect so that the shell needs no second question. */
static enum agent_state finish(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_FINISH, -1, 0);
    a->effects[a->n_effects - 1].exit_code = agent_exit_code(a);
    return AGENT_DONE;
}

/* --- the end of an attempt ------------------------------------------------------------------------------ */

static bool in_hurry(const struct agent *a)
{
    return a->stop.by_user != 0 || a->stop.stuck;
}

/* The user has waited long enough already, and a process that hangs in the kernel may hang without end: then the
 * verdict, which arrives when the slowest node has reported, gets only a moment. */
static enum agent_state await(struct agent *a)
{
    if (a->store_lost || a->judged)
        return finish(a, NULL);
    if (a->first_failure >= 0 && !a->told)
        agent_emit(a, EFFECT_TELL_CAUSE, a->first_failure, 0);
    agent_emit(a, EFFECT_TELL_STOPPED, -1, 0);
    a->deadline_ms = a->now_ms + (in_hurry(a) ? AGENT_LEAVE_MS : AGENT_SILENT_MS);
    return AGENT_WAIT_VERDICT;
}

/* Not even SIGKILL helped: the rest is the report's. Beside it no new attempt could run. */
static enum agent_state give_up(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->stop.stuck = true;
    agent_settle(a);
    agent_explain(a, NO_RESTART_UNKILLABLE);
    return await(a);
}

/* Tried once in any case: a grace time that was used up must not mean that leftovers are never killed. */
static enum agent_state sweep_on(struct agent *a, const struct agent_event *e)
{
    return a->stop.sweep_hard && e->now_ms >= a->stop.give_up_ms ? give_up(a, e) : agent_sweep_kill(a);
}

/* All that was started here ended with 0. Where there is no other node the verdict is known, and is not waited for. */
static enum agent_state linger(struct agent *a)
{
    agent_emit(a, EFFECT_TELL_DONE, -1, 0);
    if (a->options.alone)
        return finish(a, NULL);
    a->linger_until_ms = a->now_ms + a->options.linger_ms;
    a->deadline_ms =
        a->now_ms + (a->options.linger_ms < AGENT_SILENT_MS ? a->options.linger_ms : AGENT_SILENT_MS);
    return AGENT_WAIT_PEERS;
}

/* Nothing is left of it. The last output is read before the end is reported to the store: it may hold the
 * reason. */
static enum agent_state attempt_over(struct agent *a, const struct agent_event *e)
{
    agent_settle(a);
    if (a->store_lost || a->judged)
        return finish(a, e);
    if (a->first_failure < 0 && !a->told && a->stop.by_user == 0)
        return linger(a);
    if (a->stop.by_user != 0)
        return await(a);
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_DRAIN, -1, 0);
    return AGENT_DRAINING;
}

static enum agent_state drained(struct agent *a, const struct agent_event *e)
{
    (void)e;
    return await(a);
}

/* --- what the job does next ----------------------------------------------------------------------------- */

static enum agent_state back_off(struct agent *a)
{
    a->deadline_ms = a->now_ms + agent_backoff(a);
    agent_emit(a, EFFECT_SAY_RESTART, -1, 0);
    return AGENT_BACKING_OFF;
}

/* Between two rounds no growth can be agreed; a node that its user has removed does not take part in later rounds. */
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

/* The end of the job while something still lives here: it gave this node up. The first word about that counts. */
static enum agent_state judged_early(struct agent *a, const struct agent_event *e)
{
    if (e->verdict.restart || a->judged)
        return a->state;
    a->verdict = e->verdict;
    a->judged = a->told = true;
    return a->stop.signal == 0 ? agent_stop_all(a, SIGTERM) : a->state;
}

/* Another node's workers still run, and one of them has failed. */
static enum agent_state told_waiting(struct agent *a, const struct agent_event *e)
{
    agent_hear_told(a, e);
    a->deadline_ms = UINT64_MAX;
    agent_emit(a, EFFECT_DRAIN, -1, 0);
    return AGENT_DRAINING;
}

/* The user is notified once; at the time-out this node is not at fault. A node that hosts the store would take it
 * from nodes that still run: it stays until they are done, or lost, or its user ends it. */
static enum agent_state linger_on(struct agent *a, const struct agent_event *e)
{
    const bool is_up = e->now_ms >= a->linger_until_ms;
    agent_emit(a, EFFECT_SAY_WAITING, -1, 0);
    if (is_up && !a->hosts)
        return finish(a, e);
    a->deadline_ms = is_up ? UINT64_MAX : a->linger_until_ms;
    return a->state;
}

/* Other nodes may need their grace time. The store gets a heartbeat from us every second, and we get one from it. */
static enum agent_state await_on(struct agent *a, const struct agent_event *e)
{
    if (in_hurry(a))
        return finish(a, e);
    agent_emit(a, EFFECT_SAY_WAITING, -1, 0);
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

/* Nothing runs, so no worker needs a stop. */
static enum agent_state user_leaves(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    return finish(a, e);
}

/* Only words are left to be exchanged: a moment for the verdict, and none at the second request. */
static enum agent_state user_hurries(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    return await(a);
}

static enum agent_state user_waits(struct agent *a, const struct agent_event *e)
{
    const bool again = a->stop.by_user != 0;
    agent_note_stop(a, e);
    a->deadline_ms = a->now_ms + AGENT_LEAVE_MS;
    return again ? finish(a, e) : a->state;
}

/* No directory for logs, or the store does not want us: a new attempt could not even be begun. The failure that led
 * here stays the cause. */
static enum agent_state not_ready(struct agent *a, const struct agent_event *e)
{
    a->not_ready = true;
    agent_explain(a, NO_RESTART_NOT_READY);
    agent_leave(a);
    return finish(a, e);
}

/* Between two rounds, or before the first: there will be none. */
static enum agent_state lost_between(struct agent *a, const struct agent_event *e)
{
    agent_lose_store(a);
    agent_explain(a, NO_RESTART_STORE_LOST);
    return finish(a, e);
}

/* The whole machine. Cells that begin with run_ are below, the others above. */

/* clang-format off */
static agent_cell *const table[AGENT_STATES][AGENT_EVENTS] = {
    /*                      START      SPAWNED               SPAWN_FAILED     EXITED     STOP              ALONE         DRAINED  TOLD_TO_STOP    HEARD      VERDICT       STORE_LOST      NOT_READY  TICK */
    [AGENT_GATHERING]   = { run_begin, ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,         ignore,    judged,       lost_between,   not_ready, ignore         },
    [AGENT_RUNNING]     = { ignore,    run_started,          run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_told,       run_heard, judged_early, run_lose_store, ignore,    ignore         },
    [AGENT_SETTLING]    = { ignore,    run_started_settling, run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_told,       run_heard, judged_early, run_lose_store, ignore,    run_settled },
    [AGENT_STOPPING]    = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    run_kill_all   },
    [AGENT_KILLING]     = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    give_up        },
    [AGENT_SWEEPING]    = { ignore,    ignore,               ignore,          ignore,    run_user_insists, attempt_over, ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    sweep_on       },
    [AGENT_DRAINING]    = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       drained, run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    ignore         },
    [AGENT_WAIT_PEERS]   = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       ignore,  told_waiting, ignore,    judged,       lost_between,   ignore,    linger_on      },
    [AGENT_WAIT_VERDICT]    = { ignore,    ignore,               ignore,          ignore,    user_waits,       ignore,       ignore,  run_told_late,  run_heard, judged,       lost_between,   ignore,    await_on       },
    [AGENT_BACKING_OFF] = { ignore,    ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,         ignore,    judged,       lost_between,   ignore,    join_again     },
    [AGENT_DONE]        = { ignore,    ignore,               ignore,          ignore,    ignore,           ignore,       ignore,  ignore,         ignore,    ignore,       ignore,         ignore,    ignore         },
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
 * A worker is at fault if its end was not requested. When two workers fail in the same instant, the agent requests
 * the second one's signal before its end is seen, yet no signal has caused it: the shell reports that (`unasked`). It
 * is a failure too, but never the first.
 *
 * A worker whose peer dies may be gone before that peer is: its connection breaks while the kernel still removes the
 * dead one, or writes its core file. It reports that by its exit code (DDP_EXIT_PEER_LOST), or in its output
 * (`lost_peer`). Then no worker is stopped for a while (settle_ms), so that a worker that fails in that time has
 * failed by itself and is the cause. One that the kernel still removes when that time is over has failed, too: its
 * wait status is awaited. */

/* As before the first start. */
static void agent_forget(struct agent *a)
{
    memset(a->workers, 0, (size_t)a->nproc * sizeof(*a->workers));
    a->spawning = a->first_failure = a->first_victim = -1;
    a->alive = a->stop.signal = a->told_code = 0;
    a->stop.sweep_hard = a->told = a->heard = a->said_dying = false;
    a->no_restart = NO_RESTART_NONE;
}

/* --- effects --------------------------------------------------------------------------------------------- */

/* Cannot fail: agent_new made room for the most that one step can cause. */
static void agent_emit(struct agent *a, enum agent_effect_type type, int local_rank, int sig)
{
    a->effects[a->n_effects++] =
        (struct agent_effect){ .type = type, .local_rank = local_rank, .signal = sig };
}

/* One start is under way at a time; `spawning` remembers which, so that a stray answer changes nothing. */
static void effect_spawn(struct agent *a, int local_rank)
{
    a->spawning = local_rank;
    agent_emit(a, EFFECT_SPAWN, local_rank, 0);
}

/* SIGCONT follows a polite signal: a stopped process would not see it, and the end would take the whole grace
 * time. */
static void effect_stop_worker(struct agent *a, int local_rank)
{
    struct agent_worker *w = &a->workers[local_rank];
    agent_emit(a, EFFECT_SIGNAL, local_rank, a->stop.signal);
    if (a->stop.signal != SIGKILL)
        agent_emit(a, EFFECT_SIGNAL, local_rank, SIGCONT);
    w->told_to_stop = true;
}

/* From here on `signal` is what a late starter gets, too. */
static void tell_all(struct agent *a, int sig)
{
    a->stop.signal = sig;
    for (int r = 0; r < a->nproc; r++)
        if (a->workers[r].verdict == WORKER_ALIVE)
            effect_stop_worker(a, r);
}

/* --- going from state to state -------------------------------------------------------------------------- */

/* The last step. Leftovers may continue to fork, so it is repeated until none is left or the time is up; earlier
 * kills have used up some of it. */
static enum agent_state agent_sweep_kill(struct agent *a)
{
    a->stop.sweep_hard = true;
    a->deadline_ms = a->now_ms + AGENT_RESCAN_MS;
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGKILL);
    return AGENT_SWEEPING;
}

/* Leftovers get a short grace time, unless the time is used up already. */
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

/* A start whose answer is still missing counts as alive: its process may exist already. */
static enum agent_state sweep_if_gone(struct agent *a)
{
    return a->alive == 0 && a->spawning < 0 ? sweep(a) : a->state;
}

/* The user, a growing job and a program that cannot be started leave nothing to explain. */
static bool is_stopped_by_failure(const struct agent *a)
{
    const bool not_started =
        a->first_failure >= 0 && a->workers[a->first_failure].verdict == WORKER_NOT_STARTED;
    return a->alive > 0 && a->stop.by_user == 0 && !not_started && (!a->told || a->told_code != 0);
}

/* Set the state before signalling: if no worker is left to signal, the next step is the sweep. */
static enum agent_state agent_stop_all(struct agent *a, int sig)
{
    a->state = AGENT_STOPPING;
    a->deadline_ms = a->now_ms + a->options.grace_ms;
    if (is_stopped_by_failure(a))
        agent_emit(a, EFFECT_SAMPLE, -1, 0);
    tell_all(a, sig);
    return sweep_if_gone(a);
}

/* Report to the store first: it orders the failures of all nodes by their arrival. */
static void make_cause(struct agent *a, int local_rank)
{
    a->first_failure = local_rank;
    agent_emit(a, EFFECT_TELL_FAILED, local_rank, 0);
}

/* After a stop by the user or the store, or without a store, no end is a cause any more: stopped workers may end in
 * any way. */
static void note_failure(struct agent *a, int local_rank)
{
    if (a->stop.by_user != 0 || a->told || a->store_lost)
        return;
    if (a->workers[local_rank].verdict == WORKER_VICTIM)
        a->first_victim = a->first_victim < 0 ? local_rank : a->first_victim;
    else if (a->first_failure < 0)
        make_cause(a, local_rank);
}

/* No better cause has shown: then the first one that lost its peer stands for it. */
static void agent_settle(struct agent *a)
{
    if (a->first_failure < 0 && a->first_victim >= 0 && !a->told && !a->store_lost)
        make_cause(a, a->first_victim);
}

static bool has_failed(const struct agent *a)
{
    return a->first_failure >= 0 || a->told;
}

/* Only a failed job could have been started again. */
static void agent_explain(struct agent *a, enum no_restart why)
{
    if (has_failed(a) && a->options.max_restarts > 0)
        a->no_restart = why;
}

/* Said once: what comes after it is of no interest to the others. */
static void agent_leave(struct agent *a)
{
    if (!a->left && !a->store_lost)
        agent_emit(a, EFFECT_LEAVE, -1, 0);
    a->left = true;
}

/* --- cells of the table --------------------------------------------------------------------------------- */

/* All nodes are there, the store is empty. */
static enum agent_state run_begin(struct agent *a, const struct agent_event *e)
{
    agent_forget(a);
    a->attempt = e->attempt;
    a->hosts = e->hosts;
    a->deadline_ms = UINT64_MAX;
    effect_spawn(a, 0);
    return AGENT_RUNNING;
}

/* The worker that was asked for runs. False when it is not the one. */
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

/* One after the other: the first that cannot be started keeps the rest from being started at all. */
static enum agent_state run_started(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e) && e->local_rank + 1 < a->nproc)
        effect_spawn(a, e->local_rank + 1);
    return a->state;
}

/* One worker has given up already, and its peer will not return: start no more workers. */
static enum agent_state run_started_settling(struct agent *a, const struct agent_event *e)
{
    mark_started(a, e);
    return a->state;
}

/* It was being started when the stop began, and so missed the signal. */
static enum agent_state run_started_late(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e))
        effect_stop_worker(a, e->local_rank);
    return a->state;
}

/* The others are stopped as after any failure. During a stop it only means one less to wait for. */
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

/* Gone, before any stop, because a peer was gone first. Wait for the peer's own end before anything is done. */
static enum agent_state doubt(struct agent *a)
{
    a->deadline_ms = a->now_ms + a->options.settle_ms;
    a->settle_until_ms = a->deadline_ms + AGENT_DYING_MS;
    return AGENT_SETTLING;
}

/* The same import error ends one worker after the other: if it ends all, another attempt would end like this one. So
 * no worker is stopped while the next one follows soon. Without restarts this does not matter. */
static bool repeats_import_error(const struct agent *a, const struct agent_worker *w)
{
    const struct agent_worker *first = a->first_failure >= 0 ? &a->workers[a->first_failure] : NULL;
    return a->options.max_restarts > 0 && first != NULL && w->import_error != 0 &&
           w->import_error == first->import_error && w->ended_ms - w->started_ms < AGENT_USAGE_MS;
}

/* A machine on which the first one took long to get there is busy: the others may be as far behind. */
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

/* Did ddprun cause this end? Yes, if the worker died of our signal, or exited after it. No clock can show that: a
 * handler ends a worker in less than a millisecond. A SIGKILL before ours came from another sender, the memory killer
 * for example, whatever signal the worker had got before. */
static enum worker_verdict judge(const struct agent *a, const struct agent_worker *w,
                                 const struct agent_event *e)
{
    if (w->signal == 0 && w->exit_code == 0)
        return WORKER_OK;
    if (w->signal == 0 && w->exit_code == DDP_EXIT_PEER_LOST)
        return WORKER_VICTIM;
    const bool foreign = w->signal == SIGKILL && a->stop.signal != SIGKILL;
    if (w->told_to_stop && !e->unasked && !foreign)
        return WORKER_CONSEQUENCE;
    return e->lost_peer ? WORKER_VICTIM : WORKER_FAILED;
}

/* Report every end to the store, exit code 0 included, because ranks that wait for this one at a barrier
 * wait for nothing. */
static enum agent_state run_ended(struct agent *a, const struct agent_event *e)
{
    struct agent_worker *w = &a->workers[e->local_rank];
    if (w->verdict != WORKER_ALIVE)
        return a->state;
    w->exit_code = e->exit_code;
    w->signal = e->signal;
    w->import_error = e->import_error;
    w->ended_ms = e->now_ms;
    w->verdict = judge(a, w, e);
    a->alive--;
    if (w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM)
        note_failure(a, e->local_rank);
    if (!a->store_lost)
        agent_emit(a, EFFECT_TELL_EXITED, e->local_rank, 0);
    if (w->verdict == WORKER_FAILED && a->stop.signal == 0 && a->alive > 0 && repeats_import_error(a, w))
        return wait_for_same(a);
    if (w->verdict == WORKER_FAILED && a->stop.signal == 0)
        return agent_stop_all(a, SIGTERM);
    if (w->verdict == WORKER_VICTIM && a->state == AGENT_RUNNING && (a->alive > 0 || a->spawning >= 0))
        return doubt(a);
    return sweep_if_gone(a);
}

/* Print once why nothing happens. */
static enum agent_state await_end_of(struct agent *a, int local_rank)
{
    a->deadline_ms = a->now_ms + AGENT_LOOK_MS;
    if (!a->said_dying)
        agent_emit(a, EFFECT_SAY_DYING, local_rank, 0);
    a->said_dying = true;
    return a->state;
}

/* No other worker has failed: this one stands for the cause. */
static enum agent_state run_settled(struct agent *a, const struct agent_event *e)
{
    if (e->dying && e->now_ms < a->settle_until_ms)
        return await_end_of(a, e->local_rank);
    agent_settle(a);
    return agent_stop_all(a, SIGTERM);
}

static enum agent_state run_user_stops(struct agent *a, const struct agent_event *e)
{
    agent_settle(a); /* who gave up before the user did was first */
    a->stop.by_user = e->signal;
    a->stop.requests = 1;
    agent_leave(a);
    return agent_stop_all(a, e->signal);
}

/* Another node's failure. Ends of our workers from here on are consequences of it. */
static void agent_hear_told(struct agent *a, const struct agent_event *e)
{
    a->told = true;
    a->told_code = e->exit_code;
}

static enum agent_state run_told(struct agent *a, const struct agent_event *e)
{
    agent_hear_told(a, e);
    return agent_stop_all(a, SIGTERM);
}

/* It failed here, too, or was being stopped already; but another node was first. */
static enum agent_state run_told_late(struct agent *a, const struct agent_event *e)
{
    agent_hear_told(a, e);
    return a->state;
}

/* From here on it is this node's own failure, whatever becomes of the store. */
static enum agent_state run_heard(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->heard = true;
    return a->state;
}

/* The store may learn of a worker that lost a peer before it drops the node that took both away. No better cause can
 * be reported then, and this one is none. */
static void forget_victim_elsewhere(struct agent *a)
{
    if (a->judged || a->told_code != DDP_EXIT_PEER_LOST)
        return;
    a->told = false;
    a->told_code = 0;
}

/* Workers talk to the store as well, and some die of its end before this node sees it. A program that could not be
 * started did not. */
static void agent_lose_store(struct agent *a)
{
    const int first = a->first_failure;
    const bool victim = !a->judged && first >= 0 && a->workers[first].verdict == WORKER_VICTIM;
    a->store_lost = true;
    forget_victim_elsewhere(a);
    if ((a->heard && !victim) || (first >= 0 && a->workers[first].verdict == WORKER_NOT_STARTED))
        return;
    for (int r = 0; r < a->nproc; r++)
        if (a->workers[r].verdict == WORKER_FAILED || a->workers[r].verdict == WORKER_VICTIM)
            a->workers[r].verdict = WORKER_CONSEQUENCE;
    a->first_failure = a->first_victim = -1;
}

/* Without the store these workers cannot learn whether the others still run. */
static enum agent_state run_lose_store(struct agent *a, const struct agent_event *e)
{
    (void)e;
    agent_lose_store(a);
    return agent_stop_all(a, SIGTERM);
}

/* The stop is under way; its end will find no store. */
static enum agent_state run_note_lost(struct agent *a, const struct agent_event *e)
{
    (void)e;
    agent_lose_store(a);
    agent_explain(a, NO_RESTART_STORE_LOST);
    return a->state;
}

/* The grace time is over, or the user has insisted. Processes that the workers started are killed with them. */
static enum agent_state run_kill_all(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = a->stop.give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    tell_all(a, SIGKILL);
    agent_emit(a, EFFECT_SIGNAL_REST, -1, SIGKILL);
    return AGENT_KILLING;
}

/* The second request leaves the polite part out; the time until we give up begins anew. */
static enum agent_state sweep_now(struct agent *a)
{
    a->stop.give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    return agent_sweep_kill(a);
}

/* Something has happened already that ends or ended this attempt. */
static void agent_note_stop(struct agent *a, const struct agent_event *e)
{
    if (a->stop.by_user == 0)
        a->stop.by_user = e->signal;
    agent_explain(a, NO_RESTART_STOPPED);
    agent_leave(a);
}

/* A stop is under way. The user's first request changes nothing; the second means now. */
static enum agent_state run_user_insists(struct agent *a, const struct agent_event *e)
{
    agent_note_stop(a, e);
    if (++a->stop.requests < 2)
        return a->state;
    if (a->state == AGENT_STOPPING)
        return run_kill_all(a, e);
    if (a->state == AGENT_SWEEPING && !a->stop.sweep_hard)
        return sweep_now(a);
    return a->state;
}

/* --- agent facts ------------------------------------------------------------------------------------------ */

/* The queries of agent.h, and the exit code: one number for possibly many ends.
 *
 * An end that ddprun caused is not evidence about the job: it never becomes the exit code, under no policy. */

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

/* By time, not by rank; -1 = no failure. Every report and every code begins here. */
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

/* The reason why no restart follows, for a user who has asked for restarts. */
enum no_restart agent_no_restart(const struct agent *a)
{
    return a->no_restart;
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
    return a->state == AGENT_WAIT_PEERS && a->hosts && a->now_ms >= a->linger_until_ms;
}

bool agent_lost_store(const struct agent *a)
{
    return a->store_lost && !a->judged;
}

/* --- what another attempt could not change -------------------------------------------------------------- */

/* The machine was short of something when the worker was started; it may have it again in a moment. */
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

/* One that another attempt cannot have: none of the workers that were started got any further. */
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

/* Did it end, or fail to start, by its own doing? */
static bool has_own_code(const struct agent_worker *w)
{
    return w->verdict == WORKER_OK || w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM ||
           w->verdict == WORKER_NOT_STARTED;
}

/* For scripts that tell kinds of failure apart by their codes, and number them by weight. */
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

/* For jobs in which rank 0 is the driver and the others are its helpers: its word counts, 0 included. */
int agent_rank0_code(const struct agent *a)
{
    return has_own_code(&a->workers[0]) ? ending_code(&a->workers[0]) : -1;
}

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

/* No verdict has arrived: the exit code that this node can compute. */
static int code_known_here(const struct agent *a)
{
    if (a->told && a->told_code != 0)
        return a->told_code;
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

/* --exit_code=workers: the user stopped the job, nothing had failed before, and every worker of this node ended with 0. */
static bool stop_succeeded(const struct agent *a)
{
    const bool stopped = a->stop.by_user != 0 || (a->judged && a->verdict.no_restart == NO_RESTART_STOPPED);
    const int code = a->judged ? a->verdict.exit_first : code_known_here(a);
    bool all_well = stopped && (code == 0 || code > EXIT_CODE_SIGNAL);
    for (int r = 0; r < a->nproc && all_well; r++)
        all_well = a->workers[r].verdict == WORKER_OK;
    return all_well;
}

/* A process that cannot be killed comes first: a scheduler should not give this host the next job. A stop
 * that came too late to change the end keeps its meaning. */
int agent_exit_code(const struct agent *a)
{
    if (a->stop.stuck)
        return EXIT_CODE_UNKILLABLE;
    if (a->options.exit_policy == EXIT_POLICY_WORKERS && stop_succeeded(a))
        return EXIT_CODE_OK;
    if (!a->judged)
        return code_known_here(a);
    const int code = by_policy(a, a->verdict.exit_first, a->verdict.exit_max, a->verdict.exit_rank0);
    const bool well = a->verdict.exit_first == 0;
    return well && a->stop.by_user != 0 ? EXIT_CODE_SIGNAL + a->stop.by_user : code;
}
