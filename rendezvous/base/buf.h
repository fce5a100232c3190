/* buf.h -- four ways to hold bytes: borrowed (slice), growing (buf), kept until a peer confirms them (kept), and
 * reference-counted (shared). */
#ifndef RENDEZVOUS_BASE_BUF_H
#define RENDEZVOUS_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed view of bytes. A slice is never freed; its bytes belong to the code that made the slice.
 *
 * Keys and values of the store may contain any byte, including 0, so a pointer alone does not mark their end. A slice
 * is passed by value, in two registers. */
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

/* Compare two slices. An empty slice may have a NULL pointer, which memcmp does not allow even with a length of 0. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Initial value of `hash` for hash_bytes, which returns the 64-bit FNV-1a hash. To hash several pieces, pass the last
 * result as `hash`. Not for untrusted data: an attacker can choose bytes with equal hashes. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Bytes that are appended at the end and consumed from the front. A zeroed struct is an empty buffer. Callers reserve
 * memory only for bytes that exist, never for a length that a peer has announced. */
struct buf {
    uint8_t *data;
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

/* Reserve `more` bytes after `len`. Return their address, which is valid until the next change, or NULL, with an unchanged buffer, if memory is short. */
void *buf_reserve(struct buf *b, size_t more);

/* Append a copy of `len` bytes. Return false, with an unchanged buffer, if memory is short. */
bool buf_append(struct buf *b, const void *data, size_t len);

/* Append formatted text without its final NUL. Return false if memory is short. */
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Remove the first `n` (<= len) bytes. */
void buf_consume(struct buf *b, size_t n);

/* Free the memory and zero the struct. */
void buf_free(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->data, b->len);
}

/* Numbered frames that the peer of a connection has not confirmed. The sender keeps a copy of each frame and sends the
 * kept frames again on the next connection, so every frame arrives once and in order. The first frame has the number
 * 1. A zeroed struct keeps no frame. */
struct kept {
    struct buf bytes; /* each frame after its length, a size_t */
    uint64_t last;    /* number of the last frame that was added */
    uint64_t done;    /* number of the last frame that was confirmed */
};

/* Keep a copy of the next frame. Return false, with an unchanged struct, if memory is short. */
bool kept_add(struct kept *k, struct slice frame);

/* Drop the frames up to the number `done`. Return false, and change nothing, if no such frame was added. An earlier
 * number changes nothing. */
bool kept_confirm(struct kept *k, uint64_t done);

/* Return the frame at *at (0 = the first) in *frame, valid until the next change, and advance *at. Return false after
 * the last frame. */
bool kept_next(const struct kept *k, size_t *at, struct slice *frame);

enum { SHARED_MIN = 64 << 10 }; /* from this size on, a reference is cheaper than a copy */

/* Bytes that a value of the store and unsent replies share.
 *
 * The last release frees the bytes. Only a single holder may change the bytes. All holders are in one thread. */
struct shared {
    uint32_t holders;
    size_t size; /* of `bytes` */
    uint8_t bytes[];
};

/* Return a block of `size` bytes that begins with the first `keep` bytes of `old`, and release `old`. `old` may be
 * NULL. The memory of `old` is reused if `old` has no other holder. Return NULL, with an unchanged `old`, if memory
 * is short. */
struct shared *shared_resize(struct shared *old, size_t size, size_t keep);

/* Add a reference, and return `s`. Each holder releases its reference. */
struct shared *shared_hold(struct shared *s);

/* Release one reference. The last release frees the bytes. NULL is allowed. */
void shared_release(struct shared *s);

static inline bool shared_is_held_twice(const struct shared *s)
{
    return s != NULL && s->holders > 1;
}

#endif
