/* dataset.h -- labelled 28x28 pictures under Fashion-MNIST's file names. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include "idx.h"

#include <stdbool.h>

enum { PICTURE_SIDE = 28, PICTURE_PIXELS = PICTURE_SIDE * PICTURE_SIDE, CLASSES = 10 };

/* The four files: set (as in enum dataset_part), what, name. */
#define DATASET_FILES(X)                        \
    X(TRAIN, IMAGES, "train-images-idx3-ubyte") \
    X(TRAIN, LABELS, "train-labels-idx1-ubyte") \
    X(TEST, IMAGES, "t10k-images-idx3-ubyte")   \
    X(TEST, LABELS, "t10k-labels-idx1-ubyte")

enum dataset_part { DATASET_TRAIN, DATASET_TEST };
enum dataset_kind { DATASET_IMAGES, DATASET_LABELS };

struct dataset {
    struct idx images, labels;
    size_t n;
};

const char *dataset_file_name(enum dataset_part part, enum dataset_kind kind);

/* Read images and labels from `dir`, plain or .gz. Errors name file and offset, and for a missing file the
 * program that makes a set. On an error nothing is to be freed. */
ddp_status dataset_load(struct dataset *set, const char *dir, enum dataset_part part, struct ddp_err *err);
void dataset_free(struct dataset *set);

/* Copy sample `index` (< n): pixels as 0..1, PICTURE_PIXELS of them; returns its label. */
uint8_t dataset_sample(const struct dataset *set, size_t index, float *pixels);

#endif
