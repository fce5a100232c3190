/* ctl_jobs.h -- which store to ask when no address is given: that of the user's job on this machine. */
#ifndef RENDEZVOUS_CTL_JOBS_H
#define RENDEZVOUS_CTL_JOBS_H

#include "base/buf.h"
#include "base/endpoint.h"

#include <stddef.h>
#include <stdint.h>

/* A running job, found by its record. */
struct ctl_job {
    char id[160], store[ENDPOINT_TEXT_MAX]; /* store: HOST:PORT */
    int pid;                                /* of ddprun */
    uint64_t age_ms;
};

/* Choose the store of the one job in jobs[0..n); with `id` (NULL = any), of the one of that name. Nodes of one job may share a
 * store. DDP_OK: *found is that job, borrowed from `jobs`. DDP_ERR_ARG: `err` says what to do; if several jobs are left,
 * `list` (empty before) has a table of them, which the caller frees. */
ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err);

#endif
