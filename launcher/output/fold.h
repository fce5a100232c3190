/* fold.h -- a line that many workers print, shown once with the set of their ranks.
 *
 * A line waits a moment for others that are the same, byte for byte. The order of each rank's lines never changes: a
 * rank joins a waiting line only when all that it printed before comes before that. The clock is an argument. */
#ifndef LAUNCHER_OUTPUT_FOLD_H
#define LAUNCHER_OUTPUT_FOLD_H

#include "output/lines.h"
#include "tables/rank_set.h"

/* A worker's line as it appears on the console: behind its prefix, harmless for a terminal, and with progress
 * bars on the last row. */

/* What the lines appear on. A zeroed struct is a file or a pipe: the text goes there as it is, and each update of a bar
 * is a line. */
struct line_row {
    bool escape;   /* a terminal: it would obey what is in the text, see text.h */
    bool terminal; /* ... that can move its cursor: an update stays on its last row until a line comes */
    bool drawn;    /* an update stands there now */
};

/* What makes the row empty for a line of any other origin: "" when no update stands there. */
const char *line_row_wipe(struct line_row *row);

/* Append the line with its end. False when memory is short: nothing is appended then. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

/* --- fold ------------------------------------------------------------------------------------------------- */

enum {
    FOLD_QUIET_US = 200 * 1000,     /* a line goes out when nobody joined it for so long ... */
    FOLD_LONGEST_US = 10000 * 1000, /* ... and after this in any case */
    FOLD_LINES_MAX = 4096,          /* what waits at most: the oldest lines go out early */
    FOLD_BYTES_MAX = 1 << 20
};

#define FOLD_NOTHING UINT64_MAX

struct fold_line {
    struct slice text;
    enum line_kind kind;
    struct line_time at;          /* when the first of them was read */
    int rank;                     /* who printed it first */
    const void *origin;           /* given with it */
    const struct rank_set *ranks; /* all who did; NULL when it is one */
};

/* A line goes out. Text and set are valid during the call only. */
typedef void (*fold_fn)(void *user, const struct fold_line *line);

struct fold;

/* For ranks below `ranks`. NULL when memory is short; free with fold_free. */
struct fold *fold_new(int ranks, fold_fn line, void *user);

/* What waits is not shown any more: call fold_finish before. NULL is allowed. */
void fold_free(struct fold *f);

/* A line that `rank` printed, with `ranks` NULL; its text is copied. When memory is short, it and all that
 * waits go out now. True when nothing waited before: fold_flush is to be called FOLD_QUIET_US from now. */
bool fold_put(struct fold *f, const struct fold_line *line);

/* Deliver what is due at `now_us`, a time like line_time.since_us. Returns when to call again, FOLD_NOTHING
 * when nothing waits. */
uint64_t fold_flush(struct fold *f, uint64_t now_us);

/* Deliver all that waits. */
void fold_finish(struct fold *f);

#endif
