/* lines.h -- cuts one stream of a worker into whole lines.
 *
 * Fed with whatever read(2) returned, it calls `line` once per line, so the writer can write prefix, text and
 * newline in one piece and no line of another worker gets between. How the bytes were cut into reads makes no
 * difference to the lines.
 *
 * - A line ends with \n or \r\n.
 * - A lone \r ends an update: what a progress bar draws over. Updates are not lines: only the latest is kept,
 * and shown when lines_show_update is called (from a timer, about once a second) or when nothing followed it:
 * by \n or the end.
 * - An update that is only ESC [ K (erase the row) takes back the one before it.
 * - A last line without \n is delivered by lines_finish.
 * - Text over the limit is delivered in pieces of that size, marked LINE_CUT: memory stays bounded.
 *
 * The cost is linear in the bytes. A line that lies in one read is not copied. Log files get the bytes as
 * they are and do not come through here. */
#ifndef LAUNCHER_OUTPUT_LINES_H
#define LAUNCHER_OUTPUT_LINES_H

#include "base/buf.h"
#include "plan/plan.h"
#include "base/rank_set.h"

#include <stdint.h>

/* Output that is missing somewhere. */

struct loss {
    const char *name; /* "stdout", "stderr" or a path; borrowed */
    uint64_t bytes;
    int error; /* errno, 0 when it was too slow */
};

enum { LINES_LIMIT = 8 * 1024 * 1024 }; /* the longest line that is delivered whole */

enum line_kind {
    LINE_WHOLE,  /* ended by a newline */
    LINE_LAST,   /* the stream ended after it, without newline */
    LINE_UPDATE, /* ended by \r: something will be drawn over it */
    LINE_CUT     /* over the limit: the line goes on in the next call */
};

/* When a line's bytes were read. */
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
    struct buf text;   /* since the last \n or \r */
    struct buf update; /* the text before the last \r */
    bool update_shown;
};

/* `limit` is LINES_LIMIT but in tests. */
void lines_init(struct lines *l, line_fn line, void *user, size_t limit);
void lines_free(struct lines *l);

void lines_feed(struct lines *l, struct slice bytes);

/* Deliver the latest update as LINE_UPDATE when it was not shown yet; true when there was one. */
bool lines_show_update(struct lines *l);

/* Memory is short elsewhere: deliver the beginning of an unfinished line as LINE_CUT now. */
void lines_cut(struct lines *l);

/* The stream has ended: deliver what is left. The struct may be fed again afterwards. */
void lines_finish(struct lines *l);

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The last 64 KiB of a stream, for the report. A zeroed struct is empty; memory is taken when bytes
 * come. */

enum { TAIL_BYTES = 64 * 1024 };

struct tail {
    uint8_t *ring;
    size_t cap;   /* bytes allocated, at most TAIL_BYTES */
    size_t start; /* where the oldest byte is; 0 until the ring is full size */
    size_t len;
};

/* Remember `bytes`, forget the oldest. When memory is short the older bytes stay and these are dropped. */
void tail_feed(struct tail *t, struct slice bytes);

/* Append the last `max` lines to `out`, each ended by a newline; a final line without one counts as a line.
 * Blank lines at the end are left out. Returns the number of lines; 0 also when memory is short. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out);

void tail_free(struct tail *t);

/* --- merge ------------------------------------------------------------------------------------------------ */

/* Lets several streams share one log file: whole lines, each with the name of its worker.
 *
 * Pure. Unlike lines of the terminal it keeps every byte: what is written to the file, without the prefixes, is what the stream
 * had, \r and all. */

enum { MERGE_LINE_MAX = 1 << 20, MERGE_PREFIX_MAX = 32 };

struct merge {
    char prefix[MERGE_PREFIX_MAX]; /* in front of each line; may be "" */
    struct buf rest;               /* of a line that has no end yet */
    bool midline; /* the file got the beginning of the line already, because it was too long */
};

/* Append to `out` what is complete with these bytes. A line above MERGE_LINE_MAX is given in pieces, and another
 * stream's line may come between them. False when memory is short: bytes are missing then. */
bool merge_feed(struct merge *m, struct slice bytes, struct buf *out);

/* The stream has ended: what has no newline gets one, so that the next line of the file is not spoilt. */
bool merge_finish(struct merge *m, struct buf *out);

void merge_free(struct merge *m);

/* --- line prefix ------------------------------------------------------------------------------------------ */

/* The prefix of one line: the plan's template with the numbers of who printed it. */

struct line_origin {
    int local_rank, which;        /* STD_OUT or STD_ERR */
    int pid;                      /* 0 = not known */
    const struct rank_set *ranks; /* local ranks of a line that several printed, else NULL */
    struct line_time at;
};

/* Append it, in the rank's colour if `colour`. Where several ranks printed the line they are shown in any case, even
 * when the template has no field for them. False when memory is short. */
bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out);

/* --- equal lines of several ranks ------------------------------------------------------------------------ */

/* A line that many workers print, shown once with the set of their ranks.
 *
 * A line waits a moment for others that are the same, byte for byte. The order of each rank's lines never changes: a
 * rank joins a waiting line only when all that it printed before comes before that. The clock is an argument. */

/* A worker's line as it appears on the console: behind its prefix, harmless for a terminal, and with progress
 * bars on the last row. */

/* The target of the lines. A zeroed struct is a file or a pipe: the text is written unchanged, and each update of a
 * bar is a line. */
struct line_row {
    bool escape;   /* a terminal: it would obey what is in the text, see text.h */
    bool terminal; /* ... that can move its cursor: an update stays on its last row until a line comes */
    bool drawn;    /* an update stands there now */
};

/* Wipes the row for a line of another origin: "" when no update stands there. */
const char *line_row_wipe(struct line_row *row);

/* Append the line with its end. False when memory is short: nothing is appended then. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

enum {
    FOLD_QUIET_US = 200 * 1000,     /* a line is written when no rank joined it for this long ... */
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

/* Waiting lines are dropped: call fold_finish first. NULL is allowed. */
void fold_free(struct fold *f);

/* Add a line that `rank` printed, with `ranks` NULL; its text is copied. When memory is short, it and all waiting
 * lines are written now. True when no line waited before: call fold_flush FOLD_QUIET_US from now. */
bool fold_put(struct fold *f, const struct fold_line *line);

/* Deliver what is due at `now_us`, a time like line_time.since_us. Returns when to call again, FOLD_NOTHING
 * when nothing waits. */
uint64_t fold_flush(struct fold *f, uint64_t now_us);

/* Deliver all that waits. */
void fold_finish(struct fold *f);

#endif
