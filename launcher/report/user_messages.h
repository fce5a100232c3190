/* user_messages.h -- what the user is told while the job runs: sentences with --verbose, events with
 * --json. */
#ifndef LAUNCHER_REPORT_USER_MESSAGES_H
#define LAUNCHER_REPORT_USER_MESSAGES_H

#include "agent/agent.h"
#include "agent/failure.h"
#include "net/messages.h"
#include "output/event_log.h"
#include "output/output.h"
#include "report/report_text.h"
#include "tables/signals.h"

struct announce {
    const struct plan *plan;
    struct output *output;
    struct event_log *events; /* NULL = none is asked for */
    uint64_t started_ms;
};

/* This process is there, and looks for the store; and it ends. `why`: a sentence, or "". */
void announce_launched(const struct announce *a);
void announce_end(const struct announce *a, int exit_code, const char *why);

/* The store listens, the workers will be started. `note`: a sentence besides the plan's own, "" =
 * none. */
void announce_job(const struct announce *a, const char *note);
void announce_worker_started(const struct announce *a, int local_rank, int pid);
void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how);

/* An attempt has failed, and attempt `next` begins after agent_backoff(). */
void announce_restart(const struct announce *a, const struct agent *agent,
                      const struct failed_attempt *failed, int next);

/* The job begins anew without a failure: it grows. */
void announce_again(const struct announce *a, const struct failure *cause);

/* Not all nodes are here yet. */
void announce_gathering(const struct announce *a, const struct heard_waiting *waiting);

/* What the store has found out about a job that does not come together: its screen, the same on every node, and the
 * push that it came in. */
void announce_findings(const struct announce *a, const char *screen, const struct cJSON *push);

/* Something happened on another node, so the workers here are stopped. */
void announce_told_to_stop(const struct announce *a, const struct failure *cause);

/* Nothing runs here any more, and the end of the other `nodes` ("" = not known which) is waited for: by `state` after a
 * good end, which has a limit, after another, or no longer. */
void announce_waiting_for_end(const struct announce *a, const char *nodes, const struct agent *agent);

/* The user asks to stop, for the `first` time or again; `runs`: something of an attempt does here. */
void announce_stop(const struct announce *a, const struct signal_heard *heard, bool first, bool runs);

/* A signal for the workers went to `workers` of them. One of the terminal is told with --verbose only. */
void announce_passed(const struct announce *a, const struct signal_heard *heard, int workers);

/* The user asks what the job does; the answer follows. */
void announce_status(const struct announce *a, const struct signal_heard *heard);

/* Somebody has stopped a worker by `signal`; it will go on when it gets SIGCONT. */
void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal);

#endif
