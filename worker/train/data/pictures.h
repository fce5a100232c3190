/* pictures.h -- reads files of pictures, in the IDX format and in the format of CIFAR-10. A file may be compressed with
 * gzip. Offsets in errors count uncompressed bytes. */
#ifndef WORKER_TRAIN_DATA_PICTURES_H
#define WORKER_TRAIN_DATA_PICTURES_H

#include "ddp/error.h"
#include "ddp/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IDX_MAX_DIMS = 3, IDX_MAX_BYTES = 1 << 30 };

/* A file in the IDX format, which MNIST and Fashion-MNIST use: unsigned bytes with one to three dimensions.
 *
 *     offset 0   0x00 0x00 0x08 D          D = number of dimensions
 *            4   D big-endian u32 sizes
 *                the values, one byte each; the last dimension varies fastest */
struct idx {
    uint8_t *file; /* owned: the whole file */
    size_t len;
    uint32_t dim[IDX_MAX_DIMS]; /* unused dimensions are 1 */
    const uint8_t *values;      /* points into `file` */
};

/* Return the size in bytes of the header of a file with `dims` dimensions. */
size_t idx_header_bytes(int dims);

/* Read a whole file, plain or gzip. Every error begins with the path. DDP_ERR_CORRUPT names the offset.
 * DDP_ERR_LIMIT means that the file is larger than IDX_MAX_BYTES. After an error nothing needs to be freed. */
ddp_status idx_load(struct idx *idx, const char *path, int dims, struct ddp_err *err);

void idx_free(struct idx *idx);

/* Write a header with `dims` sizes and return its length (at most 16). */
size_t idx_make_header(uint8_t *head, int dims, const uint32_t *dim);

/* --- CIFAR-10 --------------------------------------------------------------------------------------------- */

/* CIFAR-10's binary files have only records, each with a label and a picture:
 *
 *     offset 3073 k       the label of record k, 0 to 9
 *            3073 k + 1   3 x 32 x 32 bytes: the red plane row by row, then green, then blue
 *
 * Training: data_batch_1.bin, data_batch_2.bin ... (as published, five files of 10,000 records). Test: test_batch.bin.
 * Each file may be compressed with gzip. */

/* The usual augmentation of CIFAR's training pictures: a shift by up to four pixels, and mirroring of half of them (He
 * et al. 2015, 4.2). These functions are pure. */

enum { AUGMENT_PADDING = 4 };

/* How a picture is moved and mirrored. */
struct augment {
    int down, right; /* pixels, from -AUGMENT_PADDING to AUGMENT_PADDING */
    int mirrored;    /* 0 or 1 */
};

/* Choose a random shift and flip, as torchvision's RandomCrop(32, padding=4) and RandomHorizontalFlip() do. */
struct augment augment_draw(ddp_philox *luck);

/* Shift and mirror a picture of `channels` planes, each of side x side bytes. Pixels from outside the picture are 0.
 * `to` and `from` must not overlap. */
void augment_apply(const struct augment *a, const uint8_t *from, uint8_t *to, int channels, int side);

/* --- files of CIFAR-10 ------------------------------------------------------------------------------------ */

enum {
    CIFAR_SIDE = 32,
    CIFAR_CHANNELS = 3,
    CIFAR_PIXELS = CIFAR_CHANNELS * CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_RECORD = 1 + CIFAR_PIXELS,
    CIFAR_CLASSES = 10,
    CIFAR_MAX_FILES = 99,
    CIFAR_MAX_BYTES = 1 << 30 /* maximum bytes of one file */
};

struct cifar {
    uint8_t *records; /* owned: `n` records */
    size_t n;
};

/* Find the directory of the files: `dir` itself, or the folder of the published archive in `dir`. Write its path to
 * `found`, which has room for PATH_MAX bytes. Return false if there are no files. */
bool cifar_find(char *found, const char *dir);

/* Load the test file or all training files of `dir`. After an error nothing needs to be freed. */
ddp_status cifar_load(struct cifar *c, const char *dir, bool training, struct ddp_err *err);
void cifar_free(struct cifar *c);

/* Return record `index` (< n): its label, then the picture. `c` owns the bytes. */
const uint8_t *cifar_record(const struct cifar *c, size_t index);

#endif
