/* tables.h -- formats answers of a store, which are JSON rows, as tables with aligned columns. */
#ifndef RENDEZVOUS_CTL_TABLES_H
#define RENDEZVOUS_CTL_TABLES_H

#include "base/buf.h"
#include "base/endpoint.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

/* Append the text of one field. A field that is missing or of another type appends nothing, and is shown as
 * "-". False if memory is short. */
typedef bool (*ctl_cell)(const cJSON *row, const char *field, struct buf *out);

struct ctl_column {
    const char *title; /* NULL ends the list */
    const char *field;
    ctl_cell cell;
    bool right; /* numbers are aligned to the right */
};

bool ctl_cell_duration(const cJSON *row, const char *field, struct buf *out); /* of milliseconds: "1.2 s" */
bool ctl_cell_names(const cJSON *row, const char *field, struct buf *out);    /* of strings: "'/a', '/b'" */
bool ctl_cell_ranks(const cJSON *row, const char *field,
                    struct buf *out); /* of ranks, or objects with one: "0-2,5" */

/* --- answers
 * ---------------------------------------------------------------------------------------------- */

/* Format the answers of a store for readers. JSON in, text out.
 *
 * A store may be older or newer than this program. A missing field is shown as "-", an unknown one is left out
 * (`--json` shows it). Every function appends to `out`, and returns false if memory is short. */

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

/* Format the result of flight_compare(), which needs no store. */
bool ctl_format_flight(const cJSON *answer, struct buf *out);

/* --- ctl jobs --------------------------------------------------------------------------------------------- */

/* Choose the store if no address is given: that of the user's job on this host. */

/* A running job, found by its record. */
struct ctl_job {
    char id[160], store[ENDPOINT_TEXT_MAX]; /* store: HOST:PORT */
    int pid;                                /* of ddprun */
    uint64_t age_ms;
};

/* Choose the store of the only job in jobs[0..n), or of the only one with the name `id` (NULL = any). Nodes
 * of one job may share a store. DDP_OK: *found is that job, borrowed from `jobs`. DDP_ERR_ARG: `err` has the
 * remedy. If several jobs remain, `list` (empty before) gets a table of them, which the caller frees. */
ddp_status ctl_jobs_choose(const struct ctl_job *jobs, size_t n, const char *id, const struct ctl_job **found,
                           struct buf *list, struct ddp_err *err);

#endif
