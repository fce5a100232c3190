/* tail.c -- see tail.h.
 *
 * The ring grows like a plain buffer until it has its full size, and only then begins to wrap: a worker that writes
 * three lines costs three lines, and 512 streams that write nothing cost nothing.
 *
 *     growing:   ring [abcd....]  start 0, len 4         more room behind, no byte has to move
 *     full:      ring [efgdabcX]  start 4, len 8         new bytes go over the oldest ones
 *
 * Bytes are kept, not lines: how they are cut into lines is asked once, for the one worker that failed first. */
#include "lines/tail.h"

#include <stdlib.h>

enum { TAIL_MIN = 1024 };

/* Room for `need` bytes, as far as TAIL_BYTES. Only called while start is 0. */
static bool grow(struct tail *t, size_t need)
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
    if (t->cap < TAIL_BYTES && t->len + len > t->cap && !grow(t, t->len + len))
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
