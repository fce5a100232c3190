/* gradient.h -- computes the gradient of one step on this worker. This gradient is the sum of the gradients of the
 * worker's shards, added as a binary tree, because the all-reduce then continues the tree over the ranks (see
 * batch_source.h). */
#ifndef WORKER_TRAIN_GRADIENT_H
#define WORKER_TRAIN_GRADIENT_H

#include "train/batch_source.h"
#include "train/models/model.h"
#include "train/profile.h"

/* The parts of a sum are added as a binary tree, in an order that needs few buffers.
 *
 * A tree of n parts is (left half) + (right half), down to single parts; the left half has n / 2 parts. For n = 4:
 * ((p0+p1)+(p2+p3)). The parts are computed in order. Part i is computed in buffer tree_part.buffer, and then
 * tree_part.merges merges follow. A merge adds a buffer to the buffer before it. The first merge adds the part's own
 * buffer, the next merge adds the buffer before that buffer, and so on. The final sum is in buffer 0:
 *
 *     part 0   in buffer 0
 *     part 1   in buffer 1      1 -> 0                 p0+p1
 *     part 2   in buffer 1                             p2
 *     part 3   in buffer 2      2 -> 1, 1 -> 0         p2+p3, (p0+p1)+(p2+p3)
 *
 * If the number of ranks is a power of two and each rank has the same number of parts, each rank's parts are a subtree.
 * So the all-reduce continues the tree over the ranks. */

struct tree_part {
    int buffer; /* buffer in which the part is computed */
    int merges; /* number of merges after the part is computed */
};

enum { GRADIENT_BUFFERS = 32 }; /* enough for any int n: n shards need 1 + ceil(log2(n)) */

/* Callbacks that observe or change gradients; each may be NULL. `user` is borrowed. */
struct gradient_watch {
    /* Called with the gradient of parameter i for one shard of the batch, before this gradient is added to the
     * gradients of other shards. */
    ddp_status (*part)(void *user, size_t i, float *grad, struct ddp_err *err);
    /* Called when the gradient of parameter i is summed over all shards. This happens during the backward pass of the
     * last shard. */
    ddp_status (*whole)(void *user, size_t i, struct ddp_err *err);
    /* Called when phase `phase` begins, which ends the previous phase. If `phase` is PHASES, no new phase begins. */
    void (*phase)(void *user, enum phase phase);
    void *user;
};

struct gradient {
    struct model *model; /* borrowed, like `source` */
    struct batch_source *source;
    float *memory; /* owned: all buffers except buffer 0 */
    float **views; /* owned: one pointer into `memory` for each parameter of each buffer except buffer 0 */
    /* for each buffer, pointers to the gradients of all parameters; [0] is the caller's */
    float *const *sum[GRADIENT_BUFFERS];
    double loss[GRADIENT_BUFFERS]; /* for each buffer, the sum of the losses of its shards */
    struct tree_part part;         /* the current shard's buffer, and the number of merges after this shard */
    int shard;                     /* number of the current shard, from 0 */
    const struct gradient_watch *watch;
};

/* Initialize *g. Return false if memory is short. Then nothing needs to be freed. */
bool gradient_init(struct gradient *g, struct model *model, struct batch_source *source);
void gradient_free(struct gradient *g);

/* Compute this worker's gradient of step `step`, summed over the worker's shards. `into` has a pointer for the gradient
 * of each parameter. Set *loss to the sum of the samples' losses. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err);

#endif
