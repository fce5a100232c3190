/* buf.h -- four types for bytes: a `slice` points to bytes of another owner, a `buf` grows, `kept` stores sent frames,
 * and `shared` has a reference count. If memory is short, a function returns false or NULL and leaves the contents
 * unchanged. The last functions read, write and round integers. */
#ifndef RENDEZVOUS_BASE_BUF_H
#define RENDEZVOUS_BASE_BUF_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Borrowed bytes, which may contain 0. The function that returns a slice states how long it is valid. */
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

/* Return true if both slices have the same bytes. */
static inline bool slice_equal(struct slice a, struct slice b)
{
    /* memcmp does not allow the NULL pointer of an empty slice */
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static inline bool slice_begins_with(struct slice text, const char *prefix)
{
    const size_t len = strlen(prefix);
    return text.len >= len && memcmp(text.data, prefix, len) == 0;
}

/* Value of the argument `hash` when hash_bytes is called for the first piece. */
#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Return the 64-bit FNV-1a hash. To hash several pieces, pass the result for the previous piece as `hash`. An attacker
 * can choose bytes with equal hashes. If equal hashes would do harm, use table_hash (store/table.h). */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Bytes that are appended at the end and consumed from the front. A zeroed struct is an empty buffer. Reserve memory
 * only for bytes that have arrived: a peer could otherwise fill the memory by announcing a long message. */
struct buf {
    uint8_t *data; /* owned; NULL if nothing is allocated */
    size_t len;    /* bytes in use */
    size_t cap;    /* bytes allocated */
};

/* Reserve `more` bytes after `len`, and return their address, which is valid until the next change. The caller writes
 * bytes there, and then increases `len` by their number. Return NULL, with an unchanged buffer, if memory is short. */
void *buf_reserve(struct buf *b, size_t more);

/* Append a copy of `len` bytes. Return false, with an unchanged buffer, if memory is short. */
bool buf_append(struct buf *b, const void *data, size_t len);

/* Append formatted text without its final NUL. Return false, with unchanged contents, if memory is short. */
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Remove the first `n` (<= len) bytes. */
void buf_consume(struct buf *b, size_t n);

/* Free the memory and zero the struct. */
void buf_free(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->data, b->len);
}

/* Numbered frames that the peer of a connection has not confirmed. The sender keeps a copy of each frame. On the next
 * connection the peer reports the last frame that it received, and the sender sends the later frames again. So every
 * frame arrives once and in order. The first frame has the number 1. A zeroed struct keeps no frame. */
struct kept {
    struct buf bytes; /* for each frame: its length (a size_t), then its bytes */
    uint64_t last;    /* number of the last frame that was added */
    uint64_t done;    /* number of the last frame that was confirmed */
};

/* Keep a copy of the next frame. Return false, with an unchanged struct, if memory is short. */
bool kept_add(struct kept *k, struct slice frame);

/* Remove the frames up to the number `done`. Do nothing if these frames were confirmed before. If no frame with this
 * number was added, the peer is wrong: change nothing and return false. */
bool kept_confirm(struct kept *k, uint64_t done);

/* Set *frame to the frame at the position *at, and *at to the position of the next frame. The first frame is at
 * position 0. The frame is valid until the next change. Return false after the last frame. */
bool kept_next(const struct kept *k, size_t *at, struct slice *frame);

enum { SHARED_MIN = 64 << 10 }; /* bytes; below this size a copy is cheaper than a reference */

/* A block of bytes that a value of the store and unsent replies share. The block is freed with the last reference.
 * The bytes may change only while there is a single reference. All references are used by one thread, because the count
 * is not atomic. */
struct shared {
    uint32_t holders; /* number of references */
    size_t size;      /* size of `bytes` */
    uint8_t bytes[];
};

/* Return a block of `size` bytes that begins with the first `keep` bytes of `old`. Release the caller's reference to
 * `old`, which may be NULL. The memory of `old` is reused if there is no other reference. Return NULL, with an
 * unchanged `old`, if memory is short. The caller holds the only reference to the result. */
struct shared *shared_resize(struct shared *old, size_t size, size_t keep);

/* Add a reference, and return `s`. The caller releases the reference with shared_release. */
struct shared *shared_hold(struct shared *s);

/* Release one reference. NULL is allowed. */
void shared_release(struct shared *s);

/* Return true if there is more than one reference. Such bytes must not be changed. NULL is allowed. */
static inline bool shared_is_held_twice(const struct shared *s)
{
    return s != NULL && s->holders > 1;
}

/* Integers of messages and files are little-endian on every machine. */

/* Write the lowest `bytes` bytes of `value` (at most 8) to an address of any alignment. The compiler turns memcpy into
 * one machine instruction; gcc 12 does not do this for a loop over the bytes. */
static inline void write_le(uint8_t *to, uint64_t value, unsigned bytes)
{
    const uint64_t le = htole64(value);
    memcpy(to, &le, bytes);
}

/* Read an integer from an address of any alignment. The get_ functions do not check a length: the caller must first
 * check that enough bytes have arrived. */
static inline uint32_t get_u32(const void *from)
{
    uint32_t le;
    memcpy(&le, from, sizeof(le));
    return le32toh(le);
}

static inline uint64_t get_u64(const void *from)
{
    uint64_t le;
    memcpy(&le, from, sizeof(le));
    return le64toh(le);
}

/* Return `n`, a number of bytes or elements, rounded up to a multiple of `to`. */
static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

#endif
