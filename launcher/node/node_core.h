/* node_core.h -- private to node*.c: the agent process around the core of agent.h.
 *
 * The files are the rungs of a ladder: each calls only those below it.
 *
 *     node_run.c       opens, runs and frees
 *     node_signals.c   signals of the user, the death of the guardian become events
 *     node_events.c    time and the store's answers become events
 *     node_wishes.c    the core's wishes are carried out
 *     node_children.c  children that have ended are waited for
 *     node_status.c    what each worker does, when the user asks
 *     node_core.c      asks the core, arms the timer, closes
 *
 * A callback turns what happened into an event and calls node_feed(); that asks the core and queues its
 * wishes; node_pump() carries them out, some at a time. */
#ifndef LAUNCHER_NODE_CORE_H
#define LAUNCHER_NODE_CORE_H

#include "agent/agent.h"
#include "contain/hurry.h"
#include "contain/stuck.h"
#include "node/announce.h"
#include "node/exits.h"
#include "node/spawner.h"
#include "node/store_host.h"
#include "node/store_link.h"
#include "output/output.h"
#include "report/evidence.h"
#include "tables/signals.h"

/* One node's life. The handles are members and closed together by node_finish(); there is no other owner
 * of any of them. */
struct node {
    struct plan *plan;
    struct contain *contain; /* borrowed */
    uint64_t started_ms;
    struct agent *agent;
    struct output *output;
    struct input *input;
    struct announce announce;
    struct spawner spawner;
    struct store_server *store;
    struct store_link *link;
    char port_note[NOTE_MAX];

    uv_loop_t loop;
    uv_timer_t timer;     /* the core's deadline, or the store's */
    uv_timer_cb on_timer; /* node_on_timer: node_set_timer(), below it, cannot name it */
    uv_idle_t more;       /* runs while wishes are left, or children that have ended */
    bool ended;           /* handles are closing */

    uv_poll_t lifeline, signals; /* of the two descriptors that follow */
    int lifeline_fd, signal_fd;
    pid_t guardian;
    struct stop_memory stop_memory;
    struct signal_heard stop_heard; /* the user's first request to stop, if agent_stop_signal is not 0 */
    bool resting;                   /* the whole job is stopped for a while */
    uv_timer_t status_timer;
    bool status_asked; /* by the user, who still waits for it */

    struct buf wishes; /* array of struct agent_wish, carried out up to `done` */
    size_t done;
    bool reap; /* children have ended, or may have */

    struct exits exits;
    pid_t *pids;        /* by local rank; 0 = not running. Ours to signal until we have waited for it. */
    bool *asked;        /* by local rank: a signal of ours went out while it still ran */
    bool alone;         /* no child is left */
    struct hurry hurry; /* while workers are being stopped */
    struct evidence *evidence;     /* NULL = none is taken */
    bool prepared;                 /* the first attempt may begin as soon as the store has answered, */
    bool store_ready;              /* which it may do earlier */
    bool store_lost, finishing;    /* finishing: only output is left, then the report */
    struct stuck stuck[STUCK_MAX]; /* what cannot be killed, for the report */
    size_t n_stuck;
    struct buf attempt_words;    /* how each failed attempt ended, see report_attempts.h */
    char left_waiting[NOTE_MAX]; /* who ended with 0 in this attempt though others waited; "" = nobody */
    uint64_t store_deadline_ms;  /* of the answer that is waited for */
    uint64_t due_ms;             /* what the timer waits for */
    bool caught_up;              /* it rang much too late; what was missed meanwhile has been taken in */
    uint64_t unread_deadline_ms; /* the user wants the end, whoever does not read our output */
    int exit_code;
};

static inline int node_rank(const struct node *n, int local_rank)
{
    return n->plan->workers[local_rank].rank;
}

/* --- node_core.c --- */

/* Ask the core. Its wishes wait for the next node_pump(). */
void node_feed(struct node *n, struct agent_event event);

/* Wake up at the next deadline: the core's, or the store's. */
void node_set_timer(struct node *n);

/* The store is being asked: when it has not answered by --timeout (60 s without), it counts as lost. */
void node_expect_answer(struct node *n);

/* Close every handle; the loop then ends by itself, and the exit code is ddprun's. */
void node_finish(struct node *n, int exit_code);

/* Only output is left, somebody does not read it, and the user has told us to stop. */
void node_leave_output(struct node *n);

/* --- node_status.c --- */

void node_open_status(struct node *n);

/* Print what each worker does, as soon as the store has said what it knows, or after a second without it. */
void node_status(struct node *n, const struct signal_heard *heard);

/* The store's answer; for store_link_options. */
void node_on_status(void *user, const struct cJSON *answer);

/* --- node_children.c --- */

/* Take children that have ended; `n->reap` stays true when there may be more. */
void node_reap(struct node *n);

/* --- node_wishes.c --- */

/* Carry out some wishes; the loop comes back for the others. */
void node_pump(struct node *n);

/* --- node_events.c --- */

/* The shell's part of an attempt's begin: containment, log files, fresh lines. */
ddp_status node_begin_attempt(struct node *n, int attempt, struct ddp_err *err);

/* A deadline has come; for node.on_timer. */
void node_on_timer(uv_timer_t *timer);

/* Answers of the store; for store_link_options. */
void node_on_ready(void *user);
void node_on_lost(void *user, const char *why);
void node_on_progress(void *user, int64_t step);
void node_on_left_waiting(void *user, int rank, const char *barrier, const char *waiting);

/* --- node_signals.c --- */

/* Begin to listen to signals and to the guardian's end of the lifeline; node_finish() ends it. False: no descriptor
 * (errno); nothing is open then. */
bool node_watch_signals(struct node *n, int lifeline);

#endif
