/* evaluate.c -- see evaluate.h.
 *
 * Padding, which training needs to keep ranks in step, would count some samples twice and make the accuracy
 * depend on the number of workers. So the test set is dealt out without: ranks may differ by one sample, and
 * only counts are summed, in integers, which have no rounding. */
#include "train/evaluate.h"

#include "train/compute.h"
#include "ddp/sampler.h"
#include "train/library.h"

#include <inttypes.h>
#include <stdlib.h>

enum { EVALUATE_TARGETS = 256 };

size_t evaluate_rows(const struct dataset *set)
{
    return set->length < EVALUATE_TARGETS ? EVALUATE_TARGETS / set->length : 1;
}

/* Memory for one batch, and what was found. */
struct examiner {
    struct model *model;
    const struct dataset *set;
    ddp_sampler *sampler;
    char *values;
    int32_t *target;
    float *weight;     /* 1 for each row */
    int64_t counts[2]; /* right ones, all */
    double losses;
};

static ddp_status read_batch(struct examiner *x, struct model_batch *batch, struct ddp_err *err)
{
    uint64_t index;
    const size_t bytes = dataset_row_bytes(x->set), most = evaluate_rows(x->set);
    ddp_status status = DDP_OK;
    *batch = (struct model_batch){ .length = x->set->length, .target = x->target, .weight = x->weight };
    batch->picture = (float *)(void *)x->values;
    batch->token = (int32_t *)(void *)x->values;
    for (; batch->rows < most && status == DDP_OK && ddp_sampler_next(x->sampler, &index, NULL);
         batch->rows++)
        status = dataset_read(x->set, index, NULL, x->values + batch->rows * bytes,
                              x->target + batch->rows * batch->length, err);
    return status;
}

/* *more is false at the end. */
static ddp_status count_batch(struct examiner *x, bool *more, struct ddp_err *err)
{
    struct model_batch batch;
    double loss;
    ddp_status status = read_batch(x, &batch, err);
    *more = batch.rows > 0;
    if (status != DDP_OK || !*more)
        return status;
    status = model_forward(x->model, &batch, MODEL_TEST, &loss, err);
    if (status != DDP_OK)
        return status;
    x->losses += loss;
    x->counts[0] += (int64_t)model_correct(x->model, &batch);
    x->counts[1] += (int64_t)(batch.rows * batch.length);
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
    if (counts[1] != (int64_t)(set->n * set->length))
        return ddp_fail(err, DDP_ERR_MISMATCH, "the ranks have tested %" PRId64 " targets, the set has %zu",
                        counts[1], set->n * set->length);
    return DDP_OK;
}

static ddp_status allocate(struct examiner *x, struct ddp_err *err)
{
    const size_t rows = evaluate_rows(x->set);
    x->values = malloc(rows * dataset_row_bytes(x->set));
    x->target = malloc(rows * x->set->length * sizeof(int32_t));
    x->weight = malloc(rows * sizeof(float));
    if (x->values == NULL || x->target == NULL || x->weight == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for %zu test samples", rows);
    for (size_t i = 0; i < rows; i++)
        x->weight[i] = 1;
    return DDP_OK;
}

static void release(struct examiner *x)
{
    ddp_sampler_free(x->sampler);
    free(x->values);
    free(x->target);
    free(x->weight);
}

/* Running numbers are rank 0's, as in a step: there they are sent before it, and here the last step is over. */
static ddp_status share_buffers(struct model *model, ddp_ctx *ctx, struct ddp_err *err)
{
    const struct model_tensors *b = &model->buffers;
    struct compute *on = model->compute;
    void *stream = on->remote ? on->ops->stream(on) : NULL;
    if (b->count == 0)
        return DDP_OK;
    return library(ddp_broadcast(ddp_world(ctx), b->each[0].master, b->count, DDP_F32, 0, stream, NULL), err);
}

ddp_status evaluate(struct model *model, const struct dataset *set, ddp_ctx *ctx, struct accuracy *out,
                    struct ddp_err *err)
{
    struct examiner x = { .model = model, .set = set };
    bool more = true;
    ddp_status status = allocate(&x, err);
    if (status == DDP_OK)
        status = share_buffers(model, ctx, err);
    if (status == DDP_OK)
        status = ddp_sampler_create(set->n, ddp_world_size(ctx), ddp_rank(ctx), 0, DDP_SAMPLER_NO_PAD,
                                    &x.sampler, err);
    while (status == DDP_OK && more)
        status = count_batch(&x, &more, err);
    if (status == DDP_OK)
        status = add_up(ctx, x.counts, &x.losses, set, err);
    release(&x);
    *out = (struct accuracy){ .correct = x.counts[0],
                              .samples = x.counts[1],
                              .loss = x.losses / (double)(set->n * set->length) };
    return status;
}
