/* pictures.c -- see pictures.h. The header is checked before the values are read, so that a file of another kind is
 * rejected before memory for its values is allocated. */

/* An example of an IDX file:
 *
 *     offset 0   00 00 08 03       magic: two zeros, 8 = unsigned bytes, number of dimensions
 *     offset 4   00 00 ea 60       60 000 pictures, big-endian
 *     offset 8   00 00 00 1c       28 rows
 *     offset 12  00 00 00 1c       28 columns
 *     offset 16  the values, one byte each, up to the end of the file */

#include "train/data/pictures.h"

#include "train/files.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TYPE_U8 = 0x08 }; /* IDX's code for unsigned bytes */

static uint32_t get_be32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static void write_be32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> (24 - 8 * i));
}

size_t idx_header_bytes(int dims)
{
    return 4 + 4 * (size_t)dims;
}

/* Write a header, for make-data. This file both writes and reads headers, so that the two functions agree on the
 * format. */
size_t idx_make_header(uint8_t *head, int dims, const uint32_t *dim)
{
    write_be32(head, (uint32_t)(TYPE_U8 << 8 | dims));
    for (int i = 0; i < dims; i++)
        write_be32(head + 4 + 4 * i, dim[i]);
    return idx_header_bytes(dims);
}

/* Check the magic number, to detect an HTML page, a wrong file, or swapped files. */
static ddp_status check_magic(const uint8_t *head, int dims, struct ddp_err *err)
{
    uint32_t expected = (uint32_t)(TYPE_U8 << 8 | dims), magic = get_be32(head);
    if (magic == expected)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_CORRUPT,
                    "offset 0: magic number 0x%08x: expected 0x%08x (IDX file of bytes with %d dimension%s)",
                    magic, expected, dims, dims == 1 ? "" : "s");
}

/* Read the sizes and compute the length of the file. Set unused dimensions to 1, so that the product of all three
 * sizes is the number of values. */
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
        /* both factors are below 2^32, so the product cannot overflow */
        values *= dim[i];
        if (values > IDX_MAX_BYTES)
            return ddp_fail(err, DDP_ERR_LIMIT,
                            "offset %d: dimension %d is %" PRIu32
                            ": too large for the limit of %d bytes per file; use a smaller file",
                            4 + 4 * i, i + 1, dim[i], IDX_MAX_BYTES);
    }
    *file_bytes = idx_header_bytes(dims) + (size_t)values;
    return DDP_OK;
}

/* Read and check the header. If the file is shorter than the header, check the magic number first, because an error
 * about the format is clearer than an error about the length. */
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

/* Read the header and the values. Request one byte more, to detect a file that is too long. */
static ddp_status read_records(struct whole_file *f, int dims, uint32_t dim[IDX_MAX_DIMS],
                               struct ddp_err *err)
{
    size_t total = 0;
    ddp_status status = read_header(f, dims, dim, &total, err);
    if (status == DDP_OK)
        status = whole_file_fill(f, total + 1, err);
    return status == DDP_OK
               ? files_check_length(f->len, total, "according to the header, the data ends here", err)
               : status;
}

/* Load a file. Every error begins with the path. The offsets in errors count uncompressed bytes. */
ddp_status idx_load(struct idx *idx, const char *path, int dims, struct ddp_err *err)
{
    struct whole_file f;
    *idx = (struct idx){ 0 };
    ddp_status status = whole_file_open(&f, path, err);
    if (status != DDP_OK)
        return status;
    status = read_records(&f, dims, idx->dim, err);
    whole_file_close(&f);
    idx->file = f.bytes;
    idx->len = f.len;
    if (status != DDP_OK) {
        files_wrap(path, err);
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

/* --- cifar ------------------------------------------------------------------------------------------------ */

/* CIFAR-10's files have no header. So check() tests the length and all labels: every 3073rd byte must be below
 * ten. */

/* Choose a random shift and flip. The probabilities of the nine shifts differ by less than 2^-29. */
struct augment augment_draw(ddp_philox *luck)
{
    struct augment a;
    a.down = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.right = (int)(ddp_philox_next(luck) % (2 * AUGMENT_PADDING + 1)) - AUGMENT_PADDING;
    a.mirrored = (int)(ddp_philox_next(luck) >> 31);
    return a;
}

/* Copy one row. The picture is first moved and then mirrored, so a mirrored row is read from its end. */
static void row(const struct augment *a, const uint8_t *from, uint8_t *to, int side)
{
    for (int x = 0; x < side; x++) {
        int at = (a->mirrored ? side - 1 - x : x) + a->right;
        to[x] = at >= 0 && at < side ? from[at] : 0;
    }
}

void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side)
{
    for (int i = 0; i < channels * side; i++, to += side) {
        int at = i % side + a->down;
        if (at >= 0 && at < side)
            row(a, from + (i / side * side + at) * side, to, side);
        else
            for (int x = 0; x < side; x++)
                to[x] = 0;
    }
}

/* Write the name of a file: "data_batch_3.bin" for training file 3, "test_batch.bin" for number 0. `to` has room
 * for 32 bytes. */
static void cifar_file_name(char *to, int number)
{
    if (number == 0)
        snprintf(to, 32, "test_batch.bin");
    else
        snprintf(to, 32, "data_batch_%d.bin", number);
}

/* Check the label of each record first, then the length of the file. A page of HTML begins with '<', which is no valid
 * label. For such a file, an error about the label is clearer than an error about the length. */
static ddp_status check(const struct whole_file *f, struct ddp_err *err)
{
    if (f->len == 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset 0: the file is empty");
    for (size_t at = 0; at < f->len; at += CIFAR_RECORD) {
        if (f->bytes[at] >= CIFAR_CLASSES)
            return ddp_fail(err, DDP_ERR_CORRUPT,
                            "offset %zu: label %d: expected a number from 0 to %d (CIFAR-10, binary version)",
                            at, f->bytes[at], CIFAR_CLASSES - 1);
    }
    if (f->len > CIFAR_MAX_BYTES)
        return ddp_fail(err, DDP_ERR_LIMIT, "the file is longer than the limit of %d bytes", CIFAR_MAX_BYTES);
    if (f->len % CIFAR_RECORD != 0)
        return ddp_fail(err, DDP_ERR_CORRUPT, "offset %zu: the file ends inside record %zu of %d bytes",
                        f->len, f->len / CIFAR_RECORD, CIFAR_RECORD);
    return DDP_OK;
}

/* Append the records of a file. Errors begin with the path, and DDP_ERR_CORRUPT names offset and value. */
static ddp_status cifar_add(struct cifar *c, const char *path, struct ddp_err *err)
{
    struct whole_file f;
    ddp_status status = whole_file_open(&f, path, err);
    if (status != DDP_OK)
        return status;
    status = whole_file_fill(&f, (size_t)CIFAR_MAX_BYTES + 1, err);
    if (status == DDP_OK)
        status = check(&f, err);
    whole_file_close(&f);
    uint8_t *grown = status == DDP_OK ? realloc(c->records, c->n * CIFAR_RECORD + f.len) : NULL;
    if (status == DDP_OK && grown == NULL)
        status = ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu pictures", c->n + f.len / CIFAR_RECORD);
    if (grown != NULL) {
        memcpy(grown + c->n * CIFAR_RECORD, f.bytes, f.len);
        *c = (struct cifar){ grown, c->n + f.len / CIFAR_RECORD };
    }
    free(f.bytes);
    return status == DDP_OK ? DDP_OK : files_wrap(path, err);
}

bool cifar_find(char *found, const char *dir)
{
    static const char *const folder[] = { "", "/cifar-10-batches-bin" };
    char path[PATH_MAX], name[32];
    for (int i = 0; i < 4; i++) {
        int len = snprintf(found, PATH_MAX, "%s%s", dir, folder[i % 2]);
        cifar_file_name(name, i / 2);
        if (len > 0 && len < PATH_MAX && whole_file_find(path, found, name, NULL) == DDP_OK)
            return true;
    }
    return false;
}

/* Load data_batch_1, data_batch_2 ... up to the first missing file. Fail if a file with a higher number exists, because
 * then the download is incomplete. */
static ddp_status load_training(struct cifar *c, const char *dir, struct ddp_err *err)
{
    char path[PATH_MAX], name[32];
    int missing = 0;
    ddp_status status = DDP_OK;
    for (int i = 1; i <= CIFAR_MAX_FILES && status == DDP_OK; i++) {
        cifar_file_name(name, i);
        bool there = whole_file_find(path, dir, name, missing == 0 ? err : NULL) == DDP_OK;
        if (!there && missing == 0)
            missing = i;
        if (there && missing != 0)
            return ddp_wrap(err, "%s: a file with a lower number is missing", name);
        if (there)
            status = cifar_add(c, path, err);
    }
    return status == DDP_OK && c->n == 0 ? err->code : status;
}

static ddp_status load_test(struct cifar *c, const char *dir, struct ddp_err *err)
{
    char path[PATH_MAX], name[32];
    cifar_file_name(name, 0);
    ddp_status status = whole_file_find(path, dir, name, err);
    return status == DDP_OK ? cifar_add(c, path, err) : status;
}

ddp_status cifar_load(struct cifar *c, const char *dir, bool training, struct ddp_err *err)
{
    *c = (struct cifar){ 0 };
    ddp_status status = training ? load_training(c, dir, err) : load_test(c, dir, err);
    if (status != DDP_OK)
        cifar_free(c);
    return status;
}

void cifar_free(struct cifar *c)
{
    free(c->records);
    *c = (struct cifar){ 0 };
}

const uint8_t *cifar_record(const struct cifar *c, size_t index)
{
    return c->records + index * CIFAR_RECORD;
}
