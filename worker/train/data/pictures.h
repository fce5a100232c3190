/* pictures.h -- the file format of MNIST and Fashion-MNIST: unsigned bytes with one to three dimensions.
 *
 *     offset 0   0x00 0x00 0x08 D          D = number of dimensions
 *            4   D big-endian u32 sizes
 *                the values, one byte each, the last dimension fastest
 *
 * A file may be packed with gzip; offsets in messages then count unpacked bytes. */
#ifndef WORKER_TRAIN_DATA_PICTURES_H
#define WORKER_TRAIN_DATA_PICTURES_H

#include "ddp/error.h"
#include "ddp/random.h"

#include <stdbool.h>
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

/* --- cifar ------------------------------------------------------------------------------------------------ */

/* CIFAR-10's binary files: records of a label and a picture, nothing else.
 *
 *     offset 3073 k       the label of record k, 0 to 9
 *            3073 k + 1   3 x 32 x 32 bytes: the red plane row by row, then green, then blue
 *
 * Training pictures are in data_batch_1.bin, data_batch_2.bin ... (five of 10,000 records each as published), test pictures
 * in test_batch.bin; each may be packed with gzip. */

/* The usual way to make CIFAR's 50,000 training pictures look like more: each is moved by up to four pixels and
 * half of them are mirrored (He et al. 2015, 4.2). Pure; chance is the sample's own. */

enum { AUGMENT_PADDING = 4 };

/* Where the picture's corner lies and whether it is mirrored. */
struct augment {
    int down, right; /* -AUGMENT_PADDING .. AUGMENT_PADDING: of the window over the padded picture */
    int mirrored;    /* 0 or 1 */
};

/* torchvision's RandomCrop(32, padding=4), then RandomHorizontalFlip(). */
struct augment augment_draw(ddp_philox *luck);

/* `channels` planes of side x side bytes; what comes in over the edge is 0. Not in place. */
void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side);

/* --- cifar ------------------------------------------------------------------------------------------------ */

enum {
    CIFAR_SIDE = 32,
    CIFAR_CHANNELS = 3,
    CIFAR_PIXELS = CIFAR_CHANNELS * CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_RECORD = 1 + CIFAR_PIXELS,
    CIFAR_CLASSES = 10,
    CIFAR_MAX_FILES = 99,
    CIFAR_MAX_BYTES = 1 << 30 /* of a file */
};

struct cifar {
    struct cifar_file {
        uint8_t *bytes; /* ours */
        size_t n;       /* records */
    } file[CIFAR_MAX_FILES];
    size_t files, n;
};

/* One file, behind those that are loaded already. The message begins with the path; DDP_ERR_CORRUPT names offset and value.
 * Whatever happens, cifar_free frees what there is. */
ddp_status cifar_add(struct cifar *c, const char *path, struct ddp_err *err);

/* The directory where the files are, DIR itself or the one of the published archive in it, into `found` with
 * room for PATH_MAX bytes; false if there are no files. */
bool cifar_find(char *found, const char *dir);

/* All training files of `dir`, or the test file. On an error the caller frees nothing. */
ddp_status cifar_load(struct cifar *c, const char *dir, bool training, struct ddp_err *err);
void cifar_free(struct cifar *c);

/* Record `index` (< n): its label, then the picture. */
const uint8_t *cifar_record(const struct cifar *c, size_t index);

/* "data_batch_3.bin" for the third training file, "test_batch.bin" for number 0. `to` has room for 32 bytes. */
void cifar_file_name(char *to, int number);

#endif
