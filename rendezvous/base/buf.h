/* buf.h -- bytes that grow at the end and are taken from the front.
 *
 * A zeroed struct is an empty buffer. Growth is by doubling, and only by bytes that are really there: a length that
 * a peer merely announces never reaches this file. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/slice.h"

#include <stdint.h>

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

#endif
