/* rendezvous_core.h -- private to the files of a rendezvous: the struct that they share, and the role of each file.
 *
 *     rendezvous.c   turns messages and time into events; the machine: states x events, and the work of each cell
 *     admission.c    the checks before a join; a rejection names both values and both hosts
 *     round.c        when a round is complete, its beginning, its end, and whether another round follows
 *     nodes.c        nodes join, move between lists, get ranks, leave; heartbeats; only this file frees a node
 *     view.c         names, the log, messages to waiting nodes, copies for readers
 *
 * Each file calls only the files below it in this list. */
#ifndef RENDEZVOUS_JOB_RENDEZVOUS_CORE_H
#define RENDEZVOUS_JOB_RENDEZVOUS_CORE_H

#include "base/list.h"
#include "base/text.h"
#include "job/rendezvous.h"
#include "store/table.h"

#include <inttypes.h>

/* The failed attempts of a job. The failed attempts decide whether another attempt follows, and when (round.c). All
 * nodes of a job share one budget.
 *
 * There are two kinds of reasons against another attempt. restarts_failed finds the reasons in the failure itself.
 * restarts_progress compares the progress that the workers have reported. The caller must first read the progress
 * from the key space. */
struct restarts {
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms;
    uint32_t failed;   /* number of failed attempts; a round that ended for another reason does not count */
    int64_t step;      /* progress of the latest attempt, if requested; -1 = not reported */
    int64_t best_step; /* best progress of all attempts so far; -1 = unknown */
    uint32_t standing; /* number of latest attempts that did not exceed best_step */
};

void restarts_init(struct restarts *a, const struct rdzv_join *rules);

/* Record a failed attempt. Return NONE if its cause allows another attempt, else the reason. */
enum no_restart restarts_failed(struct restarts *a, const struct rdzv_cause *cause);

/* Record the progress of an attempt (-1 = not reported). Return NONE if another attempt is still allowed, else the
 * reason. */
enum no_restart restarts_progress(struct restarts *a, int64_t step);

/* Return how long to wait before the next attempt. */
uint64_t restarts_backoff(const struct restarts *a);

struct node {
    struct table_node by_id;
    struct list joined;  /* in rdzv.nodes, in order of arrival */
    struct list watched; /* in rdzv.watched, the longest silent first */
    struct list waiting; /* in rdzv.waiting, in order of arrival */
    uint64_t id;
    enum rdzv_node_state state;
    uint32_t round;    /* the last round that the node was a member of; 0 = none */
    int32_t node_rank; /* rank in that round, -1 = none */
    int32_t wanted;    /* requested node rank of a static node, -1 = any */
    uint32_t first_rank, nproc;
    uint32_t role_rank, role_size; /* as in struct rdzv_tell */
    uint32_t store_port;           /* as in struct rdzv_join */
    int pid;
    uint64_t pid_start, joined_ms, heard_ms, grace_ms;
    uint64_t spared_ms; /* start of the node's silence: its last message, or its last excuse */
    uint32_t pardons;   /* number of excuses since its last message */
    bool leaving;
    int leave_signal;
    char host[RDZV_TEXT_MAX], addr[RDZV_TEXT_MAX], own[64], boot_id[64], version[64], role[64];
};

/* The identity of a node in messages. The identity distinguishes two nodes on one host, and two hosts with the same
 * name. */
struct who {
    char host[RDZV_TEXT_MAX], addr[64];
    int32_t node_rank; /* requested rank, -1 = any */
    int pid;
};

/* The rules of the job, set by the first node. The rules are valid if `known` is true. */
struct rules {
    bool known, elastic;
    bool nproc_fixed; /* `nproc` was given by number, without --uneven */
    bool uneven;
    uint32_t min, max, nproc;
    uint64_t last_call_ms, join_timeout_ms, node_timeout_ms;
    enum rdzv_grow grow;
    char version[64], program[64], role[64];
    char join_knob[64];
    struct who from;       /* the node that set the rules */
    struct who nproc_from; /* the node that set `nproc` */
};

/* The round that runs, or ran last. */
struct rdzv_run {
    uint32_t round; /* 0 = no round yet */
    uint32_t nnodes, world_size;
    uint32_t n_members; /* members that have not left */
    uint32_t n_open;    /* members that are not STOPPED and have not left */
    uint32_t n_done;    /* members that were DONE, even if they have left since */
    uint64_t began_ms;
    struct node **member;    /* by node rank, NULL = has left; owned, charged, `room` entries */
    struct node **order;     /* scratch array of nodes.c, `room` entries */
    struct rdzv_seat *seats; /* by node rank, `room` entries */
    uint32_t room;
};

/* The end of the last round. */
struct rdzv_end {
    bool has_cause;
    struct rdzv_cause cause;
    bool unkillable, stopped_by_user;
    bool has_rank0;
    int max_code, rank0_code;
    enum no_restart no_restart;
};

/* When a state ends, unless an event ends the state earlier. */
struct rdzv_until {
    uint64_t stop_ms, back_off_ms, gather_ms, call_ms;
};

struct rdzv {
    struct rdzv_env env;
    struct quota *quota; /* borrowed */
    char job[RDZV_TEXT_MAX], instance[LIMIT_INSTANCE];
    enum rdzv_state state;
    struct rules rules;
    struct restarts restarts;
    uint64_t now_ms;

    struct table by_id;
    struct list nodes, watched, waiting;
    uint32_t n_live;    /* nodes in `nodes` that are not FINISHED */
    uint32_t n_waiting; /* number of nodes in `waiting` */
    uint32_t n_back;    /* nodes in `waiting` that were members of the last round */
    uint32_t n_resting; /* members of the last round that may still return */
    struct node *
        *place; /* static: the node with each node rank, or NULL; rules.max entries; owned, charged */

    struct rdzv_run run;
    struct rdzv_end end;

    /* Between rounds. */
    bool grow_agreed;  /* all ranks of the round have agreed to grow */
    bool short_handed; /* too few members returned, so newcomers get another last call */
    bool must_settle;  /* a node has joined or left since rdzv_settle */
    uint64_t since_ms; /* when this state began */
    struct rdzv_until until;

    /* Reports to the nodes. */
    uint64_t say_ms, said_ms; /* times of the next and the last report of missing nodes */
    uint64_t watch_ms;        /* when to check for silent nodes next */
    uint32_t waiting_nodes;   /* the last value passed to env.waiting_nodes */

    struct rdzv_gone *gone; /* ring of RDZV_GONE_MAX, owned */
    uint32_t n_gone;
};

enum rdzv_event_type {
    RDZV_FAILED,
    RDZV_EXPLAINED,
    RDZV_DONE,
    RDZV_STOPPED,
    RDZV_LEAVE,
    RDZV_LOST,
    RDZV_GROW,
    RDZV_HANGS,
    RDZV_SETTLE,
    RDZV_TIME_UP,
    RDZV_JOIN,
    RDZV_N_EVENTS
};

/* A node that joins, and the answer. */
struct rdzv_joining {
    uint64_t id;
    const struct rdzv_join *join;
    struct rdzv_refusal *refusal; /* filled; `code` is RDZV_WELCOME if the node was accepted */
};

struct rdzv_event {
    enum rdzv_event_type type;
    struct rdzv_joining *joining;   /* JOIN */
    const struct failure *failure;  /* FAILED, EXPLAINED, HANGS */
    const struct rdzv_stopped *how; /* STOPPED */
    int signal;                     /* LEAVE */
    const char *words;              /* origin of a LEAVE, or the way in which a node was LOST */
    bool silent;                    /* for LOST: the node was silent for too long */
};

/* --- rendezvous.c --- */
/* Apply an event. `node` is the node that the event is about. `node` is NULL for GROW, HANGS, SETTLE, TIME_UP, and
 * for the JOIN of a new node. */
void rdzv_step(struct rdzv *r, struct node *node, const struct rdzv_event *event);

/* --- admission.c --- */
/* How a node that joins now takes part: in the next round, as a spare, or not at all. */
enum rdzv_admission { RDZV_AS_MEMBER, RDZV_AS_SPARE, RDZV_NOBODY };
/* Check a node that joins. An accepted node waits afterwards. For a rejected node, joining->refusal has the reason,
 * and no other data has changed. `known` is the node if the node joined before, else NULL. */
void rdzv_admit(struct rdzv *r, struct node *known, struct rdzv_joining *joining, enum rdzv_admission as);

/* --- nodes.c --- */
struct node *rdzv_find(const struct rdzv *r, uint64_t id);
/* Create a node that is in no list except `nodes` and `watched`. Return NULL if memory or quota is short. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join);
/* Free a node, and update the lists, counts and places. Only this function frees nodes. */
void rdzv_remove_node(struct rdzv *r, struct node *node);
/* Remove a node, in any state, from the counts and free its node rank. The struct remains until the node's connection
 * ends. */
void rdzv_node_is_finished(struct rdzv *r, struct node *node);
/* Record a node that leaves, for readers that ask why a node is missing. */
void rdzv_remember_gone(struct rdzv *r, const struct node *node, const struct rdzv_event *how,
                        const char *words);
/* Change the state of a RESTING or new node to WAITING. */
void rdzv_node_waits(struct rdzv *r, struct node *node);
/* Remove the node from `waiting` and change its state to `next`. */
void rdzv_node_stops_waiting(struct rdzv *r, struct node *node, enum rdzv_node_state next);
/* Change the state of a member from RUNNING, DONE or STOPPING to `next`: DONE, STOPPING or STOPPED. */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next);
bool rdzv_is_member(const struct rdzv *r, const struct node *node);
/* Reset the job to the state before the first join. */
void rdzv_forget_rules(struct rdzv *r);
bool rdzv_make_places(struct rdzv *r);

/* --- round.c --- */
/* Return the number of waiting nodes that a round would accept now. */
uint32_t rdzv_takes(const struct rdzv *r);
bool rdzv_is_complete(const struct rdzv *r);
/* Return the number of waiting nodes by which a running job could grow. */
uint32_t rdzv_can_grow_by(const struct rdzv *r);
void rdzv_tell_workers_who_waits(struct rdzv *r);
enum rdzv_state rdzv_begin_round(struct rdzv *r);

/* --- nodes.c --- */
/* Fill r->run.member with waiting nodes, in the order of their new node ranks: all nodes of a static job, or `n`
 * nodes of an elastic job. */
void rdzv_order_static(struct rdzv *r);
void rdzv_order_elastic(struct rdzv *r, uint32_t n);
/* Compare names, with numbers by value: "node2" is before "node10". */
int rdzv_compare_names(const char *a, const char *b);

/* --- round.c --- */
/* Return true if the worker gave up because it had lost a peer. */
bool rdzv_is_victim(const struct failure *failure);
void rdzv_set_failure(struct rdzv *r, const struct node *node, const struct failure *failure);
/* Set a hang as the cause. Only three fields of `failure` are used: the code, the words and the reason against a
 * restart. */
void rdzv_set_hang(struct rdzv *r, const struct failure *failure);
void rdzv_set_cause(struct rdzv *r, enum rdzv_why why, const struct node *node, int signal,
                    const char *words);
/* Send `stop` to all members that are not stopping yet. r->end.cause has the reason. Return the next state. */
enum rdzv_state rdzv_stop_round(struct rdzv *r);
/* If nothing of the round is left, begin another attempt or end the job. Otherwise stay in STOPPING. Return the next
 * state. */
enum rdzv_state rdzv_judge_if_stopped(struct rdzv *r);
/* Send a verdict to every node without a verdict. Return the next state. */
enum rdzv_state rdzv_end_job(struct rdzv *r, enum rdzv_why why, enum no_restart no_restart);
/* Send a separate verdict to a node that leaves. `signal` 0 = the node leaves by itself. */
void rdzv_dismiss(struct rdzv *r, struct node *node, int signal);

/* --- nodes.c --- */
void rdzv_touch(struct rdzv *r, struct node *node);
uint64_t rdzv_watch_deadline(const struct rdzv *r);
/* Detect a suspension of this server itself. Call this before checking for silent nodes. */
void rdzv_check_own_pulse(struct rdzv *r);
/* Return true if the node has been silent for too long, without the excused time. */
bool rdzv_is_silent(const struct rdzv *r, const struct node *node);
/* Return the node that has been silent longest if it has been silent for too long, else NULL. */
struct node *rdzv_silent_node(const struct rdzv *r);

/* --- view.c --- */
/* Return the time at which the state ends by itself; UINT64_MAX = never. */
uint64_t rdzv_state_deadline(const struct rdzv *r);

/* --- view.c --- */
typedef char who_name[256];
struct who rdzv_who(const struct rdzv_join *join);
/* Format the name of `who` for a sentence that also names `beside`. Return `out`. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside);

/* --- view.c --- */
/* Write one line to the log and the event log. `node` NULL = the line is about the job. */
void rdzv_note(struct rdzv *r, enum rdzv_record_kind kind, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Schedule a report to the waiting nodes, because the set of missing nodes has changed. */
void rdzv_will_say(struct rdzv *r);
void rdzv_say_if_due(struct rdzv *r);
/* Format "node 1 (n1)", or "node n1" if the node has no rank, into `room`. Return `room`. */
const char *rdzv_name(const struct node *node, char *room, size_t size);

#endif
