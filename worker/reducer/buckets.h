/* buckets.h -- a pure module that plans which gradients are reduced together. All ranks make the same plan without
 * messages, because the plan depends only on data that is equal on all ranks. */
#ifndef WORKER_REDUCER_BUCKETS_H
#define WORKER_REDUCER_BUCKETS_H

#include "ddp/reducer.h"

#include <stdbool.h>

/* Alignment of each gradient in the arena, in bytes, for vector loads. The arena is the memory of all gradients. The
 * gaps between gradients are zero and are reduced with the gradients. */
enum { BUCKET_ALIGN = 256 };

struct bucket {
    ddp_dtype dtype;
    size_t params; /* number of parameters */
    size_t bytes;  /* size of the gradients in bytes, without gaps */
    size_t at;     /* offset of the bucket in the arena, in bytes */
    size_t span;   /* bytes in the arena, gaps included; a multiple of BUCKET_ALIGN */
    bool closed;   /* true if the bucket has reached its limit */
};

/* Buckets are sorted by their first parameter, then the list is reversed, because gradients become ready from the last
 * layer to the first. So the first bucket of the list is ready early, and is reduced while other gradients are
 * computed. If the order of readiness is known, the buckets are numbered in the order of closing, without a
 * reversal. */
struct bucket_plan {
    struct bucket *buckets; /* owned: the buckets, in the order of reduction */
    size_t count;
    size_t *bucket_of;  /* the bucket of each parameter */
    size_t *at;         /* the offset of each parameter's gradient in the arena */
    size_t arena_bytes; /* size of the arena, gaps included */
};

/* The rule of PyTorch (c10d reducer, compute_bucket_assignment_by_size). Each type has its own buckets. Each parameter
 * is added to the open bucket of its type. If the order of readiness is known, parameters are added in that order,
 * otherwise in the order of their indices. A bucket is closed when it has reached its limit, so the last parameter may
 * make the bucket larger than the limit. The first bucket of a type has the limit first_limit; all later buckets have
 * the limit `limit`.
 *
 * An example has limits of 1000 and 200 bytes, and parameters of 400, 1600, 40, 80, 120 and 8 bytes. Parameters 0 and 1
 * fill the first bucket (2000 >= 1000). Parameters 2, 3 and 4 fill the second bucket (240 >= 200). Parameter 5 is alone
 * in the third bucket. After the reversal the plan is
 *
 *     bucket 0: parameter 5      bucket 1: parameters 2 3 4      bucket 2: parameters 0 1 */
struct bucket_rule {
    size_t first_limit, limit; /* bytes */
    const size_t *order;       /* borrowed: all parameters in the order of readiness; NULL if unknown */
};

/* Make a plan for `n` parameters. The plan depends only on the members `count` and `dtype` of each parameter, and
 * on `rule`. The size of the arena does not depend on rule->order. After DDP_OK the caller frees the plan. The
 * text of DDP_ERR_ARG names a parameter with a wrong type or size. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n,
                            const struct bucket_rule *rule, struct ddp_err *err);
void bucket_plan_free(struct bucket_plan *plan);

#endif
