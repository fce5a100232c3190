/* diagnosis.h -- turns facts into findings. Pure.
 *
 *     diagnose_rank   one rank that others wait for: the matching row of findings.h
 *     diagnose_job    the whole job: a snapshot in, a short list of findings out, causes before
 * consequences */
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
    struct slice name; /* of a key or a barrier, borrowed; data NULL = it does not wait */
    bool in_barrier;
    uint32_t more; /* keys besides that one */
    uint64_t for_ms;
};

/* The facts about one rank. Strings are borrowed. */
struct rank_facts {
    uint32_t rank;
    const char *host; /* NULL = unknown */
    int pid;          /* 0 = unknown */
    bool started;     /* an agent has started its process */
    bool met;         /* it has sent IDENTIFY */
    bool connected;   /* ... and has an open connection */
    bool exited;      /* an agent has seen its process end, with: */
    int exit_code, signal;
    uint64_t silent_ms; /* since its last byte, if `met` */
    struct rank_wait waits;
    bool node_lost;    /* its present state is unknown */
    char proc_state;   /* last state of its process seen by its agent ('T' = stopped); 0 = not seen, or: */
    int cpu_percent;   /* -1 = not known */
    const char *wchan; /* the kernel function it sleeps in; NULL = none */
    uint64_t state_ms; /* time in that state */
    bool has_steps;    /* whether it reports its progress to its agent, as a libddp worker does: */
    int64_t step;      /* its last finished step; -1 = none reported */
    uint64_t call_seq; /* number of its last collective */
    const char *call;  /* name of the collective it is in; "" = none */
    uint64_t still_ms; /* time since the last change of these */
    const char
        *traceback; /* last line of a Python traceback, after which it has printed nothing; NULL = none */
};

/* Return the facts without those of its connections (connected, silent_ms, waits_for). */
struct rank_facts member_facts(const struct members *m, uint32_t rank);

/* Return the reason why the rank does not arrive. */
enum finding_code diagnose_rank_code(const struct rank_facts *facts);
void diagnose_rank(const struct rank_facts *facts, struct finding *finding);

/* The rank has exited with 0, and the ranks in the barrier wait for it. */
void diagnose_left_barrier(const struct barrier *barrier, const struct rank_facts *facts,
                           struct finding *finding);
/* Rank `waiter` has lost a peer in a collective, and no rank has failed. The peer is `lost`, or if that is
 * -1, the ranks that have exited with 0. False: no such rank. */
bool diagnose_left_call(const struct members *members, uint32_t waiter, int64_t lost,
                        struct finding *finding);

/* The facts about a rank of the world. */
typedef void (*barrier_facts)(void *user, uint32_t rank, struct rank_facts *facts);

/* Append the reason why a barrier did not open, for its members: the JSON of an outcome that is not RELEASED.
 * `because` ends the first line of the message: "barrier 'epoch-3' " + "timed out after 30.0 s". For a misuse
 * `barrier` is NULL. False if memory is short; `out` is unchanged then. */
bool barrier_report(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

/* Return a JSON object with the facts: {"rank":3,"state":"connected","host":...}. The caller frees it
 * (cJSON_Delete). NULL if memory is short. */
struct cJSON *diagnose_json(const struct rank_facts *facts);

/* "key '/x'", "rank 0's NCCL id (key '/default_pg/0//cuda//0')", "barrier 'y'". False when memory is short. */
bool diagnose_put_place(struct slice name, bool is_barrier, struct buf *out);
/* True if two waits are at the same place of a program. Two keys are if they are equal or belong to the same setup of
 * a PyTorch group. */
bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier);

enum {
    DIAGNOSIS_MAX = 12,        /* findings in a report, which must fit a screen */
    DIAGNOSIS_SAME = 4,        /* of one code */
    DIAGNOSE_NAME_SHOWN = 120, /* bytes of the name of a key or barrier */
};

struct diagnosis {
    uint32_t n;
    uint32_t left_out; /* findings dropped for lack of room, besides those counted in finding.more */
    struct finding list[DIAGNOSIS_MAX];
};

/* Keep only the findings of this code; false if none is left. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code);

/* True if a node with the address `own` reaches the store from another address, `seen`. NULL and "" = unknown. */
bool diagnose_is_translated(const char *own, const char *seen);
/* Return how long ranks have waited in a start-up step of all of PyTorch's ranks; 0 = they do not. */
uint64_t diagnose_torch_waits(const struct snapshot *snapshot);
/* True if a PyTorch group has too many members, and the extra ones are known. */
bool diagnose_torch_crowd(const struct snapshot *snapshot);

/* Return how long ranks have been in the most advanced collective; 0 = no rank is in one. */
uint64_t diagnose_still_waits(const struct snapshot *snapshot);
/* True if ranks have waited in a collective for so long, and another one has not moved for as long. */
bool diagnose_stands_still(const struct snapshot *snapshot, uint64_t least_ms);

/* Return how long ranks have waited in a barrier; 0 = no rank is in one. */
uint64_t diagnose_barrier_waits(const struct snapshot *snapshot);
/* True if most waiting ranks have waited in a barrier for so long, and a missing one is not on its way. */
bool diagnose_barrier_hangs(const struct snapshot *snapshot, uint64_t least_ms);

/* hang.c: find the rank for which all others wait, by the stacks of two samples, and add the finding. Return the rank, -1 = no
 * verdict. */
int64_t diagnose_hang(struct diagnosis *d, const struct snapshot *s);

/* True if a signal or a debugger has stopped a rank that does not report its steps, for so long. */
bool diagnose_is_stopped(const struct rank_facts *f, uint64_t least_ms);

/* Overwrites `out`. */
void diagnose_job(const struct snapshot *snapshot, struct diagnosis *out);

#endif
