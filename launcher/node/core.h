/* core.h -- private to launcher/node: the agent process around the state machine of agent.h.
 *
 * A callback turns what happened into an event and calls node_feed(); that asks the agent and queues its effects;
 * node_pump() carries them out, some at a time. Each file calls only those below it:
 *
 *     node.c           opens, runs and frees; the way into the job; time
 *     signals.c        signals of the user, the death of the guardian
 *     store_events.c   messages and questions of the store
 *     effects.c        asks the agent and carries out its effects; children that have ended; the timer; the end
 *     flight_pages.c   the last calls of ranks
 *     stack_dump.c     where the threads of ranks are */
#ifndef LAUNCHER_NODE_CORE_H
#define LAUNCHER_NODE_CORE_H

#include "agent/agent.h"
#include "agent/progress.h"
#include "base/list.h"
#include "record/flight.h"
#include "record/rank_set.h"
#include "record/stacks.h"
#include "contain/descendants.h"
#include "net/dial.h"
#include "net/peer_lookup.h"
#include "net/store_host.h"
#include "net/store_link.h"
#include "node/heartbeat.h"
#include "node/file_timer.h"
#include "node/spawn.h"
#include "output/output.h"
#include "report/evidence.h"
#include "report/user_messages.h"
#include "tables/signals.h"

/* The store, the connection to it and its messages: the nodes of the round, the next attempt, the reason for its
 * loss. */
struct node_meeting {
    struct store_server *store; /* NULL = another node or a daemon hosts it */
    struct store_host *host;    /* while this node decides where the store is, */
    struct join_dial *dial;     /* ... and while it dials the store */
    struct store_link *link;
    int held_port; /* the socket of the port that is offered to rank 0; -1 = none */
    char port_note[NOTE_MAX];
    uv_timer_t port_timer;        /* when to check `held_port` next */
    struct heard_round *round;    /* of the current or last round; NULL before the first */
    struct heard_waiting waiting; /* the last message of this kind */
    uv_timer_t waiting_timer;
    uint64_t waiting_heard_ms;
    bool waiting_due, waiting_said;  /* a line about a change is due; a line was printed */
    bool waiting_asked;              /* nodes whose end this node waits for, */
    char unfinished[HEARD_LIST_MAX]; /* ... and the answer */
    int missing;                     /* errno if the program does not exist here, 0 = it does */
    uv_timer_t missing_timer;
    bool refused;                         /* given by the store */
    struct secret *secret;                /* owned; NULL = none */
    struct vouch vouch;                   /* connections that the store asked about */
    uv_timer_t vouch_timer;               /* when to walk for them next */
    uint64_t whose_ms;                    /* until when the budget for finding others' sockets is used up */
    char first_cause[LIMIT_WORDS / 2];    /* why the nodes did not all join; "" = not reported */
    int next_attempt;                     /* set by the verdict */
    uint64_t store_deadline_ms;           /* id of the answer that is expected */
    char store_lost[FINDING_TEXT_MAX];    /* reason of the loss; "" = not lost */
    struct finding store_finding;         /* its code if this node is the cause; FINDING_NONE = it is not */
    char store_node[HEARD_NAME_MAX + 32]; /* " on node 0 (n0)", the host of the lost store; "" = not known */
};

/* The order in which workers ended. waitpid returns children in the order of their start. When two fail
 * within one turn of a busy loop, that would make the lower rank the first failure. */
struct exits {
    int epoll; /* one pidfd for each living worker; -1 = not supported, or no descriptor was left */
};

/* Where the survivors of this attempt's failure were. */
struct node_sample {
    bool by_py_spy;                /* Python runs, and py-spy is here: the stop waits for it */
    bool is_taken;                 /* `beats_seen` has it */
    unsigned beats;                /* of this attempt, up to now */
    struct beat_known *beats_seen; /* by local rank: what the last heartbeat saw; pid 0 = it had ended */
    struct cJSON *stacks;          /* owned: rows of record/stacks.h; NULL = none */
};

/* The memory that this node shares with its workers: a page of record/flight.h for each, in an unnamed memory file.
 * Created anew for each attempt, so that a process of an old attempt cannot write into it. Zeroed: no pages. */
struct rank_pages {
    int n, fd; /* descriptor, if n > 0 */
    void *base;
};

/* The workers of an attempt, and how it ended. */
struct node_run {
    struct contain *contain; /* borrowed */
    struct spawner spawner;
    struct exits exits;
    pid_t *pids; /* by local rank; 0 = not running. May be signalled until we have waited for it. */
    bool *asked; /* by local rank: it still ran when the agent signalled it */
    struct beat_known *known;      /* by local rank: the last report to the store about its process, */
    struct beat_step *steps;       /* ... and about its steps */
    struct rank_pages pages;       /* pages of the workers that use libddp */
    struct file_timer *file_timer; /* NULL = not requested */
    struct evidence *evidence;     /* NULL = no input */
    struct list dumps;             /* of stacks, in progress */
    struct node_sample sample;
    bool holds;    /* effects wait until the sample is taken */
    bool reap;     /* children have ended, or may have ended */
    bool alone;    /* no child is left */
    bool resting;  /* the whole job is stopped for a while */
    bool prepared; /* the first attempt is prepared before its round */
    uint64_t attempt_started_ms;
    struct failure cause; /* of the attempt, as the store reports it; `why` "" = no report */
    int64_t step,
        best_step; /* with the verdict: steps of this attempt, and the most of any attempt; -1 = not reported */
    struct buf failed;                      /* array of struct failed_attempt */
    char left_subject[FINDING_SUBJECT_MAX]; /* "rank 0 (n1, pid 7)", the subject of left_waiting */
    char left_waiting[FINDING_TEXT_MAX];    /* the rank that left while others waited for it; "" = none */
    struct finding hang;                    /* the store's verdict on this attempt; FINDING_NONE = none */
    enum finding_code left_code;            /* ... and how: see struct left_early */
    struct stuck stuck[STUCK_MAX];          /* processes that cannot be killed, for the report */
    size_t n_stuck;
};

/* The output and input of workers, and messages to the user. */
struct node_output {
    struct output *output;
    struct input *input;
    struct announce announce;
    struct progress progress; /* by what the workers print */
    regex_t progress_regex;   /* --progress; valid while progress.regex points to it */
    uint64_t moved_ms;        /* the sign of progress that the store knows; 0 = none */
    uv_timer_t status_timer;
    bool status_asked;           /* requested by the user, who still waits for it */
    bool kept_flights;           /* some of this attempt's records are in files */
    bool finishing;              /* only output is left to write, then the report */
    uint64_t unread_deadline_ms; /* when to drop unread output after the user's stop */
};

/* One node's life. The handles are members and closed together by node_finish(), their only owner. */
struct node {
    struct plan *plan;
    uint64_t started_ms;
    struct agent *agent;
    struct node_meeting meet;
    struct node_run run;
    struct node_output out;

    uv_loop_t loop;
    uv_timer_t timer;     /* the agent's deadline, or the store's */
    uint64_t due_ms;      /* the time it waits for */
    bool caught_up;       /* it fired much too late; everything missed has been processed */
    uv_timer_cb on_timer; /* node_on_timer: effects.c, which is below it, cannot name it */
    uv_idle_t more;       /* runs while effects are queued or ended children wait */
    bool ended;           /* handles are closing */

    uv_poll_t lifeline, signals; /* of the next two descriptors */
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

/* True if something other than a worker of this node ended the attempt. */
static inline bool node_cause_is_elsewhere(const struct node *n)
{
    return n->run.cause.why[0] != '\0' && n->run.cause.node_rank != n->plan->node_rank;
}

/* --- effects.c --- */

/* Pass an event to the agent. Its effects wait for the next node_pump(). */
void node_feed(struct node *n, struct agent_event event);

/* A question to the store was sent: without an answer by --timeout (60 s without) the store counts as lost. */
void node_expect_answer(struct node *n);

/* The store has answered: no answer is expected now. */
void node_expect_nothing(struct node *n);

/* Close every handle; the loop then ends by itself, and the exit code is ddprun's. */
void node_finish(struct node *n, int exit_code);

/* Finish without waiting for unread output, because the user has asked to stop. */
void node_leave_output(struct node *n);

/* Without an epoll set only the order of the ends is unknown. */
void exits_open(struct exits *x);
void exits_close(struct exits *x);

/* Carry out some effects; the loop calls it again for the rest. */
void node_pump(struct node *n);

/* torchrun's file timer, if it is enabled; node_finish() closes it. */
ddp_status node_open_timers(struct node *n, struct ddp_err *err);

/* Call before each join: hold a port for a store that rank 0 may host here, if our workers need one. A new port each
 * time, so that leftovers of the last attempt cannot reach it. */
void node_offer_port(struct node *n);

/* Print why the program of this node cannot be started, `error` of spawner_find(), and the remedy. */
void node_say_not_started(const struct node *n, int error);

/* --- flight_pages.c --- */

/* Without memory or descriptors no page exists, and workers run without one. */
void rank_pages_open(struct rank_pages *pages, int n);
void rank_pages_close(struct rank_pages *pages);

/* Address of worker 0's page; pid 0 without pages. */
struct flight_page rank_pages_first(const struct rank_pages *pages);

/* The records of worker `i` so far; NULL before its first one, or without pages. */
const struct flight *rank_page(const struct rank_pages *pages, int i);

/* The attempt has failed, or is stopped: write the records of the ranks that could not write them themselves. */
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

/* Callbacks for the messages of the store; for store_link_options. */
extern const struct store_link_calls node_store_calls;

/* The shell's part of an attempt's start: ranks, containment, log files, fresh lines. */
ddp_status node_begin_attempt(struct node *n, const struct plan_round *round, struct ddp_err *err);

/* Begin the attempt that was prepared, once its round is known. */
void node_begin_prepared(struct node *n);

/* There will be no store: before the first round this is the end; later the agent decides. */
void node_on_lost(void *user, const char *why);

/* --- signals.c --- */

/* Begin to receive signals and the end of the guardian's lifeline; node_finish() ends it. False: no descriptor
 * (errno), and nothing is open. */
bool node_watch_signals(struct node *n, int lifeline, uv_poll_cb on_lifeline);

/* Carry out the action of a signal; the guardian passes on those that it gets. */
void node_signal(struct node *n, const struct signal_heard *heard);

/* Handle the store's answer; for store_link_options. */
void node_on_status(void *user, const struct cJSON *answer);

#endif
