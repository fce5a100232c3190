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
#ifndef LAUNCHER_LINES_H
#define LAUNCHER_LINES_H

#include "base/buf.h"

enum { LINES_LIMIT = 8 * 1024 * 1024 }; /* the longest line that is delivered whole */

enum line_kind {
    LINE_WHOLE,  /* ended by a newline */
    LINE_LAST,   /* the stream ended behind it, without newline */
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

#endif
