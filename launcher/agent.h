/* agent.h -- one node's life: start the workers, watch them, stop them, be done. Decisions only.
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
 * holds up the end. */
#ifndef LAUNCHER_AGENT_H
#define LAUNCHER_AGENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum agent_state {
    AGENT_IDLE,     /* nothing started yet */
    AGENT_RUNNING,  /* workers run (or are being started) */
    AGENT_STOPPING, /* SIGTERM is out, the grace time runs */
    AGENT_KILLING,  /* SIGKILL is out */
    AGENT_SWEEPING, /* all workers are gone; what they left behind is being stopped */
    AGENT_DONE,
    AGENT_STATES
};

enum agent_event_type {
    AGENT_START,        /* the store listens, the plan is made: begin */
    AGENT_SPAWNED,      /* worker `local_rank` runs as `pid` */
    AGENT_SPAWN_FAILED, /* worker `local_rank` could not be started: `error` (errno) */
    AGENT_EXITED,       /* worker `local_rank` has ended: `exit_code`, or `signal` when not 0 */
    AGENT_STOP,         /* the user asks to stop (`signal`): first time graceful, second time now */
    AGENT_ALONE,        /* the answer to WISH_SIGNAL_REST, at once or later: no descendant is left */
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
    int error;
};

enum agent_wish_type {
    WISH_SPAWN,       /* start worker `local_rank`; exactly one answer */
    WISH_SIGNAL,      /* send `signal` to the process group of worker `local_rank` */
    WISH_SIGNAL_REST, /* send `signal` to all descendants that are left; AGENT_ALONE once none is */
    WISH_TELL_STORE,  /* worker `local_rank` is known to have ended: barriers that need it fail now */
    WISH_FINISH,      /* everything is gone: drain output, print the report, exit with `exit_code` */
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
};

struct agent_worker {
    enum worker_verdict verdict;
    int pid;
    int exit_code, signal, error;
    uint64_t started_ms, ended_ms;
    bool told_to_stop; /* a signal of ours went out before it ended */
    uint64_t told_ms;  /* when the first one did */
};

enum {
    AGENT_SWEEP_MS = 5000,      /* longest grace time for leftovers; shorter when grace_ms is */
    AGENT_UNKILLABLE_MS = 5000, /* after SIGKILL: then it is stuck in the kernel */
};

struct agent_options {
    int nproc;
    uint64_t grace_ms; /* between SIGTERM and SIGKILL */
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

/* What ddprun exits with: the first failure's code, 128 + n for a signal, 126/127 for cannot run / not found;
 * 128 + n when the user stopped it with signal n before anything failed; 0 otherwise. */
int agent_exit_code(const struct agent *agent);

#endif
