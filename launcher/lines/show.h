/* show.h -- a worker's line as it appears on the console: behind its prefix, harmless for a terminal, and with progress
 * bars on the last row. */
#ifndef LAUNCHER_SHOW_H
#define LAUNCHER_SHOW_H

#include "lines/lines.h"

/* What the lines appear on. A zeroed struct is a file or a pipe: the text goes there as it is, and each update of a bar
 * is a line. */
struct line_row {
    bool escape;   /* a terminal: it would obey what is in the text, see escape.h */
    bool terminal; /* ... that can move its cursor: an update stays on its last row until a line comes */
    bool drawn;    /* an update stands there now */
};

/* What makes the row empty for a line of any other origin: "" when no update stands there. */
const char *line_row_wipe(struct line_row *row);

/* Append the line with its end. False when memory is short: nothing is appended then. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

#endif
