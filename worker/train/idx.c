/* idx.c -- see idx.h.
 *
 *     offset 0   00 00 08 03       magic: two zeros, 8 = unsigned bytes, number of dimensions
 *     offset 4   00 00 ea 60       60 000 pictures, big endian
 *     offset 8   00 00 00 1c       28 rows
 *     offset 12  00 00 00 1c       28 columns
 *     offset 16  the values, one byte each; then the file ends
 *
 * The header is checked before anything behind it is read, and memory grows with bytes that have really
 * arrived: a header that promises gigabytes, or a gzip stream that unpacks to them, costs nothing. zlib's gz
 * functions pass plain files through, so there is one path for both. */
#include "idx.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { TYPE_U8 = 0x08, CHUNK = 1 << 20 }; /* the format's code for bytes; how much is read at once */

static uint32_t get_be32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void put_be32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

size_t idx_header_bytes(int dims)
{
    return 4 + 4 * (size_t)dims;
}

/* For make-data: written by the module that reads it, so the two cannot drift apart. */
size_t idx_make_header(uint8_t *head, int dims, const uint32_t *dim)
{
    put_be32(head, (uint32_t)(TYPE_U8 << 8 | dims));
    for (int i = 0; i < dims; i++)
        put_be32(head + 4 + 4 * i, dim[i]);
    return idx_header_bytes(dims);
}

/* The most telling number comes first: a page of HTML, a wrong file and swapped files all end here. */
static ddp_status check_magic(const uint8_t *head, int dims, struct ddp_err *err)
{
    uint32_t expected = (uint32_t)(TYPE_U8 << 8 | dims), magic = get_be32(head);
    if (magic == expected)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_CORRUPT,
                    "offset 0: magic 0x%08x, expected 0x%08x (IDX, bytes, %d dimension%s)", magic, expected,
                    dims, dims == 1 ? "" : "s");
}

/* The sizes, and how long the whole file must be by them. Dimensions that are not used count as 1, so a product over
 * all three is the number of values. */
static ddp_status check_header(const uint8_t *head, int dims, uint32_t dim[IDX_MAX_DIMS], size_t *file_bytes,
                               struct ddp_err *err)
{
    uint64_t values = 1;
    ddp_status status = check_magic(head, dims, err);
    if (status != DDP_OK)
        return status;
    for (int i = 0; i < IDX_MAX_DIMS; i++) {
        dim[i] = i < dims ? get_be32(head + 4 + 4 * i) : 1;
        if (dim[i] == 0)
            return ddp_fail(err, DDP_ERR_CORRUPT, "offset %d: dimension %d is 0", 4 + 4 * i, i + 1);
        /* Both factors are below 2^32, so the product cannot wrap before it is compared. */
        values *= dim[i];
        if (values > IDX_MAX_BYTES)
            return ddp_fail(err, DDP_ERR_LIMIT,
                            "offset %d: with dimension %d = %" PRIu32 " it is over the limit of %d bytes",
                            4 + 4 * i, i + 1, dim[i], IDX_MAX_BYTES);
    }
    *file_bytes = idx_header_bytes(dims) + (size_t)values;
    return DDP_OK;
}

/* Room for one more chunk behind what has been read; doubles, so that growing stays cheap. */
static uint8_t *reserve(struct idx *idx, size_t *capacity, size_t chunk)
{
    if (*capacity - idx->len < chunk) {
        size_t grown = *capacity + (*capacity > chunk ? *capacity : chunk);
        uint8_t *file = realloc(idx->file, grown);
        if (file == NULL)
            return NULL;
        idx->file = file;
        *capacity = grown;
    }
    return idx->file + idx->len;
}

/* Read until `want` bytes are there or the file ends. */
static ddp_status fill(struct idx *idx, size_t *capacity, gzFile file, size_t want, struct ddp_err *err)
{
    while (idx->len < want) {
        int code;
        size_t chunk = want - idx->len < CHUNK ? want - idx->len : CHUNK;
        uint8_t *to = reserve(idx, capacity, chunk);
        if (to == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM, "no memory for more than %zu bytes", idx->len);
        int n = gzread(file, to, (unsigned)chunk);
        const char *why = gzerror(file, &code);
        if (code == Z_ERRNO)
            return ddp_fail(err, DDP_ERR_IO, "offset %zu: read: %s", idx->len, strerror(errno));
        if (n < 0 || code != Z_OK) /* Z_BUF_ERROR: the packed stream stops short */
            return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the gzip stream is damaged or cut: %s",
                            idx->len, why);
        if (n == 0)
            break;
        idx->len += (size_t)n;
    }
    return DDP_OK;
}

/* Both ways: a file that is too long is as wrong as one that is too short, it only fails later. */
static ddp_status check_length(const struct idx *idx, size_t total, struct ddp_err *err)
{
    if (idx->len < total)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends here, its header asks for %zu bytes",
                        idx->len, total);
    if (idx->len > total)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset %zu: the data ends here by its header, but the file goes on", total);
    return DDP_OK;
}

/* Header, then what it promises, then the end. */
static ddp_status read_all(struct idx *idx, gzFile file, int dims, struct ddp_err *err)
{
    size_t head = idx_header_bytes(dims), total = 0, capacity = 0;
    ddp_status status = fill(idx, &capacity, file, head, err);
    if (status != DDP_OK)
        return status;
    if (idx->len < head && idx->len >= 4)
        status = check_magic(idx->file, dims, err); /* a foreign file that is short is foreign first of all */
    if (status != DDP_OK)
        return status;
    if (idx->len < head)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends inside the header of %zu bytes",
                        idx->len, head);
    status = check_header(idx->file, dims, idx->dim, &total, err);
    if (status == DDP_OK)
        status = fill(idx, &capacity, file, total + 1, err); /* one more, to see the end */
    if (status == DDP_OK)
        status = check_length(idx, total, err);
    if (status == DDP_OK)
        idx->values = idx->file + head;
    return status;
}

/* The path stands in front of every message; the offsets behind it count unpacked bytes. */
ddp_status idx_load(struct idx *idx, const char *path, int dims, struct ddp_err *err)
{
    *idx = (struct idx){ 0 };
    gzFile file = gzopen(path, "rb");
    if (file == NULL)
        return ddp_fail(err, DDP_ERR_IO, "%s: open: %s", path, strerror(errno));
    ddp_status status = read_all(idx, file, dims, err);
    gzclose_r(file);
    if (status != DDP_OK) {
        ddp_wrap(err, "%s", path);
        idx_free(idx);
    }
    return status;
}

void idx_free(struct idx *idx)
{
    free(idx->file);
    *idx = (struct idx){ 0 };
}
