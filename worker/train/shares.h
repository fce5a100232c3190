/* shares.h -- gradients and parameters on a device, divided among the ranks by collectives of this module instead of
 * the reducer's. This is for --zero1, and for --determinism world, where the order of a sum must not depend on the
 * number of ranks. Each rank updates only its share.
 *
 *     shares_open -> each step: gradients into shares_grad, shares_ready for each while the backward pass still runs,
 *     shares_average, shares_norm, shares_update for each parameter and shares_send -> shares_close
 *
 *                  reduced by
 *     zero1        reduce_scatter, NCCL's average
 *     world        all_gather of all ranks' sums, from which each rank adds up its share as a tree
 *
 * With `world` a rank gets the gradients of all other ranks, which with N ranks is N / 2 times the traffic of an
 * all-reduce. */
#ifndef WORKER_TRAIN_SHARES_H
#define WORKER_TRAIN_SHARES_H

#include "ddp/reducer.h"
#include "train/compute.h"

#include <stdbool.h>
#include <stddef.h>

/* All parameters of a model as one flat array on a device. It is divided into buckets, and each bucket into an equal
 * share for every rank. Pure arithmetic.
 *
 * compute_ops.place defines where parameters are. A bucket may begin in the middle of a parameter. A bucket is
 * reduced when all parameters in the bucket are ready. Each share is a multiple of COMPUTE_LEAF elements, so that the
 * norm has the same leaves for every number of ranks. Zeros after the last parameter fill the last share. A rank's
 * shares, bucket after bucket, are one array: its shard. */

struct shares_plan {
    size_t n;               /* number of parameters */
    const size_t *elements; /* for each parameter, its elements; borrowed */
    size_t *at;             /* for each parameter, the place where it begins; owned */
    size_t count;           /* elements of the flat array, with the zeros at the end */
    size_t bucket, buckets; /* elements of a bucket (the last may have fewer); number of buckets */
    size_t world, rank;
};

/* A part of a parameter. */
struct shares_piece {
    size_t first; /* first element in the parameter */
    size_t at;    /* place in the flat array */
    size_t n;     /* elements; 0 = none */
};

/* Make a plan with buckets of about `most` elements, rounded up so that they can be divided. A small model has eight
 * buckets. Return false if memory is short. */
bool shares_plan_make(struct shares_plan *p, const size_t elements[], size_t n, size_t world, size_t rank,
                      size_t most);
void shares_plan_free(struct shares_plan *p);

/* Return the multiple to which compute_ops.place must round the number of elements. */
size_t shares_multiple(size_t world);

/* Return the elements of bucket `b`, the elements of a rank's share of this bucket, or the place where this rank's
 * share begins. */
size_t shares_of_bucket(const struct shares_plan *p, size_t b);
size_t shares_of_rank(const struct shares_plan *p, size_t b);
size_t shares_mine(const struct shares_plan *p, size_t b);

/* Return the place in this rank's shard of element `at` of this rank's share of bucket `b`. */
size_t shares_in_shard(const struct shares_plan *p, size_t b, size_t at);

/* Return the part of parameter i that is in the elements `from` to `from + many - 1`. */
struct shares_piece shares_piece(const struct shares_plan *p, size_t i, size_t from, size_t many);

enum { SHARES_SLOTS = 3 };

struct shares_request {
    ddp_group *group; /* borrowed, like the next three */
    struct compute *device;
    const struct model_tensors *params; /* placed with shares_multiple(world) */
    const size_t *count;                /* for each parameter, its elements */
    int world, rank;
    ddp_dtype dtype; /* type of what layers read */
    bool any_world;
    int slots; /* masters and the rule's states */
};

struct shares;

ddp_status shares_open(struct shares **out, const struct shares_request *request, struct ddp_err *err);
void shares_close(struct shares *s); /* NULL is allowed */

float *shares_grad(const struct shares *s, size_t i);

/* shares_start begins a step. shares_ready records that the gradient of parameter i is complete at this point of the
 * stream. shares_average makes the stream wait for all gradients. Collective. */
void shares_start(struct shares *s);
ddp_status shares_ready(struct shares *s, size_t i, struct ddp_err *err);
ddp_status shares_average(struct shares *s, struct ddp_err *err);

/* Compute the norm of all gradients, as compute_ops.norm does; collective. */
ddp_status shares_norm(struct shares *s, double most, double unscale, struct ddp_err *err);

/* Update the part of parameter i that is in this rank's share. shares_send() then collects from all ranks the weights
 * that the layers read. */
void shares_update(struct shares *s, const ddp_optim *rule, size_t i);
ddp_status shares_send(struct shares *s, struct ddp_err *err);

/* Export or import a slot: 0 is the masters, 1 and 2 are the rule's states. `flat` has all parameters one after the
 * other, on the host. Export is collective; only rank 0 passes a buffer, and the other ranks pass NULL. Import keeps
 * this rank's shares. If layers read the masters, the masters are the model's values, and import ignores them. */
ddp_status shares_export(struct shares *s, int slot, float *flat, struct ddp_err *err);
ddp_status shares_import(struct shares *s, int slot, const float *flat, struct ddp_err *err);

#endif
