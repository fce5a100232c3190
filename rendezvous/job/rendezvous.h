/* rendezvous.h -- the rendezvous of one job: its nodes, their ranks, when they stop, and whether another round
 * follows.
 *
 * The module is pure: it uses no socket, no clock, no JSON. The hub passes in each message of an agent with the time.
 * Answers are sent through the callbacks of rdzv_env. The table at the top of rendezvous.c is the whole state machine.
 *
 *     GATHERING -> LAST_CALL -> RUNNING -> STOPPING -> BACKING_OFF -> GATHERING ... -> OVER
 *
 * A round is one completed rendezvous; its nodes are its members. Each member receives `round` once, `stop` at most
 * once (never if all workers ended with 0), and `verdict` once. After the verdict "restart", the node joins again.
 * After the verdict "finish", the node receives no more messages. If a user stops a node, the node sends `leave`,
 * stops its workers and sends `stopped`. It then receives the verdict "finish" without waiting for other nodes.
 *
 * The caller gives each node an id (its connection), which is never 0. Times are in ms of one monotonic clock; every
 * call takes `now_ms`. Callbacks must not call back into the rendezvous. Pointers that are passed to callbacks are
 * valid only during the call. Texts in arguments are copied, and cut if they are too long. */
#ifndef RENDEZVOUS_JOB_RENDEZVOUS_H
#define RENDEZVOUS_JOB_RENDEZVOUS_H

#include "record/failure.h"
#include "base/limits.h"
#include "store/quota.h"

#include <stddef.h>

/* Reasons for the end of a round, reasons against a restart, and rejections. These rows generate the enums below, the
 * words of the protocol and the texts of messages. */
#include "diagnosis/findings.h"
#include "base/events.h"

#define RDZV_STATES(X)                                                                                     \
    X(GATHERING, "gathering") /* waits for more nodes */                                                   \
    X(LAST_CALL, "last call") /* enough nodes have joined; the job waits a little longer for more nodes */ \
    X(RUNNING, "running")     /* a round is complete: workers run */                                       \
    X(STOPPING, "stopping")   /* all nodes must stop; waits for the end of all processes */                \
    X(BACKING_OFF, "backing off") /* another attempt follows after the back-off */                         \
    X(OVER, "over")               /* all nodes have been notified of the end */

/* Why a round ends. */
#define RDZV_WHYS(X)                                                                  \
    X(DONE, "done")           /* every worker of every node ended with 0 */           \
    X(FAILED, "failed")       /* a worker failed by itself */                         \
    X(NODE_LOST, "node_lost") /* a node's connection closed, or the node is silent */ \
    X(NODE_LEFT, "node_left") /* a user or a scheduler stopped a node */              \
    X(GROW, "grow")           /* more nodes can join */                               \
    X(HANGS, "hangs")         /* a rank keeps all others waiting (--on_hang) */       \
    X(TIMEOUT, "timeout")     /* too few nodes joined in time */                      \
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
    RDZV_LIST_MAX = LIMIT_LISTED, /* a round of at most this many nodes lists them all in `round` */
    RDZV_SHORT_LIST_MAX = 32,     /* a larger round, and `waiting`, list at most this many nodes */
    RDZV_GONE_MAX = 32,           /* number of nodes that have left and are kept for a diagnosis */
    RDZV_CODE_NO_NODE =
        125, /* exit code if a node is lost or never joined, because no worker has an exit code */
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
    const char *own; /* address of the node's end of its connection to the store; NULL or "" = unknown */
    const char *
        task; /* the scheduler ("Slurm") that started the agent as one of several tasks on a node; "" = none */
    const char *role;    /* role of the node's workers; NULL or "" = the default role */
    const char *program; /* name of the program that the workers run; "" = not compared */
    uint32_t store_port; /* port of a store that rank 0 of this node would host; 0 = workers use this store */
    int pid;
    uint64_t pid_start;
    bool elastic;
    uint32_t nnodes_min, nnodes_max; /* equal for all nodes of a static job */
    int32_t node_rank;               /* only in a static job; -1 = any free rank */
    uint32_t nproc;
    bool nproc_given, uneven;
    /* Rules for the whole job. The first node that joins sets these rules. The values of later nodes are ignored. */
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms, last_call_ms, join_timeout_ms;
    const char *join_knob;    /* the option that sets join_timeout_ms, for messages; "" or NULL = --timeout */
    uint64_t node_timeout_ms; /* a node that is silent for this long is lost; 0 = never */
    enum rdzv_grow grow;
    uint64_t grace_ms; /* grace period of this node, between SIGTERM and SIGKILL */
};

/* The effect of a message. Except for OK, the message changes nothing. */
enum rdzv_answer {
    RDZV_OK,
    RDZV_STALE_ROUND, /* the message is about another round */
    RDZV_NO_MEMBER,   /* the node is not in a round */
    RDZV_OTHER_RANK,  /* the rank is not on the node */
};

/* --- messages to nodes ---------------------------------------------------------------------------------- */

/* The known cause of a round's end. A later failure may replace the cause if the failed worker was a victim. */
struct rdzv_cause {
    enum rdzv_why why;
    enum no_restart no_retry; /* why a restart would not help; else NONE */
    bool silent;              /* for NODE_LOST: true = the node was silent, false = its connection closed */
    struct failure failure;
};

/* A member of a round, in the list that all members receive. */
struct rdzv_seat {
    uint64_t node;
    uint32_t node_rank, first_rank, nproc;
    uint32_t store_port; /* as in struct rdzv_join */
    const char *host, *addr, *own;
};

/* A round that begins. */
struct rdzv_round {
    uint32_t round;    /* from 1 */
    uint32_t attempt;  /* round - 1; also the number of the round's key space */
    uint32_t restarts; /* restarts so far that count for --max_restarts */
    uint32_t nnodes, world_size;
    const struct rdzv_seat *seats; /* in the order of node ranks */
    uint32_t n_seats;              /* nnodes in rdzv_env.begin; fewer in the messages of a large job */
};

/* The nodes that a job waits for. Lists are cut to RDZV_SHORT_LIST_MAX; the counts are complete. */
struct rdzv_waiting {
    enum rdzv_state state;
    uint32_t joined, min, max;
    uint32_t spare;        /* nodes that wait for the next round while a round runs */
    uint32_t returning;    /* members of the last round that have not joined again yet */
    uint64_t left_ms;      /* time until the job gives up; UINT64_MAX = never */
    uint64_t last_call_ms; /* time until the round begins with the present nodes; UINT64_MAX = no last call */
    uint64_t backoff_ms;   /* time until the next round may begin; 0 = now */
    uint32_t n_hosts, n_missing, n_missing_listed;
    const char *hosts[RDZV_SHORT_LIST_MAX];
    uint32_t missing[RDZV_SHORT_LIST_MAX]; /* missing node ranks of a static job */
};

/* The exit codes that --exit_code selects from. */
struct rdzv_exit {
    int first, max, rank0;
};

enum rdzv_tell_kind { RDZV_TELL_ROUND, RDZV_TELL_WAITING, RDZV_TELL_STOP, RDZV_TELL_VERDICT };

struct rdzv_tell {
    enum rdzv_tell_kind kind;
    /* For ROUND: the place of the receiver. */
    const struct rdzv_round *world;
    uint32_t node_rank, first_rank;
    uint32_t role_rank,
        role_size; /* the receiver's first rank among the workers of its role, and their number; 0 = only one role */
    /* WAITING */
    const struct rdzv_waiting *waiting;
    /* For STOP and VERDICT: the round that ends; 0 = the job ended before its first round. */
    uint32_t round;
    enum rdzv_why why;
    const struct rdzv_cause *cause; /* NULL = success, or no worker ever ran */
    /* VERDICT */
    bool restart;        /* true = join again, false = finish */
    uint32_t attempt;    /* number of the next attempt, if another round follows */
    uint64_t backoff_ms; /* pause before the next round */
    enum no_restart no_restart;
    int64_t step,
        best_step; /* progress of the round, and best progress of all rounds; -1 = not reported, or not requested */
    struct rdzv_exit exit;
};

/* One line of an event log. */
struct rdzv_record {
    enum rdzv_record_kind kind;
    uint64_t now_ms;
    uint32_t round;    /* 0 = before the first round */
    uint64_t node;     /* 0 = about the whole job */
    int32_t node_rank; /* rank of the node; -1 = none yet */
    const char *host;  /* "" = about the whole job */
    int pid;
    uint32_t nnodes, world_size; /* ROUND */
    const char *words;           /* the text of the log line */
};

struct rdzv_env {
    void *user;
    const char *version; /* version of the store, borrowed; NULL = not compared with the nodes' versions */
    void (*tell)(void *user, uint64_t node, const struct rdzv_tell *tell);
    /* Empty the key space, forget the ranks of the last round and store the new ranks. Called when a round is
     * complete, before any node receives `round`. If the result is false because memory is short, the job ends with
     * NOT_READY. */
    bool (*begin)(void *user, const struct rdzv_round *world);
    /* Return the progress that the workers of the round have reported in a key; -1 = unknown. */
    int64_t (*progress)(void *user);
    /* Set the key with the number of nodes that could join another round. Workers read this key. NULL = no key. */
    void (*waiting_nodes)(void *user, uint32_t count);
    /* Close the connection of a node that is silent or never stopped, before the other nodes continue. The node
     * receives no more messages, and the caller need not call rdzv_lost for this node. `why` ends a sentence. */
    void (*drop)(void *user, uint64_t node, const char *why);
    void (*log)(void *user, const char *line);                    /* NULL = no log */
    void (*record)(void *user, const struct rdzv_record *record); /* NULL = no event log */
};

/* --- the calls ------------------------------------------------------------------------------------------ */

/* Create a rendezvous. `instance` is a nonce that distinguishes agents of this run of the job from agents of an
 * earlier run. Everything is copied except `quota`, which is borrowed. Return NULL if memory or quota is short. */
struct rdzv *rdzv_new(const struct rdzv_env *env, struct quota *quota, const char *job, const char *instance);
/* Free the rendezvous without sending messages. */
void rdzv_free(struct rdzv *r);
const char *rdzv_instance(const struct rdzv *r);

struct rdzv_refusal {
    enum rdzv_refused code;
    char sentence[2 * RDZV_WORDS_MAX]; /* names both values and both hosts */
};

/* Let a node join, or join again after a verdict "restart". Return RDZV_WELCOME, or the reason for the rejection,
 * with its sentence in `refusal`. The caller then sends the answer and calls rdzv_settle, which may begin a round. If
 * the caller does not call rdzv_settle, rdzv_deadline returns "now" and the next rdzv_tick settles. */
enum rdzv_refused rdzv_join(struct rdzv *r, uint64_t node, const struct rdzv_join *join, uint64_t now_ms,
                            struct rdzv_refusal *refusal);
void rdzv_settle(struct rdzv *r, uint64_t now_ms);
/* Return true if the node waits as a spare, because a round runs, or because more nodes wait than the job may use. */
bool rdzv_is_spare(const struct rdzv *r, uint64_t node);

/* Report that a worker has failed by itself. Its agent stops the other workers of the node. */
enum rdzv_answer rdzv_failed(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                             uint64_t now_ms);
/* Report more details of the failure that this node has reported. */
enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                              uint64_t now_ms);
/* Report that all workers of the node have ended with 0. */
enum rdzv_answer rdzv_done(struct rdzv *r, uint64_t node, uint32_t round, uint64_t now_ms);

/* Return RDZV_OK if this node runs this rank in the current round, otherwise NO_MEMBER or OTHER_RANK. */
enum rdzv_answer rdzv_check_rank(const struct rdzv *r, uint64_t node, int64_t rank);

struct rdzv_stopped {
    bool unkillable;
    int max_code;   /* highest exit code of the node's workers that ended by themselves, 0 = none */
    bool has_rank0; /* worker 0 was on this node and ended by itself; the next member is its code */
    int rank0_code;
};
/* Report that no process of the round is left on the node. */
enum rdzv_answer rdzv_stopped(struct rdzv *r, uint64_t node, uint32_t round, const struct rdzv_stopped *how,
                              uint64_t now_ms);

/* Report that the node leaves for good. Its user or its scheduler sent `signal`, and `by` names the sender ("" =
 * unknown). If `signal` is 0, the agent gives up, and `by` is its reason. */
void rdzv_leave(struct rdzv *r, uint64_t node, int signal, const char *by, uint64_t now_ms);
/* Report that the node's connection is closed. `how` ends the sentence "node 1 (n1) is lost: ...". */
void rdzv_lost(struct rdzv *r, uint64_t node, const char *how, uint64_t now_ms);
/* Report that every rank of the world has agreed to a larger world. */
void rdzv_grow_agreed(struct rdzv *r, uint64_t now_ms);
/* End the round because a rank keeps all others waiting. Only three fields of `failure` are used: the code, the words,
 * which name the rank, and the reason against a restart. */
void rdzv_hangs(struct rdzv *r, const struct failure *failure, uint64_t now_ms);
/* Excuse the silence of all nodes until now, because this server was suspended and received nothing. nodes.c limits
 * how often a node is excused. */
void rdzv_pardon(struct rdzv *r, uint64_t now_ms);
/* Record a message of any kind as a sign of life of the node. */
void rdzv_heard(struct rdzv *r, uint64_t node, uint64_t now_ms);

/* Return the time at which rdzv_tick must be called; UINT64_MAX = never. Every call of the rendezvous may change this
 * time. */
uint64_t rdzv_deadline(const struct rdzv *r);
/* Carry out all due actions. The caller first passes in all received messages, because after a pause of this server
 * all nodes would otherwise seem silent. */
void rdzv_tick(struct rdzv *r, uint64_t now_ms);

/* --- queries
 * --------------------------------------------------------------------------------------------- */

enum rdzv_node_state {
    RDZV_NODE_WAITING,  /* has joined and is in no round */
    RDZV_NODE_RUNNING,  /* a member; its workers run */
    RDZV_NODE_DONE,     /* a member; all its workers ended with 0 */
    RDZV_NODE_STOPPING, /* a member; has been asked to stop, or leaves */
    RDZV_NODE_STOPPED,  /* a member; no process of the round is left on the node */
    RDZV_NODE_RESTING,  /* was asked to join again, but has not joined yet */
    RDZV_NODE_FINISHED, /* has received its last verdict */
};
const char *rdzv_node_state_word(enum rdzv_node_state state);

struct rdzv_node_facts {
    uint64_t node;
    enum rdzv_node_state state;
    int32_t node_rank; /* rank in the round; else the requested rank; -1 = none */
    uint32_t first_rank, nproc;
    /* Borrowed until the next call that changes the rendezvous. */
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
    bool lost;   /* false = the node left by itself */
    bool silent; /* the node was lost because it was silent for too long */
};

struct rdzv_facts {
    const char *job, *instance;
    enum rdzv_state state;
    uint32_t round, restarts, max_restarts; /* `round` 0 = no round has begun yet */
    bool elastic;
    uint32_t min, max;                               /* 0 = no node has joined yet */
    uint32_t nodes, members, waiting, done, stopped; /* numbers of nodes */
    uint32_t returning; /* nodes of the last round that have not joined again yet */
    uint32_t world_size;
    uint64_t since_ms;    /* start of this state */
    uint64_t deadline_ms; /* deadline of this state, UINT64_MAX = none */
    uint64_t join_timeout_ms, node_timeout_ms, last_call_ms;
    const char *join_knob; /* option that sets join_timeout_ms, "--timeout" */
    enum no_restart no_restart;
    const struct rdzv_cause *cause; /* cause of the last round's end; NULL = none */
    const struct rdzv_gone
        *gone; /* ring of the latest nodes that left: entry (n_gone - 1 - i) % RDZV_GONE_MAX is i-th latest */
    uint32_t n_gone; /* number of all nodes that left; may exceed RDZV_GONE_MAX */
};

void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts);
/* Fill *facts. Return false if the rendezvous has no such node. */
bool rdzv_node_facts(const struct rdzv *r, uint64_t node, struct rdzv_node_facts *facts);
/* Return the node that joined after the node `after`. If `after` is 0, return the first node. Return 0 if no node
 * joined after `after`. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after);
/* Return the node that runs this rank of the world. Return 0 if no round runs, or if the node has left. */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank);
/* Return true if a node with this node rank waits or runs. Only for static jobs. */
bool rdzv_has_node_rank(const struct rdzv *r, uint32_t node_rank);
/* Return true if the job is over and all nodes have their verdict. A job of the same name may then begin. */
bool rdzv_is_over(const struct rdzv *r);

#endif
