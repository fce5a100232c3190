/* dataset.h -- loads samples for training and test, in any supported file format. Pictures are checked when they are
 * loaded. Tokens are checked when they are read, because a run may need only a small part of a large file. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include "train/data/pictures.h"
#include "train/data/tokens.h"
#include "ddp/random.h"
#include "train/models/model.h"

#include <stdbool.h>

enum { PICTURE_SIDE = 28, PICTURE_PIXELS = PICTURE_SIDE * PICTURE_SIDE, CLASSES = 10 };

enum dataset_part { DATASET_TRAIN, DATASET_TEST };
enum dataset_kind { DATASET_IMAGES, DATASET_LABELS };

/* Return the name of one of the four files of Fashion-MNIST. */
const char *dataset_file_name(enum dataset_part part, enum dataset_kind kind);

/* The model's requirements for the data. */
struct dataset_request {
    enum model_input input;
    size_t length, vocabulary; /* for tokens: number of tokens in a sample, and number of different tokens */
};

/* One part of a data set. A picture is channels x height x width floats. A sample of tokens is `length` int32. The
 * usual calls:
 *
 *     dataset_load(&set, "data", DATASET_TRAIN, &request, &err)    finds the format and loads
 *     dataset_read(&set, i, luck, values, target, &err)            sample i, into one row of a batch
 *     dataset_free(&set) */
struct dataset {
    const struct dataset_format *format;
    size_t n;                       /* number of samples */
    size_t length;                  /* number of targets of a sample; 1 for a picture */
    size_t classes;                 /* every target is below this number */
    size_t channels, height, width; /* size of a picture; 0 for tokens */
    /* the data in one format; the members of the other formats are zeroed */
    struct idx images, labels;
    struct cifar cifar;
    struct tokens tokens;
};

/* Load one part of a data set. `where` is a directory; for tokens it may also be a pattern of file names. For pictures,
 * load CIFAR-10's binary files if the directory has them, otherwise IDX files. If a file is missing, the error names
 * make-data, which creates a set. An error about wrong data names file, offset and value. After an error nothing needs
 * to be freed. */
ddp_status dataset_load(struct dataset *set, const char *where, enum dataset_part part,
                        const struct dataset_request *request, struct ddp_err *err);
void dataset_free(struct dataset *set);

/* Return "idx", "cifar10" or "tokens". The text is constant. */
const char *dataset_format_name(const struct dataset *set);

/* Return true if samples depend on random numbers (the argument `luck` of dataset_read). */
bool dataset_varies(const struct dataset *set);

/* Return the size in bytes of one sample's values. */
size_t dataset_row_bytes(const struct dataset *set);

/* Read sample `index` (< n): its float or int32 values, and `length` targets. `luck` is the random generator for
 * augmentation of colour pictures, or NULL for no augmentation. Several threads may read at the same time. An error
 * names file, offset and value. */
ddp_status dataset_read(const struct dataset *set, size_t index, ddp_philox *luck, void *values,
                        int32_t *target, struct ddp_err *err);

#endif
