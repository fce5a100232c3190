/* lines.h -- cuts one stream of a worker into whole lines.
 *
 * lines_feed gets the bytes of read(2) and calls `line` once per line, so that prefix, text and newline are written
 * in one piece, without another worker's line in between. The result does not depend on where reads cut the bytes.
 *
 * - A line ends with \n or \r\n.
 * - A lone \r ends an update of a progress bar, which the next text overwrites. Updates are not lines, and only the
 *   latest update is kept. lines_show_update delivers the latest update (from a timer, about once a second). A \n or
 *   the end of the stream also delivers the update, if no other text has followed.
 * - An update that is only ESC [ K (erase the row) removes the previous update.
 * - lines_finish delivers a last line without \n.
 * - Text over the limit is delivered in pieces of that size, marked LINE_CUT, so memory stays bounded.
 *
 * The cost is linear in the bytes. A line that is complete within one read is not copied. Log files get the bytes
 * unchanged and do not use this module. */
#ifndef LAUNCHER_OUTPUT_LINES_H
#define LAUNCHER_OUTPUT_LINES_H

#include "base/buf.h"
#include "plan/plan.h"
#include "record/rank_set.h"

#include <stdint.h>

/* Output that could not be written to one target. */

struct loss {
    const char *name; /* "stdout", "stderr" or a path; borrowed */
    uint64_t bytes;
    int error; /* errno; 0 when the target was too slow */
};

enum { LINES_LIMIT = 8 * 1024 * 1024 }; /* the longest line that is delivered in one piece */

enum line_kind {
    LINE_WHOLE,  /* ended by a newline */
    LINE_LAST,   /* the stream ended after this text, without newline */
    LINE_UPDATE, /* ended by \r: the next text will overwrite it */
    LINE_CUT     /* over the limit: the line continues in the next call */
};

/* The time at which a line's bytes were read. */
struct line_time {
    uint64_t unix_us;  /* by the wall clock */
    uint64_t since_us; /* since the start of ddprun */
};

/* Receives a line. `text` has no line end and is valid during the call only. */
typedef void (*line_fn)(void *user, struct slice text, enum line_kind kind);

struct lines {
    line_fn line;
    void *user;
    size_t limit;
    struct buf text;   /* bytes since the last newline or carriage return */
    struct buf update; /* the text before the last carriage return */
    bool update_shown;
};

/* Initialize. `limit` is LINES_LIMIT except in tests. */
void lines_init(struct lines *l, line_fn line, void *user, size_t limit);
void lines_free(struct lines *l);

void lines_feed(struct lines *l, struct slice bytes);

/* Deliver the latest update as LINE_UPDATE, unless it was delivered before. Return true if an update was
 * delivered. */
bool lines_show_update(struct lines *l);

/* Deliver the beginning of an unfinished line as LINE_CUT, because memory is short elsewhere. */
void lines_cut(struct lines *l);

/* Deliver the rest, because the stream has ended. The struct may be fed again afterwards. */
void lines_finish(struct lines *l);

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The last 64 KiB of a stream, for the report. A zeroed struct is empty; memory is allocated for the first bytes. */

enum { TAIL_BYTES = 64 * 1024 };

struct tail {
    uint8_t *ring;
    size_t cap;   /* bytes allocated, at most TAIL_BYTES */
    size_t start; /* index of the oldest byte; 0 until the ring has its full size */
    size_t len;
};

/* Append `bytes` and drop the oldest. When memory is short, `bytes` are dropped instead. */
void tail_feed(struct tail *t, struct slice bytes);

/* Append the last `max` lines to `out`, each with a newline at its end, even if the last line had no newline. Blank
 * lines at the end are skipped. Return the number of lines, or 0 when memory is short. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out);

void tail_free(struct tail *t);

/* --- merge ------------------------------------------------------------------------------------------------ */

/* Several streams in one log file: whole lines, each with the name of its worker.
 *
 * Pure. Unlike the lines of the terminal, merged lines contain every byte: without the prefixes the file equals the
 * stream, \r included. */

enum { MERGE_LINE_MAX = 1 << 20, MERGE_PREFIX_MAX = 32 };

struct merge {
    char prefix[MERGE_PREFIX_MAX]; /* text before each line; may be "" */
    struct buf rest;               /* the beginning of an unfinished line */
    bool midline;                  /* the file already contains the beginning of a line that was too long */
};

/* Append to `out` the lines that these bytes complete. A line longer than MERGE_LINE_MAX is written in pieces, and a
 * line of another stream may come between them. Return false when memory is short, so that bytes are missing. */
bool merge_feed(struct merge *m, struct slice bytes, struct buf *out);

/* Write the rest, because the stream has ended. A line without a newline gets a newline, so that the next line of the
 * file is separate. */
bool merge_finish(struct merge *m, struct buf *out);

void merge_free(struct merge *m);

/* --- line prefix ------------------------------------------------------------------------------------------ */

/* The prefix of one line: the plan's template, filled with the rank or ranks that printed the line. */

struct line_origin {
    int local_rank, which;        /* STD_OUT or STD_ERR */
    int pid;                      /* 0 = not known */
    const struct rank_set *ranks; /* local ranks of a line of several ranks; else NULL */
    struct line_time at;
};

/* Append the prefix, in the rank's colour if `colour`. If several ranks printed the line, their numbers are shown
 * even when the template has no field for them. Return false when memory is short. */
bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out);

/* --- equal lines of several ranks ------------------------------------------------------------------------ */

/* A line that many workers print is shown once, with the set of their ranks.
 *
 * A line waits a short time for lines that are equal byte for byte. The order of each rank's lines never changes: a
 * rank joins a waiting line only if all its earlier lines precede that line. The clock is an argument. */

/* Lines of workers on the console: with a prefix, with harmless control characters on a terminal, and with progress
 * bars on the last row. */

/* The target of lines. A zeroed struct is a file or a pipe: the text is written unchanged, and each update of a bar
 * becomes a line. */
struct line_row {
    bool escape;   /* a terminal, which would execute control characters; see text.h */
    bool terminal; /* true if the terminal can move its cursor, so an update stays on the last row */
    bool drawn;    /* an update is on the last row now */
};

/* Return the bytes that erase the row before a line of another stream, or "" when the row has no update. */
const char *line_row_wipe(struct line_row *row);

/* Append the line with its end. When memory is short, append nothing and return false. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

enum {
    FOLD_QUIET_US = 200 * 1000,     /* a line is written when no rank has joined it for this long */
    FOLD_LONGEST_US = 10000 * 1000, /* a line waits no longer than this */
    FOLD_LINES_MAX = 4096,          /* limit of waiting lines, above which the oldest are written early */
    FOLD_BYTES_MAX = 1 << 20
};

#define FOLD_NOTHING UINT64_MAX

struct fold_line {
    struct slice text;
    enum line_kind kind;
    struct line_time at;          /* when the first rank's line was read */
    int rank;                     /* the rank that printed the line first */
    const void *origin;           /* the caller's pointer, returned with the line */
    const struct rank_set *ranks; /* all ranks that printed the line; NULL for a single rank */
};

/* Receives a line to write. Text and set are valid during the call only. */
typedef void (*fold_fn)(void *user, const struct fold_line *line);

struct fold;

/* Return a new fold for ranks below `ranks`, or NULL when memory is short. The caller frees the fold with
 * fold_free. */
struct fold *fold_new(int ranks, fold_fn line, void *user);

/* Free the fold, and drop all waiting lines. To write these lines, call fold_finish first. NULL is allowed. */
void fold_free(struct fold *f);

/* Add a line that one rank printed (`ranks` is NULL), and copy its text. When memory is short, this line and all
 * waiting lines are written at once. Return true if no line waited before, so that the caller calls fold_flush after
 * FOLD_QUIET_US. */
bool fold_put(struct fold *f, const struct fold_line *line);

/* Deliver the lines that are due at `now_us`, a time like line_time.since_us. Return the time of the next call, or
 * FOLD_NOTHING when no line waits. */
uint64_t fold_flush(struct fold *f, uint64_t now_us);

/* Deliver all waiting lines. */
void fold_finish(struct fold *f);

#endif
