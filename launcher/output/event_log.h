/* event_log.h -- `--events`: what happens, as JSON lines in a file (launcher/README.md, "Event log").
 *
 * Lines of this agent get the time, by its own clock, by the store's once that is known, and by the wall; and who it
 * is. Lines of the store come complete but for the wall's. A name with %n is known when the node has its rank: what
 * comes before waits in memory. A file that takes nothing costs one warning and the log, never the job. */
#ifndef LAUNCHER_EVENT_LOG_H
#define LAUNCHER_EVENT_LOG_H

#include "plan/plan.h"

struct event_log;

/* `warn` is called with whole sentences, at most once for each kind of trouble, from the functions below. NULL when
 * memory is short. */
struct event_log *event_log_new(const struct plan *plan, void (*warn)(void *user, const char *words),
                                void *user);

/* One event of user_messages.h: a JSON object. */
void event_log_put(struct event_log *log, struct slice object);
/* One event of the store. */
void event_log_put_store(struct event_log *log, struct slice object);

/* The store's clock is at `store_ms` now, and this life of the job has that name. */
void event_log_clock(struct event_log *log, uint64_t store_ms, const char *instance);
/* The plan is made for this round. */
void event_log_round(struct event_log *log, int round);

/* Wait a moment for what is not written, close, free. NULL is allowed. */
void event_log_close(struct event_log *log);

#endif
