/* evaluate.h -- accuracy on the test set, measured by all ranks together, every sample exactly once. */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "train/dataset.h"
#include "ddp/group.h"
#include "train/model.h"

struct accuracy {
    int64_t correct, samples; /* of tokens: how many of them */
    double loss;              /* their mean */
};

/* Samples tested at once; the model must have room for as many. */
size_t evaluate_rows(const struct dataset *set);

/* Collective. Fails when the ranks together have not seen each sample once. */
ddp_status evaluate(struct model *model, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err);

#endif
