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
#include "output/lines.h"

#include "tables/text.h"

#include <stdlib.h>

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
static void lines_add(struct lines *l, const char *p, size_t len)
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
        lines_add(l, p, part);
        end_update(l);
        p += part + 1;
        len -= part + 1;
    }
    lines_add(l, p, len);
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

/* --- tail ------------------------------------------------------------------------------------------------- */

/* The ring grows like a plain buffer until it has its full size, and only then begins to wrap: a worker that writes
 * three lines costs three lines, and 512 streams that write nothing cost nothing.
 *
 *     growing:   ring [abcd....]  start 0, len 4         more room behind, no byte has to move
 *     full:      ring [efgdabcX]  start 4, len 8         new bytes go over the oldest ones
 *
 * Bytes are kept, not lines: how they are cut into lines is asked once, for the one worker that failed first. */

enum { TAIL_MIN = 1024 };

/* Room for `need` bytes, as far as TAIL_BYTES. Only called while start is 0. */
static bool tail_grow(struct tail *t, size_t need)
{
    size_t cap = t->cap > 0 ? t->cap : TAIL_MIN;
    while (cap < need && cap < TAIL_BYTES)
        cap *= 2;
    uint8_t *ring = realloc(t->ring, cap);
    if (ring == NULL)
        return false;
    t->ring = ring;
    t->cap = cap;
    return true;
}

/* At most two copies a call, one to the end of the ring and one from its beginning; of more bytes than the ring holds
 * only the last ones are looked at. Short of memory the old words stay: they are better than none. */
void tail_feed(struct tail *t, struct slice bytes)
{
    const uint8_t *p = bytes.data;
    size_t len = bytes.len;
    if (t->cap < TAIL_BYTES && t->len + len > t->cap && !tail_grow(t, t->len + len))
        return;
    if (len > t->cap) {
        p += len - t->cap;
        len = t->cap;
    }
    while (len > 0) {
        size_t at = (t->start + t->len) % t->cap;
        size_t part = t->cap - at < len ? t->cap - at : len;
        memcpy(t->ring + at, p, part);
        size_t over = t->len + part > t->cap ? t->len + part - t->cap : 0;
        t->start = (t->start + over) % t->cap;
        t->len += part - over;
        p += part;
        len -= part;
    }
}

/* The i-th oldest byte. */
static uint8_t byte_at(const struct tail *t, size_t i)
{
    return t->ring[(t->start + i) % t->cap];
}

/* Where the text ends when blank lines at the end are left out. */
static size_t text_end(const struct tail *t)
{
    size_t end = t->len;
    while (end > 0 && (byte_at(t, end - 1) == '\n' || byte_at(t, end - 1) == '\r'))
        end--;
    return end;
}

/* From the end backwards, since only that is known to be the end of a line; the oldest line of a full ring may
 * have lost its beginning. */
size_t tail_lines(const struct tail *t, size_t max, struct buf *out)
{
    size_t end = text_end(t);
    size_t begin = end, lines = 0;
    if (end == 0 || max == 0)
        return 0;
    while (begin > 0 && lines < max)
        lines += byte_at(t, --begin) == '\n';
    if (lines == max)
        begin++; /* behind the newline that ends the line before */
    else
        lines++;
    uint8_t *to = buf_reserve(out, end - begin + 1);
    if (to == NULL)
        return 0;
    for (size_t i = begin; i < end; i++)
        *to++ = byte_at(t, i);
    *to = '\n';
    out->len += end - begin + 1;
    return lines;
}

void tail_free(struct tail *t)
{
    free(t->ring);
    *t = (struct tail){ 0 };
}

/* --- merge ------------------------------------------------------------------------------------------------ */

/* One line, or a piece of one, with its prefix where it begins. */
static bool merge_put(struct merge *m, const void *data, size_t len, struct buf *out)
{
    const bool begins = !m->midline && m->rest.len == 0;
    return (!begins || buf_append(out, m->prefix, strlen(m->prefix))) && buf_append(out, data, len);
}

/* The beginning of the line that was kept for its end. */
static bool merge_put_rest(struct merge *m, struct buf *out)
{
    struct buf rest = m->rest;
    if (rest.len == 0)
        return true;
    m->rest = (struct buf){ 0 };
    bool ok = merge_put(m, rest.data, rest.len, out);
    buf_free(&rest);
    m->midline = true;
    return ok;
}

bool merge_feed(struct merge *m, struct slice bytes, struct buf *out)
{
    const char *p = bytes.data, *end = p + bytes.len, *newline;
    bool ok = true;
    while (p < end && (newline = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        ok = merge_put_rest(m, out) && merge_put(m, p, (size_t)(newline + 1 - p), out) && ok;
        m->midline = false;
        p = newline + 1;
    }
    ok = buf_append(&m->rest, p, (size_t)(end - p)) && ok;
    if (m->rest.len > MERGE_LINE_MAX)
        ok = merge_put_rest(m, out) && ok;
    return ok;
}

bool merge_finish(struct merge *m, struct buf *out)
{
    const bool open = m->midline || m->rest.len > 0;
    bool ok = merge_put_rest(m, out);
    m->midline = false;
    return !open || (buf_append(out, "\n", 1) && ok);
}

void merge_free(struct merge *m)
{
    buf_free(&m->rest);
}
