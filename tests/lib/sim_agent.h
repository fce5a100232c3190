/* sim_agent.h -- an agent with simulated workers and a simulated store, on a clock that jumps from event to event.
 * Unless the test changes the answers, the store answers as for a job of one node.
 *
 * The test sets the behaviour of each worker, and asim_run runs the job to its end. The result is a trace with a line
 * for each event. The agent's effects are indented below that line. Each effect is also checked for validity. */
#ifndef TESTS_SIM_AGENT_H
#define TESTS_SIM_AGENT_H

#include "agent/agent.h"
#include "base/buf.h"

enum { ASIM_WORKERS = 16, ASIM_EVENTS = 64, ASIM_ATTEMPTS = 16 };

#define ASIM_FOR_EVER UINT64_MAX

/* A worker's behaviour. If the struct is zeroed, the worker exits with code 0 at once. */
struct asim_worker {
    int spawn_error;       /* errno of a start that fails; 0 if the start succeeds */
    uint64_t lives_ms;     /* ms until the worker ends by itself; ASIM_FOR_EVER if never */
    uint64_t dies_ms;      /* ms that the kernel takes to clean up the worker before its end */
    uint64_t import_error; /* `import_error` of the worker's event AGENT_EXITED */
    int exit_code;         /* exit code of a worker that ends by itself */
    int signal;            /* signal that ends the worker, instead of an exit; 0 if none */
    bool ignores_polite;   /* only SIGKILL ends the worker */
    uint64_t slow_ms;      /* ms from a polite signal (not SIGKILL) to the worker's end */
    int polite_exit;       /* exit code after a polite signal; 0 if the signal kills the worker */
    bool stuck;            /* hangs in the kernel: even SIGKILL does not end the worker */
    bool leaves_daemon;    /* the worker leaves a descendant */
    bool stubborn_daemon;  /* the descendant ignores SIGTERM */
};

struct asim_event {
    struct agent_event event;
    uint64_t order; /* number of this event; among events of the same time, the lower number is first */
    int attempt;    /* attempt in which this event was scheduled; used only for the end of a worker */
};

struct asim {
    struct agent *agent;
    int nproc;
    struct asim_worker worker[ASIM_WORKERS];
    int good_from; /* first attempt in which every worker exits with code 0 after 1 s; later attempts are the same */
    int restarts; /* number of restarts that the store still grants, each after backoff_ms */
    uint64_t backoff_ms;
    uint64_t verdict_ms;   /* ms from `stopped` or `done` to the verdict; ASIM_FOR_EVER if none arrives */
    bool not_ready;        /* no later attempt can be prepared */
    bool immortal_daemons; /* even SIGKILL does not end leftover daemons */
    int attempt;
    uint64_t now_ms;
    struct asim_event queue[ASIM_EVENTS];
    size_t n_queue;
    uint64_t order;
    bool alive[ASIM_WORKERS], started[ASIM_WORKERS], told_exit[ASIM_WORKERS];
    bool told_failed, told_end, left; /* effects that the agent has emitted: `told_failed` and `told_end` in
                                       * this attempt, `left` in any attempt */
    bool lost;                        /* the store is lost */
    int cause_code; /* exit code of the failure that the agent reported to the store; 0 if none */
    int daemons, stubborn_daemons;
    int next_spawn;
    bool finished;
    int exit_code;
    struct buf trace;
};

/* Initialize an agent with `nproc` workers. No worker ends by itself, and SIGTERM ends each worker at once. */
void asim_init(struct asim *sim, int nproc, uint64_t grace_ms);
void asim_init_with(struct asim *sim, const struct agent_options *options);
void asim_free(struct asim *sim);

/* Let the user request a stop at `at_ms`. */
void asim_stop_at(struct asim *sim, uint64_t at_ms, int signal);

/* Give the agent an event of the store at `at_ms`. asim_told_at: another node has failed, and the exit code of the job
 * is `code`. asim_heard_at: the store has received the failure of this node. asim_lost_at: the store is lost.
 * asim_verdict_at: the store has sent `verdict`. */
void asim_told_at(struct asim *sim, uint64_t at_ms, int code);
void asim_heard_at(struct asim *sim, uint64_t at_ms);
void asim_lost_at(struct asim *sim, uint64_t at_ms);
void asim_verdict_at(struct asim *sim, uint64_t at_ms, const struct agent_verdict *verdict);

/* Run until the agent is done. Fail the test if the agent is never done or emits an invalid effect. */
void asim_run(struct asim *sim);

/* Expect that the trace so far equals `trace`. */
void asim_expect(struct asim *sim, const char *trace);

#endif
