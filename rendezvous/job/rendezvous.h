/* rendezvous.h -- the rendezvous of one job: its nodes, their ranks, the end of each round, and restarts. The module is
 * pure: it uses no socket, no clock and no JSON. The hub passes each message of an agent and the current time to a
 * function, and the module answers through the callbacks of rdzv_env. */
#ifndef RENDEZVOUS_JOB_RENDEZVOUS_H
#define RENDEZVOUS_JOB_RENDEZVOUS_H

#include "record/failure.h"
#include "base/limits.h"
#include "store/quota.h"

#include <stddef.h>

/* The rows below generate the enums, the words of the protocol and the texts of messages. Some rows are from these two
 * headers. */
#include "diagnosis/findings.h"
#include "base/events.h"

/* The states of a job:
 *
 *     GATHERING -> LAST_CALL -> RUNNING -> STOPPING -> BACKING_OFF -> GATHERING ... -> OVER
 *
 * Each row has a state and its word. */
#define RDZV_STATES(X)                                                                                     \
    X(GATHERING, "gathering")     /* more nodes must join */                                               \
    X(LAST_CALL, "last call")     /* enough nodes have joined, but more nodes may join for a short time */ \
    X(RUNNING, "running")         /* the workers of the round are running */                               \
    X(STOPPING, "stopping")       /* all members must stop; the store waits for their `stopped` */         \
    X(BACKING_OFF, "backing off") /* the pause before the next attempt */                                  \
    X(OVER, "over")               /* all nodes have their last verdict */

/* The reasons why a round ends, or why a job ends before its first round. */
#define RDZV_WHYS(X)                                                                                     \
    X(DONE, "done")           /* every worker of every node ended with 0 */                              \
    X(FAILED, "failed")       /* a worker failed by itself */                                            \
    X(NODE_LOST, "node_lost") /* the connection of a node closed, or the node was silent for too long */ \
    X(NODE_LEFT, "node_left") /* a user or a scheduler stopped a node */                                 \
    X(GROW, "grow")           /* the round restarts with more nodes */                                   \
    X(HANGS, "hangs")         /* a rank hangs and all other ranks wait for it (--on_hang) */             \
    X(TIMEOUT, "timeout")     /* too few nodes joined in time */                                         \
    X(REFUSED, "refused")     /* the store had no memory */

/* The kinds of records in an event log. */
#define RDZV_RECORDS(X) EVENTS_OF_RENDEZVOUS(X)

/* The reasons for the rejection of a join, each with its advice. These are rows of findings.h. */
#define RDZV_REFUSALS(X) FINDINGS_OF_REFUSALS(X)

struct rdzv;

enum {
    RDZV_NODES_MAX = LIMIT_NODES,
    RDZV_NPROC_MAX = LIMIT_NPROC,
    RDZV_TEXT_MAX = LIMIT_TEXT,
    RDZV_WORDS_MAX = LIMIT_WORDS,
    RDZV_LIST_MAX = LIMIT_LISTED, /* up to this number of nodes, the message `round` lists all nodes */
    RDZV_SHORT_LIST_MAX = 32,     /* maximum length of lists in `waiting` and of shortened lists in `round` */
    RDZV_GONE_MAX = 32,           /* maximum number of records of nodes that have left */
    RDZV_CODE_NO_NODE = 125,      /* the exit code if a node is lost or missing */
    RDZV_STOP_EXTRA_MS = 10000    /* time for a member to send `stopped`, after its grace period */
};

#define X(name, word) RDZV_##name,
enum rdzv_state { RDZV_STATES(X) RDZV_N_STATES };
#undef X
#define X(name, word) RDZV_WHY_##name,
enum rdzv_why { RDZV_WHYS(X) };
#undef X
#define X(name, word) RDZV_RECORD_##name,
enum rdzv_record_kind { RDZV_RECORDS(X) };
#undef X
#define X(name, ...) RDZV_REFUSED_##name,
enum rdzv_refused { RDZV_WELCOME, RDZV_REFUSALS(X) };
#undef X

/* Return the word or the code that messages use for a value. rdzv_refused_advice returns the advice on a rejection. All
 * these texts are constant. */
const char *rdzv_state_word(enum rdzv_state state);
const char *rdzv_why_word(enum rdzv_why why);
const char *rdzv_refused_code(enum rdzv_refused refused); /* "VERSION_DIFFERS" */
const char *rdzv_refused_advice(enum rdzv_refused refused);

/* --- messages of agents --------------------------------------------------------------------------------- */

/* The values of --grow decide when the store restarts a running round to add nodes. AGREED: if all ranks agree to the
 * restart. NOW: at once. NEVER: never. */
enum rdzv_grow { RDZV_GROW_AGREED, RDZV_GROW_NOW, RDZV_GROW_NEVER };

/* A message `join`. The caller owns the texts. `task`, `role`, `own` and `join_knob` may be NULL. */
struct rdzv_join {
    const char *job;      /* job id */
    const char *instance; /* from the answer to the previous join; "" in the first join */
    const char *version;  /* version of ddprun */
    const char *host;     /* name of the node's host */
    const char *boot_id;  /* boot id of the kernel, equal in all containers of a machine; "" = unknown */
    const char *addr;     /* address at which other nodes can reach this node */
    /* address of the node on its connection to the store; NULL or "" = unknown */
    const char *own;
    /* name of the scheduler, such as "Slurm", if the scheduler started the agent as one of several tasks; otherwise
     * "" */
    const char *task;
    const char *role;    /* role of the node's workers; NULL or "" = the default role */
    const char *program; /* name of the program that the workers run; "" = not compared */
    uint32_t store_port; /* port of the workers' store if rank 0 runs here; 0 = workers use the job's store */
    int pid;             /* pid of the agent */
    bool elastic;
    uint32_t nnodes_min, nnodes_max; /* least and greatest number of nodes; equal in a static job */
    int32_t node_rank;               /* only in a static job; -1 = any free rank */
    uint32_t nproc;                  /* number of workers of this node */
    bool nproc_given;                /* `nproc` is a number from the command line; false = gpu, cpu or auto */
    bool uneven;                     /* --uneven */
    /* Rules for the whole job. Only the values of the first node are used. */
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms; /* the first pause and the longest pause before a restart */
    uint64_t last_call_ms;               /* time to wait for more nodes after nnodes_min nodes have joined */
    uint64_t join_timeout_ms;            /* time for nnodes_min nodes to join */
    const char *join_knob; /* the option that has set join_timeout_ms, for messages; "" or NULL = --timeout */
    uint64_t node_timeout_ms; /* a node that is silent for this time is lost; 0 = never */
    enum rdzv_grow grow;
    uint64_t grace_ms; /* duration from SIGTERM to SIGKILL when this node stops its workers */
};

/* The result of a message. After any result except RDZV_OK, the message had no effect. */
enum rdzv_answer {
    RDZV_OK,
    RDZV_STALE_ROUND, /* the round in the message is not the current round */
    RDZV_NO_MEMBER,   /* the node is not a member of a round */
    RDZV_OTHER_RANK,  /* the node does not run the rank in the message */
};

/* --- messages to nodes ---------------------------------------------------------------------------------- */

/* A round is one completed rendezvous. The nodes of a round are its members. Each member receives `round` once, `stop`
 * at most once, and `verdict` once. The verdict is "restart" (join again) or "finish" (no more messages).
 *
 * If all workers of the job end with 0, no member receives `stop`. A node that a user stops sends `leave`, stops its
 * workers and sends `stopped`. This node gets "finish" at once, without waiting for the other nodes. */

/* The cause of a round's end. A worker is a victim if it failed only because it lost a peer. If the failure of the peer
 * is also reported, the failure of the peer replaces the failure of the victim as the cause. */
struct rdzv_cause {
    enum rdzv_why why;
    enum no_restart no_retry; /* the reason against a restart; NONE = a restart may help */
    bool silent;              /* for NODE_LOST: true = the node was silent, false = its connection closed */
    struct failure failure;
};

/* A member of a round. The message `round` has an array of these rows. */
struct rdzv_row {
    uint64_t node; /* id of the node; 0 = the node has left the round */
    uint32_t node_rank, first_rank, nproc;
    uint32_t store_port;           /* as in struct rdzv_join */
    const char *host, *addr, *own; /* borrowed; valid until the node is freed */
};

/* A round that begins. */
struct rdzv_round {
    uint32_t round;    /* from 1 */
    uint32_t attempt;  /* round - 1; also the number of the key space of this round */
    uint32_t restarts; /* number of restarts that count for --max_restarts */
    uint32_t nnodes, world_size;
    const struct rdzv_row *rows; /* array of nnodes, in the order of node ranks */
};

/* The state of a job for its waiting nodes. Lists have at most RDZV_SHORT_LIST_MAX entries; the counts are complete. */
struct rdzv_waiting {
    enum rdzv_state state;
    uint32_t joined;                    /* number of waiting nodes, or of members while a round runs */
    uint32_t min, max;                  /* least and greatest number of nodes */
    uint32_t spare;                     /* number of nodes that wait while a round runs */
    uint32_t returning;                 /* number of members of the last round that may still join again */
    uint64_t left_ms;                   /* time until the job ends for lack of nodes; UINT64_MAX = never */
    uint64_t last_call_ms;              /* remaining time of LAST_CALL; UINT64_MAX in other states */
    uint64_t backoff_ms;                /* time until the next round may begin; 0 = now */
    uint32_t n_hosts, n_missing_listed; /* number of entries of `hosts`, and of `missing` */
    uint32_t n_missing;                 /* number of missing nodes of a static job, listed or not */
    const char *hosts[RDZV_SHORT_LIST_MAX];
    uint32_t missing[RDZV_SHORT_LIST_MAX]; /* the missing node ranks of a static job */
};

/* The exit codes from which --exit_code selects. */
struct rdzv_exit {
    int first, max, rank0;
};

enum rdzv_notice_kind { RDZV_NOTICE_ROUND, RDZV_NOTICE_WAITING, RDZV_NOTICE_STOP, RDZV_NOTICE_VERDICT };

/* A message to a node. In the comments below, ROUND, WAITING, STOP and VERDICT name the kinds of messages that use the
 * next fields. */
struct rdzv_notice {
    enum rdzv_notice_kind kind;
    /* ROUND: the round, and the ranks of the receiver in this round. */
    const struct rdzv_round *world;
    uint32_t node_rank, first_rank;
    /* `role_size` is the number of workers with the receiver's role, and `role_rank` is the rank of the receiver's
     * first worker among these workers. If all nodes have the same role, `role_size` is 0. */
    uint32_t role_rank, role_size;
    /* WAITING */
    const struct rdzv_waiting *waiting;
    /* STOP and VERDICT: the round that ends, or 0 if the job ended before its first round. */
    uint32_t round;
    enum rdzv_why why;
    const struct rdzv_cause *cause; /* NULL after success, before any round, or if the receiver leaves */
    /* VERDICT */
    bool restart;        /* true = join again; false = finish */
    uint32_t attempt;    /* number of the next attempt, if there is a next attempt */
    uint64_t backoff_ms; /* pause before the next round */
    enum no_restart no_restart;
    /* Progress of the round, and best progress of all rounds. Each is -1 if it was not reported or not requested. */
    int64_t step, best_step;
    struct rdzv_exit exit;
};

/* A record of the event log. */
struct rdzv_record {
    enum rdzv_record_kind kind;
    uint64_t now_ms;
    uint32_t round;    /* 0 = before the first round */
    uint64_t node;     /* 0 = the record is about the whole job */
    int32_t node_rank; /* -1 = none yet */
    const char *host;  /* "" = the record is about the whole job */
    int pid;
    uint32_t nnodes, world_size; /* ROUND */
    const char *words;           /* text of the log line about this record */
};

/* The callbacks. `user` is their first argument. A callback must not call functions of this module. Pointers passed to
 * a callback are valid only during the call. */
struct rdzv_env {
    void *user;
    const char *version; /* borrowed; NULL = nodes may have any version */
    /* Send a message to a node, unless its connection has closed. */
    void (*notify)(void *user, uint64_t node, const struct rdzv_notice *notice);
    /* Begin an attempt: empty the key space, forget the ranks of the last round and store the new ranks. The
     * rendezvous calls this callback before any node receives `round`. Return false if memory is short. The job then
     * ends with NOT_READY. */
    bool (*begin)(void *user, const struct rdzv_round *world);
    /* Return the progress that the workers of the round have stored in keys; -1 = unknown. */
    int64_t (*progress)(void *user);
    /* Write `count`, the number of waiting nodes that the round could add, to a key for the workers. If the callback
     * is NULL, this key does not exist. */
    void (*waiting_nodes)(void *user, uint32_t count);
    /* Close the connection of a node that is silent, or that has not stopped in time. The callback must not report the
     * node by rdzv_lost. `why` is the end of a log line. */
    void (*drop)(void *user, uint64_t node, const char *why);
    void (*log)(void *user, const char *line);                    /* NULL = no log */
    void (*record)(void *user, const struct rdzv_record *record); /* NULL = no event log */
};

/* --- the calls ------------------------------------------------------------------------------------------ */

/* The caller gives each node an id, which is never 0. Times are in ms of one monotonic clock. Texts in arguments are
 * copied, and cut if they are too long. */

/* Create a rendezvous. `instance` is a random text for this run of the job. `quota` is borrowed; the rest is copied.
 * Return NULL if memory or quota is short. */
struct rdzv *rdzv_new(const struct rdzv_env *env, struct quota *quota, const char *job, const char *instance);
/* Free the rendezvous without sending messages. */
void rdzv_free(struct rdzv *r);
/* Return the text `instance` that was passed to rdzv_new. The rendezvous owns the text. */
const char *rdzv_instance(const struct rdzv *r);

/* The answer to a join. `sentence` is only set if `code` is not RDZV_WELCOME. */
struct rdzv_refusal {
    enum rdzv_refused code;
    char sentence[2 * RDZV_WORDS_MAX]; /* names the two values that differ, and their hosts */
};

/* Let a node join, or join again after a verdict "restart". Return RDZV_WELCOME, or the reason for the rejection with
 * its text in `refusal`. The caller then sends the answer and calls rdzv_recheck, which may begin a round. */
enum rdzv_refused rdzv_join(struct rdzv *r, uint64_t node, const struct rdzv_join *join, uint64_t now_ms,
                            struct rdzv_refusal *refusal);
/* Begin a round, or stop a round to add nodes, if the messages received so far allow it. */
void rdzv_recheck(struct rdzv *r, uint64_t now_ms);
/* Return true if the node is a spare. While a round runs, every waiting node is a spare. Between rounds, every waiting
 * node is a spare if more nodes wait than the job may use. */
bool rdzv_is_spare(const struct rdzv *r, uint64_t node);

/* Report that a worker has failed by itself. At this time, its agent has already begun to stop the node's other
 * workers. */
enum rdzv_answer rdzv_failed(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                             uint64_t now_ms);
/* Report more details of the failure that this node reported before. */
enum rdzv_answer rdzv_explain(struct rdzv *r, uint64_t node, uint32_t round, const struct failure *failure,
                              uint64_t now_ms);
/* Report that all workers of the node have ended with 0. */
enum rdzv_answer rdzv_done(struct rdzv *r, uint64_t node, uint32_t round, uint64_t now_ms);

/* Return RDZV_OK if the node runs the rank in the current round, else RDZV_NO_MEMBER or RDZV_OTHER_RANK. */
enum rdzv_answer rdzv_check_rank(const struct rdzv *r, uint64_t node, int64_t rank);

struct rdzv_stopped {
    bool unkillable; /* a process of the round ignores SIGKILL, for example in a hanging file system */
    int max_code;    /* highest exit code of the workers that ended by themselves; 0 = none */
    bool has_rank0;  /* rank 0 ran on this node and ended by itself; its exit code is rank0_code */
    int rank0_code;
};
/* Report that no process of the round is left on the node. */
enum rdzv_answer rdzv_stopped(struct rdzv *r, uint64_t node, uint32_t round, const struct rdzv_stopped *how,
                              uint64_t now_ms);

/* Report that the node leaves for good, because `by` (the sender, "" if unknown) has sent `signal`. If `signal` is 0,
 * the agent has given up, and `by` is the reason. `code` is the code of the finding that explains the leave, or "" if
 * no finding explains it. */
void rdzv_leave(struct rdzv *r, uint64_t node, int signal, const char *by, const char *code, uint64_t now_ms);
/* Report that the node's connection has closed. `how` is the end of the log line "node 1 (n1) is lost: ...". If the
 * node was silent for too long, the line ends with the silence instead. */
void rdzv_lost(struct rdzv *r, uint64_t node, const char *how, uint64_t now_ms);
/* Report that the node's connection broke, and that the node did not connect again in time. The broken connection is
 * the cause of the loss, even if the node was also silent, because a node without a connection cannot send messages. */
void rdzv_cut(struct rdzv *r, uint64_t node, const char *how, uint64_t now_ms);
/* Change a node's id from `node` to `next`, because a new connection has replaced the node's broken connection. The
 * node keeps its state, its ranks and its place. Return false if no node has the id `node`. */
bool rdzv_back(struct rdzv *r, uint64_t node, uint64_t next, uint64_t now_ms);
/* Report that every rank of the round has agreed to a restart with more nodes. */
void rdzv_grow_agreed(struct rdzv *r, uint64_t now_ms);
/* End the round because a rank hangs. `failure` needs only its fields `code`, `words` (which name the rank) and
 * `no_retry`. */
void rdzv_hangs(struct rdzv *r, const struct failure *failure, uint64_t now_ms);
/* Excuse the silence of all nodes until now, because this server was suspended. nodes.c limits the number of
 * excuses. */
void rdzv_excuse_silence(struct rdzv *r, uint64_t now_ms);
/* Record a message from the node as a sign of life. */
void rdzv_received(struct rdzv *r, uint64_t node, uint64_t now_ms);

/* Return the time of the next rdzv_tick; UINT64_MAX = never. Every call of the rendezvous may change the time. */
uint64_t rdzv_deadline(const struct rdzv *r);
/* Apply every deadline that has passed. The caller must first pass in all received messages, because nodes with unread
 * messages would seem silent. */
void rdzv_tick(struct rdzv *r, uint64_t now_ms);

/* --- queries -------------------------------------------------------------------------------------------- */

enum rdzv_node_state {
    RDZV_NODE_WAITING,  /* waits for a round */
    RDZV_NODE_RUNNING,  /* a member whose workers run */
    RDZV_NODE_DONE,     /* a member whose workers all ended with 0 */
    RDZV_NODE_STOPPING, /* a member that was asked to stop, or that leaves */
    RDZV_NODE_STOPPED,  /* a member that has sent `stopped` */
    RDZV_NODE_RESTING,  /* has the verdict "restart", but has not joined again */
    RDZV_NODE_FINISHED, /* has the verdict "finish" */
};
const char *rdzv_node_state_word(enum rdzv_node_state state);

struct rdzv_node_facts {
    uint64_t node;
    enum rdzv_node_state state;
    int32_t node_rank; /* node rank in the round; without a round, the requested rank; -1 = none */
    uint32_t first_rank, nproc;
    /* These texts are borrowed until the next call that changes the rendezvous. */
    const char *host, *addr, *own, *version, *boot_id;
    int pid;
    uint64_t joined_ms, last_received_ms; /* times of the first join and of the last message */
    bool leaving;                         /* the node has sent `leave`, but not `stopped` */
    bool is_spare;                        /* see rdzv_is_spare */
};

/* A record of a node that has left the job. */
struct rdzv_gone {
    char host[RDZV_TEXT_MAX];
    char how[RDZV_TEXT_MAX]; /* how the node was lost, or the sender of the signal that stopped it */
    /* Node rank in the node's last round. If the node was in no round: the node rank that it requested, or -1. */
    int32_t node_rank;
    int pid;        /* pid of the agent */
    uint32_t round; /* last round of the node; 0 = none */
    uint64_t joined_ms, gone_ms;
    bool lost;   /* the node was lost; false: the node sent `leave` */
    bool silent; /* the node was lost because of its silence */
};

struct rdzv_facts {
    enum rdzv_state state;
    uint32_t round;    /* 0 = no round yet */
    uint32_t restarts; /* number of restarts so far that count for --max_restarts */
    bool elastic;
    uint32_t min, max;    /* limits of the number of nodes; 0 = no node has set the limits */
    uint32_t nodes;       /* number of nodes that do not have the verdict "finish" yet */
    uint32_t members;     /* number of members of the round that have not left */
    uint32_t waiting;     /* number of nodes that wait for a round */
    uint32_t done;        /* number of members whose workers all ended with 0 */
    uint32_t returning;   /* number of members of the last round that may still join again */
    uint32_t world_size;  /* number of ranks of the current or last round */
    uint64_t since_ms;    /* when this state began */
    uint64_t deadline_ms; /* deadline of this state, UINT64_MAX = none */
    uint64_t gather_ms;   /* between rounds: when the job fails for lack of nodes; otherwise UINT64_MAX */
    uint64_t join_timeout_ms, node_timeout_ms;
    const char *join_knob;          /* the option that has set join_timeout_ms, such as "--timeout" */
    const struct rdzv_cause *cause; /* cause of the last round's end; NULL = none */
    /* The nodes that have left, as a ring buffer. The last one has the index (n_gone - 1) % RDZV_GONE_MAX. */
    const struct rdzv_gone *gone;
    uint32_t n_gone; /* number of all nodes that left */
};

/* Fill *facts. Its pointers are valid until the next call that changes the rendezvous. */
void rdzv_facts(const struct rdzv *r, struct rdzv_facts *facts);
/* Fill *facts. Return false if the rendezvous has no node with the id `node`. */
bool rdzv_node_facts(const struct rdzv *r, uint64_t node, struct rdzv_node_facts *facts);
/* Return the id of the first node that joined after the node `after`, or 0 if no node joined later. If `after` is 0,
 * return the id of the first node. */
uint64_t rdzv_next_node(const struct rdzv *r, uint64_t after);
/* Return the id of the node that runs `rank`, or 0 if no round runs or the node has left. */
uint64_t rdzv_node_of_rank(const struct rdzv *r, uint32_t rank);
/* Return true if the job is over and every node has its last verdict. A job with the same name may then begin. */
bool rdzv_is_over(const struct rdzv *r);

#endif
