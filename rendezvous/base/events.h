/* events.h -- the kinds of lines in an event log, and the members that all lines have. The word of a kind never
 * changes, because other programs read it. launcher/events.schema.json describes the other members of each line. */
#ifndef BASE_EVENTS_H
#define BASE_EVENTS_H

#include "base/buf.h"

/* Events that a job's rendezvous writes. Each row of this list and of the lists below has a constant and its word in
 * the log. */
#define EVENTS_OF_RENDEZVOUS(X)                                                                    \
    X(JOIN, "join")                                                                                \
    X(SPARE, "spare") /* the node waits, because a round is running or the job has enough nodes */ \
    X(REFUSED, "refused")                                                                          \
    X(LEAVE, "leave")                                                                              \
    X(LOST, "lost")                                                                                \
    X(LAST_CALL, "last_call")                                                                      \
    X(ROUND, "round")                                                                              \
    X(NODE_DONE, "node_done")                                                                      \
    X(STOP, "stop")                                                                                \
    X(NODE_STOPPED, "node_stopped")                                                                \
    X(STALE, "stale") /* the store ignored a message about another round */                        \
    X(VERDICT, "verdict")

/* Events that the store writes. */
#define EVENTS_OF_STORE(X)                                                           \
    X(BARRIER_OPEN, "barrier_open") /* the first member has arrived */               \
    X(BARRIER_END, "barrier_end")   /* the barrier is complete or has failed */      \
    X(FINDING, "finding")           /* the diagnosis has found a problem of a job */ \
    X(EVENTS_LOST, "events_lost")   /* events were dropped, because too many occurred at once */

/* Events that an agent writes about itself and its workers. */
#define EVENTS_OF_AGENT(X)                                                 \
    X(LAUNCHED, "launched") /* the agent starts to connect to the store */ \
    X(STARTED, "started")   /* the first round has begun */                \
    X(WORKER_STARTED, "worker_started")                                    \
    X(WORKER_STOPPED, "worker_stopped") /* a signal paused the worker */   \
    X(WORKER_ENDED, "worker_ended")                                        \
    X(RESTART, "restart")                                                  \
    X(STOP_REQUESTED, "stop_requested")                                    \
    X(SIGNAL_PASSED, "signal_passed")                                      \
    X(FINISHED, "finished")

/* These events are written only with --json. */
#define EVENTS_OF_JSON(X)                                         \
    X(FINDINGS, "findings") /* list of findings from the store */ \
    X(OUTPUT, "output")     /* line that a worker printed */      \
    X(NOTE, "note")         /* a line that ddprun prints on stderr without --json */

/* EVENTS_OF_LOG: the kinds in an event log. EVENT_KINDS: all kinds. */
#define EVENTS_OF_LOG(X) EVENTS_OF_RENDEZVOUS(X) EVENTS_OF_STORE(X) EVENTS_OF_AGENT(X)
#define EVENT_KINDS(X)   EVENTS_OF_LOG(X) EVENTS_OF_JSON(X)

enum event_kind {
#define X(name, word) EVENT_##name,
    EVENT_KINDS(X)
#undef X
        EVENT_N_KINDS
};

/* Return the word of a kind, such as "worker_started", or "?" for an invalid kind. The text is constant. */
const char *event_word(enum event_kind kind);
/* Return the kind of `word`, or EVENT_N_KINDS for an unknown word, which a later version may have written. */
enum event_kind event_kind_of(const char *word);

/* Append an event as one line: the JSON object `object`, with the members `more` added at its end. The text `object`
 * may end with a newline. An example of `more` is ",\"ms\":1". Return false and append nothing if memory is short, or
 * if `object` is not a JSON object with a member. */
bool event_line(struct buf *out, struct slice object, struct slice more);

/* Append the member ,"NAME":"TEXT" with JSON's escapes; bytes that are not printable ASCII become \u00NN. Return false
 * if memory is short. */
bool event_add_text(struct buf *out, const char *name, const char *text);

enum { EVENT_TIME_MAX = 32 }; /* bytes of the text of event_time, with the NUL */
/* Format a time (clock_unix_us) as UTC: "2026-11-21T16:24:00.123456Z". */
void event_time(char out[EVENT_TIME_MAX], uint64_t unix_us);

#endif
