/* tables.h -- formats a store's answers, which are in JSON, as tables with aligned columns. The ctl_format functions
 * have one signature, because they are in the table of commands (options.c). */
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

/* Format the result of flight_compare(), which is not from a store. */
bool ctl_format_flight(const cJSON *answer, struct buf *out);

/* --- ctl jobs --------------------------------------------------------------------------------------------- */

/* Without an address from the user, ddpctl chooses the store of the user's job on this host. */

/* A running job, found through its record. */
struct ctl_job {
    char id[160], store[ENDPOINT_TEXT_MAX]; /* job id, and HOST:PORT of the store */
    int pid;                                /* pid of ddprun */
    uint64_t age_ms;
};

/* Choose the only job in jobs[0..n) (of this `id`, unless NULL), and set *found, borrowed from `jobs`. Entries with the
 * same name and store are nodes of one job. Return DDP_ERR_ARG, with the remedy in `err`, if no job or several jobs
 * match. `list` (initially empty) gets a table of several jobs, which the caller frees. */
ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err);

#endif
