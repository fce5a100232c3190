/* shares.h -- the optimizer's state on a device.
 *
 * With --zero1 and with --determinism world, gradients and parameters are divided into a share for each rank. Each rank
 * updates only its share, and this module also reduces the gradients. With --determinism world the reducer cannot do
 * that, because the order of its sums depends on the number of ranks. Without these options every rank has the whole
 * state as one share, and the reducer averages the gradients.
 *
 *     shares_open -> each step: shares_start, gradients into shares_grad, shares_ready for each gradient (while the
 *     backward pass still runs), shares_average, shares_norm, shares_update for each parameter, shares_send
 *     -> shares_close
 *
 *                  reduced by
 *     zero1        reduce_scatter, NCCL's average
 *     world        all_gather of all gradients; each rank then sums its share over the ranks as a tree
 *
 * With --determinism world, a rank receives the gradients of all other ranks. For N ranks, this is N / 2 times the
 * traffic of an all-reduce. */
#ifndef WORKER_TRAIN_SHARES_H
#define WORKER_TRAIN_SHARES_H

#include "ddp/reducer.h"
#include "train/compute.h"

#include <stdbool.h>
#include <stddef.h>

/* The division of a model's parameters. All parameters are one flat array, which is divided into buckets. Each bucket
 * is divided into equal shares, one for each rank. Pure.
 *
 * The array has the layout of compute_ops.place. A bucket may begin in the middle of a parameter. A bucket is reduced
 * when all its parameters are ready. The norm is summed from leaves of COMPUTE_LEAF elements. The size of a share is a
 * multiple of COMPUTE_LEAF, so the leaves are the same for any number of ranks. Zeros after the last parameter fill the
 * last share. The shares of one rank in all buckets form one array, the rank's shard. */

/* Return the `multiple` to which compute_ops.place must round up the size of the flat array. */
size_t shares_multiple(size_t world);

enum { SHARES_SLOTS = 3 };

struct shares_request {
    ddp_group *group; /* borrowed, like `device`, `params` and `count` */
    struct compute *device;
    const struct model_tensors *params; /* placed by compute_ops.place with shares_multiple(world) */
    const size_t *count;                /* number of elements of each parameter */
    int world, rank;                    /* world is 1 and rank is 0 if each rank has the whole state */
    bool reduces;    /* true if this module reduces the gradients, false if the reducer does */
    ddp_dtype dtype; /* type of the weights that layers read */
    bool any_world;  /* --determinism world */
    int slots;       /* number of slots: one for the masters, and one for each of the optimizer's states */
};

struct shares;

/* Allocate the shares of this rank. The caller owns *out. */
ddp_status shares_open(struct shares **out, const struct shares_request *request, struct ddp_err *err);
void shares_close(struct shares *s); /* `s` may be NULL */

/* Return the address of the gradient of parameter i, in device memory. */
float *shares_grad(const struct shares *s, size_t i);

/* Begin a step. */
void shares_start(struct shares *s);
/* Record that the work that is now on the stream completes the gradient of parameter i; collective. */
ddp_status shares_ready(struct shares *s, size_t i, struct ddp_err *err);
/* Complete the sums or averages of all buckets: the stream waits for their reductions. Collective. */
ddp_status shares_average(struct shares *s, struct ddp_err *err);

/* Compute the norm of all gradients, as compute_ops.norm does; collective. */
ddp_status shares_norm(struct shares *s, double most, double unscale, struct ddp_err *err);

/* Update the elements of parameter i that are in this rank's shares. `grad` is the gradient of the parameter. */
void shares_update(struct shares *s, const ddp_optim *rule, size_t i, const float *grad);
/* Gather the new weights of all ranks; collective. */
ddp_status shares_send(struct shares *s, struct ddp_err *err);

/* Copy a slot to `flat` (export) or from `flat` (import). `flat` has all parameters in the host's memory. Slot 0 has
 * the masters; slots 1 and 2 have the optimizer's states. If layers read the masters, the model already has these
 * values, and both functions ignore slot 0. Export is collective: rank 0 passes `flat`, and all other ranks pass NULL.
 * Import copies only this rank's shares. */
ddp_status shares_export(struct shares *s, int slot, float *flat, struct ddp_err *err);
ddp_status shares_import(struct shares *s, int slot, const float *flat, struct ddp_err *err);

#endif
