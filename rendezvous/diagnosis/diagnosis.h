/* diagnosis.h -- from facts to findings. Pure.
 *
 *     diagnose_rank   one rank that others wait for: which row of findings.h fits it
 *     diagnose_job    the whole job: a snapshot in, a short list of findings out, causes before consequences */
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
    bool met;         /* it has introduced itself */
    bool connected;   /* ... and a connection of it is open */
    bool exited;      /* an agent has seen its process end, with: */
    int exit_code, signal;
    uint64_t silent_ms; /* since its last byte, if `met` */
    struct rank_wait waits;
    bool node_lost;    /* its present state is unknown */
    char proc_state;   /* of its process as its agent saw it last ('T' = stopped); 0 = not seen, or: */
    int cpu_percent;   /* -1 = not known */
    const char *wchan; /* the kernel function it sleeps in; NULL = none */
    uint64_t state_ms; /* for how long it has been in that state */
    bool has_steps;    /* it tells its agent how far it is, as a worker of libddp does: */
    int64_t step;      /* that it has done last; -1 = not told */
    uint64_t call_seq; /* number of its last collective */
    const char *call;  /* its name, while it is in it; "" = it is in none */
    uint64_t still_ms; /* for how long none of this has changed */
};

/* Facts without those that only its connections know (connected, silent_ms, waits_for). */
struct rank_facts member_facts(const struct members *m, uint32_t rank);

/* Why it does not come. */
enum finding_code diagnose_rank_code(const struct rank_facts *facts);
void diagnose_rank(const struct rank_facts *facts, struct finding *finding);

/* It has ended with 0, and those that are in the barrier wait for it. */
void diagnose_left_barrier(const struct barrier *barrier, const struct rank_facts *facts,
                           struct finding *finding);
/* Rank `waiter` has lost a peer in a collective, and no rank has failed: the peer is `lost`, or, where that is -1,
 * the ranks that have ended with 0 by themselves. False: no such rank. */
bool diagnose_left_call(const struct members *members, uint32_t waiter, int64_t lost,
                        struct finding *finding);

/* The facts about a rank of the world. */
typedef void (*barrier_facts)(void *user, uint32_t rank, struct rank_facts *facts);

/* Why a barrier did not open, for its members: the JSON of an outcome that is not RELEASED, appended to `out`. `because` ends the first line of the
 * message: "barrier 'epoch-3' " + "timed out after 30.0 s". For a misuse `barrier` is NULL. False when memory
 * is short; `out` is as it was. */
bool barrier_report(const struct barrier *barrier, struct slice name, barrier_facts facts_of, void *user,
                    enum barrier_outcome outcome, const char *because, struct buf *out);

/* A JSON object with the facts: {"rank":3,"state":"connected","host":...}; yours (cJSON_Delete), NULL when memory is
 * short. */
struct cJSON *diagnose_json(const struct rank_facts *facts);

/* "key '/x'", "rank 0's NCCL id (key '/default_pg/0//cuda//0')", "barrier 'y'". False when memory is short. */
bool diagnose_put_place(struct slice name, bool is_barrier, struct buf *out);
/* Is it the same place of a program? Keys are, when they are equal or belong to the same setup of a PyTorch group. */
bool diagnose_is_place(struct slice a, bool a_is_barrier, struct slice b, bool b_is_barrier);

enum {
    DIAGNOSIS_MAX = 12,        /* findings in a report: it must fit a screen */
    DIAGNOSIS_SAME = 4,        /* of one code */
    DIAGNOSE_NAME_SHOWN = 120, /* bytes of the name of a key or barrier */
};

struct diagnosis {
    uint32_t n;
    uint32_t left_out; /* findings for which there was no room, besides those counted in finding.more */
    struct finding list[DIAGNOSIS_MAX];
};

/* Keep only the findings of this code; false when none is left. */
bool diagnosis_keep(struct diagnosis *d, enum finding_code code);

/* Does a node that calls itself `own` come to the store from another address, `seen`? NULL and "" = not known. */
bool diagnose_is_translated(const char *own, const char *seen);
/* For how long ranks have waited for what all ranks of PyTorch's do at the start; 0 = they do not. */
uint64_t diagnose_torch_waits(const struct snapshot *snapshot);
/* More take part in a group of PyTorch's than belong there, and it is known who. */
bool diagnose_torch_crowd(const struct snapshot *snapshot);

/* How long ranks have been in the most advanced collective; 0 = no rank is in one. */
uint64_t diagnose_still_waits(const struct snapshot *snapshot);
/* Ranks have waited in a collective for so long, and another one has not moved for as long. */
bool diagnose_stands_still(const struct snapshot *snapshot, uint64_t least_ms);

/* How long ranks have waited in a barrier; 0 = no rank is in one. */
uint64_t diagnose_barrier_waits(const struct snapshot *snapshot);
/* Most ranks that wait have waited in a barrier for so long, and one that is missing there is not on the way. */
bool diagnose_barrier_hangs(const struct snapshot *snapshot, uint64_t least_ms);

/* Overwrites `out`. */
void diagnose_job(const struct snapshot *snapshot, struct diagnosis *out);

#endif
