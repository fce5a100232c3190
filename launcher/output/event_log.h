/* event_log.h -- events as JSON objects, one per line, for --json and for the log of --events (docs/output.md, "Event
 * log"). When memory is short, functions drop the whole event and return false. */
#ifndef LAUNCHER_OUTPUT_EVENT_LOG_H
#define LAUNCHER_OUTPUT_EVENT_LOG_H

#include "base/events.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <cjson/cJSON.h>

/* Return an object with the common members of all events, or NULL when memory is short. event_print() frees it. */
cJSON *event_new(enum event_kind kind, uint64_t t_ms);

/* Append the object to `out` if `complete` is true. Free the object in any case. */
bool event_print(struct buf *out, cJSON *o, bool complete);

/* Add the members "rank" and "local_rank". */
bool event_add_worker(cJSON *o, const struct plan_worker *who);

/* Append an event for one line of a worker. `stream` is STD_OUT or STD_ERR. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind);

/* Append an event for a message to the user. */
bool event_note(struct buf *out, uint64_t t_ms, const char *text);

/* Add the number if `known` is true, else add null. */
bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value);

/* Add the members "signal" (the number of the signal) and "signal_name". */
bool json_add_signal(cJSON *object, int signal);

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid of a signal's sender. Unknown values are null. All are null if `sender`
 * is NULL or the kernel. */
bool json_add_sender(cJSON *object, const char *prefix, const struct signal_sender *sender);

/* --- the log of --events ----------------------------------------------------------------------------------- */

/* The log of --events. Each event gets the host, the pid and the time; an event of the store gets only the time. A
 * lost write causes one warning, and the job continues. */

struct event_log;

/* Return a new log, which the caller owns, or NULL when memory is short. The first lost event calls `warn` with a
 * sentence. */
struct event_log *event_log_new(const struct plan *plan, void (*warn)(void *user, const char *words),
                                void *user);

/* Write an event of this agent, a JSON object. */
void event_log_append(struct event_log *log, struct slice object);
/* Write an event that the store has sent. */
void event_log_append_store(struct event_log *log, struct slice object);

/* Record that the store's clock shows `store_ms` now. `instance` is the store's random id of this start of the job. */
void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance);
/* Record the number of the plan's round, from 1. */
void event_log_round(struct event_log *log, int round);

/* Wait briefly for pending writes, close the file, and free the log. `log` may be NULL. */
void event_log_close(struct event_log *log);

#endif
