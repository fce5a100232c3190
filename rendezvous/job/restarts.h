/* restarts.h -- the failed attempts of a job, whether there is to be another, and when.
 *
 * Two kinds of reasons against another one. Some are in the failure itself and known at once
 * (restarts_failed); whether the job gets any further needs the workers' own account of it, for which the
 * key space has to be asked first (restarts_progress). One budget for all nodes of a job. */
#ifndef RENDEZVOUS_RESTARTS_H
#define RENDEZVOUS_RESTARTS_H

#include "job/rendezvous.h"

struct restarts {
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms;
    uint32_t failed;   /* attempts; a round that ended for another reason is not one */
    int64_t step;      /* how far the latest came, if that was asked; -1 = no worker told */
    int64_t best_step; /* of all attempts so far; -1 = none was told */
    uint32_t standing; /* attempts in a row, up to the latest, that did not get beyond best_step */
};

void restarts_init(struct restarts *a, const struct rdzv_join *rules);

/* An attempt has failed. May there be another one, as far as its cause tells? */
enum rdzv_no_restart restarts_failed(struct restarts *a, const struct rdzv_cause *cause);

/* How far it came; -1 = no worker told. May there still be another one? */
enum rdzv_no_restart restarts_progress(struct restarts *a, int64_t step);

/* How long to wait before the next one. */
uint64_t restarts_backoff(const struct restarts *a);

#endif
