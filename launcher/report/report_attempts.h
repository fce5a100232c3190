/* report_attempts.h -- private to report*.c: the part of the report about attempts that were made, why no more are,
 * and what is left behind. */
#ifndef LAUNCHER_REPORT_ATTEMPTS_H
#define LAUNCHER_REPORT_ATTEMPTS_H

#include "report/report.h"
#include "report/report_rows.h"

/* Append how the first failure of an attempt ended, "exit 7" or "out of memory (SIGKILL)", and a NUL. `evidence` NULL =
 * nothing more is known than the exit. False when memory is short. */
bool attempt_words(const struct agent_worker *cause, const struct worker_evidence *evidence, struct buf *out);

/* The rows; none for a job of one attempt that left nothing behind. */
void report_attempts(const struct report *r, struct rows *rows);

/* The members "failed_attempts", "max_restarts", "not_restarted", "left_waiting" and "unkillable". */
bool report_attempts_json(const struct report *r, struct cJSON *o);

#endif
