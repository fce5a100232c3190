/* core.h -- private to node*.c: the agent process around the core of agent.h.
 *
 * The files are the rungs of a ladder: each calls only those below it.
 *
 *     node.c       opens, runs and frees
 *     node.c      has the store or finds it, and joins
 *     node.c   signals of the user, the death of the guardian become events
 *     node.c    time becomes an event
 *     store_events.c       what the store says becomes an event
 *     effects.c    the core's wishes are carried out
 *     effects.c      ... those that are words for the store or the user
 *     effects.c  children that have ended are waited for
 *     core.c    what each worker does, when the user asks
 *     store_events.c      ... and what the store is told of it with every beat
 *     effects.c   ... and did last, for the report
 *     store_events.c     ... and which connections are theirs
 *     effects.c    timers that workers have set run out
 *     core.c      asks the core, arms the timer, closes
 *
 * A callback turns what happened into an event and calls node_feed(); that asks the core and queues its
 * wishes; node_pump() carries them out, some at a time. */
#ifndef LAUNCHER_NODE_CORE_H
#define LAUNCHER_NODE_CORE_H

#include "agent/agent.h"
#include "contain/descendants.h"
#include "net/dial.h"
#include "net/peer_lookup.h"
#include "net/store_host.h"
#include "net/store_link.h"
#include "node/heartbeat.h"
#include "node/signals.h"
#include "node/file_timer.h"
#include "node/flight_pages.h"
#include "node/spawn.h"
#include "output/output.h"
#include "report/evidence.h"
#include "report/user_messages.h"
#include "tables/signals.h"

/* The store, the way to it, and what it says: who takes part, what comes next, why it is lost. */
struct node_meeting {
    struct store_server *store; /* NULL = another node has it, or a daemon */
    struct store_host *host;    /* while it is found out who has it, */
    struct join_dial *dial;     /* ... and while that is looked for */
    struct store_link *link;
    int held_port; /* the socket of the port that is offered to rank 0; -1 = none is */
    char port_note[NOTE_MAX];
    uv_timer_t port_timer;        /* the next look at `held_port` */
    struct heard_round *round;    /* of the round that is, or was last; NULL before the first */
    struct heard_waiting waiting; /* what was said last, while it is waited */
    uv_timer_t waiting_timer;
    uint64_t waiting_heard_ms;
    bool waiting_due, waiting_said;  /* a line about a change will come; one has come */
    bool waiting_asked;              /* for whose end this node waits, */
    char unfinished[HEARD_LIST_MAX]; /* ... and the answer */
    int missing;                     /* errno of a program that is not here, 0 = it is */
    uv_timer_t missing_timer;
    bool refused;                         /* by the store */
    struct vouch vouch;                   /* connections that were asked for */
    uv_timer_t vouch_timer;               /* the next walk for them */
    uint64_t whose_ms;                    /* until when looking for others' sockets is paid for */
    char first_cause[LIMIT_WORDS / 2];    /* why the nodes did not come together; "" = not told */
    int next_attempt;                     /* by the verdict */
    uint64_t store_deadline_ms;           /* of the answer that is waited for */
    char store_lost[FINDING_TEXT_MAX];    /* why; "" = it is there */
    struct finding store_finding;         /* when that is this node's own affair; FINDING_NONE = it is not */
    char store_node[HEARD_NAME_MAX + 32]; /* " on node 0 (n0)", which it is lost with; "" = not known */
};

/* The workers of an attempt, and how it ended. */
struct node_run {
    struct contain *contain; /* borrowed */
    struct spawner spawner;
    struct exits exits;
    pid_t *pids; /* by local rank; 0 = not running. Ours to signal until we have waited for it. */
    bool *asked; /* by local rank: a signal of ours went out while it still ran */
    struct beat_known *known;      /* by local rank: what the store has been told of its process, */
    struct beat_step *steps;       /* ... and of its steps */
    struct rank_pages pages;       /* where those write that use libddp */
    struct file_timer *file_timer; /* NULL = not asked for */
    struct evidence *evidence;     /* NULL = none is taken */
    bool reap;                     /* children have ended, or may have */
    bool alone;                    /* no child is left */
    bool resting;                  /* the whole job is stopped for a while */
    bool prepared;                 /* the first attempt is, before its round has come */
    uint64_t attempt_started_ms;
    struct failure cause;    /* of the attempt's end, by the store's word; `why` "" = none was told */
    int64_t step, best_step; /* with the verdict: how far the attempt came, and all of them; -1 = not told */
    struct buf failed;       /* array of struct failed_attempt */
    char left_subject[FINDING_SUBJECT_MAX]; /* "rank 0 (n1, pid 7)", which left_waiting is about */
    char left_waiting[FINDING_TEXT_MAX];    /* who was waited for in vain in this attempt; "" = nobody */
    enum finding_code left_code;            /* ... and how: RANK_LEFT_EARLY, SETUP_GIVEN_UP */
    struct stuck stuck[STUCK_MAX];          /* what cannot be killed, for the report */
    size_t n_stuck;
};

/* What workers write and read, and what the user reads. */
struct node_output {
    struct output *output;
    struct input *input;
    struct announce announce;
    uv_timer_t status_timer;
    bool status_asked;           /* by the user, who still waits for it */
    bool kept_flights;           /* some of this attempt's records are in files */
    bool finishing;              /* only output is left, then the report */
    uint64_t unread_deadline_ms; /* the user wants the end, whoever does not read our output */
};

/* One node's life. The handles are members and closed together by node_finish(); there is no other owner
 * of any of them. */
struct node {
    struct plan *plan;
    uint64_t started_ms;
    struct agent *agent;
    struct node_meeting meet;
    struct node_run run;
    struct node_output out;

    uv_loop_t loop;
    uv_timer_t timer;     /* the core's deadline, or the store's */
    uint64_t due_ms;      /* what it waits for */
    bool caught_up;       /* it rang much too late; what was missed meanwhile has been taken in */
    uv_timer_cb on_timer; /* node_on_timer: node_set_timer(), below it, cannot name it */
    uv_idle_t more;       /* runs while wishes are left, or children that have ended */
    bool ended;           /* handles are closing */

    uv_poll_t lifeline, signals; /* of the two descriptors that follow */
    int lifeline_fd, signal_fd;
    pid_t guardian;
    struct stop_memory stop_memory, pass_memory;
    struct signal_heard stop_heard; /* the user's first request to stop, if agent_stop_signal is not 0 */

    struct buf wishes; /* array of struct agent_wish, carried out up to `done` */
    size_t done;
    int exit_code;
};

static inline int node_rank(const struct node *n, int local_rank)
{
    return n->plan->workers[local_rank].rank;
}

/* Has something else than a worker of this node brought the attempt to its end? */
static inline bool node_cause_is_elsewhere(const struct node *n)
{
    return n->run.cause.why[0] != '\0' && n->run.cause.node_rank != n->plan->node_rank;
}

/* --- core.c --- */

/* Ask the core. Its wishes wait for the next node_pump(). */
void node_feed(struct node *n, struct agent_event event);

/* Wake up at the next deadline: the core's, or the store's. */
void node_set_timer(struct node *n);

/* The store is being asked: when it has not answered by --timeout (60 s without), it counts as lost. */
void node_expect_answer(struct node *n);

/* It has answered: nothing is expected of it. */
void node_expect_nothing(struct node *n);

/* Close every handle; the loop then ends by itself, and the exit code is ddprun's. */
void node_finish(struct node *n, int exit_code);

/* Only output is left, somebody does not read it, and the user has told us to stop. */
void node_leave_output(struct node *n);

/* Is there a worker that has not been waited for yet? */
bool node_has_workers(const struct node *n);

/* --- core.c --- */

void node_open_status(struct node *n);

/* Print what each worker does, as soon as the store has said what it knows, or after a second without it. */
void node_status(struct node *n, const struct signal_heard *heard);

/* The store's answer; for store_link_options. */
void node_on_status(void *user, const struct cJSON *answer);

/* --- store_events.c --- */

/* Add what is new of each worker's process and steps; for store_link_options. */
void node_on_beat(void *user, struct message_heartbeat *beat);

/* --- effects.c --- */

/* The attempt has failed, or is stopped: the records of those ranks that could not write them themselves. */
void node_keep_flights(struct node *n);

/* --- store_events.c --- */

/* Is that connection one of our workers'? For store_link_options. */
void node_on_who(void *user, int64_t conn, const char *peer, const char *store, bool any);

/* Does a worker, or a descendant of one, hold this socket? Walks through /proc. */
bool node_has_socket(struct node *n, uint64_t inode);

/* --- store_events.c --- */

/* Before the workers of a round start: if a port is held here for the store of its rank 0, watch who listens there until
 * something does. DDP_ERR_IO: another user does already. */
ddp_status node_watch_port(struct node *n, struct ddp_err *err);

/* --- effects.c --- */

/* torchrun's file timer, if it is enabled; node_finish() closes it. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* --- effects.c --- */

/* Take children that have ended; `n->run.reap` stays true when there may be more. */
void node_reap(struct node *n);

/* --- effects.c --- */

/* Carry out some wishes; the loop comes back for the others. */
void node_pump(struct node *n);

/* --- effects.c --- */

/* Before each join: hold a port for a store that rank 0 may host here, if our workers need such a one. A new one each time: what
 * is left of the last attempt cannot reach it. */
void node_offer_port(struct node *n);

/* Print why the program of this node cannot be started, `error` of spawner_find(), and what helps. */
void node_say_not_started(const struct node *n, int error);

/* Carry out a wish that is words for the store or the user. */
void node_tell(struct node *n, struct agent_wish wish);

/* The latest attempt, if it has failed, is written down for the report. */
void node_note_failed(struct node *n);

/* --- store_events.c --- */

/* The shell's part of an attempt's begin: ranks, containment, log files, fresh lines. */
ddp_status node_begin_attempt(struct node *n, const struct plan_round *round, struct ddp_err *err);

/* What the store says; for store_link_options. */
extern const struct store_link_calls node_store_calls;

/* There will be no store: before the first round it is the end, later the core decides. */
void node_on_lost(void *user, const char *why);

/* A round has come for which everything was made ready before. */
void node_begin_prepared(struct node *n);

/* --- node.c --- */

/* A deadline has come; for node.on_timer. */
void node_on_timer(uv_timer_t *timer);

/* --- node.c --- */

/* Where other nodes may take part: end the job before the rendezvous when this node cannot execute the program. */
void node_check_program(struct node *n);

/* Start the store, or look for it, and join. */
ddp_status node_meet(struct node *n, struct ddp_err *err);

/* --- node.c --- */

/* Begin to listen to signals and to the guardian's end of the lifeline; node_finish() ends it. False: no descriptor
 * (errno); nothing is open then. */
bool node_watch_signals(struct node *n, int lifeline);

#endif
