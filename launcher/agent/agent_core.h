/* agent_core.h -- private to agent.c and agent_facts.c: the agent itself. */
#ifndef LAUNCHER_AGENT_CORE_H
#define LAUNCHER_AGENT_CORE_H

#include "agent/attempts.h"

struct agent {
    struct agent_options options;
    int nproc;
    enum agent_state state;
    uint64_t now_ms, deadline_ms;
    struct attempts attempts;
    int attempt; /* from 0 */
    uint64_t attempt_started_ms;
    enum no_restart no_restart;
    int spawning; /* asked for, no answer yet; -1 = none */
    int alive;
    int stop_signal, stop_requests; /* of the user */
    int signal;                     /* what is being sent to workers now; 0 before any stop */
    bool sweep_hard;                /* leftovers were sent SIGKILL */
    uint64_t give_up_ms;            /* what lives on after that cannot be killed */
    bool stuck;                     /* something did */
    int first_failure,
        first_victim; /* local ranks, -1 = none; one whose peer was lost only counts without another */
    struct agent_worker *workers;
    struct agent_wish *wishes; /* room for what one step can cause at most */
    size_t n_wishes;
};

#endif
