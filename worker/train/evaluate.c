/* evaluate.c -- see evaluate.h.
 *
 * Padding, which training needs to keep ranks in step, would count some samples twice and make the accuracy
 * depend on the number of workers. So the test set is dealt out without: ranks may differ by one sample, and
 * only counts are summed, in integers, which have no rounding. */
#include "evaluate.h"

#include "ddp/sampler.h"
#include "library.h"

#include <inttypes.h>
#include <stdlib.h>

/* Up to EVALUATE_ROWS samples at once; adds to counts[0] the right ones, to counts[1] all, to *losses theirs. *more is
 * false at the end. */
static ddp_status count_batch(struct model *model, const struct dataset *set, ddp_sampler *sampler, float *x,
                              int64_t counts[2], double *losses, bool *more, struct ddp_err *err)
{
    int32_t label[EVALUATE_ROWS];
    float weight[EVALUATE_ROWS];
    struct model_batch batch = { .length = 1, .picture = x, .target = label, .weight = weight };
    double loss;
    uint64_t index;
    for (; batch.rows < EVALUATE_ROWS && ddp_sampler_next(sampler, &index, NULL); batch.rows++)
        label[batch.rows] = dataset_sample(set, index, x + batch.rows * PICTURE_PIXELS);
    for (size_t i = 0; i < batch.rows; i++)
        weight[i] = 1;
    *more = batch.rows > 0;
    if (!*more)
        return DDP_OK;
    ddp_status status = model_forward(model, &batch, MODEL_TEST, &loss, err);
    if (status != DDP_OK)
        return status;
    *losses += loss;
    counts[0] += (int64_t)model_correct(model, &batch);
    counts[1] += (int64_t)batch.rows;
    return DDP_OK;
}

/* The second count is a check of the sampler: a sample left out or seen twice would go unnoticed in a
 * percentage. */
static ddp_status add_up(ddp_ctx *ctx, int64_t counts[2], double *losses, const struct dataset *set,
                         struct ddp_err *err)
{
    ddp_status status = ddp_all_reduce(ddp_world(ctx), counts, counts, 2, DDP_I64, DDP_SUM, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_all_reduce(ddp_world(ctx), losses, losses, 1, DDP_F64, DDP_SUM, NULL, NULL);
    if (status != DDP_OK)
        return library(status, err);
    if (counts[1] != (int64_t)set->n)
        return ddp_fail(err, DDP_ERR_MISMATCH, "the ranks have tested %" PRId64 " samples, the set has %zu",
                        counts[1], set->n);
    return DDP_OK;
}

ddp_status evaluate(struct model *model, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err)
{
    int64_t counts[2] = { 0, 0 };
    double losses = 0;
    bool more = true;
    ddp_sampler *sampler;
    float *x = malloc(sizeof(float) * EVALUATE_ROWS * PICTURE_PIXELS);
    if (x == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d test samples", EVALUATE_ROWS);
    ddp_status status =
        ddp_sampler_create(set->n, ddp_world_size(ctx), ddp_rank(ctx), 0, DDP_SAMPLER_NO_PAD, &sampler, err);
    while (status == DDP_OK && more)
        status = count_batch(model, set, sampler, x, counts, &losses, &more, err);
    if (status == DDP_OK)
        status = add_up(ctx, counts, &losses, set, err);
    ddp_sampler_free(sampler);
    free(x);
    *out = (struct accuracy){ .correct = counts[0], .samples = counts[1], .loss = losses / (double)set->n };
    return status;
}
