/* agent.h -- the life of one node: join the job, start the workers, watch them, stop them, receive the verdict, end.
 * This module only decides: agent_step receives an event and returns effects, which the shell (launcher/node/effects.c)
 * carries out. The agent uses no process, clock, signal or socket, so a test can simulate a grace period of 30 s
 * without waiting. */
#ifndef LAUNCHER_AGENT_AGENT_H
#define LAUNCHER_AGENT_AGENT_H

#include "record/failure.h"
#include "base/exit_codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The states of a node. The comments use three terms. An attempt is the life of all workers of a round, from the first
 * start until no process of the attempt is left. The leftovers are processes that the workers have started and that
 * outlive the workers. A worker loses a peer if its connection to another rank breaks, usually because the process of
 * that rank ends.
 *
 * A stop has these steps:
 *   - Send the workers a signal (SIGTERM, or the signal that the user sent). Then send SIGCONT, because a suspended
 *     process handles no signal until it continues.
 *   - After the grace period, send SIGKILL.
 *   - When the workers are gone, repeat both steps for the leftovers, always with SIGTERM. Their grace period is at
 *     most AGENT_SWEEP_MS. If the workers got SIGKILL, send the leftovers SIGKILL at once.
 *   - Wait at most AGENT_UNKILLABLE_MS after SIGKILL. A process that still runs then is listed in the report. */
enum agent_state {
    AGENT_GATHERING, /* this node has joined, and waits for the other nodes; no worker runs */
    AGENT_RUNNING,   /* workers run or are being started */
    /* a worker lost its peer, or ended by an import error; no worker is stopped yet */
    AGENT_SETTLING,
    AGENT_STOPPING, /* SIGTERM or the user's signal was sent; the grace period runs */
    AGENT_KILLING,  /* SIGKILL was sent */
    AGENT_SWEEPING, /* all workers have ended; the leftovers are being stopped */
    AGENT_DRAINING, /* a failed attempt has no process left; its last output is being read */
    /* all workers of this node ended with exit code 0; waiting for workers of other nodes */
    AGENT_WAIT_PEERS,
    AGENT_WAIT_VERDICT, /* the end of the attempt was reported; waiting for the verdict */
    AGENT_BACKING_OFF,  /* waiting for the next round to begin */
    AGENT_DONE,         /* EFFECT_FINISH was emitted; all further events are ignored */
    AGENT_STATES
};

/* The agent alone decides about the processes of its node. The store decides for all nodes: which nodes are members,
 * whether the job restarts, and the exit code of the job. The store sends each node a round (AGENT_START), a stop
 * (AGENT_NOTIFIED) and a verdict (AGENT_VERDICT). A job of one node has a store, too. */
enum agent_event_type {
    AGENT_START,        /* a round has begun with attempt `attempt`, and the node is ready to start workers */
    AGENT_SPAWNED,      /* worker `local_rank` runs as `pid` */
    AGENT_SPAWN_FAILED, /* worker `local_rank` could not be started; `error` is the errno */
    /* worker `local_rank` has ended with `exit_code`, or by `signal` if it is not 0 */
    AGENT_EXITED,
    AGENT_STOP, /* the user requests a stop (`signal`); the first request is graceful, the second immediate */
    AGENT_ALONE,   /* answer to EFFECT_SIGNAL_REST: no descendant of this process is left */
    AGENT_DRAINED, /* answer to EFFECT_DRAIN: the last output of the attempt was read */
    /* from the store: this node must stop its workers. Another node has failed, is lost or was stopped by the user, or
     * the job hangs, or the job restarts with more nodes (`exit_code` is then 0) */
    AGENT_NOTIFIED,
    AGENT_ACKNOWLEDGED, /* the store has received this node's failure and stops the job */
    AGENT_VERDICT,      /* all nodes have reported, and the store sends `verdict` */
    AGENT_STORE_LOST,   /* the store is lost: no message will follow */
    /* this node cannot start the next round, because the preparation has failed (for example, the log files cannot be
     * created), or because the store has rejected this node */
    AGENT_NOT_READY,
    AGENT_TICK, /* the clock has reached the time that agent_deadline() returned */
    AGENT_EVENTS
};

/* The decision of the store, the same for every node. */
struct agent_verdict {
    bool restart;
    uint64_t backoff_ms;                  /* time to wait before this node joins the next round */
    enum no_restart no_restart;           /* why no restart follows */
    int exit_first, exit_max, exit_rank0; /* exit codes of the job for --exit_code=first, max and rank0 */
    /* signal with which the user stopped a node, if this stop ended the round; 0 if the round ended for another
     * reason */
    int stop_signal;
};

struct agent_event {
    enum agent_event_type type;
    uint64_t now_ms; /* time of the event, monotonic, in ms; the agent reads no other clock */
    int local_rank;  /* for AGENT_SPAWNED, _SPAWN_FAILED, _EXITED, and AGENT_TICK with `dying`: the worker */
    int pid;
    int exit_code; /* exit code of the worker; for AGENT_NOTIFIED: exit code of the job */
    /* AGENT_EXITED: signal that ended the worker, or 0. AGENT_STOP: the user's signal. AGENT_NOTIFIED: signal with
     * which the user has stopped the whole job, or 0. */
    int signal;
    /* for AGENT_EXITED: the worker ended before ddprun sent it a signal */
    bool unasked;
    bool lost_peer; /* for AGENT_EXITED: the worker's output reports a lost peer */
    /* for AGENT_EXITED: hash of the import error that ended the worker; 0: another reason */
    uint64_t import_error;
    int error;   /* for AGENT_SPAWN_FAILED: the errno of the failed start */
    bool dying;  /* for AGENT_TICK: the kernel is still cleaning up worker `local_rank` */
    int attempt; /* for AGENT_START: number of the attempt, from 0 */
    bool hosts;  /* for AGENT_START: this process hosts the store, and must outlive the other nodes */
    struct agent_verdict verdict;
};

/* Workers are started one at a time: after AGENT_SPAWNED the agent starts the next worker. Once a start has failed, or
 * a worker has failed or lost a peer, the agent starts no more workers.
 *
 * The agent reports the attempt's first failure to the store at once. When the last output was read, the agent reports
 * the attempt's end. The store then sends the verdict. */
enum agent_effect_type {
    /* start worker `local_rank`; the answer is AGENT_SPAWNED or AGENT_SPAWN_FAILED */
    EFFECT_SPAWN,
    EFFECT_SAMPLE, /* record the stacks of the workers after a failure, before the agent stops the workers */
    EFFECT_SIGNAL, /* send `signal` to the process group of worker `local_rank` */
    /* send `signal` to all remaining descendants; answer with AGENT_ALONE once none is left */
    EFFECT_SIGNAL_REST,
    /* report to the store, before any other message, that the attempt has failed on this node; agent_first_failure()
     * returns the rank that failed */
    EFFECT_REPORT_FAILED,
    /* report to the store: worker `local_rank` has ended, so barriers that need this rank must fail */
    EFFECT_REPORT_EXITED,
    EFFECT_DRAIN,          /* read the rest of the output, then send AGENT_DRAINED */
    EFFECT_REPORT_CAUSE,   /* report to the store all facts about the first failure */
    EFFECT_REPORT_STOPPED, /* report to the store: no process of this attempt is left on this node */
    EFFECT_REPORT_DONE,    /* report: every worker of this node ended with exit code 0 */
    /* report: this node leaves the job, after the user's stop or AGENT_NOT_READY */
    EFFECT_LEAVE,
    /* print: other workers have lost worker `local_rank`, and the kernel is still cleaning up this worker */
    EFFECT_PRINT_DYING,
    /* print: this node waits for the other nodes to end, or has stopped waiting for them */
    EFFECT_PRINT_WAITING,
    EFFECT_PRINT_RESTART, /* print: the attempt is over, the next attempt begins in agent_backoff() ms */
    EFFECT_JOIN,          /* join the next round; the answer is AGENT_START or AGENT_NOT_READY */
    /* end: read the rest of the output, print the report, exit with `exit_code` */
    EFFECT_FINISH,
};

struct agent_effect {
    enum agent_effect_type type;
    int local_rank; /* worker of the effect; -1 if the effect is not about one worker */
    int signal;     /* signal to send, for EFFECT_SIGNAL and EFFECT_SIGNAL_REST */
    int exit_code;  /* exit code of ddprun, for EFFECT_FINISH */
};

/* The state of a worker. If the worker has ended, the state shows how the end of the worker counts for the job. */
enum worker_verdict {
    WORKER_PENDING,     /* not started */
    WORKER_ALIVE,       /* still runs, or has survived SIGKILL at the end of the job */
    WORKER_OK,          /* ended with exit code 0, even if ddprun had sent a signal before */
    WORKER_FAILED,      /* failed by itself */
    WORKER_NOT_STARTED, /* could not be executed, see `error` */
    WORKER_CONSEQUENCE, /* ended because ddprun stopped the worker */
    WORKER_VICTIM, /* ended by itself because it lost a peer, according to its exit code (DDP_EXIT_PEER_LOST) or its
                    * output */
};

struct agent_worker {
    enum worker_verdict verdict;
    /* process id of the worker, from AGENT_SPAWNED; 0 if the worker was not started */
    int pid;
    int exit_code, signal, error;  /* how the worker ended; `signal` or `error` is 0 if it does not apply */
    uint64_t started_ms, ended_ms; /* times of start and end, by the clock of agent_event.now_ms */
    uint64_t import_error;         /* from AGENT_EXITED: hash of the import error; 0 if none */
    /* true if the agent emitted EFFECT_SIGNAL for this worker before the worker ended; false if the worker ended before
     * the signal was sent (agent_event.unasked) */
    bool stop_requested;
};

enum {
    /* longest grace period of leftovers (processes that outlive the workers); if grace_ms is shorter,
     * grace_ms applies */
    AGENT_SWEEP_MS = 5000,
    /* how long to wait after SIGKILL; a process that survives longer hangs in the kernel */
    AGENT_UNKILLABLE_MS = 1500,
    /* time until SIGKILL is sent to the leftovers again, because they may still fork */
    AGENT_RESCAN_MS = 20,
    /* default of settle_ms: how long to wait for a peer to end after a worker has lost the connection to this peer.
     * This time is also the longest wait for another worker with the same import error */
    AGENT_DOUBT_MS = 1000,
    /* how much longer to wait while the kernel writes the core file of a lost peer or frees the peer's memory */
    AGENT_DYING_MS = 30000,
    AGENT_CHECK_MS = 100, /* time between two checks of a lost peer */
    /* if a worker ran longer than this time, the agent does not treat its end as a usage error or an import error */
    AGENT_USAGE_MS = 5000,
    AGENT_SAME_MS = 100,    /* minimum time to wait for another worker with the same import error */
    AGENT_LEAVE_MS = 2000,  /* how long to wait for the verdict after a stop by the user */
    AGENT_SILENT_MS = 5000, /* after this time ddprun prints that it waits for other nodes */
};

struct agent_options {
    int nproc;         /* workers of this node, at least 1 */
    uint64_t grace_ms; /* grace period: time between SIGTERM and SIGKILL */
    /* how long to wait, after a worker has lost a peer, until the peer ends or the peer's node is reported lost;
     * 0 means AGENT_DOUBT_MS */
    uint64_t settle_ms;
    /* how long to wait for the other nodes after all workers of this node ended with exit code 0 */
    uint64_t wait_peers_ms;
    enum exit_policy exit_policy;
    int max_restarts; /* used only to explain why no restart followed; the store counts the restarts */
    bool alone;       /* the job has one node, so the success of this node is the success of the job */
};

struct agent;

/* Return a new agent, or NULL if memory is short. The caller owns the agent. */
struct agent *agent_new(const struct agent_options *options);
void agent_free(struct agent *agent);

/* Process one event. Return its effects, and store their number in *n. The effects are borrowed until the next step.
 * The whole state machine is the table in agent.c. */
const struct agent_effect *agent_step(struct agent *agent, const struct agent_event *event, size_t *n);

/* Return the time at which to send AGENT_TICK, by the clock of agent_event.now_ms, or UINT64_MAX if never. */
uint64_t agent_deadline(const struct agent *agent);

enum agent_state agent_state(const struct agent *agent);
/* Return the worker with this local rank. The agent owns the worker, and the next step may change it. */
const struct agent_worker *agent_worker(const struct agent *agent, int local_rank);

/* Return the local rank of the first failure, or -1 without a failure. */
int agent_first_failure(const struct agent *agent);

/* Return the signal of the first stop request, or 0 without a request. The user may have stopped another node: the
 * store then sends the signal. */
int agent_stop_signal(const struct agent *agent);

/* Return the number of the running or latest attempt. The first attempt is 0. */
int agent_attempt(const struct agent *agent);
int agent_max_restarts(const struct agent *agent);
enum exit_policy agent_exit_policy(const struct agent *agent);

/* Return how long to wait before the next round, in ms. */
uint64_t agent_backoff(const struct agent *agent);

/* Return why no further attempt followed. Return NO_RESTART_NONE if no worker failed, or if no restarts were
 * allowed. */
enum no_restart agent_no_restart(const struct agent *agent);

/* Return why another attempt would fail in the same way as this attempt: NO_RESTART_CANNOT_START, NO_RESTART_USAGE or
 * NO_RESTART_IMPORT. The number of restarts that are left has no effect on the result. Return NO_RESTART_NONE if no
 * worker of this node failed, or if another attempt may succeed. NO_RESTART_IMPORT is returned only after all started
 * workers have ended. */
enum no_restart agent_never_again(const struct agent *agent);

/* Return the highest exit code of this node's workers. Ignore workers that ddprun stopped. Return 0 if ddprun stopped
 * all workers. */
int agent_max_code(const struct agent *agent);

/* Return the exit code of the worker with local rank 0, or -1 if this worker was stopped by ddprun or if
 * ddprun never tried to start this worker. */
int agent_rank0_code(const struct agent *agent);

/* Return true if the store was lost before it reported the end of the job. */
bool agent_lost_store(const struct agent *agent);

/* Return true if this node has waited long enough for the other nodes, and stays only because it hosts the store. */
bool agent_overstays(const struct agent *agent);

/* Return true if a process could not be killed. */
bool agent_is_stuck(const struct agent *agent);

/* Return ddprun's exit code. The first matching row applies:
 *   124       a process could not be killed
 *   125       a host of --hosts was lost
 *   0         --exit_code=workers, the user stopped the job before any failure, and all workers here exited with 0
 *   verdict   the store sent a verdict: its exit_first, exit_max or exit_rank0, as --exit_code selects. Exception: if
 *             exit_first is 0 and the user stopped the job with signal n, the code is 128 + n.
 *   peer      no verdict arrived, but the store reported another node's failure: the exit code in this report
 *   128 + n   the user stopped the job with signal n before a worker failed
 *   125       this node could not begin the next round, and no worker has failed
 *   123       the store was lost before it confirmed a failure of this node. A failure that the store has not confirmed
 *             does not count, because the loss may have caused the failure, and all nodes must exit with the same code.
 *             Exception: the first worker that failed could not be started.
 *   policy    a worker of this node failed, and no row above applies. --exit_code selects the code:
 *             `first`: the code of the first failure.
 *             `max`: the highest code of all workers that failed by themselves.
 *             `rank0`: the code of local rank 0, or the code of the first failure if local rank 0 was stopped by
 *             ddprun, or if ddprun never tried to start it.
 * The code of a worker is its exit code, or 128 + n after signal n. The code is 126 if the program cannot be run, and
 * 127 if the program was not found. */
int agent_exit_code(const struct agent *agent);

/* Record that a host of --hosts was lost. ddprun then exits with 125, or with 124 if a process could not be killed. */
void agent_lose_host(struct agent *agent);

/* Return the worker's exit code, or 128 + n after signal n. Return 126 if the program cannot be run, and 127 if the
 * program was not found. A shell reports the same codes. */
int ending_code(const struct agent_worker *worker);

#endif
