/* agent_core.h -- private to agent*.c: the agent itself, and what its files share. */
#ifndef LAUNCHER_AGENT_CORE_H
#define LAUNCHER_AGENT_CORE_H

#include "agent/agent.h"

struct agent {
    struct agent_options options;
    int nproc;
    enum agent_state state;
    uint64_t now_ms, deadline_ms;
    int attempt; /* from 0 */
    uint64_t linger_until_ms;
    struct agent_verdict verdict; /* once `judged` */
    bool judged;                  /* the job is over, by the store's word */
    int told_code;                /* exit code of somebody else's failure; 0 = none was told */
    bool told;                    /* to stop */
    bool heard;                   /* the store knows of the failure here */
    bool hosts;                   /* the store is in this process */
    bool left, store_lost, not_ready;
    enum no_restart no_restart;
    int spawning; /* asked for, no answer yet; -1 = none */
    int alive;
    int stop_signal, stop_requests; /* of the user */
    int signal;                     /* what is being sent to workers now; 0 before any stop */
    uint64_t doubt_until_ms;        /* whoever is still dying then is not waited for */
    bool said_dying;                /* that one is */
    bool sweep_hard;                /* leftovers were sent SIGKILL */
    uint64_t give_up_ms;            /* what lives on after that cannot be killed */
    bool stuck;                     /* something did */
    int first_failure,
        first_victim; /* local ranks, -1 = none; one whose peer was lost only counts without another */
    struct agent_worker *workers;
    struct agent_wish *wishes; /* room for what one step can cause at most */
    size_t n_wishes;
};

/* Append a wish. Cannot fail: agent_new made room for the most that one step can cause. */
void core_wish(struct agent *a, enum agent_wish_type type, int local_rank, int sig);

/* As before the first start. */
void core_forget(struct agent *a);

/* Begin the ladder of a stop; its last rung. */
enum agent_state core_stop_all(struct agent *a, int sig);
enum agent_state core_sweep_kill(struct agent *a);

/* No better cause has shown: then the first one that lost its peer stands for it. */
void core_settle(struct agent *a);

/* Why there will be no further attempt, when there is something to explain. */
void core_explain(struct agent *a, enum no_restart why);

/* The user stops what is over already, or being stopped. */
void core_note_stop(struct agent *a, const struct agent_event *e);

/* This node leaves the job: said once. */
void core_leave(struct agent *a);

/* There is no store any more. What failed here without its knowing is a consequence of that. */
void core_lose_store(struct agent *a);

/* Another node's trouble: what our workers do from here on is a consequence of it. */
void core_hear_told(struct agent *a, const struct agent_event *e);

/* A cell of the table: does its work and returns the next state. */
typedef enum agent_state agent_cell(struct agent *a, const struct agent_event *e);

agent_cell run_started, run_started_in_doubt, run_started_late, run_not_started, run_ended, run_doubt_ends,
    run_user_stops, run_user_insists, run_heard, run_told, run_told_late, run_lose_store, run_note_lost,
    run_kill_all, run_begin;

#endif
