/* makers.h -- creates the sets of make-data: digits or tokens that a model can learn. Each file is written whole or
 * not at all. One random generator makes the training set and then the test set, so equal seeds and sizes give
 * equal files.
 *
 * The tables are static. A maker borrows its arguments until it returns, and frees all memory that it allocates; only
 * the files remain. */
#ifndef WORKER_TRAIN_DATA_MAKERS_H
#define WORKER_TRAIN_DATA_MAKERS_H

#include "ddp/error.h"
#include "ddp/random.h"
#include "train/dataset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of a user; `out` is borrowed from argv. */
struct maker_order {
    const char *out;                /* directory, borrowed; must exist */
    uint64_t samples, test_samples; /* number of pictures or of tokens */
    uint64_t files;                 /* number of files with tokens for training */
    bool gzip;
};

struct maker {
    const char *name, *unit;
    uint64_t samples, test_samples; /* default sizes */
    uint64_t most; /* upper limit for `samples`, and for `test_samples`; both are created in memory */
    ddp_status (*make)(const struct maker_order *order, ddp_random *luck, struct ddp_err *err);
};

extern const struct maker makers[];
extern const char *const maker_names[]; /* the names in makers[]; ends with NULL */

#endif
