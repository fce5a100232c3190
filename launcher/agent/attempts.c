/* attempts.c -- see attempts.h.
 *
 * What cannot change is not tried again: a program that is not there, or a usage error, which shows as exit 2
 * (argparse, getopt), 126 or 127 (a shell in between) right after the start. Being out of memory is retried like
 * any other failure: a worker that leaks for hours goes on from its last checkpoint, and one that is too big from
 * the beginning is ended by the rule about progress or by --max_restarts. */
#include "agent/attempts.h"

#include "tables/exit_codes.h"

#include <errno.h>
#include <stdlib.h>

bool attempts_init(struct attempts *a, const struct agent_options *options)
{
    *a = (struct attempts){ .max_restarts = options->max_restarts,
                            .max_no_progress = options->max_no_progress,
                            .backoff_ms = options->backoff_ms,
                            .backoff_cap_ms = options->backoff_cap_ms,
                            .best_step = -1 };
    a->failed = calloc((size_t)options->max_restarts + 1, sizeof(*a->failed));
    return a->failed != NULL;
}

void attempts_free(struct attempts *a)
{
    free(a->failed);
}

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

/* The reason that helps the user most comes first: the budget is the last to be named. */
enum no_restart attempts_failed(struct attempts *a, const struct agent_attempt *attempt)
{
    const struct agent_worker *cause = &attempt->cause;
    bool room = a->n_failed <= a->max_restarts;
    if (room)
        a->failed[a->n_failed++] = *attempt;
    if (a->max_restarts == 0)
        return RESTART_ALLOWED; /* nobody asked for one, so there is nothing to explain */
    if (cause->verdict == WORKER_NOT_STARTED && !is_shortage(cause->error))
        return NO_RESTART_CANNOT_START;
    if (is_usage_error(cause))
        return NO_RESTART_USAGE;
    return a->n_failed > a->max_restarts ? NO_RESTART_USED_UP : RESTART_ALLOWED;
}

/* Workers that never tell are not judged by it. Once one attempt has told, another that dies before it could
 * has come no further. */
enum no_restart attempts_progress(struct attempts *a, int64_t step)
{
    a->failed[a->n_failed - 1].step = step;
    bool judged = a->best_step >= 0;
    if (step > a->best_step) {
        a->best_step = step;
        a->standing = 0;
    } else {
        a->standing++;
    }
    bool too_often = judged && a->max_no_progress > 0 && a->standing >= a->max_no_progress;
    return too_often ? NO_RESTART_NO_PROGRESS : RESTART_ALLOWED;
}

/* Doubled with each attempt that stood still, so a job that does get on is not punished for its past. */
uint64_t attempts_backoff(const struct attempts *a)
{
    bool told = a->best_step >= 0;
    int doublings = told ? a->standing : a->n_failed - 1;
    uint64_t wait_ms = a->backoff_ms;
    for (; doublings > 0 && wait_ms < a->backoff_cap_ms; doublings--)
        wait_ms *= 2;
    return wait_ms < a->backoff_cap_ms ? wait_ms : a->backoff_cap_ms;
}
