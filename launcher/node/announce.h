/* announce.h -- what the user is told while the job runs: sentences with --verbose, events with
 * --json. */
#ifndef LAUNCHER_ANNOUNCE_H
#define LAUNCHER_ANNOUNCE_H

#include "agent/agent.h"
#include "output/output.h"
#include "tables/signals.h"

struct announce {
    const struct plan *plan;
    struct output *output;
    uint64_t started_ms;
};

/* The store listens, the workers will be started. `note`: a sentence besides the plan's own, "" =
 * none. */
void announce_job(const struct announce *a, const char *note);
void announce_worker_started(const struct announce *a, int local_rank, int pid);
void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how);

/* An attempt has failed, and the next one begins after agent_backoff(). `why`: how its
 * first failure ended. */
void announce_restart(const struct announce *a, const struct agent *agent, const char *why);

/* The user asks to stop; `first` time or again. */
void announce_stop(const struct announce *a, const struct signal_heard *heard, bool first);

/* A signal for the workers went to `workers` of them. One of the terminal is told with --verbose only. */
void announce_passed(const struct announce *a, const struct signal_heard *heard, int workers);

/* The user asks what the job does; the answer follows. */
void announce_status(const struct announce *a, const struct signal_heard *heard);

/* Somebody has stopped a worker by `signal`; it will go on when it gets SIGCONT. */
void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal);

#endif
