/* buckets.h -- the plan of which gradients are reduced together. Pure; the same on every rank, because it depends
 * only on facts that the ranks have compared before.
 *
 * The rule is PyTorch's (c10d reducer, compute_bucket_assignment_by_size): take the parameters in order,
 * each type on its own; add one to the open bucket, and close the bucket when it holds at least its limit
 * (so it may exceed it by one parameter); the first bucket of a type has the first limit, all later ones
 * the second. Buckets are sorted by their first parameter and the list is reversed: gradients become ready from the
 * last layer back, so the first bucket of the list is full early, and is reduced while the others are still being
 * computed.
 *
 * An example with limits of 1000 and 200 bytes, parameters of 400, 1600, 40, 80, 120 and 8 bytes: 0 and 1
 * fill the first bucket (2000 >= 1000), 2, 3 and 4 the second (240 >= 200), 5 is left over. Reversed, the
 * plan is
 *
 *     bucket 0: parameter 5      bucket 1: parameters 2 3 4      bucket 2: parameters 0 1
 *
 * When the order in which gradients become ready is known, the parameters are taken in that order, and buckets are
 * numbered as they close: nothing is left to be sorted or reversed. */
#ifndef WORKER_REDUCER_BUCKETS_H
#define WORKER_REDUCER_BUCKETS_H

#include "ddp/reducer.h"

#include <stdbool.h>

/* Alignment of each gradient in the arena, for vector loads, so that it can be divided anywhere. The gaps between
 * gradients are zero and are reduced with them. */
enum { BUCKET_ALIGN = 256 };

struct bucket {
    ddp_dtype dtype;
    size_t params; /* number of parameters */
    size_t bytes;  /* bytes of their gradients without gaps, compared with the limits */
    size_t at;     /* offset in the arena */
    size_t span;   /* bytes in the arena, gaps included; a multiple of BUCKET_ALIGN */
    bool closed;   /* has reached its limit */
};

struct bucket_plan {
    struct bucket *buckets; /* in the order of reduction */
    size_t count;
    size_t *bucket_of; /* of each parameter */
    size_t *at;        /* offset of each parameter's gradient in the arena */
    size_t arena_bytes;
};

struct bucket_rule {
    size_t first_limit, limit; /* bytes */
    const size_t
        *order; /* order of readiness, each parameter once; NULL = not known. Borrowed for the call */
};

/* Plan for `n` parameters; only `count` and `dtype` are read. DDP_ERR_ARG names a parameter that is too large,
 * DDP_ERR_NOMEM. On DDP_OK free with bucket_plan_free. The arena has the same size for every order. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n,
                            const struct bucket_rule *rule, struct ddp_err *err);
void bucket_plan_free(struct bucket_plan *plan);

#endif
