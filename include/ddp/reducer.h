/* reducer.h -- gradients in buckets, averaged over all ranks.
 *
 *     ddp_reducer_create(world, params, np, NULL, &reducer);     verifies names and sizes, broadcasts rank 0's values
 *     each step:  write gradients into ddp_reducer_grad(reducer, i)
 *                 ddp_reducer_ready(reducer, i) for each of them, in the order the backward pass makes them
 *                 ddp_reducer_finish(reducer)                    now every gradient is the average
 *
 * Buckets follow PyTorch's rule (c10d reducer, compute_bucket_assignment_by_size): parameters are taken in order, a
 * bucket is closed as soon as it holds at least its limit, 1 MiB for the first and 25 MiB for the others, and the list
 * is reversed, because gradients become ready from the last layer back. Full buckets are launched strictly in this
 * order, so ranks never disagree. Gradients live in shared memory that the reducer owns: the reduction copies nothing. */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer;

typedef struct ddp_param {
    const char *name; /* for messages; must live as long as the reducer */
    void *data;       /* the parameter itself, `count` elements, yours */
    size_t count;
    ddp_dtype dtype;
} ddp_param;

typedef struct ddp_reducer_options {
    size_t size;               /* sizeof, set by the INIT macro */
    size_t first_bucket_bytes; /* 0 = 1 MiB */
    size_t bucket_cap_bytes;   /* 0 = 25 MiB */
} ddp_reducer_options;

#define DDP_REDUCER_OPTIONS_INIT            \
    {                                       \
        .size = sizeof(ddp_reducer_options) \
    }

/* Collective. `params` is copied (not what it points to). Compares count, names, sizes and types with rank 0
 * (DDP_ERR_MISMATCH names the parameter), then overwrites every parameter with rank 0's. */
DDP_API ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                                      const ddp_reducer_options *options, ddp_reducer **out);

/* Where parameter i's gradient is written and read; stable for the reducer's life, 256-byte aligned. */
DDP_API void *ddp_reducer_grad(ddp_reducer *reducer, size_t i);

/* The gradient of parameter i is complete in this step. Twice in one step is DDP_ERR_ARG naming the parameter. A full
 * bucket is reduced here when it is its turn. */
DDP_API ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i);

/* All buckets are reduced when this returns. DDP_ERR_ARG names parameters that were not marked ready. */
DDP_API ddp_status ddp_reducer_finish(ddp_reducer *reducer);

/* Number of buckets and, for bucket b, how many bytes it holds. */
DDP_API size_t ddp_reducer_buckets(const ddp_reducer *reducer);
DDP_API size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b);

/* Collective, as the shared memory is given back. NULL is allowed. */
DDP_API ddp_status ddp_reducer_free(ddp_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
