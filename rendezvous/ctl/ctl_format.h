/* ctl_format.h -- the answers of a store as text for a person. JSON in, text out, nothing else.
 *
 * A store may be older or newer than this program: a field that is missing is shown as "-", one that is
 * unknown is left out (`--json` shows it). Every function appends to `out`, and returns false when memory is
 * short. */
#ifndef RENDEZVOUS_CTL_FORMAT_H
#define RENDEZVOUS_CTL_FORMAT_H

#include "base/buf.h"

#include <cjson/cJSON.h>

bool ctl_format_why(const cJSON *answer, struct buf *out);
bool ctl_format_status(const cJSON *answer, struct buf *out);
bool ctl_format_jobs(const cJSON *answer, struct buf *out);
bool ctl_format_rejects(const cJSON *answer, struct buf *out);
bool ctl_format_keys(const cJSON *answer, struct buf *out);
bool ctl_format_waiters(const cJSON *answer, struct buf *out);
bool ctl_format_barriers(const cJSON *answer, struct buf *out);
bool ctl_format_cancelled(const cJSON *answer, struct buf *out);

/* Not of a store: what flight_compare() has found. */
bool ctl_format_flight(const cJSON *answer, struct buf *out);

#endif
