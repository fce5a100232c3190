/* report.h -- the report at the end: the first cause first, in at most 40 lines.
 *
 * report.c is pure: its caller collects host, files and last lines. */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "output/output.h"
#include "report/cause.h"
#include "report/evidence.h"

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = LIMIT_LAST_LINES };

/* Return true if a report is needed. Return false if all workers exited with code 0, because ddprun prints no report
 * after a success. */
bool report_needed(const struct report *r);

/* Append the warning that other hosts could not join. Append nothing when the job began with the highest number of
 * nodes (--nnodes), or when other hosts could join. Return false when memory is short. */
bool report_local_only(const struct report *r, struct buf *out);

/* Append the report. Return false when memory is short. */
bool report_text(const struct report *r, struct buf *out);

/* Append why no attempt follows. Append nothing if no explanation is needed. */
bool report_no_restart(const struct report *r, struct buf *out);

/* The rows of the report, each with a label and a text. At most `limit` lines are printed, and further lines are left
 * out. Workers may send any bytes, so these bytes pass through text.h like all output to the terminal. */
struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false when memory is short; later appends are then skipped */
};

/* Append the rows about attempts. A job of one attempt without leftovers has no such rows. */
void report_attempts(const struct report *r, struct rows *rows);

/* --- final_report.c: collects the facts for the report, prints it, and writes report.json
 * ------------------------ */

/* Complete `r` (times, colours, last lines, files) after all output is written. Then print the report on stderr after
 * a failure, and with --verbose also after a success. With --json, print the last event on stdout instead. Finally
 * write report.json into the log directory. `program` is the program that could not be started, as found or as the
 * user wrote it. `program` NULL = all workers were started. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program);

struct cJSON;

/* Return the report as one JSON object, described by report.schema.json. The caller frees it with cJSON_Delete.
 * Return NULL when memory is short. */
struct cJSON *report_json(const struct report *r);

/* Append the last event of --json, which contains the report. */
bool event_finished(struct buf *out, const struct report *report);

#endif
