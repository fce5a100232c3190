/* events.h -- what happens in a job as lines of JSON, for --json and --events. */
#ifndef LAUNCHER_REPORT_EVENTS_H
#define LAUNCHER_REPORT_EVENTS_H

#include "agent/agent.h"
#include "output/lines.h"
#include "plan/plan.h"
#include "report/report_text.h"
#include "tables/signals.h"

/* `--json`: what happens, as JSON lines. Each function appends one object and a newline.
 *
 * Every object has "event" and "t" (seconds since the start of ddprun); the rest is in launcher/README.md.
 * Bytes of workers that are not UTF-8 become U+FFFD. All return false when memory is short, and append
 * nothing then. */

/* The plan is made and the store listens. */
bool event_started(struct buf *out, uint64_t t_ms, const struct plan *plan);

bool event_worker_started(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid);

/* It has ended, or could not be started: `how` says which. */
bool event_worker_ended(struct buf *out, uint64_t t_ms, const struct plan_worker *who,
                        const struct agent_worker *how);

/* An attempt has failed; attempt `next` begins after agent_backoff(). */
bool event_restart(struct buf *out, uint64_t t_ms, const struct failed_attempt *failed, int next,
                   const struct agent *agent);

/* The user asked to stop. */
bool event_stop(struct buf *out, uint64_t t_ms, const struct signal_heard *heard);

/* A signal went on to `workers` workers. */
bool event_signal_passed(struct buf *out, uint64_t t_ms, const struct signal_heard *heard, int workers);

/* Somebody has stopped a worker. */
bool event_worker_stopped(struct buf *out, uint64_t t_ms, const struct plan_worker *who, int pid, int signal);

/* This ddprun looks for the store. */
bool event_launched(struct buf *out, uint64_t t_ms, const struct plan *plan);

/* The same as event_finished for --events: without the report. `why` may be "". */
bool event_ended(struct buf *out, uint64_t t_ms, int exit_code, const char *why);

/* Everything is gone; carries the report. */
/* What the store has found out: the fields of its push "findings". */
bool event_findings(struct buf *out, uint64_t t_ms, const struct cJSON *push);
bool event_finished(struct buf *out, const struct report *report);

#endif
