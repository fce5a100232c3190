/* sim_agent.h -- an agent with make-believe workers on a clock that jumps from event to event, and a store
 * that answers it as for a job of one node unless the test says otherwise.
 *
 * The test says how each worker behaves; asim_run plays the job to its end. The result is a trace, one line
 * per event at its left edge and the agent's effects indented below it. Each effect is also checked for
 * sense. */
#ifndef TESTS_SIM_AGENT_H
#define TESTS_SIM_AGENT_H

#include "agent/agent.h"
#include "base/buf.h"

enum { ASIM_WORKERS = 16, ASIM_EVENTS = 64, ASIM_ATTEMPTS = 16 };

#define ASIM_FOR_EVER UINT64_MAX

/* A worker's behaviour; zeroed = ends with 0 at once. */
struct asim_worker {
    int spawn_error;       /* errno: it cannot be started at all */
    uint64_t lives_ms;     /* then it ends by itself, ASIM_FOR_EVER = never */
    uint64_t dies_ms;      /* the last so many of them the kernel takes it apart */
    uint64_t import_error; /* ... which is that of its AGENT_EXITED */
    int exit_code;         /* ... with this, */
    int signal;            /* ... or by this */
    bool ignores_polite;   /* only SIGKILL ends it */
    uint64_t slow_ms;      /* from a polite signal to its end */
    int polite_exit;       /* exit code after a polite signal; 0 = dies of the signal */
    bool stuck;            /* in the kernel: not even SIGKILL */
    bool leaves_daemon;    /* a descendant that lives on */
    bool stubborn_daemon;  /* ... and ignores SIGTERM */
};

struct asim_event {
    struct agent_event event;
    uint64_t order; /* events of the same time keep their order */
    int attempt;    /* an end belongs to the worker of this attempt */
};

struct asim {
    struct agent *agent;
    int nproc;
    struct asim_worker worker[ASIM_WORKERS];
    int good_from; /* in attempts from this one on, all workers end with 0 after a second */
    int restarts;  /* that the store grants, each after backoff_ms */
    uint64_t backoff_ms;
    uint64_t verdict_ms;   /* from `stopped` or `done` to the verdict, ASIM_FOR_EVER = it never comes */
    bool not_ready;        /* no attempt after the first can be made ready */
    bool immortal_daemons; /* what is left behind does not die of SIGKILL either */
    int attempt;
    uint64_t now_ms;
    struct asim_event queue[ASIM_EVENTS];
    size_t n_queue;
    uint64_t order;
    bool alive[ASIM_WORKERS], started[ASIM_WORKERS], told_exit[ASIM_WORKERS];
    bool told_failed, told_end, left; /* the store; the first two of the attempt */
    bool lost;                        /* the store is */
    int cause_code;                   /* the failures that the store received, 0 = none */
    int daemons, stubborn_daemons;
    int next_spawn;
    bool finished;
    int exit_code;
    struct buf trace;
};

/* Workers that all run without end and die of SIGTERM at once. */
void asim_init(struct asim *sim, int nproc, uint64_t grace_ms);
void asim_init_with(struct asim *sim, const struct agent_options *options);
void asim_free(struct asim *sim);

/* The user's request to stop at that time. */
void asim_stop_at(struct asim *sim, uint64_t at_ms, int signal);

/* The store reports another node's failure at that time, and the job would exit with `code`; the store is
 * lost; its verdict arrives. */
void asim_told_at(struct asim *sim, uint64_t at_ms, int code);
void asim_heard_at(struct asim *sim, uint64_t at_ms); /* the store has the failure of this node */
void asim_lost_at(struct asim *sim, uint64_t at_ms);
void asim_verdict_at(struct asim *sim, uint64_t at_ms, const struct agent_verdict *verdict);

/* Play until the agent is done. Fails the test when it never is, or effects for something senseless. */
void asim_run(struct asim *sim);

/* The trace so far must be this text. */
void asim_expect(struct asim *sim, const char *trace);

#endif
