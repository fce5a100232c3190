/* monitor.h -- checks a job, and reports to its nodes why it does not start or does not continue.
 *
 * A check takes a snapshot of the job for diagnose_job() and its text. Everything is collected on demand and nothing
 * is kept, so requests cost nothing extra. The rows below define when the monitor checks by itself: once for
 * everything due, and at most once a second, except for the last check and for a rank's own report. A job that starts
 * at once gets no report. */
#ifndef RENDEZVOUS_HUB_MONITOR_H
#define RENDEZVOUS_HUB_MONITOR_H

#include "diagnosis/rejected.h"
#include "diagnosis/snapshot.h"
#include "hub/hang_watch.h"

struct job;

/* The snapshot and its memory. Valid as long as nothing in the hub changes. */
struct look {
    struct snapshot snapshot;
    struct snapshot_node *nodes; /* all owned */
    struct snapshot_gone *gone;
    struct snapshot_refused *refused;
    struct snapshot_stranger *strangers;
    struct snapshot_notice *notices;
    struct snapshot_wait *waits;
    struct snapshot_claim *claims;
    struct rank_facts *ranks;
    struct rejects *rejects;
    char (*bytes)[4 * REJECT_FIRST_MAX + 8]; /* first bytes of foreign clients, as text */
};

/* False when memory is short; then there is nothing to free. */
bool snapshot_job(struct job *job, struct look *look);
void look_free(struct look *look);

/* Report all that is due. Call it before the rendezvous' own tick, which may end the job. */
void monitor_run(struct job *job);

/* A worker has failed by itself: report what the other nodes and the worker's own agent cannot see. */
void monitor_failed(struct job *job);

/* --- schedule.c: when ---------------------------------------------------------------------------------------- */

/* Situation, ms until the first report, ms until the next check, the multiple of a usual wait that is reported (0 =
 * any), meaning. "Usual" is a wait of this round that was reported and then ended by itself, such as a model that
 * rank 0 tests after each epoch. A row with first 0 is reported at once. Every report but the last leaves out what an
 * earlier one contained. */
#define SCHEDULE(X)                                                                                          \
    X(NODES_MISSING, 8000, 5000, 0, "the job waits for nodes: missing nodes and their state")                \
    X(NODES_LEFT, 200, 5000, 0,                                                                              \
      "a node was rejected, left, or reported something about itself, and too few may be left")              \
    X(TIME_UP, 0, 0, 0, "the join timeout has passed: all findings, before the verdict")                     \
    X(ROUND_BEGINS, 0, 0, 0, "a round begins whose nodes have different numbers of workers")                 \
    X(NODE_LATE, 1000, 0, 0, "a late node waits for the next round")                                         \
    X(RANK_TROUBLE, 0, 0, 0, "a rank has reported something, such as a closed port")                         \
    X(PEER_LOST, 0, 0, 0,                                                                                    \
      "other ranks wait for a rank that has ended or given up: lost_rank.c reports it before they continue") \
    X(TORCH_CROWD, 800, 30000, 0, "a PyTorch group has more members than ranks; agents need a moment")       \
    X(TORCH_WAITS, 10000, 30000, 0, "ranks wait while a PyTorch group forms")                                \
    X(TORCH_ENDED, 2500, 30000, 0,                                                                           \
      "ranks wait while a PyTorch group forms, and one of its processes has ended")                          \
    X(STANDS_STILL, 10000, 30000, 2,                                                                         \
      "a rank stands still while others wait for it in a collective or a barrier")                           \
    X(RANK_STOPPED, 3000, 0, 0, "a signal or a debugger has stopped a rank that reports no steps")           \
    X(HANGS, HANG_LEAST_MS, HANG_APART_MS, HANG_FACTOR,                                                      \
      "no sign of progress: the stacks of all ranks are compared; see hang_watch.h")

enum situation {
#define X(name, ...) SITUATION_##name,
    SCHEDULE(X)
#undef X
        SITUATIONS
};

struct schedule_row {
    uint32_t first_ms, again_ms, usual_factor;
};
extern const struct schedule_row schedule[SITUATIONS];

/* More than one diagnosis has, because ended findings are remembered for a while. */
enum { SCHEDULE_TOLD_MAX = 3 * DIAGNOSIS_MAX };

/* Waits that were reported and then ended by themselves. */
struct schedule_usual {
    bool waits;          /* one is in progress that is long enough to report: */
    uint64_t since_ms;   /* since when */
    uint64_t longest_ms; /* 0 = there were no such waits */
    uint32_t n_known;    /* the findings in them, as digests; a ring, too */
    uint64_t known[DIAGNOSIS_MAX];
};

/* Zeroed before first use. */
struct schedule_state {
    bool waits;          /* checks are due */
    bool compares;       /* a round has begun whose nodes have not been compared */
    bool trouble;        /* a rank has reported trouble */
    uint64_t looked_ms;  /* time of the last check */
    uint64_t spare_ms;   /* when to report a late node to the others; 0 = no late node */
    uint64_t look_ms;    /* when to check next */
    uint64_t torch_ms;   /* when to check the waits of PyTorch's ranks; 0 = none waits */
    bool torch_ended;    /* a process of this round has ended */
    bool torch_crowd;    /* that check is because too many may take part */
    uint64_t still_ms;   /* when to check whether a rank stands still; 0 = no rank waits for one */
    uint64_t stopped_ms; /* when to check for ranks that were stopped; 0 = none was */
    bool calls; /* that check is because ranks are in a collective, or were still in one at the last check */
    bool still_told;                  /* a rank does stand still */
    struct schedule_usual usual;      /* state of this round */
    bool torch_told;                  /* their present wait has been reported */
    uint32_t wait;                    /* number of the wait: in each wait a node gets every report once */
    uint32_t n_told;                  /* reported in this wait, as digests; */
    uint64_t told[SCHEDULE_TOLD_MAX]; /* a ring, the oldest is replaced */
};

/* Return when something is due, UINT64_MAX = never. */
uint64_t schedule_deadline(const struct job *job);
/* Return everything that is due now and mark it as done. */
struct schedule_due {
    bool any;             /* of these */
    bool compares;        /* different nodes in the round that has begun */
    bool trouble;         /* a problem that a rank has reported */
    bool spares;          /* nodes that joined late */
    bool looks, is_final; /* missing nodes, for the last time */
    bool still;           /* a rank does not move while others wait for it */
    bool stopped;         /* a rank was stopped */
    bool torch;           /* the waits of PyTorch's ranks */
};
struct schedule_due schedule_due(struct job *job);
/* A round of unequal nodes begins. */
void schedule_round(struct job *job);
/* A node has joined while a round runs; many together get one line. */
void schedule_spare(struct job *job);
/* A running rank reports a problem that all nodes should see now. */
void schedule_trouble(struct job *job);
/* A PyTorch rank waits for something from another rank, or too many seem to take part. */
void schedule_torch(struct job *job, bool is_crowded);
/* A process has ended: if ranks wait, that may be the reason. */
void schedule_torch_exit(struct job *job);
/* A rank is in a collective. */
void schedule_call(struct job *job);
/* A barrier has opened. */
void schedule_barrier(struct job *job);
/* A rank is stopped by a signal or a debugger. */
void schedule_stopped(struct job *job);
/* Something of the job has moved, `ago_ms` ago. */
void schedule_moved(struct job *job, uint64_t ago_ms);
/* The rules of the job's first node: the limit (0 = adaptive, UINT64_MAX = off), and what follows a hang. */
void schedule_hang_rules(struct job *job, uint64_t limit_ms, const char *action);
/* An attempt begins, or has ended. */
void schedule_attempt(struct job *job, bool begins);
/* Record a check: how long ranks have been in it (0: none is), and whether it was worth a report. */
void schedule_still_seen(struct job *job, uint64_t waited_ms, bool tell);
/* A wait is not longer than this job's waits may be; its findings are known from them. */
bool schedule_is_usual(const struct schedule_state *w, uint64_t waited_ms);
bool schedule_knows(const struct schedule_state *w, uint64_t digest);
void schedule_learn(struct schedule_state *w, uint64_t digest);
/* Record a check: how long they have waited (0: none waits any more), and whether it was worth a report. */
uint64_t schedule_torch_limit(const struct schedule_state *w);
void schedule_torch_seen(struct job *job, uint64_t waited_ms, bool tell);
/* Check soon, because the other nodes should learn of this event. */
void schedule_hurry(struct job *job);

#endif
