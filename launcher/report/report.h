/* report.h -- the report at the end of a job: at most 40 lines, with the first failure at the top. report.c is pure:
 * effects.c and final_report.c collect the facts, the files and the workers' last output lines. So a test can check a
 * report without a job. */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "output/output.h"
#include "report/cause.h"
#include "report/evidence.h"

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = LIMIT_LAST_LINES };

/* Return true if the job needs a report. A report is needed after a failure, after a stop by a signal, and after the
 * loss of the store. A report is also needed if a worker of this node has not exited with code 0. */
bool report_needed(const struct report *r);

/* Append the warning that nodes are missing because other hosts cannot reach the store's address. Append nothing if no
 * node is missing, or if other hosts can reach this address. Return false when memory is short. */
bool report_local_only(const struct report *r, struct buf *out);

/* Append the report to `out`. Return false when memory is short. The caller owns `out`, and `r` is only read. */
bool report_text(const struct report *r, struct buf *out);

/* Append why no restart followed, if --max_restarts allowed restarts. Otherwise append nothing. */
bool report_no_restart(const struct report *r, struct buf *out);

/* --- final_report.c --------------------------------------------------------------------------------------- */

/* Collect the remaining facts for `r`, and print the report on stderr after a failure, or with --verbose. With --json,
 * print the last event instead. Write report.json. `program` is the program that could not be started, or NULL if every
 * program was started. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program);

#endif
