/* torch_event.h -- the lines of torchrun's event handler "console", member for member: who collects those finds them
 * here as well. Our own events (event_json.h) say more. */
#ifndef LAUNCHER_TORCH_EVENT_H
#define LAUNCHER_TORCH_EVENT_H

#include "agent/agent.h"
#include "plan/plan.h"

struct torch_event {
    const struct plan *plan;
    const char *state;             /* "START", "SUCCEEDED" ...; static */
    const struct plan_worker *who; /* NULL = the agent's own event */
    int pid;                       /* of the worker */
    int exit_code;                 /* as torchrun counts: -N for signal N; for `failed` */
    bool failed;
    const char *error; /* for `failed`: the object in its error file; NULL = it left none */
    uint64_t run_ms;   /* since the start of ddprun */
    bool timed;        /* the state is about something that has taken: */
    uint64_t duration_ms;
};

/* What torchrun calls such an end. */
const char *torch_event_state(enum worker_verdict verdict);

/* Append one line. False when memory is short. */
bool torch_event(struct buf *out, const struct torch_event *e);

#endif
