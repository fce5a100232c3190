/* idx.h -- the file format of MNIST and Fashion-MNIST: unsigned bytes with one to three dimensions.
 *
 *     offset 0   0x00 0x00 0x08 D          D = number of dimensions
 *            4   D big-endian u32 sizes
 *                the values, one byte each, the last dimension fastest
 *
 * A file may be packed with gzip; offsets in messages then count unpacked bytes. */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

enum { IDX_MAX_DIMS = 3, IDX_MAX_BYTES = 1 << 30 };

struct idx {
    uint8_t *file; /* header and values; ours until idx_free */
    size_t len;
    uint32_t dim[IDX_MAX_DIMS]; /* unused ones are 1 */
    const uint8_t *values;      /* inside `file` */
};

/* Bytes of the header of a file with `dims` dimensions. */
size_t idx_header_bytes(int dims);

/* Read a whole file, plain or gzip. DDP_ERR_CORRUPT names the offset, DDP_ERR_LIMIT the size that is over
 * IDX_MAX_BYTES; the message begins with the path, and there is nothing to free. */
ddp_status idx_load(struct idx *idx, const char *path, int dims, struct ddp_err *err);

void idx_free(struct idx *idx);

/* Header for `dims` sizes, for writers; returns its length (at most 16). */
size_t idx_make_header(uint8_t *head, int dims, const uint32_t *dim);

#endif
