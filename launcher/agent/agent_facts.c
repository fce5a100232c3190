/* agent_facts.c -- what agent.h lets others ask, and the exit code: one number for what may have been many ends.
 *
 * An end that we caused says nothing about the job: it never makes the code, under no policy. */
#include "agent/agent_core.h"

#include "agent/ending.h"
#include "tables/exit_codes.h"

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

const struct agent_attempt *agent_failed_attempts(const struct agent *a, int *n)
{
    *n = a->attempts.n_failed;
    return a->attempts.failed;
}

uint64_t agent_backoff(const struct agent *a)
{
    return attempts_backoff(&a->attempts);
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

/* Did it end, or fail to start, by its own doing? */
static bool has_own_code(const struct agent_worker *w)
{
    return w->verdict == WORKER_OK || w->verdict == WORKER_FAILED || w->verdict == WORKER_VICTIM ||
           w->verdict == WORKER_NOT_STARTED;
}

/* Only asked when there is a first failure. */
static int first_code(const struct agent *a)
{
    return ending_code(&a->workers[a->first_failure]);
}

/* For scripts that tell kinds of failure apart by their codes, and number them by weight. */
static int highest_code(const struct agent *a)
{
    int highest = first_code(a);
    for (int r = 0; r < a->nproc; r++) {
        const struct agent_worker *w = &a->workers[r];
        if (has_own_code(w) && ending_code(w) > highest)
            highest = ending_code(w);
    }
    return highest;
}

/* For jobs in which rank 0 is the driver and the others are its helpers: its word counts, 0 included. */
static int rank0_code(const struct agent *a)
{
    const struct agent_worker *w = &a->workers[0];
    return has_own_code(w) ? ending_code(w) : first_code(a);
}

/* What cannot be killed comes first: whoever reads the code should not give this host the next job. */
int agent_exit_code(const struct agent *a)
{
    if (a->stuck)
        return EXIT_CODE_UNKILLABLE;
    if (a->first_failure < 0)
        return a->stop_signal != 0 ? EXIT_CODE_SIGNAL + a->stop_signal : EXIT_CODE_OK;
    switch (a->options.exit_policy) {
    case EXIT_POLICY_MAX:
        return highest_code(a);
    case EXIT_POLICY_RANK0:
        return rank0_code(a);
    case EXIT_POLICY_FIRST:
        break;
    }
    return first_code(a);
}
