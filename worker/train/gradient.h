/* gradient.h -- the gradient of one step on this worker: its shards, added as a binary tree (see split.h). */
#ifndef TRAIN_GRADIENT_H
#define TRAIN_GRADIENT_H

#include "feed.h"
#include "mlp.h"

enum { GRADIENT_LEVELS = 2 }; /* log2(SPLIT_MAX_SHARDS) */

struct gradient {
    struct mlp *mlp; /* borrowed, as is the feed */
    struct feed *feed;
    float *memory;                              /* ours: the right halves, one array per level of the tree */
    float *right[GRADIENT_LEVELS][MLP_TENSORS]; /* views into it */
};

/* False when memory is short; nothing is to be freed then. */
bool gradient_init(struct gradient *g, struct mlp *mlp, struct feed *feed);
void gradient_free(struct gradient *g);

/* Overwrite `into` with the sum over this worker's shards of step `step`; returns the sum of the samples'
 * losses. */
double gradient_compute(struct gradient *g, uint64_t step, float *const into[MLP_TENSORS]);

#endif
