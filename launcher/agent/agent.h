/* agent.h -- one node's life: join the job, start the workers, watch them, stop them, get the verdict, end. Decisions
 * only.
 *
 * agent_step takes an event and returns effects; effects.c carries the effects out. It uses no process, clock, signal
 * or socket: a 30-second grace time costs a test nothing. The whole machine is the table in agent.c.
 *
 * The agent decides about its processes alone. The store decides about the job, its members, its restarts and its
 * exit code for all nodes and sends each a round (AGENT_START), a stop (AGENT_TOLD_TO_STOP) and a verdict
 * (AGENT_VERDICT). A job of one node works the same way.
 *
 * Workers are started one at a time: each EFFECT_SPAWN is answered by AGENT_SPAWNED, which
 * starts the next one, or by AGENT_SPAWN_FAILED. So after a failure in the middle no more workers start.
 *
 * A stop consists of: the signal (SIGTERM, or the one the user sent) and SIGCONT, so that stopped processes act on
 * it; after the grace time SIGKILL; when the workers are gone, the same for the processes that they left, with at
 * most AGENT_SWEEP_MS. A process that survives SIGKILL for AGENT_UNKILLABLE_MS is left to the report: it never
 * delays the end.
 *
 * An attempt is the life of all workers of a round, from the first start until nothing of them is left. The store is
 * notified of its first failure at once, of its end when the last output is read, and answers with the verdict. */
#ifndef LAUNCHER_AGENT_AGENT_H
#define LAUNCHER_AGENT_AGENT_H

#include "record/failure.h"
#include "base/exit_codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum agent_state {
    AGENT_GATHERING, /* joined, waiting for the other nodes. Nothing runs. */
    AGENT_RUNNING,   /* workers run (or are being started) */
    AGENT_SETTLING, /* one worker gave up because it lost a peer; that peer's own end may be seen any moment */
    AGENT_STOPPING,   /* SIGTERM is sent, the grace period runs */
    AGENT_KILLING,    /* SIGKILL is sent */
    AGENT_SWEEPING,   /* all workers are gone; what they left behind is being stopped */
    AGENT_DRAINING,   /* nothing is left of a failed attempt; reading its last output */
    AGENT_WAIT_PEERS, /* every worker here ended with 0; waiting for those of other nodes */
    AGENT_WAIT_VERDICT, /* the store has this node's end of the attempt; it decides when all nodes have reported */
    AGENT_BACKING_OFF, /* the wait before the next round */
    AGENT_DONE,
    AGENT_STATES
};

enum agent_event_type {
    AGENT_START,        /* a round has begun, attempt `attempt`, and all is ready for it */
    AGENT_SPAWNED,      /* worker `local_rank` runs as `pid` */
    AGENT_SPAWN_FAILED, /* worker `local_rank` could not be started: `error` (errno) */
    AGENT_EXITED,       /* worker `local_rank` has ended: `exit_code`, or `signal` when not 0 */
    AGENT_STOP,         /* the user asks to stop (`signal`): first time graceful, second time now */
    AGENT_ALONE,        /* the answer to EFFECT_SIGNAL_REST, at once or later: no descendant is left */
    AGENT_DRAINED,      /* the answer to EFFECT_DRAIN: the attempt's last output has been read */
    AGENT_TOLD_TO_STOP, /* by the store: another node failed or is lost, or the job grows. `exit_code`: the job's exit code for that, 0 = no failure */
    AGENT_HEARD,        /* by the store: it has the failure of this node and is stopping the job */
    AGENT_VERDICT,      /* by the store, when all nodes have reported: `verdict` */
    AGENT_STORE_LOST,   /* the store is gone: no message will follow */
    AGENT_NOT_READY, /* a round has begun or was requested, and this node cannot take part: no log files, rejected */
    AGENT_TICK, /* agent_deadline has been reached */
    AGENT_EVENTS
};

/* The decision of the store, the same for every node. */
struct agent_verdict {
    bool restart;
    uint64_t backoff_ms;                  /* until the next round is joined */
    enum no_restart no_restart;           /* the reason for no restart */
    int exit_first, exit_max, exit_rank0; /* what the job exits with, by policy */
};

struct agent_event {
    enum agent_event_type type;
    uint64_t now_ms; /* monotonic; the only clock that the agent sees */
    int local_rank;
    int pid;
    int exit_code;
    int signal;
    bool unasked;          /* of AGENT_EXITED: it ended before the requested signal was sent */
    bool lost_peer;        /* of AGENT_EXITED: its output says that a peer is gone */
    uint64_t import_error; /* of AGENT_EXITED: a number for the import error that ended it, 0 = none did */
    int error;
    bool
        dying; /* of AGENT_TICK: the kernel is still cleaning up worker `local_rank`, which has not ended yet */
    int attempt;
    bool hosts; /* of AGENT_START: the store is in this process, so others need it as long as they run */
    struct agent_verdict verdict;
};

enum agent_effect_type {
    EFFECT_SPAWN,       /* start worker `local_rank`; exactly one answer */
    EFFECT_SAMPLE,      /* note what the workers do: a failure, here or elsewhere, is about to stop them */
    EFFECT_SIGNAL,      /* send `signal` to the process group of worker `local_rank` */
    EFFECT_SIGNAL_REST, /* send `signal` to all descendants that are left; AGENT_ALONE once none is */
    EFFECT_TELL_FAILED, /* the store, before anything else: the attempt has failed here, agent_first_failure() says how */
    EFFECT_TELL_EXITED,  /* the store: worker `local_rank` has ended; barriers that need it fail now */
    EFFECT_DRAIN,        /* read the rest of the output, then AGENT_DRAINED */
    EFFECT_TELL_CAUSE,   /* to the store: all that is known about the first failure */
    EFFECT_TELL_STOPPED, /* the store: nothing of this attempt is left here */
    EFFECT_TELL_DONE,    /* the store: every worker here ended with 0 */
    EFFECT_LEAVE, /* the store: this node leaves for good, by the user's stop or because it is not ready */
    EFFECT_SAY_DYING, /* to the user: others have lost worker `local_rank`, which the kernel is still cleaning up */
    EFFECT_SAY_WAITING, /* to the user: this node waits for the others to end or, when done, stops waiting */
    EFFECT_SAY_RESTART, /* to the user: the attempt is over, the next one begins in agent_backoff() ms */
    EFFECT_JOIN,        /* the next round: AGENT_START, or AGENT_NOT_READY */
    EFFECT_FINISH,      /* everything is gone: drain output, print the report, exit with `exit_code` */
};

struct agent_effect {
    enum agent_effect_type type;
    int local_rank;
    int signal;
    int exit_code;
};

/* How a worker ended, seen from the job. */
enum worker_verdict {
    WORKER_PENDING,     /* not started */
    WORKER_ALIVE,       /* runs; in a finished job: could not be killed */
    WORKER_OK,          /* exit 0, stopped or not */
    WORKER_FAILED,      /* failed by itself */
    WORKER_NOT_STARTED, /* could not be executed, see `error` */
    WORKER_CONSEQUENCE, /* ended because we stopped it */
    WORKER_VICTIM, /* gave up by itself because a peer was lost: exit DDP_EXIT_PEER_LOST, or its output */
};

struct agent_worker {
    enum worker_verdict verdict;
    int pid;
    int exit_code, signal, error;
    uint64_t started_ms, ended_ms;
    uint64_t import_error; /* as in its AGENT_EXITED */
    bool told_to_stop;     /* an effect to signal it was emitted before its end was seen */
};

enum {
    AGENT_SWEEP_MS = 5000, /* longest grace time for leftovers; shorter when grace_ms is */
    AGENT_UNKILLABLE_MS =
        1500, /* after SIGKILL: then the process is stuck in the kernel. With the report it makes 2 s. */
    AGENT_RESCAN_MS = 20,  /* between two rounds of SIGKILL, because leftovers may keep forking */
    AGENT_DOUBT_MS = 1000, /* how long to wait for the peer's own end when a worker has lost it */
    AGENT_DYING_MS =
        30000,           /* ... when the kernel is still at it: it writes a core file or frees much memory; */
    AGENT_LOOK_MS = 100, /* between two checks of that */
    AGENT_USAGE_MS = 5000, /* usage and import errors end a worker this soon after its start */
    AGENT_SAME_MS = 100,   /* least time to wait for the next worker with the same import error */
    AGENT_LEAVE_MS =
        2000, /* after the user's stop: how long to wait for the verdict, whatever other nodes do */
    AGENT_SILENT_MS = 5000, /* how long to wait for other nodes before the user gets a message */
};

struct agent_options {
    int nproc;
    uint64_t grace_ms;  /* between SIGTERM and SIGKILL */
    uint64_t settle_ms; /* 0 = AGENT_DOUBT_MS; with several nodes, long enough to notice that one is lost */
    uint64_t linger_ms; /* how long a node that is done waits for the others */
    enum exit_policy exit_policy;
    int max_restarts; /* only shows whether restarts need an explanation: the store counts */
    bool alone;       /* no other node can be in the job, so if this one ended well, the job did */
};

struct agent;

/* Return NULL when memory is short. */
struct agent *agent_new(const struct agent_options *options);
void agent_free(struct agent *agent);

/* Process one event; return its effects (borrowed, valid until the next step), *n of them. */
const struct agent_effect *agent_step(struct agent *agent, const struct agent_event *event, size_t *n);

/* Return when to send AGENT_TICK next, in ms; UINT64_MAX = never. */
uint64_t agent_deadline(const struct agent *agent);

enum agent_state agent_state(const struct agent *agent);
const struct agent_worker *agent_worker(const struct agent *agent, int local_rank);

/* Return the local rank of the first failure, -1 = no failure. */
int agent_first_failure(const struct agent *agent);

/* Return the signal of the user's first stop request, 0 = no request. */
int agent_stop_signal(const struct agent *agent);

/* Return the number of the attempt that runs or ran last; from 0. */
int agent_attempt(const struct agent *agent);
int agent_max_restarts(const struct agent *agent);
enum exit_policy agent_exit_policy(const struct agent *agent);

/* Return how long to wait before the next round, in ms. */
uint64_t agent_backoff(const struct agent *agent);

/* Return why no attempt followed. NO_RESTART_NONE also if nothing failed or no restarts were allowed. */
enum no_restart agent_no_restart(const struct agent *agent);

/* Does the first failure rule out another attempt, whatever the job's budget? NO_RESTART_CANNOT_START, _USAGE,
 * _IMPORT, or NO_RESTART_NONE. An import error is only decided when all workers have ended. */
enum no_restart agent_never_again(const struct agent *agent);

/* The highest code of all workers here that failed by themselves, 0 = none; and the code of local rank 0, -1 = none. */
int agent_max_code(const struct agent *agent);
int agent_rank0_code(const struct agent *agent);

/* True if the store was lost before it could report the end of the job. */
bool agent_lost_store(const struct agent *agent);

/* True if this node is done and has waited its time, but hosts the store, and other nodes still run. */
bool agent_overstays(const struct agent *agent);

/* True if a process could not be killed. */
bool agent_is_stuck(const struct agent *agent);

/* ddprun's exit code (agent.c):
 *   124       a process could not be killed, in any case
 *   the verdict's code for --exit_code; without a verdict:
 *   128 + n   the user stopped it with signal n before anything failed
 *   123       the store was lost before it had a failure: a later failure here may be a consequence of the loss, and
 *             all nodes must end alike
 *   else by the policy: `first` the code of the first failure; `max` the highest code of all workers that failed
 *   by themselves; `rank0` the code of local rank 0, unless ddprun ended it or it never ran: then the first failure's.
 * The code of a worker is its exit code, 128 + n for a signal, 126/127 for cannot run / not found. */
int agent_exit_code(const struct agent *agent);

/* --- failure.c: texts and exit codes of a failure, and of the end of any worker --------------------------------- */

/* Return the exit code of ddprun for this failure; 0 = a reason to restart, not a failure. */
int failure_code(const struct failure *cause);

/* The end of a worker as text: one place for "exit 7" and "killed by SIGSEGV (signal 11)". */

enum { ENDING_MAX = 96 };

/* Return "SIGSEGV", "SIGRTMIN+3", or "signal 77" for a signal without a name. */
void signal_name(char out[ENDING_MAX], int sig);

/* Return "exit 7", "killed by SIGSEGV (signal 11)", "could not be started: No such file or directory" or "still
 * running". */
void ending_text(char out[ENDING_MAX], const struct agent_worker *worker);

/* Return the exit code that a shell would give: code, 128 + signal, 126, 127. */
int ending_code(const struct agent_worker *worker);

/* Return a lower-case word for JSON: "pending", "alive", "ok", "failed", "not_started", "consequence", "victim". */
const char *verdict_name(enum worker_verdict verdict);

#endif
