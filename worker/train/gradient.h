/* gradient.h -- the gradient of one step on this worker: its shards, added as a binary tree (see feed.h). */
#ifndef WORKER_TRAIN_GRADIENT_H
#define WORKER_TRAIN_GRADIENT_H

#include "train/feed.h"
#include "train/models/model.h"
#include "train/profile.h"

/* In which order parts are added up as a binary tree, with little memory. Pure arithmetic.
 *
 * A tree of n parts is (left half) + (right half), the left one being n / 2 parts, down to single parts. For n = 4:
 * ((p0+p1)+(p2+p3)). Parts come one after the other. Each is made in a buffer that the tree names, and then added to the
 * buffer below as often as the tree says; the sum of all ends up in buffer 0:
 *
 *     part 0   in buffer 0
 *     part 1   in buffer 1      1 -> 0                 p0+p1
 *     part 2   in buffer 1                             p2
 *     part 3   in buffer 2      2 -> 1, 1 -> 0         p2+p3, (p0+p1)+(p2+p3)
 *
 * When n is a power of two times k, the upper part of the tree is that of a power of two, whatever k is: ranks that own equal
 * shares of the parts can go on with the tree where each of them has ended. */

struct tree_part {
    int buffer; /* where it is made */
    int merges; /* how often then: add the buffer to the one below, go down */
};

/* Part `part` (< n) of n. */
struct tree_part tree_part(int n, int part);

/* How many buffers a tree of n parts needs, buffer 0 included. */
int tree_buffers(int n);

enum { GRADIENT_BUFFERS = 32 }; /* of a tree of as many shards as there can be */

/* Callbacks that observe or change gradients; each may be NULL. */
struct gradient_watch {
    /* The gradient of parameter i of one shard is computed, and not added to anything yet. */
    ddp_status (*part)(void *user, size_t i, float *grad, struct ddp_err *err);
    /* The gradient of parameter i of all shards is complete: while the backward pass of the last one still runs. */
    ddp_status (*whole)(void *user, size_t i, struct ddp_err *err);
    /* Phase `phase` begins, and the one before it ends. PHASES: it only ends. */
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

/* Return false when memory is short; the caller then frees nothing. */
bool gradient_init(struct gradient *g, struct model *model, struct feed *feed);
void gradient_free(struct gradient *g);

/* Overwrite `into`, a pointer for each parameter, with the sum over this worker's shards of step `step`; *loss is the sum
 * of the samples' losses. */
ddp_status gradient_compute(struct gradient *g, uint64_t step, float *const into[],
                            const struct gradient_watch *watch, double *loss, struct ddp_err *err);

#endif
