/* encode.h -- appends the integers and blobs of the wire format, for the server and its clients. Integers are
 * little-endian on every machine. A blob is a u64 length, followed by this number of bytes. */
#ifndef RENDEZVOUS_ENCODE_H
#define RENDEZVOUS_ENCODE_H

#include "base/buf.h"

/* Append an integer or a blob to a buffer, which the caller owns and frees. Return false if memory is short; the buffer
 * may then end with half a message, which the caller must not send. Examples:
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
