/* tables.h -- formats a store's answers, which are in JSON, as tables with aligned columns. options.c stores the
 * ctl_format functions in its table of commands, so these functions have one signature. ctl_jobs_choose is here, too,
 * because it formats a table of jobs. */
#ifndef RENDEZVOUS_CTL_TABLES_H
#define RENDEZVOUS_CTL_TABLES_H

#include "base/buf.h"
#include "base/endpoint.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* --- answers -------------------------------------------------------------------------------------------- */

/* A missing field is shown as "-", because a store may be older than this program. Every function appends to `out`, and
 * returns false if memory is short. */

bool ctl_format_why(const cJSON *answer, struct buf *out);
bool ctl_format_status(const cJSON *answer, struct buf *out);
bool ctl_format_top(const cJSON *answer, struct buf *out);
bool ctl_format_jobs(const cJSON *answer, struct buf *out);
bool ctl_format_rejects(const cJSON *answer, struct buf *out);
bool ctl_format_stacks(const cJSON *answer, struct buf *out);
bool ctl_format_keys(const cJSON *answer, struct buf *out);
bool ctl_format_waiters(const cJSON *answer, struct buf *out);
bool ctl_format_barriers(const cJSON *answer, struct buf *out);
bool ctl_format_cancelled(const cJSON *answer, struct buf *out);

/* Format the result of flight_compare(). Unlike the other answers, this result does not come from a store. */
bool ctl_format_flight(const cJSON *answer, struct buf *out);

/* --- ctl jobs --------------------------------------------------------------------------------------------- */

/* Without an address from the user, ddpctl chooses the store of the user's job on this host. */

/* A running job, found through its record. */
struct ctl_job {
    char id[160], store[ENDPOINT_TEXT_MAX]; /* job id, and HOST:PORT of the store */
    int pid;                                /* pid of ddprun */
    uint64_t age_ms;
};

/* Choose the only job in jobs[0..n), and set *found, borrowed from `jobs`. If `id` is not NULL, consider only entries
 * with this name. Entries with the same name and store count as one job, because each node of a job may have an entry.
 * If no job or several jobs match, return DDP_ERR_ARG with the remedy in `err`. For several jobs, `list` (initially
 * empty) gets a table of them, which the caller frees. */
ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err);

#endif
