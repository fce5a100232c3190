/* rendezvous_core.h -- private to the files of a rendezvous: the struct that they share, and the role of each file.
 *
 *     rendezvous.c   messages and time become events; the machine: states x events, and the work of each cell
 *     admission.c    the checks before a join; a rejection names both values and both hosts
 *     round.c        when a round is complete, its beginning, its end, and whether another one follows
 *     nodes.c        nodes join, move between lists, get ranks, leave; heartbeats; the one place that frees a node
 *     view.c         names, the log, messages to waiting nodes, copies for readers
 *
 * Each calls only those below it. */
#ifndef RENDEZVOUS_JOB_RENDEZVOUS_CORE_H
#define RENDEZVOUS_JOB_RENDEZVOUS_CORE_H

#include "base/list.h"
#include "base/text.h"
#include "job/rendezvous.h"
#include "store/table.h"

#include <inttypes.h>

/* round.c: the failed attempts of a job, whether another one follows, and when. One budget for all nodes of a job.
 *
 * Two kinds of reasons against another attempt. Some follow from the failure itself at once (restarts_failed);
 * progress needs the workers' reports, for which the key space must be read first (restarts_progress). */
struct restarts {
    uint32_t max_restarts, max_no_progress;
    uint64_t backoff_ms, backoff_cap_ms;
    uint32_t failed;   /* number of attempts; a round that ended for another reason does not count */
    int64_t step;      /* progress of the latest, if requested; -1 = not reported */
    int64_t best_step; /* of all attempts so far; -1 = unknown */
    uint32_t standing; /* attempts in a row, up to the latest, that did not get beyond best_step */
};

void restarts_init(struct restarts *a, const struct rdzv_join *rules);

/* An attempt has failed. Return NONE if its cause allows another one, else the reason. */
enum no_restart restarts_failed(struct restarts *a, const struct rdzv_cause *cause);

/* Record the progress of an attempt (-1 = not reported). Return NONE if another one is still allowed, else
 * the reason. */
enum no_restart restarts_progress(struct restarts *a, int64_t step);

/* Return how long to wait before the next one. */
uint64_t restarts_backoff(const struct restarts *a);

struct node {
    struct table_node by_id;
    struct list joined;  /* in rdzv.nodes, in order of arrival */
    struct list watched; /* in rdzv.watched, the longest silent first */
    struct list waiting; /* in rdzv.nodes, in order of arrival */
    uint64_t id;
    enum rdzv_node_state state;
    uint32_t round;    /* the last it was a member of, 0 = none */
    int32_t node_rank; /* in that round, -1 = none */
    int32_t wanted;    /* static: the requested node rank, -1 = any */
    uint32_t first_rank, nproc;
    uint32_t role_rank, role_size; /* as in struct rdzv_tell */
    uint32_t store_port;           /* as in struct rdzv_join */
    int pid;
    uint64_t pid_start, joined_ms, heard_ms, grace_ms;
    uint64_t spared_ms; /* its silence counts from here: its last message, or the last excuse */
    uint32_t pardons;   /* since its last message */
    bool leaving;
    int leave_signal;
    char host[RDZV_TEXT_MAX], addr[RDZV_TEXT_MAX], own[64], boot_id[64], version[64], role[64];
};

/* Identify a node as its user does, so that two nodes of one host, or two hosts of one name, differ. */
struct who {
    char host[RDZV_TEXT_MAX], addr[64];
    int32_t node_rank; /* requested rank, -1 = any */
    int pid;
};

/* The rules of the first node; valid while `known`. */
struct rules {
    bool known, elastic;
    bool nproc_fixed; /* `nproc` was given by number, without --uneven */
    bool uneven;
    uint32_t min, max, nproc;
    uint64_t last_call_ms, join_timeout_ms, node_timeout_ms;
    enum rdzv_grow grow;
    char version[64], program[64], role[64];
    char join_knob[64];
    struct who from;       /* the node that set them */
    struct who nproc_from; /* and `nproc` */
};

/* The round that runs, or ran last. */
struct rdzv_run {
    uint32_t round; /* 0 = none yet */
    uint32_t nnodes, world_size;
    uint32_t n_members; /* still here */
    uint32_t n_open;    /* members that are not STOPPED; nodes that were done and left do not count */
    uint32_t n_done;    /* all members, whether they are still connected or not */
    uint64_t began_ms;
    struct node **member;    /* by node rank, NULL = gone; owned, charged, room for `room` */
    struct node **order;     /* scratch array of nodes.c, the same size */
    struct rdzv_seat *seats; /* the same size */
    uint32_t room;
};

/* Its end. */
struct rdzv_end {
    bool has_cause;
    struct rdzv_cause cause;
    bool unkillable, stopped_by_user;
    bool has_rank0;
    int max_code, rank0_code;
    enum no_restart no_restart;
};

/* When a state ends if nothing else happens. */
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
    uint32_t n_live;     /* in `nodes`, not FINISHED */
    uint32_t n_waiting;  /* in `waiting` */
    uint32_t n_back;     /* of those, members of the last round */
    uint32_t n_resting;  /* members of the last round that may still return */
    struct node **place; /* static: who holds node rank i, rules.max of them; owned, charged */

    struct rdzv_run run;
    struct rdzv_end end;

    /* Between rounds. */
    bool grow_agreed;  /* when all ranks of the round have agreed */
    bool short_handed; /* newcomers had to be awaited: another last call is due */
    bool must_settle;  /* a node has joined or left since rdzv_settle */
    uint64_t since_ms; /* since when in this state */
    struct rdzv_until until;

    /* Reports to the nodes. */
    uint64_t say_ms, said_ms; /* next and last report of the missing nodes */
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

/* A node that joins: its message, and the answer. */
struct rdzv_joining {
    uint64_t id;
    const struct rdzv_join *join;
    struct rdzv_refusal *refusal; /* its code shows whether the node was accepted */
};

struct rdzv_event {
    enum rdzv_event_type type;
    struct rdzv_joining *joining;   /* JOIN */
    const struct failure *failure;  /* FAILED, EXPLAINED, HANGS */
    const struct rdzv_stopped *how; /* STOPPED */
    int signal;                     /* LEAVE */
    const char *words;              /* LEAVE: the origin of the request; LOST: the way it was lost */
    bool silent;                    /* LOST: it was silent too long */
};

/* --- rendezvous.c --- */
/* `node` is the subject of the event; NULL for GROW, HANGS, SETTLE, TIME_UP, and for the JOIN of a new node. */
void rdzv_step(struct rdzv *r, struct node *node, const struct rdzv_event *event);

/* --- admission.c --- */
/* Return the next state after accepting a node in this state. */
enum rdzv_admission { RDZV_AS_MEMBER, RDZV_AS_SPARE, RDZV_NOBODY };
/* An accepted node waits afterwards. Otherwise joining->refusal has the reason, and nothing else has changed.
 * `known` is the node if it joined before, else NULL. */
void rdzv_admit(struct rdzv *r, struct node *known, struct rdzv_joining *joining, enum rdzv_admission as);

/* --- nodes.c --- */
struct node *rdzv_find(const struct rdzv *r, uint64_t id);
/* Create a node, in no list except `nodes` and `watched`. NULL when memory or quota is short. */
struct node *rdzv_add_node(struct rdzv *r, uint64_t id, const struct rdzv_join *join);
/* Free a node, the only place that does; lists, counts and its place are updated. */
void rdzv_remove_node(struct rdzv *r, struct node *node);
/* In any state: remove it from the counts and free its node rank; the struct stays until its connection ends. */
void rdzv_node_is_finished(struct rdzv *r, struct node *node);
/* Record it for readers that ask why a node is missing. */
void rdzv_remember_gone(struct rdzv *r, const struct node *node, const struct rdzv_event *how,
                        const char *words);
/* RESTING or new -> WAITING. */
void rdzv_node_waits(struct rdzv *r, struct node *node);
/* Out of `waiting`, into state `next`. */
void rdzv_node_stops_waiting(struct rdzv *r, struct node *node, enum rdzv_node_state next);
/* RUNNING, DONE, STOPPING -> `next` (DONE, STOPPING, STOPPED). */
void rdzv_member_becomes(struct rdzv *r, struct node *node, enum rdzv_node_state next);
bool rdzv_is_member(const struct rdzv *r, const struct node *node);
/* Reset the job to the state before the first join. */
void rdzv_forget_rules(struct rdzv *r);
bool rdzv_make_places(struct rdzv *r);

/* --- round.c --- */
/* Return how many of the waiting nodes a round would accept now. */
uint32_t rdzv_takes(const struct rdzv *r);
bool rdzv_is_complete(const struct rdzv *r);
/* Return how many waiting nodes could join while a round runs. */
uint32_t rdzv_can_grow_by(const struct rdzv *r);
void rdzv_tell_workers_who_waits(struct rdzv *r);
enum rdzv_state rdzv_begin_round(struct rdzv *r);

/* --- nodes.c --- */
/* Fill r->member with `n` of the waiting nodes, by node rank. */
void rdzv_order_static(struct rdzv *r);
void rdzv_order_elastic(struct rdzv *r, uint32_t n);
/* "node2" before "node10". */
int rdzv_compare_names(const char *a, const char *b);

/* --- round.c --- */
/* True if the worker gave up because it had lost a peer. */
bool rdzv_is_victim(const struct failure *failure);
void rdzv_set_failure(struct rdzv *r, const struct node *node, const struct failure *failure);
/* The job hangs; of the failure the code, the words and the reason against a retry count. */
void rdzv_set_hang(struct rdzv *r, const struct failure *failure);
void rdzv_set_cause(struct rdzv *r, enum rdzv_why why, const struct node *node, int signal,
                    const char *words);
/* r->cause has the reason. All members that are not stopping yet get `stop`. */
enum rdzv_state rdzv_stop_round(struct rdzv *r);
/* When nothing of the round is left: begin another one, or end. Otherwise stay STOPPING. */
enum rdzv_state rdzv_judge_if_stopped(struct rdzv *r);
/* Send every node without a verdict its verdict. */
enum rdzv_state rdzv_end_job(struct rdzv *r, enum rdzv_why why, enum no_restart no_restart);
/* A separate verdict for a leaving node; `signal` 0 = by itself. */
void rdzv_dismiss(struct rdzv *r, struct node *node, int signal);

/* --- nodes.c --- */
void rdzv_touch(struct rdzv *r, struct node *node);
uint64_t rdzv_watch_deadline(const struct rdzv *r);
/* Call before silent nodes are checked, to detect a standstill of this server itself. */
void rdzv_check_own_pulse(struct rdzv *r);
/* True if the node has been silent too long, in the time that this server was running. */
bool rdzv_is_silent(const struct rdzv *r, const struct node *node);
/* Return the node that has been silent longest, if that is too long; else NULL. */
struct node *rdzv_silent_node(const struct rdzv *r);

/* --- view.c --- */
/* Return when the state ends by itself; UINT64_MAX = never. */
uint64_t rdzv_state_deadline(const struct rdzv *r);

/* --- view.c --- */
typedef char who_name[256];
struct who rdzv_who(const struct rdzv_join *join);
/* Format its name for a sentence that also names `beside`; return `out`. */
const char *rdzv_name_who(who_name out, const struct who *who, const struct who *beside);

/* --- view.c --- */
/* Write one line to the log and the event log. `node` NULL = about the job. */
void rdzv_note(struct rdzv *r, enum rdzv_record_kind kind, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The set of missing nodes has changed. */
void rdzv_will_say(struct rdzv *r);
void rdzv_say_if_due(struct rdzv *r);
/* Return "node 1 (n1)", or "n1" when it has no rank; valid until the next call but one. */
const char *rdzv_name(const struct node *node, char *room, size_t size);

#endif
