/* sim_agent.h -- an agent with simulated workers and a simulated store, on a clock that jumps from event to event.
 *
 * By default, the store answers as for a job of one node. asim_run runs the job to its end. The trace has a line for
 * each event, followed by the agent's effects, whose validity is checked. */
#ifndef TESTS_SIM_AGENT_H
#define TESTS_SIM_AGENT_H

#include "agent/agent.h"
#include "base/buf.h"

enum { ASIM_WORKERS = 16, ASIM_EVENTS = 64, ASIM_ATTEMPTS = 16 };

#define ASIM_FOR_EVER UINT64_MAX

/* A worker's behaviour. Zeroed: it exits with code 0 at once. */
struct asim_worker {
    int spawn_error;       /* errno of a failed start, or 0 */
    uint64_t lives_ms;     /* ms until the worker ends; ASIM_FOR_EVER: never */
    uint64_t dies_ms;      /* ms of the kernel's clean-up before the end */
    uint64_t import_error; /* `import_error` of AGENT_EXITED */
    int exit_code;         /* exit code of the worker's own end */
    int signal;            /* signal in place of an exit, or 0 */
    bool ignores_polite;   /* only SIGKILL ends the worker */
    uint64_t slow_ms;      /* ms from a polite signal (not SIGKILL) to the end */
    int polite_exit;       /* exit code after a polite signal; 0: killed by it */
    bool stuck;            /* even SIGKILL does not end the worker */
    bool leaves_daemon;    /* the worker leaves a descendant */
    bool stubborn_daemon;  /* the descendant ignores SIGTERM */
};

struct asim_event {
    struct agent_event event;
    uint64_t order; /* number of the event; orders events of the same time */
    int attempt;    /* attempt of a worker's end */
};

struct asim {
    struct agent *agent;
    int nproc;
    struct asim_worker worker[ASIM_WORKERS];
    int good_from; /* from this attempt on, every worker exits with 0 after 1 s */
    int restarts;  /* restarts that the store grants */
    uint64_t backoff_ms;
    uint64_t verdict_ms;   /* ms from `stopped` or `done` to the verdict; ASIM_FOR_EVER: none */
    bool not_ready;        /* no later attempt can be prepared */
    bool immortal_daemons; /* even SIGKILL does not end leftover daemons */
    int attempt;
    uint64_t now_ms;
    struct asim_event queue[ASIM_EVENTS];
    size_t n_queue;
    uint64_t order;
    bool alive[ASIM_WORKERS], started[ASIM_WORKERS], told_exit[ASIM_WORKERS];
    bool told_failed, told_end, left; /* emitted effects; told_* in this attempt only */
    bool lost;                        /* the store is lost */
    int cause_code;                   /* exit code of the reported failure, or 0 */
    int daemons, stubborn_daemons;
    int next_spawn;
    bool finished;
    int exit_code;
    struct buf trace;
};

/* Initialize workers that run forever and die of SIGTERM at once. */
void asim_init(struct asim *sim, int nproc, uint64_t grace_ms);
void asim_init_with(struct asim *sim, const struct agent_options *options);
void asim_free(struct asim *sim);

/* Request a stop at `at_ms`, as the user. */
void asim_stop_at(struct asim *sim, uint64_t at_ms, int signal);

/* Give the agent an event at `at_ms`:
 * - asim_told_at: another node has failed, and the job's exit code is `code`
 * - asim_heard_at: the store has received this node's failure
 * - asim_lost_at: the store is lost
 * - asim_verdict_at: the store has sent `verdict` */
void asim_told_at(struct asim *sim, uint64_t at_ms, int code);
void asim_heard_at(struct asim *sim, uint64_t at_ms);
void asim_lost_at(struct asim *sim, uint64_t at_ms);
void asim_verdict_at(struct asim *sim, uint64_t at_ms, const struct agent_verdict *verdict);

/* Run until the agent is done. Fail the test if it never is, or emits an invalid effect. */
void asim_run(struct asim *sim);

/* Expect that the trace so far equals `trace`. */
void asim_expect(struct asim *sim, const char *trace);

#endif
