/* node.h -- private to launcher/node: the agent process around the state machine of agent.h. One thread runs the event
 * loop and all these functions; the threads of timed_call.h never touch struct node. */
#ifndef LAUNCHER_NODE_NODE_H
#define LAUNCHER_NODE_NODE_H

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
#include "net/tls_relay.h"
#include "node/heartbeat.h"
#include "node/file_timer.h"
#include "node/guardian.h"
#include "node/spawn.h"
#include "output/output.h"
#include "report/evidence.h"
#include "report/host_checks.h"
#include "report/user_messages.h"
#include "tables/signals.h"

/* The connection of this node to the job: the store, the link to the store, and facts from the store's messages. */
struct node_meeting {
    /* Owned: the store in this process, stopped in close_node(). NULL if another node or a daemon hosts the store. */
    struct store_server *store;
    /* Owned: the search for the host of the store. NULL if no search was needed, or if the search ended at once. */
    struct store_host *host;
    struct join_dial *dial; /* owned: connects to the store, or connects again; NULL if no dial runs */
    /* this node should host the store but cannot */
    bool should_host;
    /* Owned; NULL if not needed. If this node cannot host the store, this small server sends the reason to the other
     * nodes and rejects them. Otherwise they would wait until their timeout. */
    struct refusing_store *refusing;
    uv_timer_t refusing_timer;  /* starts the next check whether every other node was rejected */
    uint64_t refusing_since_ms; /* when `refusing` was started */
    uint64_t refusing_until_ms; /* time of exit, even if some nodes were not rejected yet */

    struct store_link *link;      /* owned; NULL before the connection and after the last verdict */
    uint64_t join_until_ms;       /* when --timeout ends; 0 if this node has not dialled the store */
    int stuck_bytes, stuck_times; /* copied from link_fate if a connection lost large segments; otherwise 0 */
    /* large segments are lost on the path to the store, so the next connection uses small ones */
    bool has_small_segments;
    bool path_reported;  /* FINDING_PATH_LOSES_LARGE was sent to the store */
    uint64_t broken_ms;  /* when the connection to the store broke or became silent; else 0 */
    bool break_reported; /* the user was warned that the connection is broken */
    /* Number of new connections since `broken_ms` that do not work yet. Before the first round: number of connections
     * that ended before the store had answered IDENTIFY. If the number is above 0, a dial begins with a pause. */
    unsigned n_resumes;

    int held_port;                /* socket that holds a port for the store of rank 0, or -1 */
    char port_note[NOTE_MAX];     /* message that a free port replaces a port in use; "" otherwise */
    uv_timer_t port_timer;        /* starts the next check of `held_port` */
    struct heard_round *round;    /* owned; the latest round that has begun; NULL before the first round */
    struct heard_waiting waiting; /* the store's latest message "waiting": which nodes have joined */
    uint64_t waiting_received_ms; /* when the message in `waiting` arrived */
    uv_timer_t waiting_timer;     /* fires when the next line about missing nodes is due */
    bool announced;               /* announce_job() was called, in this node's first round */
    bool waiting_due;             /* `waiting_timer` will print a line */
    bool waiting_printed; /* a line was printed in this wait, so later lines are printed only for changes */
    bool waiting_asked;   /* the store was asked which nodes have not ended */
    char unfinished[HEARD_LIST_MAX]; /* the store's answer: the nodes that have not ended */
    int missing;                     /* errno if the workers' program is not usable, else 0 */
    uv_timer_t missing_timer;        /* if the program is not usable: limits the wait for a round */
    bool refused;                    /* the store has rejected this node */

    struct tls_context *tls;   /* owned; NULL if this node does not encrypt */
    struct tls_relay *relay;   /* carries the workers' store traffic; NULL if the workers connect directly */
    struct peer_lookup lookup; /* questions of the store about owners of connections */
    uv_timer_t lookup_timer;   /* fires when the next search for owners of connections is due */
    /* A point in time that limits how long find_holder searches /proc. Each search moves this point by 10 times the
     * duration of the search. If the point is more than 5 s in the future, find_holder starts no search. */
    uint64_t whose_ms;

    /* A finding of the store that explains why nodes are missing; "" without such a finding. */
    char first_cause[LIMIT_WORDS / 2];
    enum finding_code first_cause_code;
    bool has_news_socket; /* this process was started by --hosts, and the relay of --hosts carries findings */
    bool has_sent_news;   /* this node has sent a finding to the other hosts, and has not withdrawn it */
    uv_poll_t news_poll;
    /* latest finding that another host has sent about itself; `host` is "" without such a finding */
    struct news news;

    int next_attempt;                  /* number of the next attempt, from the verdict */
    uint64_t store_deadline_ms;        /* deadline of the store's answer; UINT64_MAX if no answer is due */
    char store_lost[FINDING_TEXT_MAX]; /* why the store was lost; "" if it is not lost */
    uint64_t store_lost_ms;            /* when the store was lost */
    /* why this node itself caused the loss of the store; FINDING_NONE if it did not */
    struct finding store_finding;
    char store_node[HEARD_NAME_MAX + 32]; /* host of the lost store, as " on node 0 (n0)"; "" if unknown */
};

/* The order in which workers ended. If several workers fail at almost the same time, the worker that ended first is
 * the first failure. waitpid does not report this order. */
struct exits {
    /* epoll set with one pidfd for each living worker; -1 if not supported or no descriptor was left */
    int epoll;
};

/* The stacks of the surviving workers at the time of a failure, and whether a py-spy was found. */
struct node_sample {
    bool is_python;  /* a worker, or a descendant of a worker, runs Python */
    bool has_py_spy; /* the last search has found a py-spy */
    /* why py-spy cannot be used; NULL if it can be used, or before the first result */
    const char *no_py_spy;
    struct timed_call *search;      /* a thread that looks for py-spy; NULL if no search runs */
    struct py_spy_search *question; /* borrowed from the thread of `search`; NULL if no search runs */
    unsigned beats;                 /* number of heartbeats in this attempt */
    struct cJSON *stacks;           /* owned: rows of record/stacks.h; NULL if no sample was taken */
};

/* The memory that this node shares with its workers: a page of record/flight.h for each worker, in an unnamed memory
 * file. Each attempt has a new file, so that processes of an earlier attempt cannot write into the pages. A zeroed
 * struct has no pages. The struct owns the descriptor and the mapping at `base`; flight_shm_close closes both. */
struct flight_shm {
    int n, fd; /* number of pages, and descriptor of the memory file if `n` > 0 */
    void *base;
};

/* The workers of an attempt, and how they ended. Arrays are owned and have plan->nproc elements. */
struct node_run {
    struct contain *contain; /* borrowed */
    struct spawner spawner;
    struct exits exits;
    pid_t *pids; /* by local rank; 0 if the worker does not run; a pid is not reused before waitpid */
    /* by local rank: signal_worker has sent a signal while the worker still ran */
    bool *asked;
    struct heartbeat_known *known; /* by local rank: the latest process state that the store received */
    struct heartbeat_step *steps;  /* by local rank: the latest position that the store received */
    struct flight_shm pages;       /* pages of the workers that use libddp */
    struct file_timer *file_timer; /* NULL if the file timer is not enabled */
    struct evidence *evidence; /* facts about the ends of workers, for the report; NULL if memory was short */
    struct list dumps;         /* stack dumps in progress; see stack_dump.c */
    struct node_sample sample;
    /* Findings about this node's GPUs, from the check before the start or the latest sample of a suspected hang. */
    struct finding busy_gpus[GPU_FINDINGS_MAX];
    int n_busy_gpus;
    /* The call that asks the GPU driver (check_gpus); NULL if no call runs. While the call runs, it owns
     * `gpu_query`. */
    struct timed_call *gpu_call;
    struct gpu_query *gpu_query;
    uint64_t gpu_query_ms;        /* when `gpu_query` was started */
    struct gpu_answer gpu_answer; /* the driver's answer about the failed worker's GPU */
    bool has_gpu_answer;
    bool holds; /* the queued effects wait for a stack dump, or for `probe` in struct node */
    /* SIGCHLD has arrived, or more children may have ended: the next pass of the loop reaps them */
    bool reap;
    bool alone;   /* this process has no child left */
    bool resting; /* all processes of the job are stopped (SIGSTOP), because the user has suspended the job */
    bool prepared; /* the first attempt was prepared before its round began */
    uint64_t attempt_started_ms;
    /* when the store or the user asked this node to stop the attempt; 0 before that */
    uint64_t stop_asked_ms;
    struct failure cause;    /* cause of the attempt's end; cause.why is "" if unknown */
    int64_t step, best_step; /* highest step of this attempt, and of all attempts; -1 if unknown */
    struct buf failed;       /* array of struct failed_attempt, for the report */

    /* The first finding of this attempt about a rank that left while other ranks waited. */
    char left_subject[FINDING_SUBJECT_MAX]; /* subject of the finding, such as "rank 0 (n1, pid 7)" */
    char left_waiting[FINDING_TEXT_MAX];    /* sentence of the finding; "" if no such finding has arrived */
    enum finding_code left_code;
    struct finding hang;           /* finding about a hang that still lasts, or FINDING_NONE */
    struct stuck stuck[STUCK_MAX]; /* processes that cannot be killed, for the report */
    size_t n_stuck;
};

/* The output and input of workers, and messages to the user. */
struct node_output {
    struct output *output;
    struct input *input;
    struct announce announce;
    struct progress progress; /* signs of progress in the workers' output */
    regex_t progress_regex;   /* compiled from --progress; progress.regex points to this member */
    uint64_t moved_ms;        /* time of the last sign of progress that the store received, or 0 */
    uv_timer_t status_timer;  /* limits the wait for the store's answer to a status request */
    bool status_asked;        /* the user has requested the status, and the answer is not printed yet */
    bool kept_flights;        /* flight records of this attempt were written to files */
    bool finishing;           /* only pending output and the report remain */
    /* after a stop by the user: when to drop output that is not read; UINT64_MAX: no limit */
    uint64_t unread_deadline_ms;
};

/* One node, from start to exit. Only node_finish() closes the handles in this struct. Only close_node() frees the rest,
 * after the loop has ended.
 *
 * A turn is one pass of the event loop. A callback passes an event to node_handle_event(), which calls the agent and
 * queues the effects. node_run_effects() carries out a few effects in each turn. */
struct node {
    /* Borrowed. The secret, addresses, ports and ranks in the plan change in open_node(), in the search for
     * the store and in each round. */
    struct plan *plan;
    uint64_t started_ms; /* start of ddprun, monotonic; the times of events count from this time */
    struct agent *agent; /* owned */
    struct node_meeting meet;
    struct node_run run;
    struct node_output out;

    uv_loop_t loop;
    uv_timer_t timer; /* fires at the earliest deadline: for the agent, the store or a slow output reader */
    uint64_t due_ms;  /* time of the earliest deadline; UINT64_MAX without a deadline */
    /* this process was paused: the loop first handles the messages that arrived during the pause, and checks the
     * deadlines CLOCK_CATCH_UP_MS later */
    bool caught_up;
    uv_timer_cb on_timer; /* node_on_timer; effects.c calls it through this pointer */
    uv_idle_t more;       /* runs while an effect is queued or an ended child is not collected */
    bool ended;           /* the handles are being closed */

    uv_poll_t lifeline, signals; /* poll the descriptors `lifeline_fd` and `signal_fd` */
    int lifeline_fd, signal_fd;
    pid_t guardian;
    /* The latest signal that stops the job, and the latest signal that is passed to the workers. A sender may
     * signal both the guardian and the agent. The agent then gets the signal twice and ignores the second
     * signal. */
    struct stop_memory stop_memory, pass_memory;
    struct received_signal stop_received; /* first request to stop; valid if agent_stop_signal() is not 0 */

    struct buf effects;        /* array of struct agent_effect; the first `done` elements were carried out */
    struct cause_probe *probe; /* owned: probe of the path to a lost peer, or of the GPUs; NULL if none */
    size_t done;
    int exit_code;
};

static inline int node_rank(const struct node *n, int local_rank)
{
    return n->plan->workers[local_rank].rank;
}

/* Return true if the cause of the attempt's end is on another node. */
static inline bool node_cause_is_elsewhere(const struct node *n)
{
    return n->run.cause.why[0] != '\0' && n->run.cause.node_rank != n->plan->node_rank;
}

/* Return true if --hosts ends the job because of a finding about a host. */
static inline bool node_has_lost_host(const struct node *n)
{
    return strcmp(n->run.cause.why, FAILURE_HOST_LOST) == 0;
}

/* The functions of this directory. Each file calls only files that are lower in this list:
 *
 *     node.c           opens, runs and frees the node; joins the job
 *     signals.c        handles signals of the user and the death of the guardian
 *     store_events.c   handles messages and requests of the store
 *     host_news.c      exchanges findings with the hosts of --hosts without the store
 *     effects.c        carries out the agent's effects; collects ended children; ends the node
 *     flight_shm.c     reads the last calls of ranks
 *     stack_dump.c     reads the stacks of the ranks */

/* --- flight_shm.c --- */

/* Create the pages. If memory or descriptors are missing, the workers run without pages. */
void flight_shm_open(struct flight_shm *pages, int n);
void flight_shm_close(struct flight_shm *pages);

/* Return where worker 0's page is, for the variable DDPRUN_FLIGHT_SHM (flight.h). If no pages exist, the result's pid
 * is 0. */
struct flight_page flight_shm_first(const struct flight_shm *pages);

/* Return the page of worker `i`. Return NULL if the worker has no record yet, or if no pages exist. The page is valid
 * until the pages are closed. */
const struct flight *flight_shm_page(const struct flight_shm *pages, int i);

/* Command line of the helper process; see flight_helper_run. */
struct flight_helper {
    char first[16], n[16], age_ms[24];
    char pids[8192]; /* pids of the workers whose connections the helper reports: "71,72" */
    char *argv[FLIGHT_HELPER_WORDS + 1]; /* NULL-terminated; the path of the records belongs to the plan */
};

/* Fill in the command line. Return false if this node has no workers. */
bool flight_helper_words(const struct node *n, int64_t age_ms, struct flight_helper *words);

/* Write the flight record of each rank that has not written its record itself. Call this function after a failure or a
 * stop. */
void node_keep_flights(struct node *n);

/* --- stack_dump.c --- */

struct stack_request {
    const struct rank_set *ranks; /* borrowed for the call; NULL for all ranks of this node */
    bool is_native;               /* add the frames of C and C++ */
    /* this dump follows the failure of a worker: the agent stops the other workers when the dump has ended, but at the
     * latest after STACKS_FAILURE_MS */
    bool is_failure;
    bool with_calls;     /* add the ranks' calls from PyTorch's flight records */
    int64_t still_ms;    /* age limit of flight records in ms; used only if `with_calls` is true */
    int64_t id;          /* for the caller; the dump does not use it */
    struct cJSON *calls; /* owned by the dump: an array of the ranks' calls, or NULL */
    /* The dump calls this function exactly once, perhaps before node_dump_stacks returns. The dump frees stacks->rows
     * after this call. If the callback needs the rows longer, it keeps the pointer and sets stacks->rows to NULL, so
     * that the dump does not free the rows. */
    void (*done)(struct node *n, struct stacks *stacks, const struct stack_request *request);
};

/* Start a dump of the threads of workers and of their children. Return false, without calling `done`, if a dump is
 * not possible now. */
bool node_dump_stacks(struct node *n, const struct stack_request *request);

/* Handle the end of a child that is not a worker: a helper of a dump, or an orphan. `status` is the status of
 * wait4. */
void node_helper_ended(struct node *n, pid_t pid, int status);

/* End all dumps now, with the rows that were collected so far. */
void node_end_dumps(struct node *n);

/* End and free all dumps, even if helpers still run. Call this when no helper can be reaped any more. */
void node_close_dumps(struct node *n);

/* Find out whether stacks can be sampled with py-spy. Call node_begin_samples at the start of an attempt, and
 * node_find_python at each heartbeat. */
void node_begin_samples(struct node *n);
void node_find_python(struct node *n);

/* Add the stacks of the other nodes' ranks to the stacks of this node. The store has sent `rows`, which may be NULL. */
void node_add_survivors(struct node *n, const struct cJSON *rows);

/* --- host_news.c --- */

/* Receive findings from the relay of --hosts, if any. */
void node_open_news(struct node *n);

/* Handle the messages of the relay that have arrived, without waiting for more. */
void node_read_news(struct node *n);

/* Wait a short time for the relay's finding about a lost host. Wait only if this node has lost the store, or if another
 * node is lost. Do not wait if the cause of the end is known. Without --hosts, do not wait either, because no relay
 * exists. */
void node_await_news(struct node *n);

/* Report to the other hosts that this node ends before the job has begun, with the reason in `words`. `code` is the
 * code of a finding, or NULL if the reason is not a finding. */
void node_send_end(struct node *n, const char *code, const char *words);

/* Send to the other hosts the finding that `words` names. The finding explains why this node waits for the store. Send
 * nothing if `words` names no finding. node_send_no_wait withdraws the finding when the wait is over. */
void node_send_wait(struct node *n, const char *words);
void node_send_no_wait(struct node *n);

/* Write the text of the latest finding from `host` into `out`. If `host` is NULL, a finding of any host counts. If no
 * such finding exists, write "" and return false. */
bool node_explain_absence(const struct node *n, const char *host, char *out, size_t size);

/* --- store_events.c --- */

/* Callbacks of the link to the store. */
extern const struct store_link_calls node_store_calls;

/* Handle the end of output_drain() (output_options.idle). */
void node_on_output_idle(void *user);

/* Drop the running query to the GPU driver, if any. The thread of the query may still run. */
void node_drop_gpu_call(struct node *n);

/* Prepare an attempt: ranks, containment and log files. Clear the output of the previous attempt. */
ddp_status node_begin_attempt(struct node *n, const struct plan_round *round, struct ddp_err *err);

/* Begin the prepared attempt if its round is known. */
void node_begin_prepared(struct node *n);

/* Handle the loss of the store, for the reason `why`. Before the first round, ddprun prints the reason and exits.
 * After the first round, the agent decides. */
void node_on_lost(void *user, const char *why);

/* --- signals.c --- */

/* Watch for signals and for the end of the lifeline, until node_finish(). If no descriptor is left, open no handle, and
 * return false with errno set. */
bool node_watch_signals(struct node *n, int lifeline);

/* Handle the store's answer to a status request. */
void node_on_status(void *user, const struct cJSON *answer);

#endif
