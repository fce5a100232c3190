/* encode.h -- reads and writes the integers and blobs of the wire format. Integers are little-endian on every machine.
 * A blob is a u64 length, followed by this number of bytes. */
#ifndef RENDEZVOUS_ENCODE_H
#define RENDEZVOUS_ENCODE_H

#include "base/buf.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>

/* Write the lowest `bytes` bytes of `value` (at most 8) to an address of any alignment. */
static inline void write_le(uint8_t *to, uint64_t value, unsigned bytes)
{
    /* memcpy becomes one instruction; gcc 12 does not do this for a loop */
    const uint64_t le = htole64(value);
    memcpy(to, &le, bytes);
}

/* Read an integer from an address of any alignment. The caller checks that enough bytes have arrived. */
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

/* Append an integer or a blob to a buffer. Return false if memory is short; the buffer may then end with half a
 * message, which the caller must not send. Examples:
 *
 *     append_blob(out, "ab")  ->  02 00 00 00 00 00 00 00  61 62
 *     append_i64(out, -1)     ->  ff ff ff ff ff ff ff ff */
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

static inline bool append_blob(struct buf *out, struct slice bytes)
{
    return append_u64(out, bytes.len) && buf_append(out, bytes.data, bytes.len);
}

#endif
