/* buf.h -- bytes: borrowed (slice), growing (buf), with several holders (shared). */
#ifndef RENDEZVOUS_BASE_BUF_H
#define RENDEZVOUS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed view of bytes. The bytes belong to the maker of the slice; a slice is never freed.
 *
 * Keys and values of the store may hold any byte, including 0, so a pointer alone does not mark their end.
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

/* memcmp must not get the NULL of an empty slice, not even with a length of 0. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* FNV-1a in 64 bits, of bytes in any number of pieces: start with HASH_START. For tables and against mistakes; an
 * attacker can choose bytes with equal hashes. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Bytes that grow at the end and are consumed from the front. A zeroed struct is an empty buffer. The
 * capacity doubles, and only for bytes that have arrived: a length that a peer merely announces never reaches
 * this file. */
struct buf {
    uint8_t *data;
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

/* Reserve `more` bytes after `len`. Return where they start, or NULL if memory is short (buffer
 * unchanged). */
void *buf_reserve(struct buf *b, size_t more);

/* Append a copy of `len` bytes. False if memory is short; the buffer is unchanged then. */
bool buf_append(struct buf *b, const void *data, size_t len);

/* Append formatted text without its final NUL. False if memory is short. */
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Drop the first `n` (<= len) bytes. */
void buf_consume(struct buf *b, size_t n);

/* Free the memory and return to the zeroed state. */
void buf_free(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->data, b->len);
}

enum { SHARED_MIN = 64 << 10 }; /* holding is cheaper than copying from this size on */

/* Bytes with several holders: a value of the store, and the unsent replies that refer to it.
 *
 * The last holder to release them frees them. Bytes that have another holder must not be changed. One
 * thread. */
struct shared {
    uint32_t holders;
    size_t size; /* of `bytes` */
    uint8_t bytes[];
};

/* Return `size` bytes that begin with the first `keep` bytes of `old`, and release `old`. NULL is an empty
 * `old`. Memory without another holder is reused. Return NULL if memory is short: `old` is unchanged. */
struct shared *shared_resize(struct shared *old, size_t size, size_t keep);

struct shared *shared_hold(struct shared *s);

/* NULL is allowed. */
void shared_release(struct shared *s);

static inline bool shared_is_held_twice(const struct shared *s)
{
    return s != NULL && s->holders > 1;
}

#endif
