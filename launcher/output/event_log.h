/* event_log.h -- events as JSON objects, one on a line, for --json; and the log of --events (docs/output.md, "Event
 * log").
 *
 * An event is built as an object and printed whole, or dropped if memory is short, because half an object would break
 * the reader of all following lines. Functions return false when memory is short. */
#ifndef LAUNCHER_OUTPUT_EVENT_LOG_H
#define LAUNCHER_OUTPUT_EVENT_LOG_H

#include "base/events.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <cjson/cJSON.h>

/* Return an object with the members that all events have; NULL when memory is short. The caller passes it to
 * event_print(). */
cJSON *event_new(enum event_kind kind, uint64_t t_ms);

/* Append the object to `out` if it is complete; frees it in any case. */
bool event_print(struct buf *out, cJSON *o, bool complete);

/* Global and local rank, so that a reader of one node's events need not compute one from the other. */
bool event_add_worker(cJSON *o, const struct plan_worker *who);

/* `stream` is STD_OUT or STD_ERR. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind);

/* A sentence that would otherwise go to stderr. */
bool event_note(struct buf *out, uint64_t t_ms, const char *text);

bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value);

/* Add "signal", its number, and "signal_name". */
bool json_add_signal(cJSON *object, int signal);

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid; unknown values are null, and all of them are null for the kernel.
 * `sender` NULL = unknown. */
bool json_add_sender(cJSON *object, const char *prefix, const struct signal_sender *sender);

/* --- the log of --events ----------------------------------------------------------------------------------- */

/* Lines of this agent get three times: its own clock, the store's once that is known, and the wall clock; and its
 * name. Lines of the store only lack the wall clock. A name with %n is known when the node has its rank; earlier
 * lines wait in memory. A file that cannot be written costs one warning and the log, never the job. */

struct event_log;

/* `warn` is called with whole sentences, at most once for each kind of trouble, from the functions below. NULL when
 * memory is short. */
struct event_log *event_log_new(const struct plan *plan, void (*warn)(void *user, const char *words),
                                void *user);

/* One event of user_messages.h: a JSON object. */
void event_log_put(struct event_log *log, struct slice object);
/* One event of the store. */
void event_log_put_store(struct event_log *log, struct slice object);

/* The store's clock is at `store_ms` now, and `instance` names this life of the job. */
void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance);
/* The plan is made for this round. */
void event_log_round(struct event_log *log, int round);

/* Wait a moment for pending writes, close, free. NULL is allowed. */
void event_log_close(struct event_log *log);

#endif
