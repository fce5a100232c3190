/* job_watch.h -- when all nodes of a job are told why it does not come together, long before its time is up.
 *
 *     after 8 s of waiting     what is missing, and what is known of it
 *     at once                  a node was refused, or said something about itself; somebody else knocked who may be
 *                              a node that was started wrongly; too few nodes are left for another round
 *     then                     what is found besides, without what was told; it looks again every 5 s
 *     when the time is up      everything, before the verdict
 *     when a round begins      a line, if its nodes bring different numbers of workers
 *     when a node comes late   a line, if it waits
 *     at once                  what a rank has met: a port that is closed
 *     at once                  more take part in a process group of PyTorch's than it has ranks
 *     after 10 s               what PyTorch's ranks wait for while a group comes together, and what the missing ones do;
 *                              sooner when one has ended; then every 30 s what is new
 *     after 10 s               which rank stands still while others wait for it in a collective or a barrier (30 s where it tells
 *                              no steps); then every 30 s what is new. A wait that ended by itself is taken for the job's way,
 *                              such as a model that rank 0 tests after each epoch: the like of it is told when it takes twice
 *                              as long
 *
 * What they are told is job_tell.h's business. The jobs that come together at once hear nothing. */
#ifndef RENDEZVOUS_JOB_WATCH_H
#define RENDEZVOUS_JOB_WATCH_H

#include "diagnosis/diagnosis.h"

struct job;

/* More than one diagnosis has: what is over is remembered for a while. */
enum { JOB_WATCH_TOLD_MAX = 3 * DIAGNOSIS_MAX };

/* Waits that were told and then ended by themselves. */
struct job_watch_usual {
    bool waits;          /* one goes on that is long enough to be told: */
    uint64_t since_ms;   /* since when */
    uint64_t longest_ms; /* 0 = there was none */
    uint32_t n_known;    /* what was found in them, as digests; a ring, too */
    uint64_t known[DIAGNOSIS_MAX];
};

/* Zeroed before first use. */
struct job_watch {
    bool waits;        /* it is looked at */
    bool compares;     /* a round has begun whose nodes have not been compared */
    bool trouble;      /* a rank has said what it has met */
    uint64_t spare_ms; /* when the nodes hear of one that has come late; 0 = there is none to tell of */
    uint64_t look_ms;  /* when the next time */
    uint64_t torch_ms; /* when it is looked what PyTorch's ranks wait for; 0 = nobody waits */
    bool torch_ended;  /* a process of this round has ended */
    bool torch_crowd;  /* that look is because too many may take part */
    uint64_t still_ms; /* when it is looked whether a rank stands still; 0 = nobody waits for one */
    bool calls; /* that look is because ranks are in a collective, or were not all gone on at the last one */
    bool still_told;                   /* that one does */
    struct job_watch_usual usual;      /* of this round */
    bool torch_told;                   /* of what they wait for now */
    uint32_t wait;                     /* counts the waits: a node is told everything once in each */
    uint32_t n_told;                   /* what was told in this wait, as digests; */
    uint64_t told[JOB_WATCH_TOLD_MAX]; /* a ring, the oldest gives way */
};

enum { JOB_WATCH_FIRST_MS = 8000, JOB_WATCH_TORCH_MS = 10000, JOB_WATCH_STILL_MS = 10000 };

/* When something is due, UINT64_MAX = never. */
uint64_t job_watch_deadline(const struct job *job);
/* What is due now; it is not due again, then. */
struct job_watch_due {
    bool compares;        /* the nodes of the round that has begun */
    bool trouble;         /* that a rank has met */
    bool spares;          /* nodes that have come late */
    bool looks, is_final; /* at what is missing; for the last time */
    bool still;           /* who stands still while others wait for it in a collective or a barrier */
    bool torch;           /* what PyTorch's ranks wait for */
};
struct job_watch_due job_watch_due(struct job *job);
/* A round of nodes that are not all alike begins. */
void job_watch_round(struct job *job);
/* A node has come while a round runs; for many together there is one line. */
void job_watch_spare(struct job *job);
/* A rank that runs has met something that all nodes should hear of now. */
void job_watch_trouble(struct job *job);
/* A rank waits for what only another one of PyTorch's gives, or it is suspected that too many take part. */
void job_watch_torch(struct job *job, bool is_crowded);
/* A look at too many is to come already. */
bool job_watch_torch_is_crowded(const struct job *job);
/* A process has ended: if ranks wait, that may be why. */
void job_watch_torch_exit(struct job *job);
/* A rank is in a collective. */
void job_watch_call(struct job *job);
/* A barrier has opened. */
void job_watch_barrier(struct job *job);
/* It was looked at: so long they have been in it (0: nobody is), and it is worth telling. */
void job_watch_still_seen(struct job *job, uint64_t waited_ms, bool tell);
/* A wait is no longer than the job's waits may be; what is found in it is known from those. */
bool job_watch_is_usual(const struct job_watch *w, uint64_t waited_ms);
bool job_watch_knows(const struct job_watch *w, uint64_t digest);
void job_watch_get_to_know(struct job_watch *w, uint64_t digest);
/* It was looked at: so long they have waited (0: nobody waits any more), and that is worth telling. */
uint64_t job_watch_torch_limit(const struct job_watch *w);
void job_watch_torch_seen(struct job *job, uint64_t waited_ms, bool tell);
/* Something has happened that the others should hear of soon. */
void job_watch_hurry(struct job *job);

#endif
