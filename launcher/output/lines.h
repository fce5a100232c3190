/* lines.h -- the workers' output as lines: cutting a stream into lines, prefixes, merged files, equal lines of several
 * ranks. Prefix, text and newline of a line are written in one piece, so lines of two workers never mix. Lines do not
 * depend on how read(2) cuts the bytes. */
#ifndef LAUNCHER_OUTPUT_LINES_H
#define LAUNCHER_OUTPUT_LINES_H

#include "base/buf.h"
#include "plan/plan.h"
#include "record/rank_set.h"

#include <stdint.h>

/* Output that could not be written to one target. */

struct loss {
    const char *name; /* "stdout", "stderr" or a path; owned by the sinks */
    uint64_t bytes;
    int error; /* errno of the write that last lost bytes; 0 if the target was too slow */
};

enum { LINES_LIMIT = 8 * 1024 * 1024 }; /* longest line that is delivered in one piece, in bytes */

enum line_kind {
    LINE_WHOLE,  /* \n or \r\n has ended the line */
    LINE_LAST,   /* the stream has ended without a newline after this text */
    LINE_UPDATE, /* \r has ended the text, which the next text overwrites */
    LINE_CUT     /* part of a line that is too long; the next call delivers the next part */
};

/* The time when the bytes of a line were read. */
struct line_time {
    uint64_t unix_us;  /* wall clock */
    uint64_t since_us; /* since the start of ddprun */
};

/* Receives a line. `text` has no line end and is valid only during the call. */
typedef void (*line_fn)(void *user, struct slice text, enum line_kind kind);

/* Cuts one stream into lines.
 *
 * - A lone \r ends an update of a progress bar, which the next text overwrites. Updates are not lines, and only the
 *   latest update is kept. lines_show_update delivers this update. If no other text follows the update, a \n or the
 *   end of the stream also delivers the update.
 * - An update that is only ESC [ K (erase the row) removes the previous update.
 * - A line that is longer than `limit` is delivered in pieces (LINE_CUT), so memory stays bounded.
 *
 * Log files receive the bytes unchanged and do not use this struct. The struct owns both buffers, which lines_free
 * frees. `user` is borrowed. */
struct lines {
    line_fn line;
    void *user;
    size_t limit;
    struct buf text;   /* the unfinished segment: bytes since the last \n or \r */
    struct buf update; /* the segment before the last \r */
    bool update_shown;
};

/* Initialize the struct. `limit` is LINES_LIMIT; only tests pass another value. */
void lines_init(struct lines *l, line_fn line, void *user, size_t limit);
void lines_free(struct lines *l);

/* Append the bytes of read(2), and call `line` once for each line that ends in these bytes. The running time is
 * proportional to the number of bytes. A line without \r that is complete within one read is not copied. */
void lines_append(struct lines *l, struct slice bytes);

/* Deliver the latest update as LINE_UPDATE, if this update was not delivered before. Return true if the update was
 * delivered. A timer (output.c) calls this function between two reads, so the time decides which updates are
 * delivered. */
bool lines_show_update(struct lines *l);

/* Deliver the unfinished line now, as LINE_CUT, to free its memory. */
void lines_cut(struct lines *l);

/* Deliver the unfinished line as LINE_LAST, because the stream has ended. The struct can then be used for another
 * stream. */
void lines_finish(struct lines *l);

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The last 64 KiB of a stream, for the report. A zeroed struct is empty. */

enum { TAIL_BYTES = 64 * 1024 };

/* The struct owns the ring, which tail_free frees. */
struct tail {
    uint8_t *ring;
    size_t cap;   /* allocated bytes, at most TAIL_BYTES */
    size_t start; /* index of the oldest byte; 0 until the ring is full */
    size_t len;
};

/* Append `bytes`, and drop the oldest bytes if the tail is full. When memory is short, drop `bytes` instead. */
void tail_add(struct tail *t, struct slice bytes);

/* Append the last `max` lines to `out`, each with a newline. Blank lines at the end are skipped. Return the number
 * of lines, or 0 when memory is short. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out);

void tail_free(struct tail *t);

/* --- merge ------------------------------------------------------------------------------------------------ */

/* A merged log file joins several streams. It contains every byte of the streams, and the worker's name before each
 * line. */

enum { MERGE_LINE_MAX = 1 << 20, MERGE_PREFIX_MAX = 32 };

/* The struct owns `rest`, which merge_free frees. */
struct merge {
    char prefix[MERGE_PREFIX_MAX]; /* text before each line, or "" */
    struct buf rest;               /* beginning of an unfinished line */
    bool midline;                  /* the file ends in the middle of a line that is written in pieces */
};

/* Append to `out` the lines that these bytes complete. A line longer than MERGE_LINE_MAX is written in pieces, and
 * lines of other streams may come between the pieces. Return false when memory is short. The file then lacks some
 * bytes. */
bool merge_add(struct merge *m, struct slice bytes, struct buf *out);

/* Append the unfinished line, because the stream has ended. A newline is added, so that the next line of the file
 * is separate. */
bool merge_finish(struct merge *m, struct buf *out);

void merge_free(struct merge *m);

/* --- line prefix ------------------------------------------------------------------------------------------ */

/* The origin of a line, which determines its prefix. */

/* The struct borrows `ranks`. */
struct line_origin {
    int local_rank, which;        /* `which` is STD_OUT or STD_ERR */
    int pid;                      /* 0 if not known */
    const struct rank_set *ranks; /* local ranks, if several ranks printed the line; otherwise NULL */
    struct line_time at;
};

/* Append the prefix, coloured by rank if `colour` is true. If several ranks printed the line, the prefix always shows
 * these ranks, even if the template has no field for ranks. Return false when memory is short. */
bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out);

/* --- equal lines of several ranks ------------------------------------------------------------------------ */

/* A line that several workers print is printed once, with the set of their ranks.
 *
 * A line waits a short time for equal lines of other ranks. The order of each rank's lines never changes. */

/* The last row of the terminal on which lines are printed. If lines go to a file or a pipe, all members are false. */
struct line_row {
    bool escape;   /* escape control characters, because the target is a terminal; see text.h */
    bool terminal; /* the terminal can move its cursor, so progress bars stay on the last row */
    bool drawn;    /* the last row shows an update */
};

/* Return the bytes that erase the update on the last row, or "" if that row shows no update. The text is constant. */
const char *line_row_wipe(struct line_row *row);

/* Append the bytes that erase a progress bar, then the line with prefix and newline. When memory is short, append
 * nothing and return false. */
bool line_show(struct buf *out, struct line_row *row, struct slice prefix, struct slice text,
               enum line_kind kind);

enum {
    FOLD_QUIET_US = 200 * 1000,     /* a line waits this time for the next equal line */
    FOLD_LONGEST_US = 10000 * 1000, /* a line waits at most this time */
    FOLD_LINES_MAX = 4096,          /* if more lines wait, the oldest are written early */
    FOLD_BYTES_MAX = 1 << 20        /* if the waiting lines have more bytes, the oldest are written early */
};

#define FOLD_NOTHING UINT64_MAX

struct fold_line {
    struct slice text;
    enum line_kind kind;
    struct line_time at;          /* when the line was read from the first rank that printed it */
    int rank;                     /* the first rank that printed the line */
    struct slice prefix;          /* prefix of the line if only one rank printed the line; copied */
    const void *origin;           /* pointer of the caller, passed to fold_fn */
    const struct rank_set *ranks; /* all ranks that printed the line; NULL if only `rank` printed it */
};

/* Receives a line that must now be written. The text and the ranks are valid only during the call. */
typedef void (*fold_fn)(void *user, const struct fold_line *line);

struct fold;

/* Return a new fold, or NULL when memory is short. `ranks` is the number of ranks. Free the fold with fold_free. */
struct fold *fold_new(int ranks, fold_fn line, void *user);

/* Free the fold and drop its waiting lines. To deliver these lines, call fold_finish first. `f` may be NULL. */
void fold_free(struct fold *f);

/* Add a line that one rank printed (`ranks` is NULL). The text is copied. If memory is short, or if the text is longer
 * than FOLD_BYTES_MAX, deliver all lines immediately. Return true if this line now waits, but no other line waits. The
 * caller must then call fold_flush after FOLD_QUIET_US. */
bool fold_add(struct fold *f, const struct fold_line *line);

/* Deliver the lines that are due at `now_us`, a time since the start of ddprun. Return the time of the next call, or
 * FOLD_NOTHING if no line waits. */
uint64_t fold_flush(struct fold *f, uint64_t now_us);

/* Deliver all waiting lines. */
void fold_finish(struct fold *f);

/* Append "0,2-5" for the ranks of a line. Return false when memory is short. */
bool fold_print_ranks(const struct rank_set *ranks, struct buf *out);

/* --- lines of several nodes -------------------------------------------------------------------------------- */

/* With --hosts and --fold, each node marks its workers' lines, and the starter folds them. A worker cannot forge a
 * mark, because its text comes after the line's mark. */

struct marked_line {
    int rank, world_size;
    struct slice prefix, text; /* borrowed */
};

/* Append the mark (rank, world size, length of the prefix), then the prefix. Return false when memory is short. */
bool line_mark(struct buf *out, int rank, int world_size, struct slice prefix);

/* Parse a line without its newline. Return false if the line has no mark. */
bool line_unmark(struct slice line, struct marked_line *out);

#endif
