/* rendezvous.h -- the rendezvous of one job: its nodes, their ranks, when they stop, and whether another round
 * follows.
 *
 * Pure: no socket, no clock, no JSON. The hub passes in the agents' messages with the time; answers go through the
 * callbacks of rdzv_env. The whole machine is the table at the top of rendezvous.c.
 *
 *     GATHERING -> LAST_CALL -> RUNNING -> STOPPING -> BACKING_OFF -> GATHERING ... -> OVER
 *
 * A round is one completed rendezvous; its nodes are its members. Every member gets `round` once, `stop` at most once
 * (not when all workers ended with 0), and `verdict` once; a verdict "restart" makes it join again. After a verdict
 * "finish" a node gets no more messages. A node that its user stops sends `leave`, stops its workers, sends
 * `stopped`, and gets its verdict "finish" at once.
 *
 * Nodes have an id that the caller gives (its connection), never 0. Times are ms of one monotonic clock; every call
 * takes `now_ms`. Callbacks must not call back into the rendezvous. Pointers passed to callbacks are valid during the
 * call only; arguments are copied, longer text is cut. */
#ifndef RENDEZVOUS_JOB_RENDEZVOUS_H
#define RENDEZVOUS_JOB_RENDEZVOUS_H

#include "record/failure.h"
#include "base/limits.h"
#include "store/quota.h"

#include <stddef.h>

/* Reasons for the end of a round, reasons against a restart, and rejections. The enums below and the words of the
 * protocol and of messages are made from the rows. */
#include "diagnosis/findings.h"
#include "base/events.h"

#define RDZV_STATES(X)                                                                                     \
    X(GATHERING, "gathering") /* waits for more nodes */                                                   \
    X(LAST_CALL, "last call") /* enough have joined; waits a little longer for those on their way */       \
    X(RUNNING, "running")     /* a round is complete: workers run */                                       \
    X(STOPPING, "stopping")   /* all nodes were asked to stop; waits until nothing of the round is left */ \
    X(BACKING_OFF, "backing off") /* another attempt will follow, not before the back-off is over */       \
    X(OVER, "over")               /* all nodes have been notified of the end */

/* Why a round ends. */
#define RDZV_WHYS(X)                                                             \
    X(DONE, "done")           /* every worker of every node ended with 0 */      \
    X(FAILED, "failed")       /* a worker failed by itself */                    \
    X(NODE_LOST, "node_lost") /* a node's connection is gone, or it is silent */ \
    X(NODE_LEFT, "node_left") /* a user or a scheduler stopped a node */         \
    X(GROW, "grow")           /* there are more nodes now */                     \
    X(HANGS, "hangs")         /* a rank keeps all others waiting (--on_hang) */  \
    X(TIMEOUT, "timeout")     /* not enough nodes in time */                     \
    X(REFUSED, "refused")     /* the store could not begin the attempt */

/* The records of an event log. */
#define RDZV_RECORDS(X) EVENTS_OF_RENDEZVOUS(X)

/* The reasons for a rejection, with their advice: findings with rows in findings.h. */
#define RDZV_REFUSALS(X) FINDINGS_OF_REFUSALS(X)

struct rdzv;

enum {
    RDZV_NODES_MAX = LIMIT_NODES,
    RDZV_NPROC_MAX = LIMIT_NPROC,
    RDZV_TEXT_MAX = LIMIT_TEXT,
    RDZV_WORDS_MAX = LIMIT_WORDS,
    RDZV_LIST_MAX = LIMIT_LISTED, /* nodes listed in `round`, if it has at most that many; else */
    RDZV_SHORT_LIST_MAX = 32,     /* ... so many; and nodes, or missing ranks, in `waiting` */
    RDZV_GONE_MAX = 32,           /* number of nodes that have left and are kept for a diagnosis */
    RDZV_CODE_NO_NODE = 125, /* exit code when a node is lost or never joined, because no worker has a code */
    RDZV_STOP_EXTRA_MS = 10000 /* time for a node to send `stopped`, beyond its own grace time */
};

#define X(name, word) RDZV_##name,
enum rdzv_state { RDZV_STATES(X) RDZV_N_STATES };
#undef X
#define X(name, word) RDZV_WHY_##name,
enum rdzv_why { RDZV_WHYS(X) RDZV_N_WHYS };
#undef X
#define X(name, word) RDZV_RECORD_##name,
enum rdzv_record_kind { RDZV_RECORDS(X) RDZV_N_RECORDS };
#undef X
#define X(name, ...) RDZV_REFUSED_##name,
enum rdzv_refused { RDZV_WELCOME, RDZV_REFUSALS(X) RDZV_N_REFUSALS };
#undef X

/* The words of the protocol. */
const char *rdzv_state_word(enum rdzv_state state);
const char *rdzv_why_word(enum rdzv_why why);
const char *rdzv_refused_code(enum rdzv_refused refused); /* "VERSION_DIFFERS" */
const char *rdzv_refused_advice(enum rdzv_refused refused);

/* --- messages of agents
 * ---------------------------------------------------------------------------------- */

enum rdzv_grow { RDZV_GROW_AGREED, RDZV_GROW_NOW, RDZV_GROW_NEVER };

struct rdzv_join {
    const char *job, *instance,
        *version; /* `instance`: "" from a new agent, else the value of rdzv_instance() */
    const char *host, *boot_id, *addr;
    const char *own; /* its own end of the connection to the store; NULL or "" = unknown */
    const char
        *task; /* the scheduler ("Slurm") that started it as one of several tasks of a node; "" = none */
    const char *role;    /* role of its workers; NULL or "" = the default role */
    const char *program; /* name of the program that its workers run; "" = not compared */
    uint32_t
        store_port; /* port at which its rank 0 would host a store for all workers; 0 = they use this one */
    int pid;
    uint64_t pid_start;
    bool elastic;
    uint32_t nnodes_min, nnodes_max; /* static: the same for all nodes */
    int32_t node_rank;               /* static; -1 = any free one */
    uint32_t nproc;
    bool nproc_given, uneven;
    /* Rules for the whole job, from the first node that joins; those of later nodes are ignored. */
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms, last_call_ms, join_timeout_ms;
    const char *join_knob;    /* the option that sets join_timeout_ms, for messages; "" or NULL = --timeout */
    uint64_t node_timeout_ms; /* a node that is silent for this long is lost; 0 = never */
    enum rdzv_grow grow;
    uint64_t grace_ms; /* grace period of this node, between SIGTERM and SIGKILL */
};

/* The effect of a message. */
enum rdzv_answer {
    RDZV_OK,
    RDZV_STALE_ROUND, /* of an older round: nothing has changed */
    RDZV_NO_MEMBER,   /* this node is not in a round: nothing has changed */
    RDZV_OTHER_RANK,  /* the rank is not on this node: nothing has changed */
};

/* --- messages to nodes ---------------------------------------------------------------------------------- */

/* The first known cause of a round's end. */
struct rdzv_cause {
    enum rdzv_why why;
    enum no_restart no_retry; /* CANNOT_START, USAGE or IMPORT: a restart would fail again; else NONE */
    bool silent;              /* a lost node: it was silent, else its connection closed */
    struct failure failure;
};

/* A member of a round, as sent to all others. */
struct rdzv_seat {
    uint64_t node;
    uint32_t node_rank, first_rank, nproc;
    uint32_t store_port; /* workers it joined with */
    const char *host, *addr, *own;
};

/* A round, when it begins. */
struct rdzv_round {
    uint32_t round;    /* from 1 */
    uint32_t attempt;  /* round - 1: the number of its key space */
    uint32_t restarts; /* restarts so far, as counted by --max_restarts */
    uint32_t nnodes, world_size;
    const struct rdzv_seat *seats; /* by node rank; nnodes of them for rdzv_env.begin ... */
    uint32_t n_seats;              /* ... and the first few of a large job's in messages to nodes */
};

/* The nodes that a job waits for. Lists are cut to RDZV_SHORT_LIST_MAX; the counts are complete. */
struct rdzv_waiting {
    enum rdzv_state state;
    uint32_t joined, min, max;
    uint32_t spare;        /* while a round runs: nodes that wait for the next one */
    uint32_t returning;    /* members of the last round that have not joined again yet */
    uint64_t left_ms;      /* time until the job gives up; UINT64_MAX = never */
    uint64_t last_call_ms; /* time until it continues with the present nodes; UINT64_MAX = no last call */
    uint64_t backoff_ms;   /* time until the next round may begin; 0 = now */
    uint32_t n_hosts, n_missing, n_missing_listed;
    const char *hosts[RDZV_SHORT_LIST_MAX];
    uint32_t missing[RDZV_SHORT_LIST_MAX]; /* static: missing node ranks */
};

/* Codes for --exit_code. */
struct rdzv_exit {
    int first, max, rank0;
};

enum rdzv_tell_kind { RDZV_TELL_ROUND, RDZV_TELL_WAITING, RDZV_TELL_STOP, RDZV_TELL_VERDICT };

struct rdzv_tell {
    enum rdzv_tell_kind kind;
    /* ROUND: the receiver's own place. */
    const struct rdzv_round *world;
    uint32_t node_rank, first_rank;
    uint32_t role_rank,
        role_size; /* its first rank among, and the number of, workers of its role; size 0 = all are of one */
    /* WAITING */
    const struct rdzv_waiting *waiting;
    /* STOP, VERDICT: their round; 0 = the job ended before its first. */
    uint32_t round;
    enum rdzv_why why;
    const struct rdzv_cause *cause; /* NULL = none: success, or no worker ever ran */
    /* VERDICT */
    bool restart;        /* join again; false: finish */
    uint32_t attempt;    /* number of the next round, if one follows */
    uint64_t backoff_ms; /* before it */
    enum no_restart no_restart;
    int64_t step,
        best_step; /* progress of the round, and the best of all; -1 = not reported, or not requested */
    struct rdzv_exit exit;
};

/* One line of an event log. */
struct rdzv_record {
    enum rdzv_record_kind kind;
    uint64_t now_ms;
    uint32_t round;    /* 0 = before the first */
    uint64_t node;     /* 0 = about the whole job */
    int32_t node_rank; /* rank of the node; -1 = none yet */
    const char *host;  /* "" = about the whole job */
    int pid;
    uint32_t nnodes, world_size; /* ROUND */
    const char *words;           /* the same as the log line */
};

struct rdzv_env {
    void *user;
    const char *version; /* of the store, static; NULL = not compared with the nodes' */
    void (*tell)(void *user, uint64_t node, const struct rdzv_tell *tell);
    /* A round is complete: empty the key space, reset the ranks of the last round and set the new ones. Called before
     * any node gets `round`. False (memory is short): the job ends with NOT_READY. */
    bool (*begin)(void *user, const struct rdzv_round *world);
    /* Return the progress of the round as reported by its workers (a key); -1 = unknown. */
    int64_t (*progress)(void *user);
    /* This many nodes could join another round; set the key that workers read. NULL = no key. */
    void (*waiting_nodes)(void *user, uint32_t count);
    /* The node is dropped (silent, or it never stopped): close its connection now, before the others continue. It
     * gets no more messages, and rdzv_lost need not be called for it. `why` ends a sentence. */
    void (*drop)(void *user, uint64_t node, const char *why);
    void (*log)(void *user, const char *line);                    /* NULL = no log */
    void (*record)(void *user, const struct rdzv_record *record); /* NULL = no event log */
};

/* --- the calls ------------------------------------------------------------------------------------------ */

/* `instance` is a nonce that separates agents of an earlier life of this job from agents of this one. Everything is
 * copied except `quota`, which is borrowed. NULL when memory or quota is short. */
struct rdzv *rdzv_new(const struct rdzv_env *env, struct quota *quota, const char *job, const char *instance);
/* Frees it without sending messages. */
void rdzv_free(struct rdzv *r);
const char *rdzv_instance(const struct rdzv *r);

struct rdzv_refusal {
    enum rdzv_refused code;
    char sentence[2 * RDZV_WORDS_MAX]; /* both values and both hosts; rdzv_refused_advice has the remedy */
};

/* A node joins, or joins again after a verdict "restart". RDZV_WELCOME, or the reason for the rejection (`refusal` is
 * filled). rdzv_settle sends the consequences (perhaps a round); call it when the answer has been sent. Otherwise the
 * next rdzv_tick does it, and rdzv_deadline is "now". */
enum rdzv_refused rdzv_join(struct rdzv *r, uint64_t node, const struct rdzv_join *join, uint64_t now_ms,
                            struct rdzv_refusal *refusal);
void rdzv_settle(struct rdzv *r, uint64_t now_ms);
/* After rdzv_join: true if it has joined, but a round runs, or it is one too many. */
bool rdzv_is_spare(const struct rdzv *r, uint64_t node);

/* A worker has failed by itself; its node stops its others. */
enum rdzv_answer rdzv_failed(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                             uint64_t now_ms);
/* More details of the failure that this node has reported. */
enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                              uint64_t now_ms);
/* All workers of the node have ended with 0. */
enum rdzv_answer rdzv_done(struct rdzv *r, uint64_t node, uint32_t round, uint64_t now_ms);

/* Does this node run this rank in the current round? OK, NO_MEMBER or OTHER_RANK. */
enum rdzv_answer rdzv_check_rank(const struct rdzv *r, uint64_t node, int64_t rank);

struct rdzv_stopped {
    bool unkillable;
    int max_code;   /* highest exit code of the node's workers that ended by themselves, 0 = none */
    bool has_rank0; /* this node has worker 0, and it ended by itself: */
    int rank0_code;
};
/* Nothing of the round is left on the node. */
enum rdzv_answer rdzv_stopped(struct rdzv *r, uint64_t node, uint32_t round, const struct rdzv_stopped *how,
                              uint64_t now_ms);

/* The node leaves for good: its user or its scheduler sent `signal`; `by` may be "". */
void rdzv_leave(struct rdzv *r, uint64_t node, int signal, const char *by, uint64_t now_ms);
/* Its connection is gone. `how` ends the sentence "node 1 (n1) is lost: ...". */
void rdzv_lost(struct rdzv *r, uint64_t node, const char *how, uint64_t now_ms);
/* Every rank of the world has agreed to a larger one. */
void rdzv_grow_agreed(struct rdzv *r, uint64_t now_ms);
/* A rank keeps all others waiting, and the round is to end for it. Of the failure its code, its words, which name the rank, and the
 * reason against a retry count. */
void rdzv_hangs(struct rdzv *r, const struct failure *failure, uint64_t now_ms);
/* This server was suspended until now and received nothing: excuse the silence during that time, with a limit
 * (nodes.c). */
void rdzv_pardon(struct rdzv *r, uint64_t now_ms);
/* Any message of the node counts as a sign of life. */
void rdzv_heard(struct rdzv *r, uint64_t node, uint64_t now_ms);

/* Return when rdzv_tick must be called; UINT64_MAX = never. Check it after every call. */
uint64_t rdzv_deadline(const struct rdzv *r);
/* Pass in the received messages first, because a suspended server must not count its own pause as the nodes' silence. */
void rdzv_tick(struct rdzv *r, uint64_t now_ms);

/* --- queries
 * --------------------------------------------------------------------------------------------- */

enum rdzv_node_state {
    RDZV_NODE_WAITING,  /* has joined, but is in no round */
    RDZV_NODE_RUNNING,  /* a member; its workers run */
    RDZV_NODE_DONE,     /* a member; all its workers ended with 0 */
    RDZV_NODE_STOPPING, /* a member; has been asked to stop, or leaves */
    RDZV_NODE_STOPPED,  /* a member; nothing of the round is left on it */
    RDZV_NODE_RESTING,  /* was asked to join again, has not yet */
    RDZV_NODE_FINISHED, /* was notified that the job is over */
};
const char *rdzv_node_state_word(enum rdzv_node_state state);

struct rdzv_node_facts {
    uint64_t node;
    enum rdzv_node_state state;
    int32_t node_rank; /* its rank in the round; else the requested one; -1 = none */
    uint32_t first_rank, nproc;
    /* Borrowed, until the next call that changes something. */
    const char *host, *addr, *own, *version, *boot_id;
    int pid;
    uint64_t pid_start, joined_ms, heard_ms;
    bool leaving, is_spare;
};

/* A node that has left the job. */
struct rdzv_gone {
    char host[RDZV_TEXT_MAX], how[RDZV_TEXT_MAX];
    int32_t node_rank;
    int pid;
    uint32_t round;
    uint64_t joined_ms, gone_ms;
    bool lost;   /* else it left by itself */
    bool silent; /* lost because it was silent too long */
};

struct rdzv_facts {
    const char *job, *instance;
    enum rdzv_state state;
    uint32_t round, restarts, max_restarts; /* `round` 0 = none has been complete yet */
    bool elastic;
    uint32_t min, max;                               /* 0 = no node has joined yet */
    uint32_t nodes, members, waiting, done, stopped; /* how many */
    uint32_t returning;                              /* of the last round, that have not joined again yet */
    uint32_t world_size;
    uint64_t since_ms;    /* time in this state */
    uint64_t deadline_ms; /* deadline of this state, UINT64_MAX = none */
    uint64_t join_timeout_ms, node_timeout_ms, last_call_ms;
    const char *join_knob; /* option that sets join_timeout_ms, "--timeout" */
    enum no_restart no_restart;
    const struct rdzv_cause *cause; /* of the last round's end; NULL = none */
    const struct rdzv_gone
        *gone;       /* the last ones, ring: entry (n_gone - 1 - i) % RDZV_GONE_MAX is the i-th latest */
    uint32_t n_gone; /* all nodes that left, may be more than the ring holds */
};

void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts);
/* False when there is no such node. */
bool rdzv_node_facts(const struct rdzv *r, uint64_t node, struct rdzv_node_facts *facts);
/* Return the node that joined next after `after`. 0 as argument: the first node; 0 as result: there is no more. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after);
/* Return the node that runs this rank of the world, 0 = none (no round runs, or the node has left). */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank);
/* Static jobs: check whether a node with this rank waits or runs. */
bool rdzv_has_node_rank(const struct rdzv *r, uint32_t node_rank);
/* True if the job is over and all nodes have been notified: a job of the same name may begin. */
bool rdzv_is_over(const struct rdzv *r);

#endif
