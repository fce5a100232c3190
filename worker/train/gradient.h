/* gradient.h -- the gradient of one step on this worker: its shards, added as a binary tree (see split.h). */
#ifndef TRAIN_GRADIENT_H
#define TRAIN_GRADIENT_H

#include "feed.h"
#include "model.h"

enum { GRADIENT_LEVELS = 2 }; /* log2(SPLIT_MAX_SHARDS) */

struct gradient {
    struct model *model; /* borrowed, as is the feed */
    struct feed *feed;
    float *memory;                  /* ours: the right halves, one array per level of the tree */
    float **right[GRADIENT_LEVELS]; /* views into it; one piece of memory, begins at right[0] */
    /* The step that is computed. */
    float *const *into;
    const struct model_ready *ready;
    int shard;
};

/* False when memory is short; nothing is to be freed then. */
bool gradient_init(struct gradient *g, struct model *model, struct feed *feed);
void gradient_free(struct gradient *g);

/* Overwrite `into`, a pointer for each parameter, with the sum over this worker's shards of step `step`; *loss is the sum
 * of the samples' losses. `ready` hears of each parameter once, while the backward pass of the last shard still
 * runs. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct model_ready *ready, double *loss, struct ddp_err *err);

#endif
