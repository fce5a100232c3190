/* gradient.h -- the gradient of one step on this worker: its shards, added as a binary tree (see split.h). */
#ifndef TRAIN_GRADIENT_H
#define TRAIN_GRADIENT_H

#include "train/feed.h"
#include "train/model.h"
#include "train/phases.h"
#include "train/tree.h"

enum { GRADIENT_BUFFERS = 32 }; /* of a tree of as many shards as there can be */

/* Who wants to know, or to change; each call may be NULL. */
struct gradient_watch {
    /* The gradient of parameter i of one shard is computed, and not added to anything yet. */
    ddp_status (*part)(void *user, size_t i, float *grad, struct ddp_err *err);
    /* The gradient of parameter i of all shards is complete: while the backward pass of the last one still runs. */
    ddp_status (*whole)(void *user, size_t i, struct ddp_err *err);
    /* `phase` begins, and what was before it ends. PHASES: only that. */
    void (*phase)(void *user, enum phase phase);
    void *user;
};

struct gradient {
    struct model *model; /* borrowed, as is the feed */
    struct feed *feed;
    float *memory;                       /* ours: buffers 1 and up of the tree */
    float **views;                       /* into it, for each parameter */
    float *const *sum[GRADIENT_BUFFERS]; /* each buffer: pointers to all parameters. [0] is the caller's */
    double loss[GRADIENT_BUFFERS];       /* added up as the gradients are */
    struct tree_part part;               /* of the shard that is computed, */
    int shard;                           /* from 0 */
    const struct gradient_watch *watch;
};

/* False when memory is short; nothing is to be freed then. */
bool gradient_init(struct gradient *g, struct model *model, struct feed *feed);
void gradient_free(struct gradient *g);

/* Overwrite `into`, a pointer for each parameter, with the sum over this worker's shards of step `step`; *loss is the sum
 * of the samples' losses. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err);

#endif
