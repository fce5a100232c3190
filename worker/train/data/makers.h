/* makers.h -- what make-data writes: a learnable set in each format that dataset.h reads, file by file, each whole or not at
 * all. Training set and test set come from one generator in this order, so equal seeds and sizes give equal bytes. */
#ifndef TRAIN_DATA_MAKERS_H
#define TRAIN_DATA_MAKERS_H

#include "ddp/error.h"
#include "ddp/random.h"

#include <stdbool.h>
#include <stdint.h>

struct maker_order {
    const char *out;                /* directory; it is there */
    uint64_t samples, test_samples; /* pictures or tokens */
    uint64_t files;                 /* of tokens for training */
    bool gzip;
};

struct maker {
    const char *name, *unit;
    uint64_t samples, test_samples; /* if nothing is said */
    uint64_t most;                  /* of either: a part is made in memory */
    ddp_status (*make)(const struct maker_order *order, ddp_random *luck, struct ddp_err *err);
};

extern const struct maker makers[];
extern const char *const maker_names[]; /* of the same rows; ends with NULL */

#endif
