/* snapshot.h -- the facts about a job at one moment: the input of diagnose_job and of its text.
 *
 * Plain data, so that a test can write a case literally. All durations count back from the moment of the
 * snapshot; all pointers are borrowed from its maker. */
#ifndef RENDEZVOUS_SNAPSHOT_H
#define RENDEZVOUS_SNAPSHOT_H

#include "diagnosis/diagnosis.h"
#include "diagnosis/rejected.h"
#include "diagnosis/torch_keys.h"

struct cJSON;
struct profile;

enum snapshot_phase { PHASE_GATHERING, PHASE_RUNNING, PHASE_STOPPING, PHASE_OVER };

struct snapshot_node {
    const char *host, *addr, *boot_id, *version; /* "" = unknown */
    const char *own; /* the node's own view of its address, while `addr` is the store's view; "" = unknown */
    const char *state; /* a word for the table */
    int32_t node_rank; /* -1 = none yet */
    uint32_t first_rank, nproc;
    int pid;
    bool is_spare, is_stopping;
    uint64_t joined_ms, heard_ms;
};

/* A node that has left the job. */
struct snapshot_gone {
    const char *host, *how;
    int32_t node_rank;
    int pid;
    bool lost, silent; /* else it left by itself; `silent`: its heartbeats stopped, else its connection
                        * closed */
    bool ran;          /* it was a member of the round that runs or ran last */
    uint64_t stayed_ms, gone_ms;
};

/* A ddprun that was rejected. */
struct snapshot_refused {
    const char *code; /* code of the rejection, "NODE_RANK_TAKEN" */
    const char *words;
    const char *host;
    int32_t node_rank; /* the requested one, -1 = any */
    int pid;
    uint32_t times;
    uint64_t ago_ms;
};

/* Rejected connections from one address. */
struct snapshot_stranger {
    enum reject_kind kind;
    const char *address; /* without the port */
    const char *bytes;   /* first bytes, printable, quoted if they are text */
    const char *job;     /* the requested one */
    uint32_t times;
    uint64_t ago_ms;
};

/* An open barrier, or a key with waiters. */
struct snapshot_wait {
    struct slice name;
    bool is_barrier;
    uint32_t waiting, members; /* members 0 = not known */
    uint32_t rank;             /* a rank that waits in it; UINT32_MAX = none with a known rank */
    uint64_t for_ms;           /* the longest */
};

/* A process that takes part in a PyTorch group or barrier. */
struct snapshot_claim {
    int64_t rank;      /* the rank it acts as; -1 = unknown */
    uint32_t said;     /* 1 + the rank whose address it has published; 0 = none */
    int pid;           /* 0 = not known */
    bool is_ours;      /* it is a worker of this job, */
    bool is_child;     /* or its child process */
    const char *host;  /* NULL = not known */
    const char *owner; /* an agent's description of a foreign process; "" = none */
    struct slice address;
};

/* A PyTorch group or barrier with more members than ranks. */
struct snapshot_crowd {
    struct torch_key key; /* its key; no kind: processes that have published an address */
    bool is_double;       /* two processes have the same rank */
    uint64_t count;
    const struct snapshot_claim *claims; /* the job's own processes first */
    uint32_t n;
};

/* A node's finding about itself, or a rank's about its network. */
struct snapshot_notice {
    enum finding_code code;
    const char *subject, *sentence, *advice;
};

/* The cause that ended the round, if any. */
struct snapshot_cause {
    bool known;
    const char *host, *words;
    int32_t node_rank, rank;
    int pid, error; /* errno: it could not be started */
    uint64_t after_ms;
};

/* Facts about the store's process and machine. */
struct snapshot_store {
    const char *host, *endpoint;
    uint64_t accept_overflows, somaxconn; /* since the store began */
    uint64_t refused_no_fd;
    uint64_t used, max; /* bytes */
};

/* Stacks of all ranks (record/stacks.h), taken because the job shows no progress. */
struct snapshot_hang {
    const struct cJSON *rows[2]; /* of two samples, the earlier one first; NULL = not taken */
    uint64_t apart_ms;
    uint64_t still_ms; /* since the last sign of progress */
    bool has_signals;  /* there were such signs before, so their absence means something */
};

struct snapshot {
    const char *job;
    enum snapshot_phase phase;
    bool elastic;
    uint32_t min, max; /* nodes; 0 = unknown */
    uint32_t world_size, round;
    uint32_t returning; /* nodes of the last round that may still join again */
    uint64_t waited_ms; /* time in this phase */
    uint64_t left_ms;   /* time until the wait ends; UINT64_MAX = never */
    uint64_t limit_ms;  /* value of `knob`; 0 = no limit */
    const char *knob;   /* "--timeout" */
    bool is_final;      /* the time is up, or the job has ended */
    struct snapshot_store store;
    struct snapshot_cause cause;
    struct snapshot_crowd crowd;
    struct snapshot_hang hang;
    const struct profile *profile;     /* of this attempt (profile.h); NULL = none */
    const struct snapshot_node *nodes; /* by node rank, those without one first */
    const struct snapshot_gone *gone;  /* the latest first */
    const struct snapshot_refused *refused;
    const struct snapshot_stranger *strangers;
    const struct snapshot_notice *notices;
    const struct snapshot_wait *waits; /* in no order */
    const struct rank_facts *ranks;    /* world_size entries while a round runs, else none */
    uint32_t n_nodes, n_gone, n_refused, n_strangers, n_notices, n_waits, n_ranks;
};

#endif
