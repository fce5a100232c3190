/* snapshot.h -- the facts about a job at one moment. diagnose_job and text.c read these facts. The structs are plain
 * data, so that a test can write a case as a literal. */
#ifndef RENDEZVOUS_SNAPSHOT_H
#define RENDEZVOUS_SNAPSHOT_H

#include "diagnosis/diagnosis.h"
#include "diagnosis/rejected.h"
#include "diagnosis/torch_keys.h"

struct cJSON;
struct profile;

/* All durations are in ms and end at the moment of the snapshot: `gone_ms` 5000 means "5 s ago". Strings are never
 * NULL, except where their comment allows NULL. */

/* The phases of the rendezvous, in order: nodes join; a round runs; its workers are being stopped; the job has
 * ended. */
enum snapshot_phase { PHASE_GATHERING, PHASE_RUNNING, PHASE_STOPPING, PHASE_OVER };

/* A node that is a member of the job or waits to become one. */
struct snapshot_node {
    const char *host, *addr, *boot_id, *version; /* "" = unknown */
    const char *own;            /* address that the node has sent; the store sees `addr`; "" = unknown */
    const char *state;          /* text in the column STATE of the table of nodes, such as "waiting" */
    int32_t node_rank;          /* -1 = no node rank yet */
    uint32_t first_rank, nproc; /* in a round, the node runs ranks first_rank to first_rank + nproc - 1 */
    int pid;                    /* pid of ddprun; 0 = unknown */
    bool is_spare, is_stopping; /* is_spare: waits for the next round; is_stopping: must stop its workers */
    uint64_t joined_ms, silent_ms; /* joined_ms: since the node joined; silent_ms: since its last message */
};

/* A node that has left the job. */
struct snapshot_gone {
    const char *host, *how; /* `how`: a sentence about the end, such as "its connection was closed" */
    int32_t node_rank;      /* -1 if the node never had a node rank */
    int pid;
    bool lost;   /* true = the node was lost; false = the node left by itself */
    bool silent; /* for a lost node: true = its heartbeats stopped; false = its connection closed */
    bool ran;    /* the node was a member of the latest round */
    uint64_t stayed_ms, gone_ms; /* stayed_ms: time that the node was in the job; gone_ms: since it left */
};

/* A ddprun that was rejected. */
struct snapshot_refused {
    const char *code;        /* code of the rejection, such as "NODE_RANK_TAKEN" */
    const char *words;       /* reason of the rejection; a sentence from job/admission.c */
    const char *host, *addr; /* addr: address of the node; "" = unknown */
    int32_t node_rank;       /* requested node rank, -1 = any */
    int pid;
    uint32_t times;  /* number of rejections of this process with this code */
    uint64_t ago_ms; /* time since the last rejection */
};

/* Rejected connections from one address. */
struct snapshot_stranger {
    enum reject_kind kind;
    const char *address; /* address without the port */
    const char *bytes;   /* first bytes of a connection, as printable text */
    const char *job;     /* the requested job; "" = none */
    uint32_t times;
    uint64_t ago_ms; /* time since the last rejection */
};

/* An open barrier, or a key with waiters. All keys of the same setup of a PyTorch group share one struct
 * (diagnose_is_place). */
struct snapshot_wait {
    struct slice name;
    bool is_barrier;
    const struct barrier *barrier; /* borrowed: the barrier; NULL for a key, or if the barrier is unknown */
    uint32_t waiting, members;     /* numbers of waiting ranks and of members; `members` is 0 if unknown */
    uint32_t rank;                 /* one of the waiting ranks; UINT32_MAX = no rank is known */
    uint64_t for_ms;               /* length of the longest wait of a rank */
};

/* A process that takes part in a PyTorch group or barrier. The store sees only the connection of the process. If no
 * agent has named the process as a worker or a worker's child, the store asks the agents to describe the process
 * (`owner`). */
struct snapshot_claim {
    int64_t rank;       /* the rank that the process acts as; -1 = unknown */
    uint32_t published; /* 1 + the rank whose address the process has published; 0 = none */
    int pid;            /* 0 = unknown */
    bool is_of_job;     /* the process is a worker of this job or a child of a worker */
    bool is_child;      /* the process is a child of a worker */
    const char *host;   /* NULL = unknown */
    const char *owner;  /* an agent's description of a process that is not a worker; "" = none */
    struct slice address;
};

/* A PyTorch group with too many members: a barrier has more arrivals than the job has ranks, or two processes act as
 * one rank. */
struct snapshot_surplus {
    /* The key of the group or barrier. If its kind is TORCH_KEY_NONE, the store has counted the published addresses of
     * the members, and not the arrivals in a barrier. */
    struct torch_key key;
    bool is_double; /* two processes have the same rank */
    uint64_t count; /* number of arrivals in the barrier, including arrivals of processes whose connections
                     * have closed; if there is no barrier, the same number as `n` */
    const struct snapshot_claim *claims; /* sorted: the processes of the job are first */
    uint32_t n;
    uint64_t for_ms; /* time since the latest registration of these processes */
};

/* A finding of a node about itself, or of a rank about its network. */
struct snapshot_notice {
    enum finding_code code;
    const char *subject, *sentence, *advice; /* complete texts, made by the node */
};

/* The failure that ended the round, if any: a copy of the round's first failure (record/failure.h). Later failures of
 * the round are usually consequences of the first failure. */
struct snapshot_cause {
    bool known;               /* false if the round runs, or if it ended without a failure */
    const char *host, *words; /* `words`: how the worker ended, such as "exited with code 1" */
    int32_t node_rank, rank;  /* `rank` is -1 if the cause is a node, not a worker */
    int pid, error;           /* error: errno of a failed start; 0 = the worker was started */
    uint64_t after_ms;        /* time from the start of the round to the failure */
};

/* Facts about the store's process and machine. */
struct snapshot_store {
    const char *host, *endpoint;
    /* accept_overflows: number of connections that were dropped since the store started, because the accept queue was
     * full. somaxconn: limit of the accept queue. */
    uint64_t accept_overflows, somaxconn;
    uint64_t refused_no_fd; /* how often clients began to wait because the process had no free descriptor */
    uint64_t open_files;    /* limit of open files, stored when the process last had no free descriptor */
    uint64_t used, max;     /* used: bytes in use of the store's quota; max: the quota, 0 = unknown */
};

/* Stacks of all ranks (record/stacks.h), sampled because the job makes no progress. */
struct snapshot_hang {
    const struct cJSON *rows[2];  /* rows of two samples, the earlier sample first; NULL = not sampled */
    const struct cJSON *calls[2]; /* calls in these samples' flight records (flight_call of hub/messages.h) */
    const struct hang_history *history; /* history of all samples (diagnosis.h); NULL = none */
    uint64_t apart_ms;                  /* time from the earlier to the later sample */
    uint64_t still_ms;                  /* time since the last sign of progress */
    uint64_t due_ms;     /* stacks are sampled when still_ms reaches this value; 0 = they are not sampled */
    bool has_signals;    /* the job has shown signs of progress in this round */
    uint32_t in_vain;    /* number of suspicions without a verdict since the last progress */
    const char *why_not; /* why the last suspicion that `in_vain` counts had no verdict; NULL = none yet */
};

/* A job at one moment. Fields about a phase that has not begun are 0 or empty. All pointers are borrowed from
 * hub/monitor.c, which makes a snapshot for each report and frees it afterwards. */
struct snapshot {
    const char *job; /* job id; "" = no job yet */
    enum snapshot_phase phase;
    bool elastic;               /* nodes have no fixed node ranks and may join and leave */
    uint32_t min, max;          /* limits of the number of nodes; 0 = unknown */
    uint32_t world_size, round; /* round: number of completed rendezvous; 0 = none yet */
    uint32_t returning;         /* how many nodes of the latest round may still join again */
    uint64_t waited_ms;         /* time since this phase began */
    uint64_t left_ms;           /* time until the store stops waiting; UINT64_MAX = never */
    uint64_t pause_ms; /* in RDZV_BACKING_OFF or RDZV_LAST_CALL: time until the workers start; else 0 */
    uint64_t limit_ms; /* value of the option `knob`; 0 = no limit */
    const char *knob;  /* option that sets limit_ms: "--timeout" */
    bool is_final;     /* true in the last check before the job fails for lack of nodes */
    struct snapshot_store store;
    struct snapshot_cause cause;
    struct snapshot_surplus surplus;
    struct snapshot_hang hang;
    const struct profile *profile;     /* profile of this attempt (profile.h); NULL = none */
    const struct snapshot_node *nodes; /* sorted by node rank; nodes without a node rank come first */
    const struct snapshot_gone *gone;  /* sorted: the latest first */
    const struct snapshot_refused *refused;
    const struct snapshot_stranger *strangers;
    const struct snapshot_notice *notices;
    const struct snapshot_wait *waits; /* not sorted */
    const struct snapshot_rank *ranks; /* world_size entries while a round runs, otherwise none */
    uint32_t n_nodes, n_gone, n_refused, n_strangers, n_notices, n_waits, n_ranks;
};

#endif
