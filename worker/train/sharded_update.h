/* sharded_update.h -- the optimizer's state on a device. With --zero1 or --determinism world, each rank updates only
 * its share of the parameters, and this module also reduces the gradients. With --determinism world the reducer cannot
 * reduce the gradients, because the order of its sums depends on the number of ranks. */
#ifndef WORKER_TRAIN_SHARDED_UPDATE_H
#define WORKER_TRAIN_SHARDED_UPDATE_H

#include "ddp/reducer.h"
#include "train/compute.h"

#include <stdbool.h>
#include <stddef.h>

/* The parameters of a model are one flat array with the layout of compute_ops.place. This array is divided into
 * buckets, and each bucket is divided into equal shares, one for each rank.
 *
 *  - A bucket may begin in the middle of a parameter. A bucket is reduced when all its parameters are ready.
 *  - The shares of one rank in all buckets form one array, the rank's shard.
 *  - The size of a share is a multiple of COMPUTE_LEAF, so the number of ranks does not change the norm's leaves. */

/* Return the argument `multiple` for compute_ops.place. The size of the flat array is a multiple of this number. */
size_t sharded_multiple(size_t world);

enum { SHARDED_SLOTS = 3 };

/* The arguments of sharded_open. With neither --zero1 nor --determinism world, every rank has the whole state as one
 * share, and the reducer averages the gradients. */
struct sharded_request {
    ddp_group *group; /* borrowed, like `device`, `params` and `count` */
    struct compute *device;
    const struct model_tensors *params; /* prepared by compute_ops.place; see sharded_multiple() */
    const size_t *count;                /* number of elements of each parameter */
    int world, rank;                    /* world is 1 and rank is 0 if each rank has the whole state */
    bool reduces;    /* true if this module reduces the gradients, false if the reducer does */
    ddp_dtype dtype; /* type of the weights that layers read */
    bool any_world;  /* true with --determinism world */
    int slots;       /* number of slots: one for the master weights, and one for each optimizer state */
};

/* The gradients and the optimizer's state of one rank. The order of the calls is:
 *
 *     sharded_open -> each step: sharded_start, gradients into sharded_grad, sharded_ready for each gradient (while the
 *     backward pass still runs), sharded_average, sharded_norm, sharded_update for each parameter, sharded_send
 *     -> sharded_close */
struct sharded_update;

/* Allocate the shares of this rank. The caller owns *out. */
ddp_status sharded_open(struct sharded_update **out, const struct sharded_request *request,
                        struct ddp_err *err);
void sharded_close(struct sharded_update *s); /* `s` may be NULL */

/* Return the address of the gradient of parameter i, in device memory. `s` owns the memory. */
float *sharded_grad(const struct sharded_update *s, size_t i);

/* Begin a step. */
void sharded_start(struct sharded_update *s);
/* Record that the work that is now on the device's stream completes the gradient of parameter i. Collective. When all
 * gradients of a bucket are complete, the bucket is reduced:
 *
 *                  reduced by
 *     zero1        reduce_scatter, NCCL's average
 *     world        all_gather of all gradients; each rank then sums its share over the ranks as a tree
 *
 * With --determinism world, a rank receives the gradients of all other ranks. For N ranks, this is N / 2 times the
 * traffic of an all-reduce. */
ddp_status sharded_ready(struct sharded_update *s, size_t i, struct ddp_err *err);
/* Make the device's stream wait for the collectives of all buckets. With --determinism world, also add the gathered
 * gradients on this stream. Collective. */
ddp_status sharded_average(struct sharded_update *s, struct ddp_err *err);

/* Compute the norm of all gradients, as compute_ops.norm does; collective. */
ddp_status sharded_norm(struct sharded_update *s, double most, double unscale, struct ddp_err *err);

/* Update the elements of parameter i that are in this rank's shares. `grad` is the gradient of the parameter. */
void sharded_update(struct sharded_update *s, const ddp_optim *rule, size_t i, const float *grad);
/* Gather the new weights of all ranks; collective. */
ddp_status sharded_send(struct sharded_update *s, struct ddp_err *err);

/* Copy a slot to `flat` (export) or from `flat` (import). `flat` has all parameters in the host's memory. Slot 0 has
 * the masters; slots 1 and 2 have the optimizer's states. If layers read the masters, the model already has these
 * values, and both functions ignore slot 0. Export is collective: rank 0 passes `flat`, and all other ranks pass NULL.
 * Import copies only this rank's shares. */
ddp_status sharded_export(struct sharded_update *s, int slot, float *flat, struct ddp_err *err);
ddp_status sharded_import(struct sharded_update *s, int slot, const float *flat, struct ddp_err *err);

#endif
