/* user_messages.h -- messages while the job runs: sentences for the user, and events for --json and --events. The
 * user's options decide which outputs get them. Functions return no error, because a missing message must not stop
 * the job. */
#ifndef LAUNCHER_REPORT_USER_MESSAGES_H
#define LAUNCHER_REPORT_USER_MESSAGES_H

#include "agent/agent.h"
#include "net/messages.h"
#include "output/event_log.h"
#include "output/lines.h"
#include "output/output.h"
#include "plan/plan.h"
#include "report/report.h"
#include "tables/signals.h"

/* The destinations of messages. All pointers are borrowed. */
struct announce {
    const struct plan *plan;
    struct output *output;
    struct event_log *events; /* log of --events; may be NULL */
    uint64_t started_ms;      /* start of ddprun; base of the events' times */
};

/* Report that this process has started and connects to the store. */
void announce_launched(const struct announce *a);

/* Report the end of this process. `why` is a sentence, or "". */
void announce_end(const struct announce *a, int exit_code, const char *why);

/* Report that the store listens and the workers will start. `note` follows the plan's notes; may be "". */
void announce_job(const struct announce *a, const char *note);
void announce_worker_started(const struct announce *a, int local_rank, int pid);
void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how);

/* Report a failed attempt, and that attempt `next` begins after agent_backoff() ms. */
void announce_restart(const struct announce *a, const struct agent *agent,
                      const struct failed_attempt *failed, int next);

/* Report that the workers restart because nodes join the job. */
void announce_again(const struct announce *a, const struct failure *cause);

/* Report which nodes have joined and which are missing. */
void announce_gathering(const struct announce *a, const struct heard_waiting *waiting);

/* Report the store's findings. `screen` is the text to print, or "" if it was printed. `push` is the store's
 * message. */
void announce_findings(struct announce *a, const char *screen, const struct cJSON *push);

/* Report that the workers are stopped because of another node. */
void announce_remote_stop(const struct announce *a, const struct failure *cause);

/* Report that no worker runs on this node any more. `nodes` lists the nodes that it waits for; "" if unknown. */
void announce_waiting_for_end(const struct announce *a, const char *nodes, const struct agent *agent);

/* Report the user's request to stop the job. `first`: the first request. `runs`: workers still run on this node. */
void announce_stop(const struct announce *a, const struct received_signal *received, bool first, bool runs);

/* Report that a signal was passed on to `workers` workers. A terminal's signal is printed only with --verbose. */
void announce_passed(const struct announce *a, const struct received_signal *received, int workers);

/* Report that the user wants the status. */
void announce_status(const struct announce *a, const struct received_signal *received);

/* Report the stacks of this node's ranks: `rows`, see record/stacks.h. `is_cut`: some rows are missing. */
void announce_stacks(const struct announce *a, const struct cJSON *rows, bool is_cut);

/* Report that a signal, such as SIGSTOP, has stopped a worker. `signal` is 0 if unknown. */
void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal);

/* --- events ----------------------------------------------------------------------------------------------- */

/* The functions above write one JSON object per event and line; docs/output.md describes the members. When memory is
 * short, an event is left out. U+FFFD replaces bytes of workers that are not UTF-8. */

/* --- status ----------------------------------------------------------------------------------------------- */

/* The status (SIGQUIT, Ctrl-\): a headline, then one line for each worker.
 *
 *     12.3 s after the start: job k3x9, 3 of 4 workers run
 *     rank 0 (pid 100) has run for 12.3 s, waits for barrier 'epoch-3'
 *     rank 1 (pid 101) has run for 12.3 s, is stopped (kill -CONT 101 continues it)
 *     rank 2: exit 0 after 3.0 s
 *
 * status_line is pure. */

struct cJSON;

enum { STATUS_LINES_MAX = 64 }; /* limit of worker lines */

struct status_facts {
    const struct plan *plan;
    const struct agent *agent;
    uint64_t started_ms, now_ms; /* by the agent's clock */
    const char *states;          /* states of the processes by local rank (a letter of /proc); 0 if unknown */
    const struct cJSON *answer;  /* the store's answer to "status"; may be NULL */
};

/* Append line `i` without newline: 0 is the headline. Return false after the last line, or if memory is short. */
bool status_line(const struct status_facts *facts, int i, struct buf *out);

#endif
