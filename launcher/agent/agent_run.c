/* agent_run.c -- the cells of agent.c's table about workers: start, end, and the ladder of a stop.
 *
 * Which end of a worker is its own fault: one that we did not ask for. When two workers fail in the same
 * instant we wish for the second one's signal before its end is seen, yet no signal has caused it: the shell
 * says so (`unasked`). It is a failure too, but never the first.
 *
 * A worker whose peer dies may be gone before that peer is: its connection breaks while the kernel still takes the dead one
 * apart, or writes its core file. It says so by its exit code (DDP_EXIT_PEER_LOST), or in words (`lost_peer`). Then nobody
 * is stopped for a while (doubt_ms), so that whatever fails in that time has failed by itself and is the cause. One that the
 * kernel still takes apart when that time is over has failed, too: its end, and how it ended, is waited for. */
#include "agent/agent_core.h"

#include "ddp/error.h"

#include <signal.h>
#include <string.h>

/* As before the first start. */
void core_forget(struct agent *a)
{
    memset(a->workers, 0, (size_t)a->nproc * sizeof(*a->workers));
    a->spawning = a->first_failure = a->first_victim = -1;
    a->alive = a->signal = a->told_code = 0;
    a->sweep_hard = a->told = a->heard = a->said_dying = false;
    a->no_restart = RESTART_ALLOWED;
}

/* --- wishes --------------------------------------------------------------------------------------------- */

/* Cannot fail: agent_new made room for the most that one step can cause. */
void core_wish(struct agent *a, enum agent_wish_type type, int local_rank, int sig)
{
    a->wishes[a->n_wishes++] = (struct agent_wish){ .type = type, .local_rank = local_rank, .signal = sig };
}

/* One start is under way at a time; `spawning` remembers which, so that a stray answer changes nothing. */
static void wish_spawn(struct agent *a, int local_rank)
{
    a->spawning = local_rank;
    core_wish(a, WISH_SPAWN, local_rank, 0);
}

/* SIGCONT follows a polite signal: a stopped process would not see it, and the end would take the whole grace
 * time. */
static void tell(struct agent *a, int local_rank)
{
    struct agent_worker *w = &a->workers[local_rank];
    core_wish(a, WISH_SIGNAL, local_rank, a->signal);
    if (a->signal != SIGKILL)
        core_wish(a, WISH_SIGNAL, local_rank, SIGCONT);
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

/* The last rung of the ladder. Leftovers may go on having children, so it is repeated until none is left or
 * the time is up; whoever had to be killed before has used up some of it. */
enum agent_state core_sweep_kill(struct agent *a)
{
    a->sweep_hard = true;
    a->deadline_ms = a->now_ms + AGENT_RESCAN_MS;
    core_wish(a, WISH_SIGNAL_REST, -1, SIGKILL);
    return AGENT_SWEEPING;
}

/* Leftovers get a short grace time of their own, unless patience is used up already. */
static enum agent_state sweep(struct agent *a)
{
    const uint64_t grace_ms = a->options.grace_ms < AGENT_SWEEP_MS ? a->options.grace_ms : AGENT_SWEEP_MS;
    if (a->signal == SIGKILL)
        return core_sweep_kill(a);
    a->deadline_ms = a->now_ms + grace_ms;
    a->give_up_ms = a->deadline_ms + AGENT_UNKILLABLE_MS;
    core_wish(a, WISH_SIGNAL_REST, -1, SIGTERM);
    core_wish(a, WISH_SIGNAL_REST, -1, SIGCONT);
    return AGENT_SWEEPING;
}

/* A start whose answer is still missing counts as alive: its process may exist already. */
static enum agent_state sweep_if_gone(struct agent *a)
{
    return a->alive == 0 && a->spawning < 0 ? sweep(a) : a->state;
}

/* The state is set before anybody is told, so that with nobody left to tell the next step is the sweep. */
enum agent_state core_stop_all(struct agent *a, int sig)
{
    a->state = AGENT_STOPPING;
    a->deadline_ms = a->now_ms + a->options.grace_ms;
    tell_all(a, sig);
    return sweep_if_gone(a);
}

/* The store hears it first: it orders the failures of all nodes by their arrival. */
static void make_cause(struct agent *a, int local_rank)
{
    a->first_failure = local_rank;
    core_wish(a, WISH_TELL_FAILED, local_rank, 0);
}

/* After a stop by the user or the store, or without a store, nothing is a cause any more: workers may end as they like
 * when they are told to. */
static void note_failure(struct agent *a, int local_rank)
{
    if (a->stop_signal != 0 || a->told || a->store_lost)
        return;
    if (a->workers[local_rank].verdict == WORKER_VICTIM)
        a->first_victim = a->first_victim < 0 ? local_rank : a->first_victim;
    else if (a->first_failure < 0)
        make_cause(a, local_rank);
}

/* No better cause has shown: then the first one that lost its peer stands for it. */
void core_settle(struct agent *a)
{
    if (a->first_failure < 0 && a->first_victim >= 0 && !a->told && !a->store_lost)
        make_cause(a, a->first_victim);
}

static bool has_failed(const struct agent *a)
{
    return a->first_failure >= 0 || a->told;
}

/* Only a failed job could have been started again. */
void core_explain(struct agent *a, enum no_restart why)
{
    if (has_failed(a) && a->options.max_restarts > 0)
        a->no_restart = why;
}

/* Said once: what comes after it is of no interest to the others. */
void core_leave(struct agent *a)
{
    if (!a->left && !a->store_lost)
        core_wish(a, WISH_LEAVE, -1, 0);
    a->left = true;
}

/* --- cells of the table --------------------------------------------------------------------------------- */

/* All nodes are there, the store is empty. */
enum agent_state run_begin(struct agent *a, const struct agent_event *e)
{
    core_forget(a);
    a->attempt = e->attempt;
    a->hosts = e->hosts;
    a->deadline_ms = UINT64_MAX;
    wish_spawn(a, 0);
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
enum agent_state run_started(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e) && e->local_rank + 1 < a->nproc)
        wish_spawn(a, e->local_rank + 1);
    return a->state;
}

/* One has given up already, and what it waited for will not come: nobody is started after it. */
enum agent_state run_started_in_doubt(struct agent *a, const struct agent_event *e)
{
    mark_started(a, e);
    return a->state;
}

/* It was being started when the stop began, and so missed the signal. */
enum agent_state run_started_late(struct agent *a, const struct agent_event *e)
{
    if (mark_started(a, e))
        tell(a, e->local_rank);
    return a->state;
}

/* The others are stopped as after any failure. During a stop it only means one less to wait for. */
enum agent_state run_not_started(struct agent *a, const struct agent_event *e)
{
    if (e->local_rank != a->spawning)
        return a->state;
    struct agent_worker *w = &a->workers[e->local_rank];
    w->verdict = WORKER_NOT_STARTED;
    w->error = e->error;
    w->started_ms = w->ended_ms = e->now_ms;
    a->spawning = -1;
    note_failure(a, e->local_rank);
    return a->signal == 0 ? core_stop_all(a, SIGTERM) : sweep_if_gone(a);
}

/* Gone, before any stop, because a peer was gone first. Wait for the peer's own end before anything is done. */
static enum agent_state doubt(struct agent *a)
{
    a->deadline_ms = a->now_ms + a->options.doubt_ms;
    a->doubt_until_ms = a->deadline_ms + AGENT_DYING_MS;
    return AGENT_DOUBTING;
}

/* The same import error ends one worker after the other: another attempt would end like this one, if that is true of all. So
 * nobody is stopped as long as the next one follows soon. Without restarts nothing depends on it. */
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
    a->doubt_until_ms = a->deadline_ms;
    return AGENT_DOUBTING;
}

/* Whose doing is this end? Ours when it died of a signal that we sent, or of whatever it does when told to
 * stop. No clock can tell: a handler ends a worker in less than a millisecond. A SIGKILL before ours is
 * somebody else's, the memory killer's for one, whatever the worker had been told. */
static enum worker_verdict judge(const struct agent *a, const struct agent_worker *w,
                                 const struct agent_event *e)
{
    if (w->signal == 0 && w->exit_code == 0)
        return WORKER_OK;
    if (w->signal == 0 && w->exit_code == DDP_EXIT_PEER_LOST)
        return WORKER_VICTIM;
    const bool foreign = w->signal == SIGKILL && a->signal != SIGKILL;
    if (w->told_to_stop && !e->unasked && !foreign)
        return WORKER_CONSEQUENCE;
    return e->lost_peer ? WORKER_VICTIM : WORKER_FAILED;
}

/* The store is told of every end, a good one included: who waits for this rank at a barrier waits in vain. */
enum agent_state run_ended(struct agent *a, const struct agent_event *e)
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
        core_wish(a, WISH_TELL_EXITED, e->local_rank, 0);
    if (w->verdict == WORKER_FAILED && a->signal == 0 && a->alive > 0 && repeats_import_error(a, w))
        return wait_for_same(a);
    if (w->verdict == WORKER_FAILED && a->signal == 0)
        return core_stop_all(a, SIGTERM);
    if (w->verdict == WORKER_VICTIM && a->state == AGENT_RUNNING && (a->alive > 0 || a->spawning >= 0))
        return doubt(a);
    return sweep_if_gone(a);
}

/* The user is told once why nothing happens. */
static enum agent_state await_end_of(struct agent *a, int local_rank)
{
    a->deadline_ms = a->now_ms + AGENT_LOOK_MS;
    if (!a->said_dying)
        core_wish(a, WISH_SAY_DYING, local_rank, 0);
    a->said_dying = true;
    return a->state;
}

/* Nobody else has failed: it stands for the cause. */
enum agent_state run_doubt_ends(struct agent *a, const struct agent_event *e)
{
    if (e->dying && e->now_ms < a->doubt_until_ms)
        return await_end_of(a, e->local_rank);
    core_settle(a);
    return core_stop_all(a, SIGTERM);
}

enum agent_state run_user_stops(struct agent *a, const struct agent_event *e)
{
    core_settle(a); /* who gave up before the user did was first */
    a->stop_signal = e->signal;
    a->stop_requests = 1;
    core_leave(a);
    return core_stop_all(a, e->signal);
}

/* Another node's trouble. What our workers do from here on is a consequence of it. */
void core_hear_told(struct agent *a, const struct agent_event *e)
{
    a->told = true;
    a->told_code = e->exit_code;
}

enum agent_state run_told(struct agent *a, const struct agent_event *e)
{
    core_hear_told(a, e);
    return core_stop_all(a, SIGTERM);
}

/* It failed here, too, or was being stopped already; but somebody else was first. */
enum agent_state run_told_late(struct agent *a, const struct agent_event *e)
{
    core_hear_told(a, e);
    return a->state;
}

/* From here on it is this node's own failure, whatever becomes of the store. */
enum agent_state run_heard(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->heard = true;
    return a->state;
}

/* Of a worker that has lost a peer the store may hear before it goes with the node that took both away. No better cause can be told
 * then, and this one is none. */
static void forget_victim_elsewhere(struct agent *a)
{
    if (a->judged || a->told_code != DDP_EXIT_PEER_LOST)
        return;
    a->told = false;
    a->told_code = 0;
}

/* Workers talk to the store as well, and some die of its end before this node sees it. A program that could not be
 * started did not. */
void core_lose_store(struct agent *a)
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

/* Nobody could tell these workers any more whether the others are still there. */
enum agent_state run_lose_store(struct agent *a, const struct agent_event *e)
{
    (void)e;
    core_lose_store(a);
    return core_stop_all(a, SIGTERM);
}

/* The stop is under way; its end will find no store. */
enum agent_state run_note_lost(struct agent *a, const struct agent_event *e)
{
    (void)e;
    core_lose_store(a);
    core_explain(a, NO_RESTART_STORE_LOST);
    return a->state;
}

/* The grace time is over, or the user said now. What the workers have started goes with them. */
enum agent_state run_kill_all(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = a->give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    tell_all(a, SIGKILL);
    core_wish(a, WISH_SIGNAL_REST, -1, SIGKILL);
    return AGENT_KILLING;
}

/* The second request leaves the polite part out; the time until we give up begins anew. */
static enum agent_state sweep_now(struct agent *a)
{
    a->give_up_ms = a->now_ms + AGENT_UNKILLABLE_MS;
    return core_sweep_kill(a);
}

/* Something has happened already that ends or ended this attempt. */
void core_note_stop(struct agent *a, const struct agent_event *e)
{
    if (a->stop_signal == 0)
        a->stop_signal = e->signal;
    core_explain(a, NO_RESTART_STOPPED);
    core_leave(a);
}

/* A stop is under way. The user's first request changes nothing; the second means now. */
enum agent_state run_user_insists(struct agent *a, const struct agent_event *e)
{
    core_note_stop(a, e);
    if (++a->stop_requests < 2)
        return a->state;
    if (a->state == AGENT_STOPPING)
        return run_kill_all(a, e);
    if (a->state == AGENT_SWEEPING && !a->sweep_hard)
        return sweep_now(a);
    return a->state;
}
