/* lines.h -- cuts one stream of a worker into whole lines.
 *
 * It is fed with the bytes of read(2) and calls `line` once per line, so that prefix, text and newline are written in
 * one piece, without another worker's line in between. How reads cut the bytes does not matter.
 *
 * - A line ends with \n or \r\n.
 * - A lone \r ends an update, which a progress bar overwrites. Updates are not lines: only the latest is kept,
 * and shown when lines_show_update is called (from a timer, about once a second) or when nothing followed it:
 * by \n or the end.
 * - An update that is only ESC [ K (erase the row) takes back the one before it.
 * - A last line without \n is delivered by lines_finish.
 * - Text over the limit is delivered in pieces of that size, marked LINE_CUT: memory stays bounded.
 *
 * The cost is linear in the bytes. A line that lies in one read is not copied. Log files get the bytes unchanged and
 * do not use this. */
#ifndef LAUNCHER_OUTPUT_LINES_H
#define LAUNCHER_OUTPUT_LINES_H

#include "base/buf.h"
#include "plan/plan.h"
#include "record/rank_set.h"

#include <stdint.h>

/* Output that could not be written somewhere. */

struct loss {
    const char *name; /* "stdout", "stderr" or a path; borrowed */
    uint64_t bytes;
    int error; /* errno, 0 when it was too slow */
};

enum { LINES_LIMIT = 8 * 1024 * 1024 }; /* the longest line that is delivered in one piece */

enum line_kind {
    LINE_WHOLE,  /* ended by a newline */
    LINE_LAST,   /* the stream ended after it, without newline */
    LINE_UPDATE, /* ended by \r: the next text will overwrite it */
    LINE_CUT     /* over the limit: the line continues in the next call */
};

/* Time at which a line's bytes were read. */
struct line_time {
    uint64_t unix_us;  /* by the wall clock */
    uint64_t since_us; /* since the start of ddprun */
};

/* `text` without its line end; valid during the call only. */
typedef void (*line_fn)(void *user, struct slice text, enum line_kind kind);

struct lines {
    line_fn line;
    void *user;
    size_t limit;
    struct buf text;   /* bytes since the last   or \r */
    struct buf update; /* the text before the last \r */
    bool update_shown;
};

/* `limit` is LINES_LIMIT except in tests. */
void lines_init(struct lines *l, line_fn line, void *user, size_t limit);
void lines_free(struct lines *l);

void lines_feed(struct lines *l, struct slice bytes);

/* Deliver the latest update as LINE_UPDATE if it was not shown yet; true if there was one. */
bool lines_show_update(struct lines *l);

/* Memory is short elsewhere: deliver the beginning of an unfinished line as LINE_CUT now. */
void lines_cut(struct lines *l);

/* The stream has ended: deliver the rest. The struct may be fed again afterwards. */
void lines_finish(struct lines *l);

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The last 64 KiB of a stream, for the report. A zeroed struct is empty; memory is taken when bytes
 * come. */

enum { TAIL_BYTES = 64 * 1024 };

struct tail {
    uint8_t *ring;
    size_t cap;   /* bytes allocated, at most TAIL_BYTES */
    size_t start; /* index of the oldest byte; 0 until the ring has its full size */
    size_t len;
};

/* Append `bytes` and drop the oldest. When memory is short the older bytes stay and these are dropped. */
void tail_feed(struct tail *t, struct slice bytes);

/* Append the last `max` lines to `out`, each ended by a newline; a final line without one counts as a line.
 * Blank lines at the end are left out. Return the number of lines; 0 also when memory is short. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out);

void tail_free(struct tail *t);

/* --- merge ------------------------------------------------------------------------------------------------ */

/* Lets several streams share one log file: whole lines, each with the name of its worker.
 *
 * Pure. Unlike lines of the terminal it keeps every byte: without the prefixes the file equals the stream, \r
 * included. */

enum { MERGE_LINE_MAX = 1 << 20, MERGE_PREFIX_MAX = 32 };

struct merge {
    char prefix[MERGE_PREFIX_MAX]; /* in front of each line; may be "" */
    struct buf rest;               /* the beginning of a line that has not ended yet */
    bool midline; /* the file already has the beginning of the line, because it was too long */
};

/* Append to `out` the lines that these bytes complete. A line above MERGE_LINE_MAX is written in pieces, and another
 * stream's line may be in between. False when memory is short: then bytes are missing. */
bool merge_feed(struct merge *m, struct slice bytes, struct buf *out);

/* The stream has ended: a line without a newline gets one, so that the next line of the file is separate. */
bool merge_finish(struct merge *m, struct buf *out);

void merge_free(struct merge *m);

/* --- line prefix ------------------------------------------------------------------------------------------ */

/* The prefix of one line: the plan's template with the rank or ranks that printed it. */

struct line_origin {
    int local_rank, which;        /* STD_OUT or STD_ERR */
    int pid;                      /* 0 = not known */
    const struct rank_set *ranks; /* local ranks of a line that several ranks printed, else NULL */
    struct line_time at;
};

/* Append it, in the rank's colour if `colour`. If several ranks printed the line, they are shown even when the
 * template has no field for them. False when memory is short. */
bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out);

/* --- equal lines of several ranks ------------------------------------------------------------------------ */

/* A line that many workers print is shown once with the set of their ranks.
 *
 * A line waits a moment for equal ones, byte for byte. The order of each rank's lines never changes: a rank joins a
 * waiting line only if all its earlier lines precede that line. The clock is an argument. */

/* A worker's line on the console: with its prefix, made harmless for a terminal, and with progress bars on the last
 * row. */

/* The target of the lines. A zeroed struct is a file or a pipe: the text is written unchanged, and each update of a
 * bar is a line. */
struct line_row {
    bool escape;   /* a terminal, which would obey control characters, see text.h */
    bool terminal; /* ... that can move its cursor: an update stays on its last row until a line comes */
    bool drawn;    /* an update is on that row now */
};

/* Return the bytes that wipe the row for a line of another origin: "" when no update is there. */
const char *line_row_wipe(struct line_row *row);

/* Append the line with its end. False when memory is short: nothing is appended then. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

enum {
    FOLD_QUIET_US = 200 * 1000,     /* a line is written when no rank has joined it for this long ... */
    FOLD_LONGEST_US = 10000 * 1000, /* ... and after this in any case */
    FOLD_LINES_MAX = 4096,          /* limit of waiting lines: beyond it the oldest are written early */
    FOLD_BYTES_MAX = 1 << 20
};

#define FOLD_NOTHING UINT64_MAX

struct fold_line {
    struct slice text;
    enum line_kind kind;
    struct line_time at;          /* when the first of them was read */
    int rank;                     /* the rank that printed it first */
    const void *origin;           /* passed in with it */
    const struct rank_set *ranks; /* all ranks that did; NULL when it is one */
};

/* Called when a line is written. Text and set are valid only during the call. */
typedef void (*fold_fn)(void *user, const struct fold_line *line);

struct fold;

/* For ranks below `ranks`. NULL when memory is short; free with fold_free. */
struct fold *fold_new(int ranks, fold_fn line, void *user);

/* Waiting lines are dropped: call fold_finish first. NULL is allowed. */
void fold_free(struct fold *f);

/* Add a line that `rank` printed, with `ranks` NULL; its text is copied. When memory is short, it and all waiting
 * lines are written now. True when no line waited before: call fold_flush FOLD_QUIET_US from now. */
bool fold_put(struct fold *f, const struct fold_line *line);

/* Deliver what is due at `now_us`, a time like line_time.since_us. Return when to call again, FOLD_NOTHING when
 * nothing waits. */
uint64_t fold_flush(struct fold *f, uint64_t now_us);

/* Deliver all that waits. */
void fold_finish(struct fold *f);

#endif
