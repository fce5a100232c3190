/* gradient.h -- computes the gradient of one step on this worker: the sum of the gradients of its shards, added as
 * a binary tree (see batch_source.h). */
#ifndef WORKER_TRAIN_GRADIENT_H
#define WORKER_TRAIN_GRADIENT_H

#include "train/batch_source.h"
#include "train/models/model.h"
#include "train/profile.h"

/* The order in which parts are added as a binary tree with little memory. Pure arithmetic. A tree of n parts is
 * (left half) + (right half), down to single parts; the left half has n / 2. Part i is computed in buffer
 * tree_part.buffer. Then tree_part.merges merges follow: each adds the last buffer to the buffer before it.
 *
 *     part 0   in buffer 0
 *     part 1   in buffer 1      1 -> 0                 p0+p1
 *     part 2   in buffer 1                             p2
 *     part 3   in buffer 2      2 -> 1, 1 -> 0         p2+p3, (p0+p1)+(p2+p3)
 *
 * If the number of ranks is a power of two and all ranks have equally many parts, each rank's parts are a subtree, and
 * the all-reduce continues the tree. */

struct tree_part {
    int buffer; /* buffer in which the part is computed */
    int merges; /* number of merges after the part is computed */
};

enum { GRADIENT_BUFFERS = 32 }; /* enough for any int n: n shards need 1 + ceil(log2(n)) */

/* Callbacks that observe or change gradients; each may be NULL. */
struct gradient_watch {
    /* Called with the gradient of parameter i for one shard, before it is added to others. */
    ddp_status (*part)(void *user, size_t i, float *grad, struct ddp_err *err);
    /* Called when the gradient of parameter i is summed over all shards, during the last shard's backward pass. */
    ddp_status (*whole)(void *user, size_t i, struct ddp_err *err);
    /* Called when phase `phase` begins, and the previous phase ends. PHASES: no new phase begins. */
    void (*phase)(void *user, enum phase phase);
    void *user;
};

struct gradient {
    struct model *model; /* borrowed, like `source` */
    struct batch_source *source;
    float *memory; /* owned: all buffers except buffer 0 */
    float **views; /* owned: one pointer into `memory` for each parameter of each buffer except 0 */
    float *const *sum[GRADIENT_BUFFERS]; /* for each buffer, pointers to all gradients; [0] is the caller's */
    double loss[GRADIENT_BUFFERS];       /* for each buffer, the sum of the losses of its shards */
    struct tree_part part;               /* the current shard's buffer and merges */
    int shard;                           /* number of the current shard, from 0 */
    const struct gradient_watch *watch;
};

/* Initialize *g. Return false if memory is short; then nothing needs to be freed. */
bool gradient_init(struct gradient *g, struct model *model, struct batch_source *source);
void gradient_free(struct gradient *g);

/* Compute this worker's gradient of step `step` into `into`, one pointer for each parameter. Set *loss to the sum
 * of the samples' losses. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err);

#endif
