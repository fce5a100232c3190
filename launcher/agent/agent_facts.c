/* agent_facts.c -- what agent.h lets others ask, and the exit code: one number for what may have been many ends.
 *
 * An end that we caused says nothing about the job: it never makes the code, under no policy. */
#include "agent/agent_core.h"

#include "agent/ending.h"
#include "tables/exit_codes.h"

#include <errno.h>

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

/* By time, not by rank; -1 as long as nobody failed. Every report and every code begins here. */
int agent_first_failure(const struct agent *a)
{
    return a->first_failure;
}

int agent_stop_signal(const struct agent *a)
{
    return a->stop_signal;
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

/* Why the last failure was the end: a user who has asked for restarts wants to know why there was none. */
enum no_restart agent_no_restart(const struct agent *a)
{
    return a->no_restart;
}

bool agent_is_stuck(const struct agent *a)
{
    return a->stuck;
}

enum exit_policy agent_exit_policy(const struct agent *a)
{
    return a->options.exit_policy;
}

bool agent_overstays(const struct agent *a)
{
    return a->state == AGENT_LINGERING && a->hosts && a->now_ms >= a->linger_until_ms;
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
        return RESTART_ALLOWED;
    if (w->verdict == WORKER_NOT_STARTED && !is_shortage(w->error))
        return NO_RESTART_CANNOT_START;
    if (is_import_error_of_all(a, w))
        return NO_RESTART_IMPORT;
    return is_usage_error(w) ? NO_RESTART_USAGE : RESTART_ALLOWED;
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

/* Nobody has told what the job as a whole ends with. */
static int code_known_here(const struct agent *a)
{
    if (a->told && a->told_code != 0)
        return a->told_code;
    if (a->first_failure >= 0) {
        const int first = ending_code(&a->workers[a->first_failure]), rank0 = agent_rank0_code(a);
        return by_policy(a, first, agent_max_code(a), rank0 >= 0 ? rank0 : first);
    }
    if (a->stop_signal != 0)
        return EXIT_CODE_SIGNAL + a->stop_signal;
    if (a->not_ready)
        return EXIT_CODE_DDPRUN;
    return a->store_lost ? EXIT_CODE_STORE_LOST : EXIT_CODE_OK;
}

/* --exit_code=workers: the user stopped the job, nothing had failed before, and every worker of this node ended with 0. */
static bool stop_succeeded(const struct agent *a)
{
    const bool stopped = a->stop_signal != 0 || (a->judged && a->verdict.no_restart == NO_RESTART_STOPPED);
    const int code = a->judged ? a->verdict.exit_first : code_known_here(a);
    bool all_well = stopped && (code == 0 || code > EXIT_CODE_SIGNAL);
    for (int r = 0; r < a->nproc && all_well; r++)
        all_well = a->workers[r].verdict == WORKER_OK;
    return all_well;
}

/* What cannot be killed comes first: whoever reads the code should not give this host the next job. A stop that came
 * too late to change the end is still what the user asked for. */
int agent_exit_code(const struct agent *a)
{
    if (a->stuck)
        return EXIT_CODE_UNKILLABLE;
    if (a->options.exit_policy == EXIT_POLICY_WORKERS && stop_succeeded(a))
        return EXIT_CODE_OK;
    if (!a->judged)
        return code_known_here(a);
    const int code = by_policy(a, a->verdict.exit_first, a->verdict.exit_max, a->verdict.exit_rank0);
    const bool well = a->verdict.exit_first == 0;
    return well && a->stop_signal != 0 ? EXIT_CODE_SIGNAL + a->stop_signal : code;
}
