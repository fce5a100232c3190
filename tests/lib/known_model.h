/* known_model.h -- models, pictures and tokens from formulas, the same as those of tests/data/torch_models.py. */
#ifndef TESTS_KNOWN_MODEL_H
#define TESTS_KNOWN_MODEL_H

#include "train/models.h"

enum {
    KNOWN_ROWS = 20,    /* pictures, 28x28, of 64 that come again and again */
    KNOWN_COLOURED = 4, /* pictures of resnet's, 3x32x32 */
    KNOWN_SEQUENCES = 3,
    KNOWN_LENGTH = 64,
};

/* The row of models.h; NULL = there is none. */
const struct model_kind *known_kind(const char *name);

/* The model `name` for batches of the sizes above, with known parameters; or the end of the test. */
struct model *known_model(const char *name);
/* The same on a device; send the parameters there. */
struct model *known_model_on(const char *name, struct compute *on);

/* What a model of this kind is trained with in step `step`; every target weighs the same, 1 together. Valid until the
 * next call. */
struct model_batch known_batch(const struct model_kind *kind, int step);

#endif
