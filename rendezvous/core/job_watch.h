/* job_watch.h -- tells all nodes of a job why it does not come together, long before its time is up.
 *
 *     after 8 s of waiting     what is missing, and what is known of it
 *     at once                  a node was refused, or said something about itself
 *     then                     when something else is found; it looks again every 5 s
 *     when the time is up      everything, before the verdict
 *     when a round begins      a line, if its nodes bring different numbers of workers
 *
 * All nodes get the same text. The jobs that come together at once hear nothing. */
#ifndef RENDEZVOUS_JOB_WATCH_H
#define RENDEZVOUS_JOB_WATCH_H

#include <stdbool.h>
#include <stdint.h>

struct job;

/* Zeroed before first use. */
struct job_watch {
    bool waits;       /* it is looked at */
    bool compares;    /* a round has begun whose nodes have not been compared */
    uint64_t look_ms; /* when the next time */
    uint64_t told;    /* a digest of what was found when it was told last; 0 = nothing yet */
};

/* When job_watch_tick has something to do, UINT64_MAX = never. */
uint64_t job_watch_deadline(const struct job *job);
/* Before the rendezvous' own tick: it may end the job. */
void job_watch_tick(struct job *job);
/* A round of nodes that are not all alike begins. */
void job_watch_round(struct job *job);
/* Something has happened that the others should hear of soon. */
void job_watch_hurry(struct job *job);

#endif
