/* diagnosis.h -- turns facts into findings. The module is pure: the hub collects the facts, so a test needs no running
 * job. Facts borrow their strings, but a finding contains copies, so that it outlives the snapshot. */

/* The two main functions:
 *
 *     diagnose_rank   chooses the row of findings.h that explains why one rank does not arrive
 *     diagnose_job    turns a snapshot of the whole job into a short list of findings, causes first */

#ifndef RENDEZVOUS_DIAGNOSIS_DIAGNOSIS_H
#define RENDEZVOUS_DIAGNOSIS_DIAGNOSIS_H

#include "diagnosis/findings.h"
#include "store/barrier.h"

#include <stdint.h>

struct cJSON;
struct members;
struct snapshot;

/* The wait of a rank. */
struct rank_wait {
    struct slice name; /* name of a key or a barrier, borrowed; name.data is NULL if the rank does not wait */
    bool in_barrier;
    uint32_t more;   /* number of other keys that the rank waits for */
    uint32_t setter; /* 1 + the rank that should set the key; 0 if unknown */
    uint64_t for_ms;
};

/* The facts about one rank. Strings are borrowed. */
struct snapshot_rank {
    uint32_t rank;
    const char *host; /* NULL if unknown */
    int pid;          /* 0 if unknown */
    bool started;     /* an agent has started the process of the rank */
    bool met;         /* the rank has had a connection in this attempt */
    bool connected;   /* the rank has an open connection to the store */
    bool exited;      /* an agent has reported the end of the process; exit_code and signal are valid */
    int exit_code, signal;
    uint64_t silent_ms; /* time since the rank last sent data; valid if `met` */
    uint64_t round_ms;  /* if not `met`: time since the round began; 0 = unknown */
    struct rank_wait waits;
    bool node_lost;        /* the node of the rank is lost, so the present state is unknown */
    char proc_state;       /* last state that the agent has read, such as 'T' (stopped); 0 if unknown */
    int cpu_percent;       /* -1 if unknown */
    const char *wchan;     /* kernel function in which the process sleeps; NULL if none */
    uint64_t state_ms;     /* time since the process entered proc_state, or since it exited */
    bool has_steps;        /* the rank reports its progress to its agent, as libddp's workers do */
    int64_t step;          /* last finished step; -1 if no step was reported */
    uint64_t call_seq;     /* number of the latest collective */
    const char *call;      /* name of the collective that the rank is in; "" = no collective */
    uint64_t still_ms;     /* time since `step` or `call` last changed */
    const char *traceback; /* last line of the rank's latest traceback since the last progress, or NULL */
};

/* Return the facts about a rank, except `connected`, `silent_ms` and `waits`. The caller adds these from the rank's
 * connections. */
struct snapshot_rank member_snapshot(const struct members *m, uint32_t rank);

/* Return the code of the finding that explains why the rank does not arrive. diagnose_rank() makes this finding. */
enum finding_code diagnose_rank_code(const struct snapshot_rank *facts);
void diagnose_rank(const struct snapshot_rank *facts, struct finding *finding);

/* Report a rank that has exited with 0 while ranks in a barrier wait for it. */
void diagnose_early_exit_of_barrier(const struct barrier *barrier, const struct snapshot_rank *facts,
                                    struct finding *finding);
/* Report that rank `waiter` has lost its connection to rank `lost` in a collective. If `lost` is -1, report all ranks
 * that have exited with 0. Return false if there is no such rank. */
bool diagnose_early_exit(const struct members *members, uint32_t waiter, int64_t lost, uint64_t now_ms,
                         struct finding *finding);

/* Fill in the facts about `rank`. `user` is the argument `user` of barrier_report. */
typedef void (*snapshot_rank_fn)(void *user, uint32_t rank, struct snapshot_rank *facts);

/* Append a report as a JSON object. The ranks that wait in a failed barrier get this report. Its member "message"
 * begins with "barrier 'epoch-3' ". It continues with `because`, such as "timed out after 30.0 s". If the call of the
 * barrier was invalid (BARRIER_MISUSE), `barrier` is NULL. If memory is short, return false and leave `out`
 * unchanged. */
bool barrier_report(const struct barrier *barrier, struct slice name, snapshot_rank_fn facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

/* Return a JSON object with the facts: {"rank":3,"state":"connected","host":...}. The caller frees the object
 * (cJSON_Delete). Return NULL if memory is short. */
struct cJSON *diagnose_json(const struct snapshot_rank *facts);

/* Append the name of a place: "key '/x'", "rank 0's NCCL id (key '/default_pg/0//cuda//0')" or "barrier 'y'". Return
 * false if memory is short. */
bool diagnose_append_place(struct slice name, bool is_barrier, struct buf *out);
/* Return true if two waits are at the same place of a program. Both waits may be in the same barrier or for the same
 * key. They may also be for two keys of the same setup of a PyTorch group. */
bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier);

enum {
    DIAGNOSIS_MAX = 12,        /* maximum number of findings in a report, so that a report fits a screen */
    DIAGNOSIS_SAME = 4,        /* maximum number of findings with one code in a report */
    DIAGNOSE_NAME_SHOWN = 120, /* longest printed name of a key or barrier, in bytes */
};

/* The result: findings in the order of printing (findings.h). The struct has no pointers, so it can be copied. */
struct diagnosis {
    uint32_t n;
    uint32_t left_out; /* number of findings that are neither in `list` nor counted by the member `more` of a
                        * finding in `list` */
    struct finding list[DIAGNOSIS_MAX];
};

/* Keep only the findings with this code. Return false if no finding remains. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code);

/* Return true if `seen`, the address that the store sees, differs from `own`, the address that the node has sent.
 * Return false if one of them is NULL or "". */
bool diagnose_is_translated(const char *own, const char *seen);
/* Find the longest wait for a key that every rank needs when PyTorch starts. Return the duration of this wait in ms,
 * plus 1. Return 0 if no rank waits for such a key. */
uint64_t diagnose_torch_waits(const struct snapshot *snapshot);
/* Return true if a PyTorch group has too many members, and at least one member is a known process that does not belong
 * to the job. */
bool diagnose_torch_surplus(const struct snapshot *snapshot);

/* Select a rank that is in the collective with the highest number. Return how many ms this rank has waited, or 0 if no
 * rank is in a collective. */
uint64_t diagnose_still_waits(const struct snapshot *snapshot);
/* Return true if a rank has waited in a collective for `least_ms`, and another rank has not reached this collective.
 * The other rank must have exited, or not have moved for `least_ms`. */
bool diagnose_stands_still(const struct snapshot *snapshot, uint64_t least_ms);

/* Return the longest present wait of a rank in a barrier, in ms. Return 0 if no rank waits in a barrier. */
uint64_t diagnose_barrier_waits(const struct snapshot *snapshot);
/* Return true if most waiting ranks have waited in one barrier for `least_ms`, and a missing rank will probably not
 * arrive. */
bool diagnose_barrier_hangs(const struct snapshot *snapshot, uint64_t least_ms);

/* Compare two samples of the stacks, find the rank for which all other ranks wait, and add the finding (hang.c). Return
 * this rank, or -1 if the samples do not show this rank. */
int64_t diagnose_hang(struct diagnosis *d, const struct snapshot *s);

/* Return true if the main thread of `rank` sleeps in both samples, and has run several times between them. The rank may
 * wait in a loop, but it may also be slow. */
bool hang_wakes(const struct snapshot *s, uint32_t rank);

/* Return the reason why two samples gave no verdict, such as "the stacks cannot be read". `ddpctl why` prints this
 * reason. The text is constant. */
const char *hang_why_not(const struct snapshot *s);

/* Compare the flight records of the two samples. Return true if a rank's record is missing or has changed in the later
 * sample. The next sample may then name the rank that hangs. Return false if the later sample has no records at all. */
bool hang_lacks_records(const struct snapshot *s);

/* History of a hang: samples of each rank that is outside of collectives, since the last sign of progress. The history
 * is used to detect endless loops. */
struct hang_history;
/* Add the later of the two samples in a snapshot. The earlier sample must be NULL, or must be the sample that the
 * previous call added. Allocate *history if it is NULL; the caller frees it with hang_history_free. */
void hang_history_add(struct hang_history **history, const struct snapshot *s);
void hang_history_free(struct hang_history *history);

/* Return true if a signal or a debugger has kept the rank stopped for at least `least_ms`. Always return false for a
 * rank that reports its steps, because diagnose_still reports that rank. */
bool diagnose_is_stopped(const struct snapshot_rank *f, uint64_t least_ms);

/* Fill `out` with the findings about the job, and remove all earlier findings from `out`. */
void diagnose_job(const struct snapshot *snapshot, struct diagnosis *out);

#endif
