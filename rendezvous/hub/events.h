/* events.h -- what happens in a job, for an event log: who joined and left, rounds, stops, verdicts, barriers.
 *
 * The store does not write files. Each event is one JSON object (base/events.h; launcher/README.md, "Event log")
 * that goes to the server's own log, if it keeps one, and to *one* agent of the job that has asked for it with its
 * `join`. When that one goes, the next takes over and is first told again the latest events: some may have been on
 * their way. Each carries "instance" and "n", so that a reader of several logs knows which it has seen. */
#ifndef RENDEZVOUS_HUB_EVENTS_H
#define RENDEZVOUS_HUB_EVENTS_H

#include "store/barrier.h"

struct job;
struct session;
struct rdzv_round;
struct rdzv_record;
struct finding;

/* Embedded in a job. */
struct job_events {
    bool asked;        /* an agent wants them, or has wanted them */
    uint64_t taker;    /* its connection; 0 = none, the next event looks for one */
    struct buf recent; /* the latest events, each with its NUL */
    char *members;     /* owned: those of the round that begins, as JSON; NULL = none */
};

/* Of a hub: so many in a second of a busy store are told; what is above is counted, and that is told. */
struct event_limit {
    uint64_t number; /* of the latest event */
    uint64_t second;
    uint32_t in_second, lost;
};

/* This connection would write them. */
void events_ask(struct job *job, struct session *s);
/* It is none of the job's any more. */
void events_leave(struct job *job, struct session *s);
void events_free(struct job_events *events);

/* The seats of a round; the event comes with the record of it. */
void events_members(struct job *job, const struct rdzv_round *world);
/* rdzv_env.record, barrier_env.opened and .ended; `job` is a struct job. */
void events_record(void *job, const struct rdzv_record *record);
void events_opened(void *job, const struct barrier *barrier);
void events_ended(void *job, const struct barrier *barrier, enum barrier_outcome outcome, const char *why);
/* The nodes are told of a finding. */
void events_finding(struct job *job, const struct finding *finding);

#endif
