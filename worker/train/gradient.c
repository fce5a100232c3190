/* gradient.c -- see gradient.h.
 *
 * The left half of every sum is computed where the result belongs, the right half in memory of its level; so
 * a tree of depth d needs d spare gradients, and the root ends up in the reducer's buckets without a copy. */
#include "gradient.h"

#include <cblas.h>
#include <stdlib.h>

bool gradient_init(struct gradient *g, struct mlp *mlp, struct feed *feed)
{
    *g = (struct gradient){ .mlp = mlp, .feed = feed };
    g->memory = calloc((size_t)GRADIENT_LEVELS * MLP_PARAMS, sizeof(float));
    if (g->memory == NULL)
        return false;
    for (int level = 0; level < GRADIENT_LEVELS; level++)
        mlp_views(g->memory + (size_t)level * MLP_PARAMS, g->right[level]);
    return true;
}

void gradient_free(struct gradient *g)
{
    free(g->memory);
    *g = (struct gradient){ 0 };
}

/* Forward, loss, backward: the gradient of one shard. */
static double one_shard(struct gradient *g, uint64_t step, int shard, float *const into[MLP_TENSORS])
{
    struct feed *f = g->feed;
    size_t rows = feed_take(f, step, shard);
    mlp_forward(g->mlp, f->x, rows);
    double loss = mlp_loss(g->mlp, f->label, f->weight, rows);
    mlp_backward(g->mlp, f->x, rows, into);
    return loss;
}

/* left += right. One rounding for each element, with or without fused arithmetic inside BLAS, as the factor
 * is 1. */
static void add(float *const left[MLP_TENSORS], float *const right[MLP_TENSORS])
{
    for (int i = 0; i < MLP_TENSORS; i++)
        cblas_saxpy((int)mlp_tensors[i].count, 1, right[i], 1, left[i], 1);
}

/* Shards [first, first + n), n a power of two: left half + right half. `level` says whose memory is free. */
static double tree(struct gradient *g, uint64_t step, int first, int n, int level,
                   float *const into[MLP_TENSORS])
{
    if (n == 1)
        return one_shard(g, step, first, into);
    double loss = tree(g, step, first, n / 2, level + 1, into);
    loss += tree(g, step, first + n / 2, n / 2, level + 1, g->right[level]);
    add(into, g->right[level]);
    return loss;
}

double gradient_compute(struct gradient *g, uint64_t step, float *const into[MLP_TENSORS])
{
    return tree(g, step, 0, g->feed->split->shards_here, 0, into);
}
