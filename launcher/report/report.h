/* report.h -- the report at the end: the first cause first, in at most 40 lines.
 *
 * Pure: everything that must be looked up (host, files, last lines) is handed in. */
#ifndef LAUNCHER_REPORT_REPORT_H
#define LAUNCHER_REPORT_REPORT_H

#include "report/cause.h"

enum { REPORT_LINES_MAX = 40, REPORT_STDERR_LINES = LIMIT_LAST_LINES };

/* Is there something to tell? False when all ended with 0: success is silent. */
bool report_needed(const struct report *r);

/* Append the warning that other hosts could not join. Append nothing when the job began with all nodes that may take part,
 * or when other hosts could join. False when memory is short. */
bool report_local_only(const struct report *r, struct buf *out);

/* Append the text, ending with a newline; a success is one line. False when memory is short. */
bool report_text(const struct report *r, struct buf *out);

/* Append why there is no further attempt; nothing when there is nothing to explain. */
bool report_no_restart(const struct report *r, struct buf *out);

/* Lines of the report, one under the other in two columns. No more than `limit`: what does not fit any more is left out. Bytes of
 * workers may be anything: they pass text.h, as all that reaches the terminal. */
struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false: memory is short, the rest is skipped */
};

/* The rows about attempts; none for a job of one attempt that left nothing behind. */
void report_attempts(const struct report *r, struct rows *rows);

#endif
