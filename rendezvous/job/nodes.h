/* nodes.h -- private to the files of rendezvous/job: the structs and functions that these files share. The structs are
 * not in rendezvous.h, so that the hub changes a job's nodes only through the functions of rendezvous.h.
 *
 *     rendezvous.c   the state machine: states x events, and the work of each cell
 *     admission.c    the checks of a join
 *     round.c        begins and ends rounds, and decides on restarts
 *     nodes.c        the nodes: lists, ranks, heartbeats, names, logs, messages to waiting nodes; only this file
 *                    frees a node
 *
 * Each file calls only the files that are listed below it. */
#ifndef RENDEZVOUS_JOB_NODES_H
#define RENDEZVOUS_JOB_NODES_H

#include "base/list.h"
#include "base/text.h"
#include "job/rendezvous.h"
#include "store/table.h"

#include <inttypes.h>

/* The failed attempts of a job. These numbers decide whether and when another attempt follows (round.c). The caller
 * must read the progress of the workers before the next attempt begins, because a new attempt removes the keys that
 * contain the progress. */
struct restarts {
    uint32_t max_restarts, max_no_progress; /* options; max_no_progress is 0 if there is no limit */
    uint64_t backoff_ms, backoff_cap_ms;    /* the first pause and the longest pause before a restart */
    uint32_t failed;   /* number of failed attempts; a round that ended without a failure does not count */
    uint32_t made;     /* number of restarts after failed attempts */
    int64_t step;      /* progress of the latest attempt; -1 = not reported */
    int64_t best_step; /* best progress of all attempts; -1 = not reported */
    uint32_t standing; /* number of attempts since the last increase of best_step */
};

/* A node from its accepted join until its connection closes. */
struct node {
    struct table_node by_id; /* in rdzv.by_id; the key is `id` */
    struct list joined;      /* link in rdzv.nodes; the node that joined first is first */
    struct list watched;     /* link in rdzv.watched; the node with the longest silence is first */
    struct list waiting;     /* link in rdzv.waiting; the node that has waited longest is first */
    uint64_t id;             /* id of the node's connection; never 0 */
    enum rdzv_node_state state;
    uint32_t round;                /* the last round that the node was a member of; 0 = none */
    int32_t node_rank;             /* node rank in `round`; -1 = none */
    int32_t wanted;                /* node rank that a static node requested; -1 = any */
    uint32_t first_rank;           /* rank of the node's first worker in `round` */
    uint32_t nproc;                /* workers of the node */
    uint32_t role_rank, role_size; /* as in struct rdzv_notice */
    uint32_t store_port;           /* as in struct rdzv_join */
    int pid;                       /* pid of the agent */
    uint64_t joined_ms;            /* time of the first join */
    uint64_t last_received_ms;     /* time of the last message */
    uint64_t grace_ms;             /* as in struct rdzv_join */
    /* start of the silence: last message or excuse */
    uint64_t silent_since_ms;
    uint32_t excuses; /* number of calls of rdzv_excuse_silence since the last message, at most EXCUSES_MAX */
    bool leaving;     /* the node sent `leave` in a round, and has not sent `stopped` yet */
    int leave_signal; /* signal in the node's `leave`; 0 = the agent gave up */
    char host[RDZV_TEXT_MAX], addr[RDZV_TEXT_MAX], own[64], boot_id[64], version[64], role[64];
};

/* The identity of a node for messages. */
struct who {
    char host[RDZV_TEXT_MAX], addr[64];
    int32_t node_rank; /* requested rank, -1 = any */
    int pid;
};

/* The rules of the job, which are valid if `known` is true. The first node sets the rules. Only `uneven`, `program` and
 * the number of workers may also come from a later node, if earlier nodes did not set them. */
struct rules {
    bool known, elastic;
    bool nproc_fixed;                       /* a node without --uneven has set `nproc` */
    bool uneven;                            /* at least one node has the option --uneven */
    uint32_t min, max;                      /* least and greatest number of nodes; equal in a static job */
    uint32_t nproc;                         /* workers of the node `nproc_from`; valid if nproc_fixed */
    uint64_t last_call_ms, join_timeout_ms; /* in ms, at most ten years */
    uint64_t node_timeout_ms;               /* silence after which a node is lost; 0 = never */
    enum rdzv_grow grow;
    char version[64], program[64], role[64];
    char join_knob[64];    /* the option that has set join_timeout_ms, such as "--timeout" */
    struct who from;       /* the node that set the rules */
    struct who nproc_from; /* the node that has set `nproc` */
};

/* The current round, or the last round if no round runs. */
struct rdzv_run {
    uint32_t round; /* 0 = no round yet */
    uint32_t nnodes, world_size;
    uint32_t n_members; /* number of members that have not left */
    uint32_t n_open;    /* number of members that are neither STOPPED nor gone */
    uint32_t n_done;    /* number of members that became DONE, including members that have left since */
    uint64_t began_ms;
    struct node **member;  /* owned: `room` entries, indexed by node rank; NULL = the member has left */
    struct node **order;   /* array of `room` entries, which nodes.c uses to sort nodes */
    struct rdzv_row *rows; /* array of `room` rows, indexed by node rank */
    uint32_t room;
};

/* How the last round ended. This struct is reset when a round begins. */
struct rdzv_end {
    bool has_cause; /* `cause` is valid; false = nothing has ended the round so far */
    struct rdzv_cause cause;
    bool unkillable;      /* a node could not kill a process; no attempt may follow */
    bool stopped_by_user; /* a user or scheduler stopped a node of a static job; no attempt may follow */
    bool has_rank0;       /* rank 0 ended by itself with rank0_code */
    int max_code;         /* highest exit code of the workers that ended by themselves */
    int rank0_code;       /* valid with has_rank0 */
    enum no_restart no_restart; /* why no further attempt follows; set when the job ends */
};

/* The time in ms at which each state ends if no event ends it earlier. `gather_ms` is valid in GATHERING, LAST_CALL and
 * BACKING_OFF. Each other time is valid only in the state that its comment names. */
struct rdzv_until {
    uint64_t stop_ms;     /* STOPPING: time at which the members that have not stopped are dropped */
    uint64_t back_off_ms; /* BACKING_OFF: time from which the next round may begin */
    uint64_t gather_ms;   /* GATHERING: time at which the job fails if too few nodes have joined */
    uint64_t call_ms;     /* LAST_CALL: time at which the round begins with the nodes that have joined */
};

struct rdzv {
    struct rdzv_env env;
    struct quota *quota; /* borrowed */
    char job[RDZV_TEXT_MAX], instance[LIMIT_INSTANCE];
    enum rdzv_state state;
    struct rules rules;
    struct restarts restarts;
    uint64_t now_ms; /* time of the current call */

    struct table by_id; /* all nodes */
    /* `nodes`: all nodes, owned; `watched`: nodes whose silence has a limit; `waiting`: nodes that wait for a round. */
    struct list nodes, watched, waiting;
    uint32_t n_live;    /* number of nodes that are not FINISHED */
    uint32_t n_waiting; /* number of nodes in `waiting` */
    uint32_t n_back;    /* number of nodes in `waiting` that were members of the last round */
    uint32_t n_resting; /* number of members of the last round that may join again */
    /* Owned array of rules.max entries, indexed by node rank. An entry is NULL if no node has this rank. In an elastic
     * job, `place` is NULL. */
    struct node **place;

    struct rdzv_run run;
    struct rdzv_end end;

    /* Between rounds. */
    bool grow_agreed;  /* all ranks of the round have agreed to a restart with more nodes */
    bool short_handed; /* too few members of the last round remain, so the next round needs a last call */
    bool must_recheck; /* rdzv_recheck must apply the event RDZV_RECHECK */
    uint64_t since_ms; /* when `state` began */
    struct rdzv_until until;

    /* These times control the messages to the waiting nodes, and the check for silent nodes. */
    uint64_t next_notice_ms; /* time of the next message to the waiting nodes; UINT64_MAX = none */
    uint64_t last_notice_ms; /* time of the last message to the waiting nodes; 0 = none yet */
    uint64_t watch_ms;       /* time of the next check for silent nodes; UINT64_MAX = none */
    uint32_t waiting_nodes;  /* the last value passed to env.waiting_nodes */

    struct rdzv_gone *gone; /* ring of RDZV_GONE_MAX entries, owned */
    uint32_t n_gone; /* number of all nodes that left; the next one gets the entry n_gone % RDZV_GONE_MAX */
};

/* The events of the state machine: the columns of its table in rendezvous.c. */
enum rdzv_event_type {
    RDZV_FAILED,    /* a worker of the node failed by itself */
    RDZV_EXPLAINED, /* the node sent more details of a failure */
    RDZV_DONE,      /* all workers of the node ended with 0 */
    RDZV_STOPPED,   /* no process of the round is left on the node */
    RDZV_LEAVE,     /* the node leaves for good */
    RDZV_LOST,      /* the node's connection closed, or the node was silent for too long */
    RDZV_BACK,      /* the node has connected again after its connection broke */
    RDZV_GROW,      /* all ranks agree to a restart with more nodes */
    RDZV_HANGS,     /* the monitor found a hang, and --on_hang ends the round */
    RDZV_RECHECK,   /* must_recheck was set: check whether a round can begin or grow */
    RDZV_TIME_UP,   /* the deadline of the state has passed */
    RDZV_JOIN,      /* a node joins */
    RDZV_N_EVENTS
};

/* A node that joins, and the answer to the join. Both pointers are borrowed from the caller of rdzv_join. */
struct rdzv_joining {
    uint64_t id;
    const struct rdzv_join *join;
    struct rdzv_refusal *refusal; /* the answer; `code` is RDZV_WELCOME if the node is accepted */
};

/* An event; all pointers are borrowed for the duration of the call. */
struct rdzv_event {
    enum rdzv_event_type type;
    struct rdzv_joining *joining;   /* only for JOIN */
    const struct failure *failure;  /* only for FAILED, EXPLAINED and HANGS */
    const struct rdzv_stopped *how; /* only for STOPPED */
    int signal;                     /* only for LEAVE */
    const char *words;              /* for LEAVE: the sender of the signal; for LOST: how the node was lost */
    const char *code;               /* only for LEAVE: code of the finding that is the reason; "" = none */
    bool silent;                    /* only for LOST: the node was silent for too long */
    uint64_t next;                  /* only for BACK: the id of the new connection */
};

/* --- admission.c --- */
/* How an accepted node takes part: as a member of the next round, or as a spare. RDZV_NOBODY means that the job is
 * over, so no node is accepted. */
enum rdzv_admission { RDZV_AS_MEMBER, RDZV_AS_SPARE, RDZV_NOBODY };
/* Check a node that joins, and set joining->refusal. An accepted node becomes WAITING. `known` is the node if it has
 * joined before, else NULL. */
void rdzv_admit(struct rdzv *r, struct node *known, struct rdzv_joining *joining, enum rdzv_admission as);

/* --- nodes.c --- */
/* Return the node with this id, or NULL. The rendezvous owns its nodes. */
struct node *rdzv_find(const struct rdzv *r, uint64_t id);
/* Create a node in the state RESTING. Return NULL if memory or quota is short. The rendezvous owns the node until
 * rdzv_remove_node frees it. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join);
/* Remove a node from all lists and counts, and free the node. No other function frees nodes. */
void rdzv_remove_node(struct rdzv *r, struct node *node);
/* Remove a node from the counts, and free its node rank. The struct remains until the connection closes. */
void rdzv_node_is_finished(struct rdzv *r, struct node *node);
/* Keep a record of a lost or leaving node for the diagnosis. `words` states why the node left, or how it was lost. */
void rdzv_remember_gone(struct rdzv *r, const struct node *node, const struct rdzv_event *how,
                        const char *words);
/* Change the id of a node, also in its entry of run.rows. */
void rdzv_node_moves(struct rdzv *r, struct node *node, uint64_t id);
/* Change the state of a RESTING node to WAITING. A new node is RESTING, too. */
void rdzv_node_waits(struct rdzv *r, struct node *node);
/* Remove a node from `waiting`, and change its state to `next`. */
void rdzv_node_stops_waiting(struct rdzv *r, struct node *node, enum rdzv_node_state next);
/* Change the state of a member to `next`: DONE, STOPPING or STOPPED. */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next);
/* Return true if the node is a member of the current round. A member that has stopped still counts. */
bool rdzv_is_member(const struct rdzv *r, const struct node *node);
/* Reset the rules to the state before the first join. */
void rdzv_forget_rules(struct rdzv *r);
/* Allocate r->place, after the rules are set. Return false if memory or quota is short. */
bool rdzv_make_places(struct rdzv *r);

/* Fill r->run.member, which is indexed by node rank, with waiting nodes. rdzv_order_static takes all nodes of the job,
 * and rdzv_order_elastic takes `n` nodes. */
void rdzv_order_static(struct rdzv *r);
void rdzv_order_elastic(struct rdzv *r, uint32_t n);

/* Record that a message of the node has arrived now. The silence of the node is measured from this time. */
void rdzv_touch(struct rdzv *r, struct node *node);
/* Return the time of the next check for silent nodes; UINT64_MAX = never. */
uint64_t rdzv_watch_deadline(const struct rdzv *r);
/* Detect a suspension of this server. Call this function before rdzv_silent_node. */
void rdzv_check_own_pulse(struct rdzv *r);
/* Return true if the node has been silent for too long. Silence that rdzv_excuse_silence has excused does not count. */
bool rdzv_is_silent(const struct rdzv *r, const struct node *node);
/* Find the node with the longest silence. Return this node if it has been silent for too long, else NULL. */
struct node *rdzv_silent_node(const struct rdzv *r);

/* Return the time at which the current state ends by itself; UINT64_MAX = never. */
uint64_t rdzv_state_deadline(const struct rdzv *r);

typedef char who_name[256];
/* Return the identity of a joining node. */
struct who rdzv_who(const struct rdzv_join *join);
/* Format the name of `who` for a message that also names the node `beside`. Include the address of `who` if both have
 * the same host name but different addresses. Return `out`. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside);

/* Write a line to the log and to the event log. If `node` is NULL, the line is about the whole job. */
void rdzv_note(struct rdzv *r, enum rdzv_record_kind kind, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Schedule a message that reports the state of the job to the waiting nodes. */
void rdzv_schedule_notify(struct rdzv *r);
/* Send the scheduled message to the waiting nodes if its time, next_notice_ms, has passed. */
void rdzv_notify_if_due(struct rdzv *r);
/* Format "node 1 (n1)" into `room`, or "node n1" if the node has no rank. Return `room`. */
const char *rdzv_name(const struct node *node, char *room, size_t size);

#endif
