/* idx.c -- see idx.h.
 *
 *     offset 0   00 00 08 03       magic: two zeros, 8 = unsigned bytes, number of dimensions
 *     offset 4   00 00 ea 60       60 000 pictures, big endian
 *     offset 8   00 00 00 1c       28 rows
 *     offset 12  00 00 00 1c       28 columns
 *     offset 16  the values, one byte each; then the file ends
 *
 * The header is checked before anything behind it is read. */
#include "train/data/idx.h"

#include "train/files.h"

#include <inttypes.h>
#include <stdlib.h>

enum { TYPE_U8 = 0x08 }; /* the format's code for bytes */

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

/* Both ways: a file that is too long is as wrong as one that is too short, it only fails later. */
static ddp_status check_length(size_t len, size_t total, struct ddp_err *err)
{
    if (len < total)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends here, its header asks for %zu bytes",
                        len, total);
    if (len > total)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "offset %zu: the data ends here by its header, but the file goes on", total);
    return DDP_OK;
}

/* The header's bytes, and what they promise. A foreign file that is short is foreign first of all. */
static ddp_status read_header(struct whole_file *f, int dims, uint32_t dim[IDX_MAX_DIMS], size_t *total,
                              struct ddp_err *err)
{
    size_t head = idx_header_bytes(dims);
    ddp_status status = whole_file_fill(f, head, err);
    if (status == DDP_OK && f->len < head && f->len >= 4)
        status = check_magic(f->bytes, dims, err);
    if (status == DDP_OK && f->len < head)
        status = ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends inside the header of %zu bytes",
                          f->len, head);
    return status == DDP_OK ? check_header(f->bytes, dims, dim, total, err) : status;
}

/* Header, then what it promises, then the end: one byte more is asked for, to see it. */
static ddp_status read_all(struct whole_file *f, int dims, uint32_t dim[IDX_MAX_DIMS], struct ddp_err *err)
{
    size_t total = 0;
    ddp_status status = read_header(f, dims, dim, &total, err);
    if (status == DDP_OK)
        status = whole_file_fill(f, total + 1, err);
    return status == DDP_OK ? check_length(f->len, total, err) : status;
}

/* The path stands in front of every message; the offsets behind it count unpacked bytes. */
ddp_status idx_load(struct idx *idx, const char *path, int dims, struct ddp_err *err)
{
    struct whole_file f;
    *idx = (struct idx){ 0 };
    ddp_status status = whole_file_open(&f, path, err);
    if (status != DDP_OK)
        return status;
    status = read_all(&f, dims, idx->dim, err);
    whole_file_close(&f);
    idx->file = f.bytes;
    idx->len = f.len;
    if (status != DDP_OK) {
        ddp_wrap(err, "%s", path);
        idx_free(idx);
        return status;
    }
    idx->values = idx->file + idx_header_bytes(dims);
    return DDP_OK;
}

void idx_free(struct idx *idx)
{
    free(idx->file);
    *idx = (struct idx){ 0 };
}
