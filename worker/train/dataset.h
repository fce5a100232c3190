/* dataset.h -- samples to learn from, whatever format their files have.
 *
 *     dataset_load(&set, "data", DATASET_TRAIN, &request, &err)      looks what is there
 *     dataset_read(&set, i, luck, values, target, &err)           sample i, into one row of a batch
 *     dataset_free(&set)
 *
 * A picture is channels x height x width floats, a sample of tokens `length` int32. Data that are read into
 * memory are checked completely when they are loaded; errors name file, offset and value. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include "train/data/pictures.h"
#include "train/data/tokens.h"
#include "ddp/random.h"
#include "train/models/model.h"

#include <stdbool.h>

enum { PICTURE_SIDE = 28, PICTURE_PIXELS = PICTURE_SIDE * PICTURE_SIDE, CLASSES = 10 };

/* The four files of Fashion-MNIST: set (as in enum dataset_part), what, name. */
#define DATASET_FILES(X)                        \
    X(TRAIN, IMAGES, "train-images-idx3-ubyte") \
    X(TRAIN, LABELS, "train-labels-idx1-ubyte") \
    X(TEST, IMAGES, "t10k-images-idx3-ubyte")   \
    X(TEST, LABELS, "t10k-labels-idx1-ubyte")

enum dataset_part { DATASET_TRAIN, DATASET_TEST };
enum dataset_kind { DATASET_IMAGES, DATASET_LABELS };

const char *dataset_file_name(enum dataset_part part, enum dataset_kind kind);

/* The format that the model needs. */
struct dataset_request {
    enum model_input input;
    size_t length, vocabulary; /* for tokens: tokens of a sample, and the limit of their values */
};

struct dataset {
    const struct dataset_format *format;
    size_t n;                       /* samples */
    size_t length;                  /* targets of a sample: 1 for a picture */
    size_t classes;                 /* targets are below */
    size_t channels, height, width; /* of a picture; 0 for tokens */
    union {
        struct {
            struct idx images, labels;
        } idx;
        struct cifar cifar;
        struct tokens tokens;
    };
};

/* Load one part of the set in `where`, a directory (for tokens also a pattern). Pictures: CIFAR-10's binary
 * files if they exist, else IDX. For a missing file the error names the program that makes a set. On an error
 * the caller frees nothing. */
ddp_status dataset_load(struct dataset *set, const char *where, enum dataset_part part,
                        const struct dataset_request *request, struct ddp_err *err);
void dataset_free(struct dataset *set);

/* "idx", "cifar10", "tokens" */
const char *dataset_format_name(const struct dataset *set);

/* Does dataset_read look at `luck`? */
bool dataset_varies(const struct dataset *set);

/* Bytes of one sample's values. */
size_t dataset_row_bytes(const struct dataset *set);

/* Sample `index` (< n): float or int32 values, `length` targets. `luck` is for what may look different each time (pictures.h, for
 * pictures in colour); NULL: as it is. Several threads may read at once. */
ddp_status dataset_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                        int32_t *target, struct ddp_err *err);

#endif
