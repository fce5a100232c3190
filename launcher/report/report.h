/* report.h -- the report at the end: the first cause first, in at most 40 lines.
 *
 * Pure: the caller collects host, files and last lines and passes them in. */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "output/output.h"
#include "report/cause.h"
#include "report/evidence.h"

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = LIMIT_LAST_LINES };

/* True if there is something to report. False when all ended with 0, because success is silent. */
bool report_needed(const struct report *r);

/* Append the warning that other hosts could not join. Append nothing when the job began with all nodes that may take
 * part, or when other hosts could join. False when memory is short. */
bool report_local_only(const struct report *r, struct buf *out);

/* Append the report. False when memory is short. */
bool report_text(const struct report *r, struct buf *out);

/* Append why there is no further attempt; nothing when there is nothing to explain. */
bool report_no_restart(const struct report *r, struct buf *out);

/* Lines of the report, one under the other in two columns. At most `limit` lines; the rest is left out. Bytes of
 * workers may be anything, so they pass text.h like all output to the terminal. */
struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false: memory is short, the rest is skipped */
};

/* The rows about attempts; none for a job of one attempt that left nothing behind. */
void report_attempts(const struct report *r, struct rows *rows);

/* --- final_report.c: collects what the report needs, prints it, and writes report.json ------------------------- */

/* Complete `r` (times, colours, last lines, files) when everything in `output` is written. Then print the report on
 * stderr (a failure; with --verbose a success too), or the last event on stdout with --json, and write report.json in
 * the log directory. `program`: the one that could not be started, as found or as named; NULL = all were started. */
void final_report(struct report *r, struct output *output, const struct evidence *evidence,
                  const char *program);

struct cJSON;

/* Return the same facts as one object; its schema is report.schema.json. The caller frees it with cJSON_Delete. NULL
 * when memory is short. */
struct cJSON *report_json(const struct report *r);

/* Append the last event of --json, which carries the report. */
bool event_finished(struct buf *out, const struct report *report);

#endif
