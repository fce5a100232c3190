/* buf.h -- bytes: borrowed (slice), growing (buf), with several holders (shared). */
#ifndef RENDEZVOUS_BASE_BUF_H
#define RENDEZVOUS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed view of bytes. Its maker owns them; a slice is never freed.
 *
 * Keys and values of the store may hold any byte, also 0, so a pointer alone does not say where they end.
 * Passed by value: two registers. */
struct slice {
    const void *data;
    size_t len;
};

static inline struct slice slice_of(const void *data, size_t len)
{
    return (struct slice){ data, len };
}

static inline struct slice slice_str(const char *text)
{
    return (struct slice){ text, strlen(text) };
}

/* memcmp must not see the NULL of an empty slice, not even with a length of 0. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Bytes that grow at the end and are taken from the front. A zeroed struct is an empty buffer. Growth is by doubling, and only by
 * bytes that are really there: a length that a peer merely announces never reaches this file. */
struct buf {
    uint8_t *data;
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

/* Room for `more` bytes behind `len`: returns where they go, or NULL when memory is short (buffer unchanged). */
void *buf_reserve(struct buf *b, size_t more);

/* Copy `len` bytes to the end. False when memory is short; nothing is changed then. */
bool buf_append(struct buf *b, const void *data, size_t len);

/* Formatted text to the end, without its final NUL. False when memory is short. */
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drop the first `n` (<= len) bytes. */
void buf_consume(struct buf *b, size_t n);

/* Back to the zeroed state; frees the memory. */
void buf_free(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->data, b->len);
}

enum { SHARED_MIN = 64 << 10 }; /* it pays to hold so many bytes instead of copying them */

/* Bytes with several holders: a value of the store, and the replies that still have to be sent from it.
 *
 * The last holder to release them frees them. Bytes that have another holder must not be changed. One thread. */
struct shared {
    uint32_t holders;
    size_t size; /* of `bytes` */
    uint8_t bytes[];
};

/* Room for `size` bytes that begins with the first `keep` bytes of `old`, which is released; NULL is an empty one. The same memory
 * if nobody else holds it. NULL when memory is short: `old` is unchanged. */
struct shared *shared_resize(struct shared *old, size_t size, size_t keep);

struct shared *shared_hold(struct shared *s);

/* NULL is allowed. */
void shared_release(struct shared *s);

static inline bool shared_is_held_twice(const struct shared *s)
{
    return s != NULL && s->holders > 1;
}

#endif
