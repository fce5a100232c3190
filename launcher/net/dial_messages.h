/* dial_messages.h -- what the user reads about a dial: while it goes on, and when its time is up. Pure. */
#ifndef LAUNCHER_NET_DIAL_MESSAGES_H
#define LAUNCHER_NET_DIAL_MESSAGES_H

#include "base/text.h"
#include "net/dial_plan.h"

enum finding_code dial_finding_of(const struct dial_met *met);

/* "CONNECT_REFUSED" */
const char *dial_code(enum finding_code finding);

/* Append what is to be said now, and remember that it was; false when there is nothing. */
bool dial_say(struct dial *d, struct buf *out, uint64_t now_ms);

/* When dial_say should be asked again, without any event. */
uint64_t dial_say_at(const struct dial *d);

/* Append the whole story: every stage with its times, the history, the finding and the advice. */
bool dial_report(const struct dial *d, struct buf *out, uint64_t now_ms);

#endif
