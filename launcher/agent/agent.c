/* agent.c -- see agent.h.
 *
 * One table, states by events; a cell does its work on the struct, appends wishes and returns the next state.
 * Every cell is filled: where nothing has to happen it says `ignore`, so that a missing answer is a decision
 * and not an oversight. Cells about workers are in agent_run.c; here are those about the job: what follows when
 * nothing of an attempt is left, and what the store decides.
 *
 * The store is told in this order: failed (at once), exited (each worker), cause and stopped (when nothing is left).
 * After `stopped`, or `done` when all ended well, this node does nothing until it hears the verdict. */
#include "agent/agent_core.h"

#include <signal.h>
#include <stdlib.h>

struct agent *agent_new(const struct agent_options *options)
{
    size_t nproc = (size_t)options->nproc;
    struct agent *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return NULL;
    *a = (struct agent){ .options = *options, .nproc = options->nproc, .deadline_ms = UINT64_MAX };
    a->workers = calloc(nproc, sizeof(*a->workers));
    a->wishes = calloc(2 * nproc + 8, sizeof(*a->wishes)); /* two signals each, and a few for the job */
    if (a->options.doubt_ms == 0)
        a->options.doubt_ms = AGENT_DOUBT_MS;
    if (a->workers == NULL || a->wishes == NULL) {
        agent_free(a);
        return NULL;
    }
    core_forget(a);
    return a;
}

void agent_free(struct agent *a)
{
    if (a == NULL)
        return;
    free(a->workers);
    free(a->wishes);
    free(a);
}

static enum agent_state ignore(struct agent *a, const struct agent_event *e)
{
    (void)e;
    return a->state;
}

/* The end, for whatever reason; the exit code goes with the wish so that the shell needs no second question. */
static enum agent_state finish(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    core_wish(a, WISH_FINISH, -1, 0);
    a->wishes[a->n_wishes - 1].exit_code = agent_exit_code(a);
    return AGENT_DONE;
}

/* --- the end of an attempt ------------------------------------------------------------------------------ */

static bool in_hurry(const struct agent *a)
{
    return a->stop_signal != 0 || a->stuck;
}

/* The user has waited long enough already, and what hangs in the kernel may hang for ever: then the verdict, which
 * comes when the slowest node has told, is waited for only a moment. */
static enum agent_state await(struct agent *a)
{
    if (a->store_lost || a->judged)
        return finish(a, NULL);
    if (a->first_failure >= 0 && !a->told)
        core_wish(a, WISH_TELL_CAUSE, a->first_failure, 0);
    core_wish(a, WISH_TELL_STOPPED, -1, 0);
    a->deadline_ms = a->now_ms + (in_hurry(a) ? AGENT_LEAVE_MS : AGENT_SILENT_MS);
    return AGENT_AWAITING;
}

/* Not even SIGKILL helped: the rest is the report's. Beside it no new attempt could run. */
static enum agent_state give_up(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->stuck = true;
    core_settle(a);
    core_explain(a, NO_RESTART_UNKILLABLE);
    return await(a);
}

/* Tried once in any case: a grace time that was used up must not mean that leftovers are never killed. */
static enum agent_state sweep_on(struct agent *a, const struct agent_event *e)
{
    return a->sweep_hard && e->now_ms >= a->give_up_ms ? give_up(a, e) : core_sweep_kill(a);
}

/* All that was started here ended with 0. Where there is no other node the verdict is known, and is not waited for. */
static enum agent_state linger(struct agent *a)
{
    core_wish(a, WISH_TELL_DONE, -1, 0);
    if (a->options.alone)
        return finish(a, NULL);
    a->linger_until_ms = a->now_ms + a->options.linger_ms;
    a->deadline_ms =
        a->now_ms + (a->options.linger_ms < AGENT_SILENT_MS ? a->options.linger_ms : AGENT_SILENT_MS);
    return AGENT_LINGERING;
}

/* Nothing is left of it. Last words are taken before the store hears of the end: they may be the job's. */
static enum agent_state attempt_over(struct agent *a, const struct agent_event *e)
{
    core_settle(a);
    if (a->store_lost || a->judged)
        return finish(a, e);
    if (a->first_failure < 0 && !a->told && a->stop_signal == 0)
        return linger(a);
    if (a->stop_signal != 0)
        return await(a);
    a->deadline_ms = UINT64_MAX;
    core_wish(a, WISH_DRAIN, -1, 0);
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
    core_wish(a, WISH_SAY_RESTART, -1, 0);
    return AGENT_BACKING_OFF;
}

/* Between two rounds there is nothing to say yes to; whom the user has taken out of the job takes no part in what
 * comes. */
static enum agent_state judged(struct agent *a, const struct agent_event *e)
{
    const bool waits = a->state == AGENT_BACKING_OFF || a->state == AGENT_GATHERING;
    if (e->verdict.restart && waits)
        return a->state;
    a->verdict = e->verdict;
    if (e->verdict.restart && !in_hurry(a))
        return back_off(a);
    a->judged = !e->verdict.restart;
    core_explain(a, a->judged ? e->verdict.no_restart : NO_RESTART_STOPPED);
    return finish(a, e);
}

/* The end of the job while something still lives here: it gave this node up. The first word about that counts. */
static enum agent_state judged_early(struct agent *a, const struct agent_event *e)
{
    if (e->verdict.restart || a->judged)
        return a->state;
    a->verdict = e->verdict;
    a->judged = a->told = true;
    return a->signal == 0 ? core_stop_all(a, SIGTERM) : a->state;
}

/* Another node's workers still run, and one of them has failed. */
static enum agent_state told_lingering(struct agent *a, const struct agent_event *e)
{
    core_hear_told(a, e);
    a->deadline_ms = UINT64_MAX;
    core_wish(a, WISH_DRAIN, -1, 0);
    return AGENT_DRAINING;
}

/* The user is told once; when time is up this node has nothing to blame itself for. Whoever has the store would take it
 * from nodes that still run: it stays until they are done, or lost, or its user has had enough. */
static enum agent_state linger_on(struct agent *a, const struct agent_event *e)
{
    const bool is_up = e->now_ms >= a->linger_until_ms;
    core_wish(a, WISH_SAY_WAITING, -1, 0);
    if (is_up && !a->hosts)
        return finish(a, e);
    a->deadline_ms = is_up ? UINT64_MAX : a->linger_until_ms;
    return a->state;
}

/* Other nodes may need their grace time. The store hears every second that we are here, and we that it is. */
static enum agent_state await_on(struct agent *a, const struct agent_event *e)
{
    if (in_hurry(a))
        return finish(a, e);
    core_wish(a, WISH_SAY_WAITING, -1, 0);
    a->deadline_ms = UINT64_MAX;
    return a->state;
}

static enum agent_state join(struct agent *a, const struct agent_event *e)
{
    (void)e;
    a->deadline_ms = UINT64_MAX;
    core_wish(a, WISH_JOIN, -1, 0);
    return AGENT_GATHERING;
}

/* Nothing runs, so there is nobody to stop. */
static enum agent_state user_leaves(struct agent *a, const struct agent_event *e)
{
    core_note_stop(a, e);
    return finish(a, e);
}

/* Only words are left to be exchanged: a moment for the verdict, and none at the second request. */
static enum agent_state user_hurries(struct agent *a, const struct agent_event *e)
{
    core_note_stop(a, e);
    return await(a);
}

static enum agent_state user_waits(struct agent *a, const struct agent_event *e)
{
    const bool again = a->stop_signal != 0;
    core_note_stop(a, e);
    a->deadline_ms = a->now_ms + AGENT_LEAVE_MS;
    return again ? finish(a, e) : a->state;
}

/* No directory for logs, or the store does not want us: a new attempt could not even be begun. The failure that led
 * here stays the cause. */
static enum agent_state not_ready(struct agent *a, const struct agent_event *e)
{
    a->not_ready = true;
    core_explain(a, NO_RESTART_NOT_READY);
    core_leave(a);
    return finish(a, e);
}

/* Between two rounds, or before the first: there will be none. */
static enum agent_state lost_between(struct agent *a, const struct agent_event *e)
{
    core_lose_store(a);
    core_explain(a, NO_RESTART_STORE_LOST);
    return finish(a, e);
}

/* The whole machine. Cells named run_ are in agent_run.c, the others above. */

/* clang-format off */
static agent_cell *const table[AGENT_STATES][AGENT_EVENTS] = {
    /*                      START      SPAWNED               SPAWN_FAILED     EXITED     STOP              ALONE         DRAINED  TOLD_TO_STOP    HEARD      VERDICT       STORE_LOST      NOT_READY  TICK */
    [AGENT_GATHERING]   = { run_begin, ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,         ignore,    judged,       lost_between,   not_ready, ignore         },
    [AGENT_RUNNING]     = { ignore,    run_started,          run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_told,       run_heard, judged_early, run_lose_store, ignore,    ignore         },
    [AGENT_DOUBTING]    = { ignore,    run_started_in_doubt, run_not_started, run_ended, run_user_stops,   ignore,       ignore,  run_told,       run_heard, judged_early, run_lose_store, ignore,    run_doubt_ends },
    [AGENT_STOPPING]    = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    run_kill_all   },
    [AGENT_KILLING]     = { ignore,    run_started_late,     run_not_started, run_ended, run_user_insists, ignore,       ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    give_up        },
    [AGENT_SWEEPING]    = { ignore,    ignore,               ignore,          ignore,    run_user_insists, attempt_over, ignore,  run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    sweep_on       },
    [AGENT_DRAINING]    = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       drained, run_told_late,  run_heard, judged_early, run_note_lost,  ignore,    ignore         },
    [AGENT_LINGERING]   = { ignore,    ignore,               ignore,          ignore,    user_hurries,     ignore,       ignore,  told_lingering, ignore,    judged,       lost_between,   ignore,    linger_on      },
    [AGENT_AWAITING]    = { ignore,    ignore,               ignore,          ignore,    user_waits,       ignore,       ignore,  run_told_late,  run_heard, judged,       lost_between,   ignore,    await_on       },
    [AGENT_BACKING_OFF] = { ignore,    ignore,               ignore,          ignore,    user_leaves,      ignore,       ignore,  ignore,         ignore,    judged,       lost_between,   ignore,    join           },
    [AGENT_DONE]        = { ignore,    ignore,               ignore,          ignore,    ignore,           ignore,       ignore,  ignore,         ignore,    ignore,       ignore,         ignore,    ignore         },
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
