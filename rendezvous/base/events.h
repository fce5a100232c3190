/* events.h -- the kinds of lines in an event log, and what all of them have in common.
 *
 * One row each: the word that stands in the line, and who writes it. ddprun --json, ddprun --events, the store and
 * ddpctl timeline take their words from here; launcher/events.schema.json says what else stands in each line. Words
 * are stable: other programs read them. */
#ifndef BASE_EVENTS_H
#define BASE_EVENTS_H

#include "base/buf.h"

/* Told by a job's rendezvous. */
#define EVENTS_OF_RENDEZVOUS(X)                                        \
    X(JOIN, "join")                                                    \
    X(SPARE, "spare") /* joined while a round runs, or one too many */ \
    X(REFUSED, "refused")                                              \
    X(LEAVE, "leave")                                                  \
    X(LOST, "lost")                                                    \
    X(LAST_CALL, "last_call")                                          \
    X(ROUND, "round")                                                  \
    X(NODE_DONE, "node_done")                                          \
    X(STOP, "stop")                                                    \
    X(NODE_STOPPED, "node_stopped")                                    \
    X(STALE, "stale") /* a message of an older round */                \
    X(VERDICT, "verdict")

/* Told by the store besides. */
#define EVENTS_OF_STORE(X)                                   \
    X(BARRIER_OPEN, "barrier_open") /* the first has come */ \
    X(BARRIER_END, "barrier_end")   /* and how it ended */   \
    X(FINDING, "finding")           /* of the diagnosis */   \
    X(EVENTS_LOST, "events_lost")   /* there were too many to tell */

/* Told by an agent about itself and its workers. */
#define EVENTS_OF_AGENT(X)                                 \
    X(LAUNCHED, "launched") /* it looks for the store */   \
    X(STARTED, "started")   /* the first round is there */ \
    X(WORKER_STARTED, "worker_started")                    \
    X(WORKER_STOPPED, "worker_stopped") /* by a SIGSTOP */ \
    X(WORKER_ENDED, "worker_ended")                        \
    X(RESTART, "restart")                                  \
    X(STOP_REQUESTED, "stop_requested")                    \
    X(SIGNAL_PASSED, "signal_passed")                      \
    X(FINISHED, "finished")

/* Only in --json. */
#define EVENTS_OF_JSON(X)                             \
    X(FINDINGS, "findings") /* all of them at once */ \
    X(OUTPUT, "output")     /* a line of a worker */  \
    X(NOTE, "note")         /* what would go to stderr */

#define EVENTS_OF_LOG(X) EVENTS_OF_RENDEZVOUS(X) EVENTS_OF_STORE(X) EVENTS_OF_AGENT(X)
#define EVENT_KINDS(X)   EVENTS_OF_LOG(X) EVENTS_OF_JSON(X)

enum event_kind {
#define X(name, word) EVENT_##name,
    EVENT_KINDS(X)
#undef X
        EVENT_N_KINDS
};

/* "worker_started"; "?" for what is none. */
const char *event_word(enum event_kind kind);
/* EVENT_N_KINDS for a word that is not known: of a later version, perhaps. */
enum event_kind event_kind_of(const char *word);

/* Append the line of one event: `object`, a JSON object as text with or without a newline behind it, with `more`
 * members put in at its end: ",\"ms\":1". False when memory is short or it is no object; then nothing is appended. */
bool event_line(struct buf *out, struct slice object, struct slice more);

/* Append ,"NAME":"TEXT" with what JSON wants escaped; bytes that are no text become \u00NN. False when memory is
 * short. */
bool event_add_text(struct buf *out, const char *name, const char *text);

enum { EVENT_TIME_MAX = 32 };
/* "2026-11-21T16:24:00.123456Z" */
void event_time(char out[EVENT_TIME_MAX], uint64_t unix_us);

#endif
