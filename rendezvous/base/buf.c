/* buf.c -- see buf.h.
 *
 * A buf is one block, so its contents can be parsed without copies. buf_consume moves the remaining bytes to the front.
 * This is cheap, because callers consume all bytes, or leave only an incomplete message. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_MIN = 256 }; /* bytes of the first allocation */

/* Reserve room. The capacity at least doubles, so that n appended bytes cost only O(n) copied bytes. */
void *buf_reserve(struct buf *b, size_t more)
{
    /* above half of SIZE_MAX, the doubling below could overflow */
    if (more > SIZE_MAX / 2 - b->len)
        return NULL;
    size_t need = b->len + more;
    if (need > b->cap) {
        size_t cap = b->cap ? b->cap : BUF_MIN;
        while (cap < need)
            cap *= 2;
        uint8_t *data = realloc(b->data, cap);
        if (data == NULL)
            return NULL;
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

bool buf_append(struct buf *b, const void *data, size_t len)
{
    if (len == 0)
        return true;
    void *to = buf_reserve(b, len);
    if (to == NULL)
        return false;
    memcpy(to, data, len);
    b->len += len;
    return true;
}

/* Format into the free room. If the text does not fit, reserve room for the length that vsnprintf has returned,
 * and format again. The NUL is not counted in `len`, so the next append overwrites it. */
bool buf_printf(struct buf *b, const char *fmt, ...)
{
    const size_t room = b->cap - b->len;
    char *to = room > 0 ? (char *)b->data + b->len : NULL;
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(to, room, fmt, ap);
    va_end(ap);
    bool ok = n >= 0;
    if (ok && (size_t)n >= room) {
        to = buf_reserve(b, (size_t)n + 1);
        ok = to != NULL && vsnprintf(to, (size_t)n + 1, fmt, again) == n;
    }
    va_end(again);
    if (ok)
        b->len += (size_t)n;
    return ok;
}

void buf_consume(struct buf *b, size_t n)
{
    b->len -= n;
    if (n > 0 && b->len > 0) /* skip n = 0: memmove would copy all bytes to the same address */
        memmove(b->data, b->data + n, b->len);
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ 0 };
}

/* --- kept ------------------------------------------------------------------------------------------------- */

bool kept_add(struct kept *k, struct slice frame)
{
    if (buf_reserve(&k->bytes, sizeof(frame.len) + frame.len) == NULL)
        return false;
    buf_append(&k->bytes, &frame.len, sizeof(frame.len));
    buf_append(&k->bytes, frame.data, frame.len);
    k->last++;
    return true;
}

bool kept_next(const struct kept *k, size_t *at, struct slice *frame)
{
    size_t len;
    if (*at >= k->bytes.len)
        return false;
    memcpy(&len, k->bytes.data + *at, sizeof(len));
    *frame = slice_of(k->bytes.data + *at + sizeof(len), len);
    *at += sizeof(len) + len;
    return true;
}

bool kept_confirm(struct kept *k, uint64_t done)
{
    struct slice frame;
    size_t at = 0;
    if (done > k->last)
        return false;
    while (k->done < done && kept_next(k, &at, &frame))
        k->done++;
    buf_consume(&k->bytes, at);
    return true;
}

struct shared *shared_resize(struct shared *old, size_t size, size_t keep)
{
    const bool alone = !shared_is_held_twice(old);
    struct shared *s = alone ? realloc(old, sizeof(*s) + size) : malloc(sizeof(*s) + size);
    if (s == NULL)
        return NULL;
    if (!alone) {
        memcpy(s->bytes, old->bytes, keep < size ? keep : size);
        old->holders--;
    }
    s->holders = 1;
    s->size = size;
    return s;
}

struct shared *shared_hold(struct shared *s)
{
    s->holders++;
    return s;
}

void shared_release(struct shared *s)
{
    if (s != NULL && --s->holders == 0)
        free(s);
}
