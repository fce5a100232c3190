/* report_rows.h -- private to report*.c: lines of the report, one under the other in two columns.
 *
 *     ddprun: headline
 *       label    text that is wrapped where a terminal would break it,
 *                and goes on here
 *       label    | a line of a worker, never wrapped
 *
 * No more than `limit` lines: what does not fit any more is left out. Bytes of workers may be anything: they
 * pass text.h, as all that reaches the terminal. */
#ifndef LAUNCHER_REPORT_ROWS_H
#define LAUNCHER_REPORT_ROWS_H

#include "base/buf.h"

enum { ROW_WIDTH = 100, ROW_QUOTE_MAX = 300 };

struct rows {
    struct buf *out;
    bool colour;
    int lines, limit;
    bool ok; /* false: memory is short, the rest is skipped */
};

void rows_headline(struct rows *r, struct slice text);

/* `label` "" = goes on below the row before. An empty text makes no row. At most `max` lines. */
void rows_text(struct rows *r, const char *label, struct slice text, int max);
void rows_printf(struct rows *r, const char *label, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* One line of a worker, cut at ROW_QUOTE_MAX bytes. */
void rows_quote(struct rows *r, const char *label, struct slice line);

#endif
