/* schedule.h -- decides when the monitor checks a job. A check reads the whole job, so an event only schedules a check,
 * and several events share one check. The hub sets its timer to schedule_deadline(), and monitor.c calls schedule_due()
 * and makes the checks.
 *
 * The state is a member of struct job and lives as long as the job. The state has no pointers: it contains digests of
 * findings instead of the findings. No function keeps a pointer to an argument; texts are copied. */
#ifndef RENDEZVOUS_HUB_SCHEDULE_H
#define RENDEZVOUS_HUB_SCHEDULE_H

#include "diagnosis/snapshot.h"
#include "hub/hang_watch.h"

struct job;

/* Columns: situation, ms until the first report (0 = at once), ms until the next check (0 = no further check), factor,
 * meaning. A wait is usual if similar waits of this round have ended by themselves. For example, the other ranks wait
 * while rank 0 tests the model after each epoch. With a factor, a wait is reported only if it is longer than factor *
 * the longest usual wait. */
#define SCHEDULE(X)                                                                                      \
    X(NODES_MISSING, 8000, 5000, 0, "the job waits for nodes: report the missing nodes and their state") \
    X(NODES_LEFT, 200, 5000, 0, "a node was rejected, has left, or has reported a finding about itself") \
    X(TIME_UP, 0, 0, 0, "the join timeout has passed: report all findings before the job ends")          \
    X(ROUND_BEGINS, 0, 0, 0,                                                                             \
      "the nodes of a new round have different numbers of workers, or are behind NAT")                   \
    X(NODE_LATE, 1000, 0, 0, "a late node waits for the next round")                                     \
    X(RANK_TROUBLE, 0, 0, 0, "a rank has reported a problem, such as a closed port")                     \
    X(PEER_LOST, 0, 0, 0, "a rank has ended or given up while other ranks wait for it: see lost_rank.c") \
    X(TORCH_SURPLUS, 800, 30000, 0,                                                                      \
      "a PyTorch group has more members than ranks: agents identify the processes before the report")    \
    X(TORCH_WAITS, 10000, 30000, 0, "ranks wait while a PyTorch group forms")                            \
    X(TORCH_ENDED, 2500, 30000, 0,                                                                       \
      "ranks wait while a PyTorch group forms, and a process of the round has ended")                    \
    X(STANDS_STILL, 10000, 30000, 2,                                                                     \
      "a rank makes no progress while others wait for it in a collective or a barrier")                  \
    X(RANK_STOPPED, 3000, 0, 0,                                                                          \
      "a signal or a debugger has stopped a rank that reports no steps; else STANDS_STILL reports it")   \
    X(HANGS, HANG_LEAST_MS, HANG_APART_MS, HANG_FACTOR,                                                  \
      "no sign of progress: compare the stacks of all ranks; see hang_watch.h")

enum situation {
#define X(name, ...) SITUATION_##name,
    SCHEDULE(X)
#undef X
        SITUATIONS
};

/* The numbers of a row of SCHEDULE. */
struct schedule_row {
    uint32_t first_ms, again_ms, usual_factor;
};
extern const struct schedule_row schedule[SITUATIONS];

/* Maximum number of digests of reported findings that are kept. It exceeds DIAGNOSIS_MAX, the limit for the findings of
 * one report, because some digests are kept after their cause has ended. */
enum { SCHEDULE_REPORTED_MAX = 3 * DIAGNOSIS_MAX };

/* The waits of this round that were long enough to report and then ended by themselves. */
struct schedule_usual {
    bool waits;                    /* a wait that is long enough for a report is in progress */
    uint64_t since_ms;             /* when the wait in progress began */
    uint64_t longest_ms;           /* longest wait that has ended, or 0 */
    uint32_t n_known;              /* number of digests that were ever added to `known` */
    uint64_t known[DIAGNOSIS_MAX]; /* ring buffer: digests of findings about usual waits */
};

/* The times of the next checks of a job, and the waits that were reported. The job owns the struct, which is zero at
 * the start of the job. */
struct schedule_state {
    bool waits;          /* the job waits for nodes, so checks are due */
    bool compares;       /* a round has begun, and its nodes must be compared with each other */
    bool trouble;        /* a rank has reported trouble */
    uint64_t checked_ms; /* time of the last check */
    uint64_t spare_ms;   /* when to report that a late node waits as a spare; 0 = no late node */
    uint64_t check_ms;   /* time of the next check for missing nodes */
    uint64_t torch_ms;   /* when to check the waits of PyTorch's ranks; 0 = no rank waits */
    bool torch_ended;    /* a process of this round has ended */
    bool torch_surplus;  /* the check at torch_ms is also for a PyTorch group with too many members */
    uint64_t still_ms;   /* when to check for ranks that do not move; 0 = no rank waits for another rank */
    uint64_t stopped_ms; /* when to check for stopped ranks; 0 = no rank was stopped */
    bool calls;          /* the check at still_ms also covers ranks in a collective */
    bool still_reported; /* a rank that does not move was reported */
    struct schedule_usual usual; /* usual waits of this round */
    bool torch_reported;         /* the current wait of PyTorch's ranks has been reported */
    uint32_t wait;               /* number of the present wait (session_node.reported_wait) */
    uint32_t n_reported;         /* number of digests that were added to `reported` in this wait */
    uint64_t reported[SCHEDULE_REPORTED_MAX]; /* ring buffer: digests of reported findings */
};

/* Return when the next check is due; UINT64_MAX = never. */
uint64_t schedule_deadline(const struct job *job);
/* The checks that are due now. schedule_due() returns them and marks them as done. */
struct schedule_due {
    bool any;      /* at least one of the checks below is due */
    bool compares; /* compare the nodes of the round that has begun */
    bool trouble;  /* report a problem that a rank has reported */
    bool spares;   /* report each spare node, which waits for the next round */
    bool nodes;    /* check for missing nodes */
    bool is_final; /* this is the last check before the job fails */
    bool still;    /* check for a rank that does not move while other ranks wait for it */
    bool stopped;  /* check for stopped ranks */
    bool torch;    /* check the waits of PyTorch's ranks */
};
struct schedule_due schedule_due(struct job *job);
/* Schedule a comparison of the nodes of a round that has begun. */
void schedule_round(struct job *job);
/* Schedule a report about a node that joined while a round runs. */
void schedule_spare(struct job *job);
/* Schedule an immediate report about a problem that a running rank has reported. */
void schedule_trouble(struct job *job);
/* Schedule a check because a PyTorch rank waits for another rank. If `has_surplus` is true, the reason is that a group
 * may have too many members. */
void schedule_torch(struct job *job, bool has_surplus);
/* Move the check of PyTorch's waiting ranks to an earlier time, because the process of a rank has ended. */
void schedule_torch_exit(struct job *job);
/* Schedule a check because a rank is in a collective. */
void schedule_call(struct job *job);
/* Schedule a check because the first rank has arrived in a barrier. */
void schedule_barrier(struct job *job);
/* Schedule a check because a signal or a debugger has stopped a rank. */
void schedule_stopped(struct job *job);
/* Record that a rank continues after its stop was reported. */
void schedule_continued(struct job *job);
/* Record a sign of progress that happened `ago_ms` ago. */
void schedule_moved(struct job *job, uint64_t ago_ms);
/* Record that a process has begun or continued the setup of a PyTorch group. If a wait of PyTorch's ranks was reported,
 * check soon whether these ranks continue. */
void schedule_joined(struct job *job);
/* Set the hang rules. A hang is suspected after `limit_ms` without progress. 0 = compute this limit from the longest
 * pause between two signs of progress; UINT64_MAX = never suspect a hang. `action` is the value of --on_hang. */
void schedule_hang_rules(struct job *job, uint64_t limit_ms, const char *action);
/* Reset the schedule when an attempt begins or ends. */
void schedule_attempt(struct job *job, bool begins);
/* Record the result of a check. `waited_ms` is the length of the longest wait of a rank; 0 = no rank waits. `report`
 * is true if this wait is reported now. */
void schedule_still_seen(struct job *job, uint64_t waited_ms, bool report);
/* Return true if a wait of `waited_ms` is usual for this round. To be usual, a wait must be shorter than the longest
 * wait that has ended by itself, multiplied by usual_factor. Row STANDS_STILL of SCHEDULE defines this factor. Return
 * false if the wait was already reported. */
bool schedule_is_usual(const struct schedule_state *w, uint64_t waited_ms);
/* Return true if schedule_learn() has added this digest in this round. schedule_learn() adds the digests of findings
 * about waits that are usual for the job. */
bool schedule_knows(const struct schedule_state *w, uint64_t digest);
void schedule_learn(struct schedule_state *w, uint64_t digest);
/* Return how long PyTorch's ranks must wait before their wait is reported. schedule_torch_seen() records a check of
 * this wait, with the same parameters as schedule_still_seen(). */
uint64_t schedule_torch_limit(const struct schedule_state *w);
void schedule_torch_seen(struct job *job, uint64_t waited_ms, bool report);
/* Schedule a check soon. The waiting nodes then get a report about a recent event, such as a rejected node. */
void schedule_hurry(struct job *job);

#endif
