/* buckets.h -- the plan of which gradients are reduced together. Pure. The plan is the same on every rank, because
 * the plan depends only on data that the ranks have compared before.
 *
 * The rule is PyTorch's (c10d reducer, compute_bucket_assignment_by_size). Each type has its own buckets. Parameters
 * are added in order to the open bucket. The bucket is closed when it has reached its limit, so it may exceed the
 * limit by one parameter. The first bucket of a type has the first limit, and all later buckets have the second
 * limit.
 *
 * Buckets are sorted by their first parameter, then the list is reversed, because gradients become ready from the
 * last layer to the first. So the first bucket of the list is full early, and is reduced while other gradients are
 * still being computed.
 *
 * An example with limits of 1000 and 200 bytes, and parameters of 400, 1600, 40, 80, 120 and 8 bytes: 0 and 1 fill
 * the first bucket (2000 >= 1000), 2, 3 and 4 fill the second (240 >= 200), and 5 remains. After the reversal the
 * plan is
 *
 *     bucket 0: parameter 5      bucket 1: parameters 2 3 4      bucket 2: parameters 0 1
 *
 * If the order in which gradients become ready is known, parameters are added in that order, and buckets are numbered
 * as they close. Then no sorting or reversal is needed. */
#ifndef WORKER_REDUCER_BUCKETS_H
#define WORKER_REDUCER_BUCKETS_H

#include "ddp/reducer.h"

#include <stdbool.h>

/* Alignment of each gradient in the arena, so that vector loads are aligned. The gaps between gradients are zero and
 * are reduced with the gradients. */
enum { BUCKET_ALIGN = 256 };

struct bucket {
    ddp_dtype dtype;
    size_t params; /* number of parameters */
    size_t bytes;  /* bytes of their gradients without gaps, compared with the limits */
    size_t at;     /* offset in the arena */
    size_t span;   /* bytes in the arena, gaps included; a multiple of BUCKET_ALIGN */
    bool closed;   /* the bucket has reached its limit */
};

struct bucket_plan {
    struct bucket *buckets; /* in the order of reduction */
    size_t count;
    size_t *bucket_of; /* for each parameter, the number of its bucket */
    size_t *at;        /* for each parameter, the offset of its gradient in the arena */
    size_t arena_bytes;
};

struct bucket_rule {
    size_t first_limit, limit; /* bytes */
    const size_t
        *order; /* order of readiness, each parameter once; NULL = unknown. Borrowed during the call */
};

/* Make a plan for `n` parameters, of which only `count` and `dtype` are read. The arena has the same size for every
 * order. After DDP_OK the caller frees the plan with bucket_plan_free. DDP_ERR_ARG names a parameter that is too
 * large. Return DDP_ERR_NOMEM if memory is short. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n,
                            const struct bucket_rule *rule, struct ddp_err *err);
void bucket_plan_free(struct bucket_plan *plan);

#endif
