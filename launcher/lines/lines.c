/* lines.c -- see lines.h.
 *
 * The stream is seen as segments, each ended by \n or \r. `text` holds the segment that is not finished yet,
 * `update` the last one that \r ended: a carriage return only moves the cursor, so what was written stays
 * visible until something is drawn over it. That one rule covers all that programs do:
 *
 *     bytes                    line
 *     "a\r\n"                  "a"      a text file from Windows
 *     "\r10%\r20%\rdone\n"     "done"   a bar that writes \r in front
 *     "10%\r20%\r\n"           "20%"    a bar that writes \r behind
 *     "a\r\r\n"                "a"      both at once
 *
 * Lines do not depend on how the bytes were cut into reads; only the moments of lines_show_update do. */
#include "lines/lines.h"

#include "text/escape.h"

enum { KEEP_CAPACITY = 64 * 1024 }; /* a buffer that one huge line made bigger is given back */

void lines_init(struct lines *l, line_fn line, void *user, size_t limit)
{
    *l = (struct lines){ .line = line, .user = user, .limit = limit };
}

/* Ready for the next segment; a buffer that one huge line has grown is not kept for the small ones. */
static void empty(struct buf *b)
{
    b->len = 0;
    if (b->cap > KEEP_CAPACITY)
        buf_free(b);
}

void lines_free(struct lines *l)
{
    buf_free(&l->text);
    buf_free(&l->update);
}

static void deliver(struct lines *l, struct slice text, enum line_kind kind)
{
    l->line(l->user, text, kind);
}

/* The segment goes on: what follows is delivered as a line of its own. */
static void deliver_cut(struct lines *l)
{
    if (l->text.len > 0)
        deliver(l, buf_slice(&l->text), LINE_CUT);
    empty(&l->text);
}

/* More of the unfinished segment. When memory is short its parts are delivered as they come: nothing is
 * lost. */
static void add_text(struct lines *l, const char *p, size_t len)
{
    while (len > 0) {
        if (l->text.len == l->limit)
            deliver_cut(l);
        size_t room = l->limit - l->text.len;
        size_t part = len < room ? len : room;
        if (!buf_append(&l->text, p, part)) {
            deliver_cut(l);
            deliver(l, slice_of(p, part), LINE_CUT);
        }
        p += part;
        len -= part;
    }
}

/* A newline moved the cursor: nothing can be drawn over it any more. */
static void forget_update(struct lines *l)
{
    empty(&l->update);
    l->update_shown = false;
}

/* \r: the segment may be drawn over from now on. An empty one draws over nothing; one that only erases the row
 * leaves nothing to show. */
static void end_update(struct lines *l)
{
    if (slice_equal(buf_slice(&l->text), slice_str(ERASE_ROW))) {
        empty(&l->text);
        forget_update(l);
    }
    if (l->text.len == 0)
        return;
    struct buf old = l->update;
    l->update = l->text;
    l->text = old;
    l->update_shown = false;
    empty(&l->text);
}

/* The line that ends here is its last segment, or the update before it when nothing was drawn over that. */
static void end_line(struct lines *l, enum line_kind kind)
{
    if (l->text.len > 0 || l->update.len == 0)
        deliver(l, buf_slice(&l->text), kind);
    else if (!l->update_shown)
        deliver(l, buf_slice(&l->update), kind);
    empty(&l->text);
    forget_update(l);
}

/* What lies before a \n, its \r's included. */
static void add_segments(struct lines *l, const char *p, size_t len)
{
    const char *cr;
    while (len > 0 && (cr = memchr(p, '\r', len)) != NULL) {
        size_t part = (size_t)(cr - p);
        add_text(l, p, part);
        end_update(l);
        p += part + 1;
        len -= part + 1;
    }
    add_text(l, p, len);
}

/* A line that lies in the fed bytes as a whole and needs no care: the common case, delivered uncopied. */
static bool is_plain(const struct lines *l, const char *p, size_t len)
{
    return l->text.len == 0 && l->update.len == 0 && len <= l->limit && memchr(p, '\r', len) == NULL;
}

void lines_feed(struct lines *l, struct slice bytes)
{
    const char *p = bytes.data, *end = p + bytes.len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline != NULL ? newline : end) - p);
        if (newline != NULL && is_plain(l, p, len)) {
            deliver(l, slice_of(p, len), LINE_WHOLE);
        } else {
            add_segments(l, p, len);
            if (newline != NULL)
                end_line(l, LINE_WHOLE);
        }
        p += len + (newline != NULL ? 1 : 0);
    }
}

bool lines_show_update(struct lines *l)
{
    if (l->update.len == 0 || l->update_shown)
        return false;
    l->update_shown = true;
    deliver(l, buf_slice(&l->update), LINE_UPDATE);
    return true;
}

void lines_cut(struct lines *l)
{
    deliver_cut(l);
}

void lines_finish(struct lines *l)
{
    if (l->text.len > 0 || l->update.len > 0)
        end_line(l, LINE_LAST);
}
