/* gradient.c -- see gradient.h.
 *
 * The left half of every sum is computed where the result belongs, the right half in memory of its level; so
 * a tree of depth d needs d spare gradients, and the root ends up in the reducer's buckets without a copy.
 *
 *     4 shards     s0 -> into    s1 -> right[1], added to into
 *                  s2 -> right[0]    s3 -> right[1], added to right[0], that to into
 *
 * What is added behind the last shard is added parameter by parameter, as the backward pass gives them: then each is ready
 * while the next is still computed. */
#include "gradient.h"

#include <cblas.h>
#include <stdlib.h>

bool gradient_init(struct gradient *g, struct model *model, struct feed *feed)
{
    const struct model_tensors *params = &model->params;
    *g = (struct gradient){ .model = model, .feed = feed };
    g->memory = calloc(GRADIENT_LEVELS * params->count, sizeof(float));
    g->right[0] = calloc(GRADIENT_LEVELS * params->n, sizeof(float *));
    if (g->memory == NULL || g->right[0] == NULL) {
        gradient_free(g);
        return false;
    }
    for (int level = 0; level < GRADIENT_LEVELS; level++) {
        g->right[level] = g->right[0] + (size_t)level * params->n;
        model_views(params, g->memory + (size_t)level * params->count, g->right[level]);
    }
    return true;
}

void gradient_free(struct gradient *g)
{
    free(g->memory);
    free(g->right[0]);
    *g = (struct gradient){ 0 };
}

/* log2(shards here). */
static int depth(const struct gradient *g)
{
    int levels = 0;
    while (1 << levels < g->feed->split->shards_here)
        levels++;
    return levels;
}

/* Where the sum that begins with shard `shard` is made: the result itself, or the memory of the level at which the way to
 * the shard last turned right. */
static float *const *place_of(const struct gradient *g, int shard)
{
    int lefts = 0;
    if (shard == 0)
        return g->into;
    while ((shard >> lefts & 1) == 0)
        lefts++;
    return g->right[depth(g) - 1 - lefts];
}

/* left += right. One rounding for each element, with or without fused arithmetic inside BLAS, as the factor
 * is 1. */
static void add(const struct gradient *g, size_t i, float *const left[], float *const right[])
{
    cblas_saxpy((int)g->model->params.each[i].count, 1, right[i], 1, left[i], 1);
}

/* All sums that end with shard `g->shard`, for parameter i. Behind the last shard that is the gradient. */
static ddp_status param_done(void *user, size_t i, struct ddp_err *err)
{
    struct gradient *g = user;
    int shard = g->shard, half = 1;
    for (; shard & half; half <<= 1) {
        add(g, i, place_of(g, shard & ~half), place_of(g, shard));
        shard &= ~half;
    }
    return half == g->feed->split->shards_here ? model_is_ready(g->ready, i, err) : DDP_OK;
}

/* Forward, loss, backward: the gradient of one shard. Its loss is added up as the gradients are. */
static ddp_status one_shard(struct gradient *g, uint64_t step, double loss[SPLIT_MAX_SHARDS],
                            struct ddp_err *err)
{
    const struct model_ready done = { param_done, g };
    struct model_batch batch;
    int shard = g->shard;
    feed_take(g->feed, step, shard, &batch);
    ddp_status status = model_forward(g->model, &batch, MODEL_TRAIN, &loss[shard], err);
    if (status == DDP_OK)
        status = model_backward(g->model, &batch, place_of(g, shard), &done, err);
    for (int half = 1; shard & half; half <<= 1) {
        loss[shard & ~half] += loss[shard];
        shard &= ~half;
    }
    return status;
}

ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct model_ready *ready, double *loss, struct ddp_err *err)
{
    double losses[SPLIT_MAX_SHARDS] = { 0 };
    ddp_status status = DDP_OK;
    g->into = into;
    g->ready = ready;
    for (g->shard = 0; g->shard < g->feed->split->shards_here && status == DDP_OK; g->shard++)
        status = one_shard(g, step, losses, err);
    *loss = losses[0];
    return status;
}
