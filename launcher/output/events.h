/* user_messages.h -- events as JSON objects, one on a line: what all of them have, and those about output.
 *
 * An event is built as an object and printed whole, or thrown away when memory was short on the way: half an object on
 * a line would break the reader of all that follow. Functions return false when memory is short. */
#ifndef LAUNCHER_OUTPUT_EVENTS_H
#define LAUNCHER_OUTPUT_EVENTS_H

#include "output/lines.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include "base/events.h"

#include <cjson/cJSON.h>

/* An object with what all events have; NULL when memory is short. The caller hands it to event_print(). */
cJSON *event_new(enum event_kind kind, uint64_t t_ms);
cJSON *event_new_us(enum event_kind kind, uint64_t t_us);

/* Append the object to `out` if it is complete; frees it in any case. */
bool event_print(struct buf *out, cJSON *o, bool complete);

/* Global and local rank: a reader of one node's events does not have to compute one from the other. */
bool event_add_worker(cJSON *o, const struct plan_worker *who);

/* `stream` is STD_OUT or STD_ERR. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind);

/* A sentence that would otherwise go to stderr. */
bool event_note(struct buf *out, uint64_t t_ms, const char *text);

bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value);

/* Add "signal", its number, and "signal_name". */
bool json_add_signal(cJSON *object, int signal);

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid; null is what is not known, all of them when nobody sent it. `sender`
 * NULL = not known. */
bool json_add_sender(cJSON *object, const char *prefix, const struct signal_sender *sender);

#endif
