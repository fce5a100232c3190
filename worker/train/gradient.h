/* gradient.h -- the gradient of one step on this worker: its shards, added as a binary tree (see feed.h). */
#ifndef WORKER_TRAIN_GRADIENT_H
#define WORKER_TRAIN_GRADIENT_H

#include "train/feed.h"
#include "train/models/model.h"
#include "train/profile.h"

/* The order in which parts are added as a binary tree with little memory. Pure arithmetic.
 *
 * A tree of n parts is (left half) + (right half), down to single parts; the left half has n / 2 parts. For n = 4:
 * ((p0+p1)+(p2+p3)). The parts are computed in order. Each part is computed in the buffer that tree_part names. Then
 * that buffer is added to the next lower buffer, and so on, as often as tree_part requires. The final sum is in
 * buffer 0:
 *
 *     part 0   in buffer 0
 *     part 1   in buffer 1      1 -> 0                 p0+p1
 *     part 2   in buffer 1                             p2
 *     part 3   in buffer 2      2 -> 1, 1 -> 0         p2+p3, (p0+p1)+(p2+p3)
 *
 * If n is k times a power of two, the upper levels equal the levels of a tree for that power of two, for any k. So
 * ranks with equal shares of the parts can continue the tree between them. */

struct tree_part {
    int buffer; /* the buffer in which the part is computed */
    int merges; /* number of additions of a buffer to the buffer below that follow */
};

/* Return the place of part `part` (< n) of n. */
struct tree_part tree_part(int n, int part);

/* Return how many buffers a tree of n parts needs, including buffer 0. */
int tree_buffers(int n);

enum { GRADIENT_BUFFERS = 32 }; /* enough for the largest number of shards */

/* Callbacks that observe or change gradients; each may be NULL. */
struct gradient_watch {
    /* Called when the gradient of parameter i of one shard is computed, before it is added to the gradients of other
     * shards. */
    ddp_status (*part)(void *user, size_t i, float *grad, struct ddp_err *err);
    /* Called when the gradient of parameter i is the sum of all shards, while the backward pass of the last shard
     * still runs. */
    ddp_status (*whole)(void *user, size_t i, struct ddp_err *err);
    /* Called when phase `phase` begins and the previous phase ends. If `phase` is PHASES, no phase begins. */
    void (*phase)(void *user, enum phase phase);
    void *user;
};

struct gradient {
    struct model *model; /* borrowed, like the feed */
    struct feed *feed;
    float *memory; /* owned: buffers 1 and up of the tree */
    float **views; /* owned: pointers into `memory` for each parameter */
    float *const
        *sum[GRADIENT_BUFFERS];    /* for each buffer, pointers to all parameters; [0] is the caller's */
    double loss[GRADIENT_BUFFERS]; /* for each buffer, the sum of losses */
    struct tree_part part;         /* the shard in progress: its place in the tree */
    int shard;                     /* number of the shard, from 0 */
    const struct gradient_watch *watch;
};

/* Initialize *g. Return false if memory is short; then nothing needs to be freed. */
bool gradient_init(struct gradient *g, struct model *model, struct feed *feed);
void gradient_free(struct gradient *g);

/* Compute this worker's gradient of step `step`, the sum over its shards, into `into` (a pointer for each parameter).
 * *loss is the sum of the samples' losses. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err);

#endif
