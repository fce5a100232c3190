/* report_cause.h -- private to report*.c: sentences about the first cause. */
#ifndef LAUNCHER_REPORT_CAUSE_H
#define LAUNCHER_REPORT_CAUSE_H

#include "report.h"

/* "./train: no such file" and the like: why the command could not be executed, and what helps. */
bool cause_not_started(const struct report *r, const struct agent_worker *worker, struct buf *out);

/* The one sentence that begins the report, without newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* The last lines of a worker's stderr, or of its stdout when that is empty; *from_stdout says which. Lines
 * are cut at REPORT_LINE_MAX bytes; of a progress bar only what was visible at the end is kept. Returns how
 * many. */
enum { REPORT_LINE_MAX = 300 };
size_t cause_last_lines(const struct report *r, int local_rank, struct buf *out, bool *from_stdout);

#endif
