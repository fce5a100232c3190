/* restarts.c -- see restarts.h.
 *
 * What cannot change is not tried again: a program that is not there, a usage error, or an import error; the agent, which has
 * seen the worker's end, says so. Being out of memory is retried like any other failure: a worker that leaks
 * for hours goes on from its last checkpoint, and one that is too big from the beginning is ended by the rule
 * about progress or by --max_restarts. */
#include "job/restarts.h"

void restarts_init(struct restarts *a, const struct rdzv_join *rules)
{
    *a = (struct restarts){ .max_restarts = rules->max_restarts,
                            .max_no_progress = rules->max_no_progress,
                            .backoff_ms = rules->backoff_ms,
                            .backoff_cap_ms = rules->backoff_cap_ms,
                            .step = -1,
                            .best_step = -1 };
}

/* The reason that helps the user most comes first: the budget is the last to be named. `failed` stops
 * counting one above the budget, so that it cannot wrap in a job that is judged again and again. */
enum rdzv_no_restart restarts_failed(struct restarts *a, const struct rdzv_cause *cause)
{
    a->step = -1;
    if (a->failed <= a->max_restarts)
        a->failed++;
    if (a->max_restarts == 0)
        return RDZV_NO_RESTART_NONE; /* nobody asked for one, so there is nothing to explain */
    if (cause->no_retry != RDZV_NO_RESTART_NONE)
        return cause->no_retry;
    return a->failed > a->max_restarts ? RDZV_NO_RESTART_USED_UP : RDZV_NO_RESTART_NONE;
}

/* Workers that never tell are not judged by it. Once one attempt has told, another that dies before it could
 * has come no further. */
enum rdzv_no_restart restarts_progress(struct restarts *a, int64_t step)
{
    a->step = step;
    bool judged = a->best_step >= 0;
    if (step > a->best_step) {
        a->best_step = step;
        a->standing = 0;
    } else {
        a->standing++;
    }
    bool too_often = judged && a->max_no_progress > 0 && a->standing >= a->max_no_progress;
    return too_often ? RDZV_NO_RESTART_NO_PROGRESS : RDZV_NO_RESTART_NONE;
}

/* Doubled with each attempt that stood still, so a job that does get on is not punished for its past. Half of
 * the cap is compared, not the double of the wait: a huge cap must not make it run over. */
uint64_t restarts_backoff(const struct restarts *a)
{
    uint32_t doublings = a->best_step >= 0 ? a->standing : a->failed > 0 ? a->failed - 1 : 0;
    uint64_t wait_ms = a->backoff_ms;
    for (; doublings > 0 && wait_ms > 0 && wait_ms <= a->backoff_cap_ms / 2; doublings--)
        wait_ms *= 2;
    if (doublings > 0 && wait_ms > 0)
        return a->backoff_cap_ms;
    return wait_ms < a->backoff_cap_ms ? wait_ms : a->backoff_cap_ms;
}
