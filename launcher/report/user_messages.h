/* user_messages.h -- messages while the job runs: sentences for the user, and events for --json and --events. The
 * caller reports each fact once, and the user's options decide which outputs receive this fact. An announce function
 * returns no error, because a missing message must not stop the job. */
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
    struct event_log *events; /* log of --events; NULL if not requested */
    uint64_t started_ms;      /* start of ddprun; the times of events count from this time */
};

/* Print "(ddprun explain CODE)" after a message with this code, if the run has no such hint yet (log_hint_is_due).
 * Print nothing with --json, or if `code` is NULL or "". */
void announce_hint(const struct announce *a, const char *code);

/* Report that this process has started and connects to the store. */
void announce_launched(const struct announce *a);

/* Report that this process ends. `why` is a sentence, or "". */
void announce_end(const struct announce *a, int exit_code, const char *why);

/* Report that the store listens and the workers are about to start. `note` is "" or a sentence that is printed after
 * the plan's notes. */
void announce_job(const struct announce *a, const char *note);
void announce_worker_started(const struct announce *a, int local_rank, int pid);
void announce_worker_ended(const struct announce *a, int local_rank, const struct agent_worker *how);

/* Report that an attempt has failed, and that attempt `next` begins after a pause of agent_backoff() ms. */
void announce_restart(const struct announce *a, const struct agent *agent,
                      const struct failed_attempt *failed, int next);

/* Report that the workers restart because nodes join the job. */
void announce_again(const struct announce *a, const struct failure *cause);

/* Report which nodes have joined and which are missing. */
void announce_gathering(const struct announce *a, const struct heard_waiting *waiting);

/* Report the store's findings about a job that does not start or hangs. `screen` is the text to print, or "" if this
 * node has printed the finding already. `push` is the store's message. */
void announce_findings(struct announce *a, const char *screen, const struct cJSON *push);

/* Report that the workers of this node are stopped because of an event on another node. */
void announce_remote_stop(const struct announce *a, const struct failure *cause);

/* Report that no worker runs on this node any more, and whether this node waits for workers of other nodes. `nodes`
 * is a list of these nodes, or "" if they are not known. */
void announce_waiting_for_end(const struct announce *a, const char *nodes, const struct agent *agent);

/* Report that the user has asked to stop the job. `first` is false for a second request. `runs` is true if workers
 * still run on this node. */
void announce_stop(const struct announce *a, const struct received_signal *received, bool first, bool runs);

/* Report that a signal was passed on to workers. `workers` is their number. A signal from the terminal is printed
 * only with --verbose. */
void announce_passed(const struct announce *a, const struct received_signal *received, int workers);

/* Report that the user has requested the status, which the caller prints next. */
void announce_status(const struct announce *a, const struct received_signal *received);

/* Report the stacks of this node's ranks. `rows` is described in record/stacks.h; `is_cut` is true if some rows are
 * missing. */
void announce_stacks(const struct announce *a, const struct cJSON *rows, bool is_cut);

/* Report that a signal, such as SIGSTOP, has stopped a worker. SIGCONT continues the worker. `signal` is 0 if the
 * signal is unknown. */
void announce_worker_stopped(const struct announce *a, int local_rank, int pid, int signal);

/* --- events ----------------------------------------------------------------------------------------------- */

/* For each event, the functions above write one line that contains one JSON object; docs/output.md describes the
 * members of these objects. When memory is short, an event is left out. U+FFFD replaces bytes of workers that are not
 * UTF-8. */

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

enum { STATUS_LINES_MAX = 64 }; /* limit of worker lines, so that the status of a large job is short */

/* The facts for a message about the state of the job; all pointers are borrowed. */
struct status_facts {
    const struct plan *plan;
    const struct agent *agent;
    uint64_t started_ms, now_ms; /* start of ddprun and current time, by the agent's clock */
    const char *states; /* states[local_rank] is the process's state (a letter of /proc), 0 if not known */
    const struct cJSON *answer; /* the store's answer to "status"; may be NULL */
};

/* Append line `i` without newline. Line 0 is the headline; the workers follow. Return false after the last line,
 * or if memory is short. */
bool status_line(const struct status_facts *facts, int i, struct buf *out);

#endif
