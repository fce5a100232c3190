/* attempts.h -- private to agent.c: the failed attempts of a job, whether there is to be another, and when.
 *
 * Two kinds of reasons against another one. Some are in the failure itself and known at once
 * (attempts_failed); whether the job gets any further needs the workers' own account of it, for which the
 * store has to be asked first (attempts_progress). */
#ifndef LAUNCHER_ATTEMPTS_H
#define LAUNCHER_ATTEMPTS_H

#include "agent/agent.h"

struct attempts {
    int max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms;
    struct agent_attempt *failed; /* owned, room for all that are allowed */
    int n_failed;
    int64_t best_step; /* of all attempts so far; -1 = none was told */
    int standing;      /* attempts in a row, up to the latest, that did not get beyond best_step */
};

/* False when memory is short. */
bool attempts_init(struct attempts *a, const struct agent_options *options);
void attempts_free(struct attempts *a);

/* An attempt has failed. May there be another one, as far as its cause tells? */
enum no_restart attempts_failed(struct attempts *a, const struct agent_attempt *attempt);

/* How far it came; -1 = no worker told. May there still be another one? */
enum no_restart attempts_progress(struct attempts *a, int64_t step);

/* How long to wait before the next one. */
uint64_t attempts_backoff(const struct attempts *a);

#endif
