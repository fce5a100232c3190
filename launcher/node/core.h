/* core.h -- private to launcher/node: the agent process around the state machine of agent.h.
 *
 * A callback turns what happened into an event and calls node_feed(); that asks the agent and queues its effects; node_pump()
 * carries them out, some at a time. Each file calls only those below it:
 *
 *     node.c           opens, runs and frees; the way into the job; time
 *     signals.c        signals of the user, the death of the guardian
 *     store_events.c   what the store says and asks
 *     effects.c        asks the agent and carries out its effects; children that have ended; the timer; the end
 *     flight_pages.c   the last calls of ranks
 *     stack_dump.c     where the threads of ranks are */
#ifndef LAUNCHER_NODE_CORE_H
#define LAUNCHER_NODE_CORE_H

#include "agent/agent.h"
#include "base/list.h"
#include "base/rank_set.h"
#include "base/stacks.h"
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

/* The store, the way to it and its messages: the nodes of the round, the next attempt, the reason of its
 * loss. */
struct node_meeting {
    struct store_server *store; /* NULL = another node has it, or a daemon */
    struct store_host *host;    /* while it is found out who has it, */
    struct join_dial *dial;     /* ... and while that is looked for */
    struct store_link *link;
    int held_port; /* the socket of the port that is offered to rank 0; -1 = none is */
    char port_note[NOTE_MAX];
    uv_timer_t port_timer;        /* the next look at `held_port` */
    struct heard_round *round;    /* of the round that is, or was last; NULL before the first */
    struct heard_waiting waiting; /* the last message of this kind */
    uv_timer_t waiting_timer;
    uint64_t waiting_heard_ms;
    bool waiting_due, waiting_said;  /* a line about a change is due; one was printed */
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

/* The order in which workers ended. waitpid returns children in the order of their start. When two fail
 * within one turn of a busy loop, that would make the lower rank the first failure. */
struct exits {
    int epoll; /* one pidfd for each living worker; -1 = this kernel cannot, or no descriptor was left */
};

/* Where the survivors of this attempt's failure were. */
struct node_sample {
    bool by_py_spy;                /* Python runs, and py-spy is here: the stop waits for it */
    bool is_taken;                 /* `beats_seen` has it */
    unsigned beats;                /* of this attempt, up to now */
    struct beat_known *beats_seen; /* by local rank: what the last heartbeat saw; pid 0 = it had ended */
    struct cJSON *stacks;          /* owned: rows of base/stacks.h; NULL = none */
};

/* The workers of an attempt, and how it ended. */
struct node_run {
    struct contain *contain; /* borrowed */
    struct spawner spawner;
    struct exits exits;
    pid_t *pids; /* by local rank; 0 = not running. Ours to signal until we have waited for it. */
    bool *asked; /* by local rank: it still ran when the agent signalled it */
    struct beat_known *known;      /* by local rank: the last report to the store of its process, */
    struct beat_step *steps;       /* ... and of its steps */
    struct rank_pages pages;       /* where those write that use libddp */
    struct file_timer *file_timer; /* NULL = not asked for */
    struct evidence *evidence;     /* NULL = none is taken */
    struct list dumps;             /* of stacks, under way */
    struct node_sample sample;
    bool holds;    /* effects wait until the sample is taken */
    bool reap;     /* children have ended, or may have */
    bool alone;    /* no child is left */
    bool resting;  /* the whole job is stopped for a while */
    bool prepared; /* the first attempt is ready before its round */
    uint64_t attempt_started_ms;
    struct failure cause;    /* of the attempt, as the store reports it; `why` "" = no report */
    int64_t step, best_step; /* with the verdict: how far the attempt came, and all of them; -1 = not told */
    struct buf failed;       /* array of struct failed_attempt */
    char left_subject[FINDING_SUBJECT_MAX]; /* "rank 0 (n1, pid 7)", which left_waiting is about */
    char left_waiting[FINDING_TEXT_MAX];    /* the rank that left while others waited for it; "" = none */
    enum finding_code left_code;            /* ... and how: RANK_EXITED_EARLY, INIT_ABANDONED */
    struct stuck stuck[STUCK_MAX];          /* what cannot be killed, for the report */
    size_t n_stuck;
};

/* The output and input of workers, and messages to the user. */
struct node_output {
    struct output *output;
    struct input *input;
    struct announce announce;
    uv_timer_t status_timer;
    bool status_asked;           /* by the user, who still waits for it */
    bool kept_flights;           /* some of this attempt's records are in files */
    bool finishing;              /* only output is left, then the report */
    uint64_t unread_deadline_ms; /* when output that is not read is dropped, after the user's stop */
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
    uv_timer_cb on_timer; /* node_on_timer: effects.c, below it, cannot name it */
    uv_idle_t more;       /* runs while effects are left, or children that have ended */
    bool ended;           /* handles are closing */

    uv_poll_t lifeline, signals; /* of the two descriptors that follow */
    int lifeline_fd, signal_fd;
    pid_t guardian;
    struct stop_memory stop_memory, pass_memory;
    struct signal_heard stop_heard; /* the user's first request to stop, if agent_stop_signal is not 0 */

    struct buf effects; /* array of struct agent_effect, carried out up to `done` */
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

/* --- effects.c --- */

/* Ask the core. Its effects wait for the next node_pump(). */
void node_feed(struct node *n, struct agent_event event);

/* The store is being asked: when it has not answered by --timeout (60 s without), it counts as lost. */
void node_expect_answer(struct node *n);

/* It has answered: nothing is expected of it. */
void node_expect_nothing(struct node *n);

/* Close every handle; the loop then ends by itself, and the exit code is ddprun's. */
void node_finish(struct node *n, int exit_code);

/* Finish without the output that is not read, because the user has asked to stop. */
void node_leave_output(struct node *n);

/* Without an epoll set only the order of ends is unknown. */
void exits_open(struct exits *x);
void exits_close(struct exits *x);

/* Carry out some effects; the loop comes back for the others. */
void node_pump(struct node *n);

/* torchrun's file timer, if it is enabled; node_finish() closes it. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* Before each join: hold a port for a store that rank 0 may host here, if our workers need such a one. A new one each time: what
 * is left of the last attempt cannot reach it. */
void node_offer_port(struct node *n);

/* Print why the program of this node cannot be started, `error` of spawner_find(), and what helps. */
void node_say_not_started(const struct node *n, int error);

/* --- flight_pages.c --- */

/* The attempt has failed, or is stopped: the records of those ranks that could not write them themselves. */
void node_keep_flights(struct node *n);

/* --- stack_dump.c --- */

struct stack_request {
    const struct rank_set *ranks; /* borrowed for the call; NULL = all of this node */
    bool is_native;               /* with frames of C and C++ */
    bool is_failure;              /* the stop of the survivors waits for it, STACKS_FAILURE_MS at most */
    int64_t id;                   /* the caller's */
    /* Called once, perhaps within node_dump_stacks. The callee may take stacks->rows and leave NULL. */
    void (*done)(struct node *n, struct stacks *stacks, const struct stack_request *request);
};

/* Find out where the threads of workers and their children are. False: not now, `done` is not called. */
bool node_dump_stacks(struct node *n, const struct stack_request *request);

/* A child was waited for that is no worker. */
void node_helper_ended(struct node *n, pid_t pid, int status);

/* End all dumps with what they have. */
void node_end_dumps(struct node *n);

/* ... and free them. */
void node_close_dumps(struct node *n);

/* At the begin of an attempt, and with each heartbeat: can py-spy read something here? */
void node_begin_samples(struct node *n);
void node_look_for_python(struct node *n);

/* Keep what the last heartbeat has seen of the workers, and make rows of it when there is time. */
void node_keep_beats(struct node *n);
void node_explain_beats(struct node *n);

/* --- store_events.c --- */

/* The messages of the store; for store_link_options. */
extern const struct store_link_calls node_store_calls;

/* The shell's part of an attempt's begin: ranks, containment, log files, fresh lines. */
ddp_status node_begin_attempt(struct node *n, const struct plan_round *round, struct ddp_err *err);

/* Begin the attempt that was prepared, once its round is known. */
void node_begin_prepared(struct node *n);

/* There will be no store: before the first round it is the end, later the core decides. */
void node_on_lost(void *user, const char *why);

/* --- signals.c --- */

/* Begin to listen to signals and to the guardian's end of the lifeline; node_finish() ends it. False: no descriptor
 * (errno); nothing is open then. */
bool node_watch_signals(struct node *n, int lifeline, uv_poll_cb on_lifeline);

/* Do what the signal is for; the guardian passes on those that it gets. */
void node_signal(struct node *n, const struct signal_heard *heard);

/* The store's answer; for store_link_options. */
void node_on_status(void *user, const struct cJSON *answer);

#endif
