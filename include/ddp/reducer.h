/* reducer.h -- gradients in buckets, averaged over all ranks while the backward pass still runs.
 *
 *     ddp_reducer_create(world, params, np, NULL, &reducer);     verifies names and shapes, broadcasts rank 0's values
 *     each step:  ddp_reducer_forward(reducer)                   buffers are rank 0's; gradients may have moved
 *                 write gradients into ddp_reducer_grad(reducer, i)
 *                 ddp_reducer_ready(reducer, i) for each gradient, in the order of the backward pass
 *                 ddp_reducer_finish(reducer)                    now every gradient is the average
 *
 * Buckets follow PyTorch's rule (c10d reducer, compute_bucket_assignment_by_size): parameters are assigned in order,
 * a bucket is closed as soon as it has at least its limit, 1 MiB for the first bucket and 25 MiB for all later
 * buckets, and the list is reversed, because gradients become ready from the last layer back. The second
 * ddp_reducer_forward replaces this order by the order in which the gradients of rank 0 became ready in the first
 * step. Full buckets are launched strictly in order, so ranks never disagree. Gradients live in shared memory that
 * the reducer owns: the reduction copies nothing.
 *
 * If each rank has a spare core, a thread of the library reduces while the program continues with the backward pass.
 * From the first ddp_reducer_ready to ddp_reducer_finish a rank then must not write a gradient that it has marked
 * ready. Other collectives wait for the buckets in progress. Because full buckets are launched at once, call a
 * collective in between only where all ranks have marked the same gradients; otherwise the collective would be
 * matched with a bucket of another rank (DDP_ERR_MISMATCH). With find_unused and, say, batch normalisation over all
 * ranks: mark unused parameters before the backward pass begins.
 *
 * With a device (ddp_options.device) gradients are in the device's memory, and parameters and buffers may be there.
 * The host never waits: ddp_reducer_ready means that the gradient is complete when `stream` reaches that point, and
 * work on `stream` after ddp_reducer_finish reads the averages. `compress`, `predivide` and DDP_UNEVEN_ACTIVE need
 * gradients on the host.
 *
 * Accumulation: ddp_reducer_set_sync(reducer, 0) before a forward makes the step of this forward local. The program
 * accumulates gradients (+=), and the first step with sync averages the sum. */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer;

enum { DDP_MAX_DIMS = 8 };

typedef struct ddp_param {
    const char *name; /* for texts; must exist as long as the reducer */
    void *data;       /* the parameter itself, `count` elements, owned by the caller */
    size_t count;
    ddp_dtype dtype;
    const size_t
        *shape;  /* `dims` sizes whose product is `count`; compared between ranks; only read by create */
    size_t dims; /* 0 = one dimension of `count`; DDP_MAX_DIMS at most */
} ddp_param;

/* A bucket, as passed to a hook. */
typedef struct ddp_bucket {
    size_t index;
    int last;     /* true for the last bucket of this step */
    void *grads;  /* `count` elements, including the zeros between gradients; reduced in place */
    size_t count; /* elements */
    ddp_dtype dtype;
    size_t divisor; /* divisor of an average: the world size, or the number of active ranks */
    void *stream;   /* ddp_reducer_options.stream */
} ddp_bucket;

/* Replaces the reducer's all-reduce. The reducer calls the hook for each bucket in order, on the reducing thread,
 * with subnormals flushed (context.h). The bucket must be finished on return. For an average the hook divides the sum
 * itself. The hook may call collectives of `group`, the same on every rank, and must keep the zeros between gradients
 * zero. An error of the hook ends the step, and ddp_reducer_finish returns the error. */
typedef ddp_status (*ddp_comm_hook)(void *user, ddp_group *group, const ddp_bucket *bucket);

typedef enum ddp_overlap {
    DDP_OVERLAP_AUTO, /* use a thread if the ranks of the host leave cores for it and it can be started */
    DDP_OVERLAP_OFF,  /* reduce inside ddp_reducer_ready */
    DDP_OVERLAP_ON,
} ddp_overlap;

/* Ranks with different numbers of batches, see ddp_reducer_join. */
typedef enum ddp_uneven {
    DDP_UNEVEN_NO,     /* all ranks have the same number */
    DDP_UNEVEN_WORLD,  /* averages divide by the world size: each sample always has the same weight */
    DDP_UNEVEN_ACTIVE, /* averages divide by the ranks that still have batches */
    DDP_UNEVEN_STOP,   /* the first rank without a batch is an error on all ranks */
} ddp_uneven;

typedef struct ddp_reducer_options {
    size_t size;               /* sizeof, set by the INIT macro */
    size_t first_bucket_bytes; /* 0 = 1 MiB */
    size_t bucket_cap_bytes;   /* 0 = 25 MiB */
    const ddp_param *buffers;  /* not trained, such as running means: rank 0 broadcasts its values. Copied */
    size_t buffer_count;
    int keep_buffers;    /* 1: do not broadcast buffers again at each forward */
    int keep_order;      /* 1: never rebuild buckets in the order of readiness */
    int find_unused;     /* 1: not every step uses every parameter; see ddp_reducer_unused */
    ddp_overlap overlap; /* may differ between ranks */
    ddp_uneven uneven;   /* must be equal on all ranks, like all members that follow */
    int compress;        /* 1: f32 gradients are sent as `wire` */
    ddp_dtype wire;      /* DDP_F16 or DDP_BF16; summed in f32 and rounded once */
    double predivide;    /* 0 = sum, then divide by N; f = divide by f, sum, divide by N / f */
    ddp_comm_hook hook;  /* NULL = all_reduce */
    void *hook_user;     /* argument of the hook */
    void *stream;        /* with a device: the cudaStream_t on which gradients are written and read */
} ddp_reducer_options;

#define DDP_REDUCER_OPTIONS_INIT                                                                             \
    {                                                                                                        \
        sizeof(ddp_reducer_options), 0, 0, NULL, 0, 0, 0, 0, (ddp_overlap)0, (ddp_uneven)0, 0, (ddp_dtype)0, \
            0.0, NULL, NULL, NULL                                                                            \
    }

/* Create a reducer; collective. Compares count, names, shapes and types of parameters and buffers, and the options,
 * with rank 0. DDP_ERR_MISMATCH names the difference. Then overwrites every parameter and buffer with rank 0's.
 * `params` is copied, but not the memory that it points to. */
DDP_API ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                                      const ddp_reducer_options *options, ddp_reducer **out);

/* Return the memory of parameter i's gradient, 256-byte aligned and zero at the start. ddp_reducer_forward may move
 * this memory once, with its contents, so call ddp_reducer_grad again after each forward. Return NULL if there is no
 * parameter i. */
DDP_API void *ddp_reducer_grad(ddp_reducer *reducer, size_t i);

/* Begin a step. Collective if buffers are broadcast, buckets rebuilt (at the second step with sync), or inputs
 * uneven. Return DDP_ERR_ARG, which names parameters and buckets, if the last step was not finished. A program
 * without buffers and uneven inputs may leave this call out; then buckets are not rebuilt. */
DDP_API ddp_status ddp_reducer_forward(ddp_reducer *reducer);

/* Mark the gradient of parameter i as complete in this step. A second call in one step is DDP_ERR_ARG, which names
 * the parameter. A full bucket is reduced when its turn comes, here or on the library's thread. In a step without
 * sync the call only records that the parameter was used, and may be repeated. */
DDP_API ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i);

/* Mark parameter i as not used in this step (find_unused), so that its bucket need not wait until ddp_reducer_finish,
 * which treats all unmarked parameters as unused. The gradient of this rank is zero then, unless the rank has
 * accumulated an earlier gradient. A parameter that no rank has used keeps its gradient. Skip its optimizer update
 * (see ddp_reducer_used) and its step (see ddp_optim_begin). */
DDP_API ddp_status ddp_reducer_unused(ddp_reducer *reducer, size_t i);

/* Wait until all buckets are reduced. DDP_ERR_ARG names parameters that were not marked ready. */
DDP_API ddp_status ddp_reducer_finish(ddp_reducer *reducer);

/* Return 1 if any rank used parameter i in the last finished step, otherwise 0. Without find_unused always return
 * 1. */
DDP_API int ddp_reducer_used(const ddp_reducer *reducer, size_t i);

/* Set whether steps average (1, the default) or only accumulate (0), beginning with the next forward. Must be the
 * same on all ranks. */
DDP_API void ddp_reducer_set_sync(ddp_reducer *reducer, int on);

/* Report that this rank has no more batches. `uneven` must be set, and steps must begin with ddp_reducer_forward. The
 * rank takes part with zeros in the steps of the other ranks. The call returns when all ranks have joined, with the
 * parameters and buffers of the rank that joined last (the highest rank, if several joined last). Then all ranks may
 * begin again. With DDP_UNEVEN_STOP this call and the next forward of the other ranks return DDP_ERR_ARG, which names
 * the rank. */
DDP_API ddp_status ddp_reducer_join(ddp_reducer *reducer);

/* Return the number of buckets, the bytes of bucket `b`, and the index of the bucket of parameter `i`. */
DDP_API size_t ddp_reducer_buckets(const ddp_reducer *reducer);
DDP_API size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b);
DDP_API size_t ddp_reducer_bucket_of(const ddp_reducer *reducer, size_t i);

/* Free the reducer before ddp_finalize; collective, because its shared memory is. NULL is allowed. */
DDP_API ddp_status ddp_reducer_free(ddp_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
