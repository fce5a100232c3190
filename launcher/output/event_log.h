/* event_log.h -- events as JSON objects, one per line, for --json and for the log of --events (docs/output.md, "Event
 * log").
 *
 * If memory is short, the whole event is dropped, because half an object would make the next lines unreadable.
 * Functions return false when memory is short. */
#ifndef LAUNCHER_OUTPUT_EVENT_LOG_H
#define LAUNCHER_OUTPUT_EVENT_LOG_H

#include "base/events.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <cjson/cJSON.h>

/* Return an object with the members that all events have in common, or NULL when memory is short. Pass the object to
 * event_print(), which frees the object. */
cJSON *event_new(enum event_kind kind, uint64_t t_ms);

/* Append the object to `out` if `complete` is true. Free the object in any case. */
bool event_print(struct buf *out, cJSON *o, bool complete);

/* Add the members "rank" and "local_rank". */
bool event_add_worker(cJSON *o, const struct plan_worker *who);

/* Append an event for one line of a worker. `stream` is STD_OUT or STD_ERR. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind);

/* Append an event for a message to the user. Without --json, ddprun prints this message on stderr. */
bool event_note(struct buf *out, uint64_t t_ms, const char *text);

/* Add the number if `known` is true, else add null. */
bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value);

/* Add the members "signal" (the number of the signal) and "signal_name". */
bool json_add_signal(cJSON *object, int signal);

/* Add the members PREFIX_pid, PREFIX_name and PREFIX_uid, which name the sender of a signal. Unknown values are null.
 * All three are null if the kernel sent the signal or `sender` is NULL. */
bool json_add_sender(cJSON *object, const char *prefix, const struct signal_sender *sender);

/* --- the log of --events ----------------------------------------------------------------------------------- */

/* The log of --events. Each event gets the host, the pid and the time; an event of the store gets only the time. A
 * lost write causes one warning, and the job continues. */

struct event_log;

/* Return a new log, which the caller owns, or NULL when memory is short. If events are lost, the functions below
 * call `warn` once, with a sentence for the user. */
struct event_log *event_log_new(const struct plan *plan, void (*warn)(void *user, const char *words),
                                void *user);

/* Write an event of this agent: a JSON object from user_messages.h. */
void event_log_append(struct event_log *log, struct slice object);
/* Write an event that the store has sent. */
void event_log_append_store(struct event_log *log, struct slice object);

/* Record that the store's clock shows `store_ms` now. `instance` is a random id that the store has chosen for this
 * start of the job. */
void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance);
/* Record the number of the round that the plan describes now. The first round has the number 1. */
void event_log_round(struct event_log *log, int round);

/* Wait briefly for pending writes, close the file, and free the log. `log` may be NULL. */
void event_log_close(struct event_log *log);

#endif
