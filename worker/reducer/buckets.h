/* buckets.h -- plans which gradients are reduced together. Pure. All ranks make the same plan from equal data,
 * without messages. */
#ifndef WORKER_REDUCER_BUCKETS_H
#define WORKER_REDUCER_BUCKETS_H

#include "ddp/reducer.h"

#include <stdbool.h>

/* Alignment of each gradient in the arena, in bytes, for vector loads. The gaps are zero. */
enum { BUCKET_ALIGN = 256 };

struct bucket {
    ddp_dtype dtype;
    size_t params; /* number of parameters */
    size_t bytes;  /* size of the gradients in bytes, without gaps */
    size_t at;     /* offset of the bucket in the arena, in bytes */
    size_t span;   /* bytes in the arena, gaps included; a multiple of BUCKET_ALIGN */
    bool closed;   /* true if the bucket has reached its limit */
};

/* The plan. Gradients of the last layers are ready first, so the list of buckets is in reverse order of
 * parameters. */
struct bucket_plan {
    struct bucket *buckets; /* owned: the buckets, in the order of reduction */
    size_t count;
    size_t *bucket_of;  /* the bucket of each parameter */
    size_t *at;         /* the offset of each parameter's gradient in the arena */
    size_t arena_bytes; /* size of the arena, gaps included */
};

/* The rule of PyTorch (c10d reducer, compute_bucket_assignment_by_size):
 *
 *   - Each type has its own buckets. A parameter goes into the open bucket of its type.
 *   - A bucket that has reached its limit is closed, so its last parameter may exceed the limit.
 *   - The first bucket of a type has the limit `first_limit`, all others `limit`.
 *   - Order unknown: the list of buckets is reversed. Order known: buckets are numbered in the order of closing.
 *
 * With limits of 1000 and 200 bytes, parameters of 400, 1600, 40, 80, 120 and 8 bytes give
 *
 *     bucket 0: parameter 5      bucket 1: parameters 2 3 4      bucket 2: parameters 0 1 */
struct bucket_rule {
    size_t first_limit, limit; /* bytes */
    const size_t *order;       /* borrowed: all parameters in the order of readiness; NULL if unknown */
};

/* Make a plan for `n` parameters, which the caller frees. The size of the arena does not depend on rule->order.
 * The text of DDP_ERR_ARG names a parameter with a wrong type or size. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n,
                            const struct bucket_rule *rule, struct ddp_err *err);
void bucket_plan_free(struct bucket_plan *plan);

#endif
