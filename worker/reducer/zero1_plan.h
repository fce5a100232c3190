/* zero1_plan.h -- which parameter lies where in the flat buckets, and which part of a bucket is whose.
 * Pure.
 *
 * A bucket of `elements` = world * share is cut into `world` equal shares. Every parameter begins at a
 * multiple of NORM_LEAF elements and every share is a multiple of it, so that a leaf of the norm lies in
 * one parameter and on one rank. A rank's shares, bucket after bucket, are one array: its shard. */
#ifndef WORKER_REDUCER_ZERO1_PLAN_H
#define WORKER_REDUCER_ZERO1_PLAN_H

#include "ddp/reducer.h"

struct zero1_bucket {
    ddp_dtype dtype;
    size_t elements; /* padding included */
    size_t share;    /* elements / world */
    size_t at;       /* bytes from the beginning of the gradients' memory */
    size_t shard_at; /* elements from the beginning of the shard */
};

struct zero1_plan {
    struct zero1_bucket *buckets; /* owned, as the arrays below, one element per parameter */
    size_t count;
    size_t *bucket_of;
    size_t *at;    /* elements from the beginning of the bucket */
    size_t bytes;  /* of all buckets */
    size_t shard;  /* elements of one rank's shard */
    size_t widest; /* elements of the largest bucket */
};

/* DDP_ERR_ARG names a parameter whose type or size cannot be. After an error free it, too. */
ddp_status zero1_plan_make(struct zero1_plan *plan, const ddp_param *params, size_t n, size_t limit,
                           int world, struct ddp_err *err);
void zero1_plan_free(struct zero1_plan *plan);

/* Where leaf `k` of bucket `b` lies in the gathered leaves of all ranks. */
size_t zero1_leaf(const struct zero1_plan *plan, size_t b, size_t k);

#endif
