/* announce.h -- what the user is told while the job runs: sentences with --verbose, events with
 * --json. */
#ifndef LAUNCHER_ANNOUNCE_H
#define LAUNCHER_ANNOUNCE_H

#include "agent.h"
#include "output.h"

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

/* The user asks to stop; `first` time or again. */
void announce_stop(const struct announce *a, int signal, bool first);

#endif
