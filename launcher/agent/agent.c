/* agent.c -- see agent.h.
 *
 * One table, states by events; a cell does its work on the struct, appends wishes and returns the next state.
 * Every cell is filled: where nothing has to happen it says `ignore`, so that a missing answer is a decision
 * and not an oversight.
 *
 * Which end of a worker is its own fault: one that we did not ask for. When two workers fail in the same
 * instant we wish for the second one's signal before its end is seen, yet no signal has caused it: the shell
 * says so (`unasked`). It is a failure too, but never the first.
 *
 * A worker whose peer dies may be gone before that peer is: its connection breaks while the kernel still takes
 * the dead one apart, or writes its core file. It says so by its exit code (DDP_EXIT_PEER_LOST). Then nobody is
 * stopped for AGENT_DOUBT_MS, so that whatever fails in that time has failed by itself and is the cause. */
#include "agent/agent_core.h"

#include "ddp/error.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* As before the first start. */
static void forget_workers(struct agent *a)
{
    memset(a->workers, 0, (size_t)a->nproc * sizeof(*a->workers));
    a->spawning = a->first_failure = a->first_victim = -1;
    a->alive = a->signal = 0;
    a->sweep_hard = false;
}

struct agent *agent_new(const struct agent_options *options)
{
    size_t nproc = (size_t)options->nproc;
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    *a = (struct agent){ .options = *options, .nproc = options->nproc, .deadline_ms = UINT64_MAX };
    a->workers = calloc(nproc, sizeof(*a->workers));
    a->wishes = calloc(2 * nproc + 8, sizeof(*a->wishes)); /* two signals each, and a few for the job */
    if (!attempts_init(&a->attempts, options) || a->workers == NULL || a->wishes == NULL) {
        agent_free(a);
        return NULL;
    }
    forget_workers(a);
    return a;
}

void agent_free(struct agent *a)
{
    if (a == NULL)
        return;
    attempts_free(&a->attempts);
    free(a->workers);
    free(a->wishes);
    free(a);
}

/* --- wishes --------------------------------------------------------------------------------------------- */

/* Cannot fail: agent_new made room for the most that one step can cause. */
static void wish(struct agent *a, enum agent_wish_type type, int local_rank, int sig)
{
    a->wishes[a->n_wishes++] = (struct agent_wish){ .type = type, .local_rank = local_rank, .signal = sig };
}

/* One start is under way at a time; `spawning` remembers which, so that a stray answer changes nothing. */
static void wish_spawn(struct agent *a, int local_rank)
{
    a->spawning = local_rank;
    wish(a, WISH_SPAWN, local_rank, 0);
}

/* SIGCONT follows a polite signal: a stopped process would not see it, and the end would take the whole grace
 * time. */
static void tell(struct agent *a, int local_rank)
{
    struct agent_worker *w = &a->workers[local_rank];
    wish(a, WISH_SIGNAL, local_rank, a->signal);
    if (a->signal != SIGKILL)
        wish(a, WISH_SIGNAL, local_rank, SIGCONT);
    w->told_to_stop = true;
}

/* From here on `signal` is what a late starter gets, too. */
static void tell_all(struct agent *a, int sig)
{
    a->signal = sig;
    for (int r = 0; r < a->nproc; r++)
        if (a->workers[r].verdict == WORKER_ALIVE)
            tell(a, r);
}

/* --- going from state to state -------------------------------------------------------------------------- */

/* The end, for whatever reason; the exit code goes with the wish so that the shell needs no second question. */
static enum agent_state finish(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    wish(a, WISH_FINISH, -1, 0);
    a->wishes[a->n_wishes - 1].exit_code = agent_exit_code(a);
    return AGENT_DONE;
}

/* The last rung of the ladder. Leftovers may go on having children, so it is repeated until none is left or
 * the time is up; whoever had to be killed before has used up some of it. */
static enum agent_state sweep_kill(struct agent *a)
{
    a->sweep_hard = true;
    a->deadline_ms = a->now_ms + AGENT_RESCAN_MS;
    wish(a, WISH_SIGNAL_REST, -1, SIGKILL);
    return AGENT_SWEEPING;
}

/* Leftovers get a short grace time of their own, unless patience is used up already. */
static enum agent_state sweep(struct agent *a)
{
    const uint64_t grace_ms = a->options.grace_ms < AGENT_SWEEP_MS ? a->options.grace_ms : AGENT_SWEEP_MS;
    if (a->signal == SIGKILL)
        return sweep_kill(a);
    a->deadline_ms = a->now_ms + grace_ms;
    a->give_up_ms = a->deadline_ms + AGENT_UNKILLABLE_MS;
    wish(a, WISH_SIGNAL_REST, -1, SIGTERM);
    wish(a, WISH_SIGNAL_REST, -1, SIGCONT);
    return AGENT_SWEEPING;
}

/* A start whose answer is still missing counts as alive: its process may exist already. */
static enum agent_state sweep_if_gone(struct agent *a)
{
    return a->alive == 0 && a->spawning < 0 ? sweep(a) : a->state;
}

/* The state is set before anybody is told, so that with nobody left to tell the next step is the sweep. */
static enum agent_state stop_all(struct agent *a, int sig)
{
    a->state = AGENT_STOPPING;
    a->deadline_ms = a->now_ms + a->options.grace_ms;
    tell_all(a, sig);
    return sweep_if_gone(a);
}

/* After the user's stop nothing is a cause any more: workers may end as they like when they are told to. */
static void note_failure(struct agent *a, int local_rank)
{
    int *first = a->workers[local_rank].verdict == WORKER_VICTIM ? &a->first_victim : &a->first_failure;
    if (*first < 0 && a->stop_signal == 0)
        *first = local_rank;
}

/* No better cause has shown: then the first one that lost its peer stands for it. */
static void settle_cause(struct agent *a)
{
    if (a->first_failure < 0)
        a->first_failure = a->first_victim;
}

/* --- cells of the table --------------------------------------------------------------------------------- */

static enum agent_state ignore(struct agent *a, const struct agent_event *e)
{
    (void)e;
    return a->state;
}

/* The first attempt, or the next: the store is empty. */
static enum agent_state begin(struct agent *a, const struct agent_event *e)
{
    if (a->state == AGENT_PREPARING) {
        a->attempt++;
        forget_workers(a);
    }
    a->attempt_started_ms = e->now_ms;
    a->deadline_ms = UINT64_MAX;
    wish_spawn(a, 0);
    return AGENT_RUNNING;
}

/* The signal came while the store was being set up: there is nothing to stop. */
static enum agent_state never_begin(struct agent *a, const struct agent_event *e)
{
    a->stop_signal = e->signal;
    return finish(a, e);
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
static enum agent_state started(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e) && e->local_rank + 1 < a->nproc)
        wish_spawn(a, e->local_rank + 1);
    return a->state;
}

/* One has given up already, and what it waited for will not come: nobody is started after it. */
static enum agent_state started_in_doubt(struct agent *a, const struct agent_event *e)
{
    mark_started(a, e);
    return a->state;
}

/* It was being started when the stop began, and so missed the signal. */
static enum agent_state started_late(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e))
        tell(a, e->local_rank);
    return a->state;
}

/* The others are stopped as after any failure. During a stop it only means one less to wait for. */
static enum agent_state not_started(struct agent *a, const struct agent_event *e)
{
    if (e->local_rank != a->spawning)
        return a->state;
    struct agent_worker *w = &a->workers[e->local_rank];
    w->verdict = WORKER_NOT_STARTED;
    w->error = e->error;
    w->started_ms = w->ended_ms = e->now_ms;
    a->spawning = -1;
    note_failure(a, e->local_rank);
    return a->signal == 0 ? stop_all(a, SIGTERM) : sweep_if_gone(a);
}

/* Gone, before any stop, because a peer was gone first. Wait for the peer's own end before anything is done. */
static enum agent_state doubt(struct agent *a)
{
    a->deadline_ms = a->now_ms + AGENT_DOUBT_MS;
    return AGENT_DOUBTING;
}

/* Whose doing is this end? Ours when it died of a signal that we sent, or of whatever it does when told to
 * stop. No clock can tell: a handler ends a worker in less than a millisecond. A SIGKILL before ours is
 * somebody else's, the memory killer's for one, whatever the worker had been told. */
static enum worker_verdict judge(const struct agent *a, const struct agent_worker *w, bool unasked)
{
    if (w->signal == 0 && w->exit_code == 0)
        return WORKER_OK;
    if (w->signal == 0 && w->exit_code == DDP_EXIT_PEER_LOST)
        return WORKER_VICTIM;
    const bool foreign = w->signal == SIGKILL && a->signal != SIGKILL;
    return !w->told_to_stop || unasked || foreign ? WORKER_FAILED : WORKER_CONSEQUENCE;
}

/* The store is told of every end, a good one included: who waits for this rank at a barrier waits in vain. */
static enum agent_state ended(struct agent *a, const struct agent_event *e)
{
    struct agent_worker *w = &a->workers[e->local_rank];
    if (w->verdict != WORKER_ALIVE)
        return a->state;
    w->exit_code = e->exit_code;
    w->signal = e->signal;
    w->ended_ms = e->now_ms;
    w->verdict = judge(a, w, e->unasked);
    a->alive--;
    wish(a, WISH_TELL_STORE, e->local_rank, 0);
    if (w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM)
        note_failure(a, e->local_rank);
    if (w->verdict == WORKER_FAILED && a->signal == 0)
        return stop_all(a, SIGTERM);
    if (w->verdict == WORKER_VICTIM && a->state == AGENT_RUNNING && (a->alive > 0 || a->spawning >= 0))
        return doubt(a);
    return sweep_if_gone(a);
}

/* Nobody else has failed: it stands for the cause. */
static enum agent_state doubt_ends(struct agent *a, const struct agent_event *e)
{
    (void)e;
    settle_cause(a);
    return stop_all(a, SIGTERM);
}

static enum agent_state user_stops(struct agent *a, const struct agent_event *e)
{
    settle_cause(a); /* who gave up before the user did was first */
    a->stop_signal = e->signal;
    a->stop_requests = 1;
    return stop_all(a, e->signal);
}

/* The grace time is over, or the user said now. What the workers have started goes with them. */
static enum agent_state kill_all(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = a->give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    tell_all(a, SIGKILL);
    wish(a, WISH_SIGNAL_REST, -1, SIGKILL);
    return AGENT_KILLING;
}

/* The second request leaves the polite part out; the time until we give up begins anew. */
static enum agent_state sweep_now(struct agent *a)
{
    a->give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    return sweep_kill(a);
}

/* A stop is under way. The user's first request changes nothing; the second means now. */
static enum agent_state user_insists(struct agent *a, const struct agent_event *e)
{
    if (a->stop_signal == 0)
        a->stop_signal = e->signal;
    if (++a->stop_requests < 2)
        return a->state;
    if (a->state == AGENT_STOPPING)
        return kill_all(a, e);
    if (a->state == AGENT_SWEEPING && !a->sweep_hard)
        return sweep_now(a);
    return a->state;
}

/* --- from attempt to attempt ---------------------------------------------------------------------------- */

/* The failure is written down. Says whether it leaves a chance to another attempt. */
static enum no_restart close_attempt(struct agent *a)
{
    settle_cause(a);
    if (a->first_failure < 0)
        return RESTART_ALLOWED;
    const struct agent_attempt attempt = { .started_ms = a->attempt_started_ms,
                                           .ended_ms = a->now_ms,
                                           .local_rank = a->first_failure,
                                           .cause = a->workers[a->first_failure],
                                           .step = -1 };
    return attempts_failed(&a->attempts, &attempt);
}

/* Not even SIGKILL helped: the rest is the report's. Beside it no new attempt could run. */
static enum agent_state give_up(struct agent *a, const struct agent_event *e)
{
    a->stuck = true;
    close_attempt(a);
    if (a->first_failure >= 0 && a->options.max_restarts > 0)
        a->no_restart = NO_RESTART_UNKILLABLE;
    return finish(a, e);
}

/* Tried once in any case: a grace time that was used up must not mean that leftovers are never killed. */
static enum agent_state sweep_on(struct agent *a, const struct agent_event *e)
{
    return a->sweep_hard && e->now_ms >= a->give_up_ms ? give_up(a, e) : sweep_kill(a);
}

/* Nothing is left of it. */
static enum agent_state attempt_over(struct agent *a, const struct agent_event *e)
{
    a->no_restart = close_attempt(a);
    if (a->first_failure < 0 || a->options.max_restarts == 0)
        return finish(a, e);
    if (a->stop_signal != 0)
        a->no_restart = NO_RESTART_STOPPED;
    if (a->no_restart != RESTART_ALLOWED)
        return finish(a, e);
    a->deadline_ms = UINT64_MAX;
    wish(a, WISH_ASK_PROGRESS, -1, 0);
    return AGENT_ASKING;
}

/* The store has told how far the failed attempt came: too many in a row that come no further are the end. */
static enum agent_state wait_or_end(struct agent *a, const struct agent_event *e)
{
    a->no_restart = attempts_progress(&a->attempts, e->step);
    if (a->no_restart != RESTART_ALLOWED)
        return finish(a, e);
    a->deadline_ms = a->now_ms + agent_backoff(a);
    wish(a, WISH_SAY_RESTART, -1, 0);
    return AGENT_WAITING;
}

/* Not earlier: until now one could still look at the keys of the failed attempt. */
static enum agent_state prepare(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    wish(a, WISH_PREPARE, -1, 0);
    return AGENT_PREPARING;
}

/* Between two attempts there is nobody to stop. */
static enum agent_state no_more(struct agent *a, const struct agent_event *e)
{
    a->stop_signal = e->signal;
    a->no_restart = NO_RESTART_STOPPED;
    return finish(a, e);
}

/* No store, no directory for logs: a new attempt could not even be begun. The failure that led here stays the
 * cause. */
static enum agent_state not_ready(struct agent *a, const struct agent_event *e)
{
    a->no_restart = NO_RESTART_NOT_READY;
    return finish(a, e);
}

/* The whole machine. A cell that is not `ignore` is found above under its name. */
typedef enum agent_state (*cell)(struct agent *a, const struct agent_event *e);

/* clang-format off */
static const cell table[AGENT_STATES][AGENT_EVENTS] = {
    /*                    START   SPAWNED           SPAWN_FAILED EXITED  STOP          ALONE         PROGRESS     NOT_READY  TICK */
    [AGENT_IDLE]      = { begin,  ignore,           ignore,      ignore, never_begin,  ignore,       ignore,      ignore,    ignore     },
    [AGENT_RUNNING]   = { ignore, started,          not_started, ended,  user_stops,   ignore,       ignore,      ignore,    ignore     },
    [AGENT_DOUBTING]  = { ignore, started_in_doubt, not_started, ended,  user_stops,   ignore,       ignore,      ignore,    doubt_ends },
    [AGENT_STOPPING]  = { ignore, started_late,     not_started, ended,  user_insists, ignore,       ignore,      ignore,    kill_all   },
    [AGENT_KILLING]   = { ignore, started_late,     not_started, ended,  user_insists, ignore,       ignore,      ignore,    give_up    },
    [AGENT_SWEEPING]  = { ignore, ignore,           ignore,      ignore, user_insists, attempt_over, ignore,      ignore,    sweep_on   },
    [AGENT_ASKING]    = { ignore, ignore,           ignore,      ignore, no_more,      ignore,       wait_or_end, ignore,    ignore     },
    [AGENT_WAITING]   = { ignore, ignore,           ignore,      ignore, no_more,      ignore,       ignore,      ignore,    prepare    },
    [AGENT_PREPARING] = { begin,  ignore,           ignore,      ignore, no_more,      ignore,       ignore,      not_ready, ignore     },
    [AGENT_DONE]      = { ignore, ignore,           ignore,      ignore, ignore,       ignore,       ignore,      ignore,    ignore     },
};
/* clang-format on */

const struct agent_wish *agent_step(struct agent *a, const struct agent_event *e, size_t *n)
{
    bool about_worker = e->type == AGENT_SPAWNED || e->type == AGENT_SPAWN_FAILED || e->type == AGENT_EXITED;
    bool known = e->local_rank >= 0 && e->local_rank < a->nproc;
    bool too_early = e->type == AGENT_TICK && e->now_ms < a->deadline_ms;
    a->n_wishes = 0;
    a->now_ms = e->now_ms;
    if (e->type < AGENT_EVENTS && (known || !about_worker) && !too_early)
        a->state = table[a->state][e->type](a, e);
    *n = a->n_wishes;
    return a->wishes;
}
