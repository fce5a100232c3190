/* encode.h -- the numbers and blobs of the wire format, for server and clients.
 *
 *     append_blob(out, "ab")  ->  02 00 00 00 00 00 00 00  61 62
 *     append_i64(out, -1)     ->  ff ff ff ff ff ff ff ff
 *
 * Integers are little-endian on every machine. A blob is a u64 length, followed by this number of bytes.
 *
 * The put_ functions append to a buffer and return false if memory is short. After a failure the caller must discard
 * the buffer, because it may end with half a message. The get_ functions read from memory whose length the caller has
 * checked. */
#ifndef RENDEZVOUS_ENCODE_H
#define RENDEZVOUS_ENCODE_H

#include "base/buf.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Write an integer of `bytes` bytes to an unaligned address. The compiler turns the memcpy into one store; gcc 12
 * would keep a loop over the bytes. */
static inline void write_le(uint8_t *to, uint64_t value, unsigned bytes)
{
    const uint64_t le = htole64(value);
    memcpy(to, &le, bytes);
}

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

static inline bool append_u8(struct buf *out, uint8_t value)
{
    return buf_append(out, &value, 1);
}

static inline bool append_u32(struct buf *out, uint32_t value)
{
    uint8_t le[4];
    write_le(le, value, sizeof(le));
    return buf_append(out, le, sizeof(le));
}

static inline bool append_u64(struct buf *out, uint64_t value)
{
    uint8_t le[8];
    write_le(le, value, sizeof(le));
    return buf_append(out, le, sizeof(le));
}

static inline bool append_i64(struct buf *out, int64_t value)
{
    return append_u64(out, (uint64_t)value);
}

/* Append a blob. After a failure, the buffer may have only the length. */
static inline bool append_blob(struct buf *out, struct slice bytes)
{
    return append_u64(out, bytes.len) && buf_append(out, bytes.data, bytes.len);
}

#endif
