/* event_log.h -- events as JSON objects, one on a line, for --json; and the log of --events (docs/output.md, "Event
 * log").
 *
 * An event is built as an object and printed as a whole, or dropped if memory is short. After half an object on a
 * line, a program could not parse the following lines. Functions return false when memory is short. */
#ifndef LAUNCHER_OUTPUT_EVENT_LOG_H
#define LAUNCHER_OUTPUT_EVENT_LOG_H

#include "base/events.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "tables/signals.h"

#include <cjson/cJSON.h>

/* Return an object with the members that all events have, or NULL when memory is short. The caller passes the object
 * to event_print(). */
cJSON *event_new(enum event_kind kind, uint64_t t_ms);

/* Append the object to `out` if it is complete, and free it in any case. */
bool event_print(struct buf *out, cJSON *o, bool complete);

/* Add the global and the local rank, so that a reader of one node's events need not compute one rank from the
 * other. */
bool event_add_worker(cJSON *o, const struct plan_worker *who);

/* Append a line of a worker. `stream` is STD_OUT or STD_ERR. */
bool event_output(struct buf *out, struct line_time at, const struct plan_worker *who, int stream,
                  struct slice text, enum line_kind kind);

/* Append a sentence that would otherwise be printed on stderr. */
bool event_note(struct buf *out, uint64_t t_ms, const char *text);

bool json_add_number_or_null(cJSON *o, const char *name, bool known, double value);

/* Add "signal" (the number) and "signal_name". */
bool json_add_signal(cJSON *object, int signal);

/* Add PREFIX_pid, PREFIX_name and PREFIX_uid; unknown values are null. All three are null when the kernel sent the
 * signal, or when `sender` is NULL (unknown). */
bool json_add_sender(cJSON *object, const char *prefix, const struct signal_sender *sender);

/* --- the log of --events ----------------------------------------------------------------------------------- */

/* Each line of this agent has the agent's name and three times: its own clock, the store's clock once this clock is
 * known, and the wall clock. Lines of the store already have the other members and get only the wall clock. If the
 * file's name contains %n, lines wait in memory until the node has its rank. If the file cannot be written, the user
 * gets one warning and no log, and the job continues. */

struct event_log;

/* Return a new log, or NULL when memory is short. The functions below call `warn` with a whole sentence, at most
 * once. */
struct event_log *event_log_new(const struct plan *plan, void (*warn)(void *user, const char *words),
                                void *user);

/* Write an event of user_messages.h: a JSON object. */
void event_log_put(struct event_log *log, struct slice object);
/* Write an event of the store. */
void event_log_put_store(struct event_log *log, struct slice object);

/* Record that the store's clock is at `store_ms` now, and that `instance` identifies this start of the job in the
 * store. */
void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance);
/* Record that the plan now belongs to this round. */
void event_log_round(struct event_log *log, int round);

/* Wait briefly for pending writes, close the file, free the log. NULL is allowed. */
void event_log_close(struct event_log *log);

#endif
