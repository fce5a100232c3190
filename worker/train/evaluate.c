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

/* The first one wins a tie, as with torch.argmax. */
static int best_class(const float *logits)
{
    int best = 0;
    for (int i = 1; i < MLP_CLASSES; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Up to EVALUATE_ROWS samples at once; adds to counts[0] the right ones, to counts[1] all. False at the
 * end. */
static bool count_batch(struct mlp *mlp, const struct dataset *set, ddp_sampler *sampler, float *x,
                        int64_t counts[2])
{
    uint8_t label[EVALUATE_ROWS];
    uint64_t index;
    size_t rows = 0;
    for (; rows < EVALUATE_ROWS && ddp_sampler_next(sampler, &index, NULL); rows++)
        label[rows] = dataset_sample(set, index, x + rows * PICTURE_PIXELS);
    if (rows == 0)
        return false;
    const float *logits = mlp_forward(mlp, x, rows);
    for (size_t row = 0; row < rows; row++)
        counts[0] += best_class(logits + row * MLP_CLASSES) == label[row];
    counts[1] += (int64_t)rows;
    return true;
}

/* The second count is a check of the sampler: a sample left out or seen twice would go unnoticed in a
 * percentage. */
static ddp_status add_up(ddp_ctx *ctx, int64_t counts[2], const struct dataset *set, struct ddp_err *err)
{
    ddp_status status = ddp_all_reduce(ddp_world(ctx), counts, counts, 2, DDP_I64, DDP_SUM, NULL, NULL);
    if (status != DDP_OK)
        return library(status, err);
    if (counts[1] != (int64_t)set->n)
        return ddp_fail(err, DDP_ERR_MISMATCH, "the ranks have tested %" PRId64 " samples, the set has %zu",
                        counts[1], set->n);
    return DDP_OK;
}

ddp_status evaluate(struct mlp *mlp, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err)
{
    int64_t counts[2] = { 0, 0 };
    ddp_sampler *sampler;
    float *x = malloc(sizeof(float) * EVALUATE_ROWS * PICTURE_PIXELS);
    if (x == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %d test samples", EVALUATE_ROWS);
    ddp_status status =
        ddp_sampler_create(set->n, ddp_world_size(ctx), ddp_rank(ctx), 0, DDP_SAMPLER_NO_PAD, &sampler, err);
    while (status == DDP_OK && count_batch(mlp, set, sampler, x, counts))
        ;
    if (status == DDP_OK)
        status = add_up(ctx, counts, set, err);
    ddp_sampler_free(sampler);
    free(x);
    *out = (struct accuracy){ .correct = counts[0], .samples = counts[1] };
    return status;
}
