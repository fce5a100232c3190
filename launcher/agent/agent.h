/* agent.h -- one node's life: start the workers, watch them, stop them, start them again, be done. Decisions
 * only.
 *
 * agent_step takes what happened and returns wishes; node_wishes.c carries the wishes out. No process, no clock,
 * no signal in here: a 30-second grace time costs a test nothing. The whole machine is the table in agent.c.
 *
 * Workers are started one at a time: each WISH_SPAWN is answered by AGENT_SPAWNED or AGENT_SPAWN_FAILED, and
 * that brings the next one. So a failure in the middle simply starts no more.
 *
 * A stop goes: the signal (SIGTERM, or the one the user sent) and SIGCONT, so that stopped processes act on
 * it; after the grace time SIGKILL; when the workers are gone, the same ladder for what they left behind,
 * with at most AGENT_SWEEP_MS. What survives SIGKILL for AGENT_UNKILLABLE_MS is left to the report: it never
 * holds up the end.
 *
 * An attempt is the life of all workers from the first start until nothing of them is left; the first has the
 * number 0. When one has failed and another is allowed, the store is asked how far the workers came, the
 * back-off is waited for, the store is emptied, and the next attempt begins. */
#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include "tables/exit_codes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum agent_state {
    AGENT_IDLE,      /* nothing started yet */
    AGENT_RUNNING,   /* workers run (or are being started) */
    AGENT_DOUBTING,  /* one has given up because a peer is lost; that peer's own end may be seen any moment */
    AGENT_STOPPING,  /* SIGTERM is out, the grace time runs */
    AGENT_KILLING,   /* SIGKILL is out */
    AGENT_SWEEPING,  /* all workers are gone; what they left behind is being stopped */
    AGENT_ASKING,    /* nothing is left of a failed attempt; the store is asked how far it came */
    AGENT_WAITING,   /* the back-off before the next attempt */
    AGENT_PREPARING, /* the store is being emptied for it, log files are made */
    AGENT_DONE,
    AGENT_STATES
};

enum agent_event_type {
    AGENT_START,        /* all is ready, the store holds no keys: begin the first attempt, or the next */
    AGENT_SPAWNED,      /* worker `local_rank` runs as `pid` */
    AGENT_SPAWN_FAILED, /* worker `local_rank` could not be started: `error` (errno) */
    AGENT_EXITED,       /* worker `local_rank` has ended: `exit_code`, or `signal` when not 0 */
    AGENT_STOP,         /* the user asks to stop (`signal`): first time graceful, second time now */
    AGENT_ALONE,        /* the answer to WISH_SIGNAL_REST, at once or later: no descendant is left */
    AGENT_PROGRESS,     /* the answer to WISH_ASK_PROGRESS: `step`, or -1 when no worker has told one */
    AGENT_NOT_READY,    /* the next attempt cannot begin: no store, no log files */
    AGENT_TICK,         /* time has passed; agent_deadline was reached */
    AGENT_EVENTS
};

struct agent_event {
    enum agent_event_type type;
    uint64_t now_ms; /* monotonic; the only clock the core ever sees */
    int local_rank;
    int pid;
    int exit_code;
    int signal;
    bool unasked; /* of AGENT_EXITED: it ended before any signal that we wished for it was sent */
    int error;
    int64_t step;
};

enum agent_wish_type {
    WISH_SPAWN,        /* start worker `local_rank`; exactly one answer */
    WISH_SIGNAL,       /* send `signal` to the process group of worker `local_rank` */
    WISH_SIGNAL_REST,  /* send `signal` to all descendants that are left; AGENT_ALONE once none is */
    WISH_TELL_STORE,   /* worker `local_rank` is known to have ended: barriers that need it fail now */
    WISH_ASK_PROGRESS, /* take what is left of the output, ask the store how far the attempt came */
    WISH_SAY_RESTART,  /* tell the user: the attempt has failed, the next one begins in agent_backoff() ms */
    WISH_PREPARE,      /* an empty store on the same port, log files: AGENT_START, or AGENT_NOT_READY */
    WISH_FINISH,       /* everything is gone: drain output, print the report, exit with `exit_code` */
};

struct agent_wish {
    enum agent_wish_type type;
    int local_rank;
    int signal;
    int exit_code;
};

/* Why a worker's end is what it is. */
enum worker_verdict {
    WORKER_PENDING,     /* not started */
    WORKER_ALIVE,       /* runs; in a finished job: could not be killed */
    WORKER_OK,          /* exit 0, whether it was told to stop or not */
    WORKER_FAILED,      /* failed by itself */
    WORKER_NOT_STARTED, /* could not be executed: `error` says why */
    WORKER_CONSEQUENCE, /* ended because we stopped it */
    WORKER_VICTIM,      /* gave up by itself because a peer was lost (exit DDP_EXIT_PEER_LOST) */
};

struct agent_worker {
    enum worker_verdict verdict;
    int pid;
    int exit_code, signal, error;
    uint64_t started_ms, ended_ms;
    bool told_to_stop; /* a wish to signal it was given before its end was seen */
};

/* Why no further attempt is made although --max_restarts names some. */
enum no_restart {
    RESTART_ALLOWED,
    NO_RESTART_USED_UP,
    NO_RESTART_CANNOT_START, /* it cannot be executed: that will not change by itself */
    NO_RESTART_USAGE,        /* ended within AGENT_USAGE_MS with 2, 126 or 127: a wrong command line */
    NO_RESTART_NO_PROGRESS,
    NO_RESTART_STOPPED,    /* by the user */
    NO_RESTART_UNKILLABLE, /* something of the old attempt lives on */
    NO_RESTART_NOT_READY,  /* no store, no log files */
};

/* An attempt that has failed. */
struct agent_attempt {
    uint64_t started_ms, ended_ms;
    int local_rank;            /* of the first failure */
    struct agent_worker cause; /* how that worker ended */
    int64_t step;              /* how far the workers came by their own account; -1 = not told */
};

enum {
    AGENT_SWEEP_MS = 5000, /* longest grace time for leftovers; shorter when grace_ms is */
    AGENT_UNKILLABLE_MS =
        1500,              /* after SIGKILL: then it is stuck in the kernel. With the report it makes 2 s. */
    AGENT_RESCAN_MS = 20,  /* between two rounds of SIGKILL for leftovers that go on having children */
    AGENT_DOUBT_MS = 1000, /* how long the peer's own end is waited for when a worker has lost it */
    AGENT_USAGE_MS = 5000, /* a usage error shows so soon after the start */
};

struct agent_options {
    int nproc;
    uint64_t grace_ms; /* between SIGTERM and SIGKILL */
    enum exit_policy exit_policy;
    int max_restarts;
    uint64_t backoff_ms;     /* before the first restart; doubled while there is no progress, */
    uint64_t backoff_cap_ms; /* ... up to this */
    int max_no_progress;     /* attempts in a row that came no further than one before; 0 = any number */
};

struct agent;

/* NULL when memory is short. */
struct agent *agent_new(const struct agent_options *options);
void agent_free(struct agent *agent);

/* Feed one event; returns the wishes it caused (borrowed, valid until the next step), *n of them. */
const struct agent_wish *agent_step(struct agent *agent, const struct agent_event *event, size_t *n);

/* When to send AGENT_TICK next, in ms; UINT64_MAX = never. */
uint64_t agent_deadline(const struct agent *agent);

enum agent_state agent_state(const struct agent *agent);
const struct agent_worker *agent_worker(const struct agent *agent, int local_rank);

/* Local rank of the first failure, -1 when there is none. */
int agent_first_failure(const struct agent *agent);

/* Signal of the user's first stop request, 0 when there was none. */
int agent_stop_signal(const struct agent *agent);

/* Number of the attempt that runs, or ran last; from 0. */
int agent_attempt(const struct agent *agent);
int agent_max_restarts(const struct agent *agent);
enum exit_policy agent_exit_policy(const struct agent *agent);

/* The attempts that have failed, the latest last; borrowed, grows with each step. */
const struct agent_attempt *agent_failed_attempts(const struct agent *agent, int *n);

/* How long the wait before the next attempt is, in ms. */
uint64_t agent_backoff(const struct agent *agent);

/* Why there was no further attempt. RESTART_ALLOWED also when nothing failed, or none was asked for. */
enum no_restart agent_no_restart(const struct agent *agent);

/* Something could not be killed. */
bool agent_is_stuck(const struct agent *agent);

/* What ddprun exits with (agent_facts.c):
 *   124       something could not be killed, whatever else happened
 *   128 + n   the user stopped it with signal n before anything failed
 *   else by the policy: `first` the code of the first failure; `max` the highest code of all workers that failed
 *   by themselves; `rank0` the code of local rank 0, unless we ended it or it never ran: then the first failure's.
 * The code of a worker is its exit code, 128 + n for a signal, 126/127 for cannot run / not found. */
int agent_exit_code(const struct agent *agent);

#endif
