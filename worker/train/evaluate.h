/* evaluate.h -- accuracy on the test set, measured by all ranks together, every sample exactly once. */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "dataset.h"
#include "ddp/group.h"
#include "model.h"

enum { EVALUATE_ROWS = 256 }; /* tested at once; the model must have room for as many */

struct accuracy {
    int64_t correct, samples;
    double loss; /* their mean */
};

/* Collective. Fails when the ranks together have not seen each sample once. */
ddp_status evaluate(struct model *model, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err);

#endif
