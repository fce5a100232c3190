/* reducer.h -- gradients in buckets, averaged over all ranks while the backward pass still runs.
 *
 *     ddp_reducer_create(world, params, np, NULL, &reducer);     verifies names and shapes, broadcasts rank 0's values
 *     each step:  ddp_reducer_forward(reducer)                   buffers are rank 0's; gradients may have moved
 *                 write gradients into ddp_reducer_grad(reducer, i)
 *                 ddp_reducer_ready(reducer, i) for each of them, in the order the backward pass makes them
 *                 ddp_reducer_finish(reducer)                    now every gradient is the average
 *
 * Buckets follow PyTorch's rule (c10d reducer, compute_bucket_assignment_by_size): parameters are taken in order, a
 * bucket is closed as soon as it holds at least its limit, 1 MiB for the first and 25 MiB for the others, and the
 * list is reversed, because gradients become ready from the last layer back. The order in which they really became
 * ready in the first step is taken over, rank 0's for all ranks, by the second ddp_reducer_forward. Full buckets are
 * launched strictly in order, so ranks never disagree. Gradients live in shared memory that the reducer owns: the
 * reduction copies nothing.
 *
 * With a core to spare for each rank a thread of the library reduces, while yours goes on with the backward pass.
 * From the first ddp_reducer_ready to ddp_reducer_finish a rank then must not write a gradient that it has marked
 * ready. Other collectives wait for the buckets that are under way. As these are launched when they are full, a
 * collective in between must come where all ranks have marked the same gradients, or it meets a bucket of another
 * rank (DDP_ERR_MISMATCH). With find_unused and, say, batch normalisation over all ranks: mark unused parameters
 * before the backward pass begins.
 *
 * With a device (ddp_options.device) gradients lie in its memory, and so may parameters and buffers. Nothing waits on
 * the host: ddp_reducer_ready means that the gradient is complete when `stream` gets so far, and work that is put on
 * `stream` after ddp_reducer_finish sees the averages. `compress`, `predivide` and DDP_UNEVEN_ACTIVE need gradients
 * on the host.
 *
 * Accumulation: ddp_reducer_set_sync(reducer, 0) before a forward makes its step a local one; the program adds
 * gradients up (+=), and the first step with sync averages the sum. */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer;

enum { DDP_MAX_DIMS = 8 };

typedef struct ddp_param {
    const char *name; /* for messages; must live as long as the reducer */
    void *data;       /* the parameter itself, `count` elements, yours */
    size_t count;
    ddp_dtype dtype;
    const size_t
        *shape;  /* `dims` sizes whose product is `count`; compared between ranks; only read by create */
    size_t dims; /* 0 = one dimension of `count`; DDP_MAX_DIMS at most */
} ddp_param;

/* A bucket as a hook sees it. */
typedef struct ddp_bucket {
    size_t index;
    int last;     /* of this step */
    void *grads;  /* `count` elements, the zeros between gradients included; reduced in place */
    size_t count; /* elements */
    ddp_dtype dtype;
    size_t divisor; /* what an average divides by: the world size, or the active ranks */
    void *stream;   /* ddp_reducer_options.stream */
} ddp_bucket;

/* In place of the reducer's own all-reduce: called for each bucket in order, on the thread that reduces, and finished
 * when it returns. Subnormals are flushed meanwhile (context.h). Averaging is its business. It may call collectives of `group`, the same on every rank, and keeps the
 * zeros between gradients zero. An error ends the step and is returned by ddp_reducer_finish. */
typedef ddp_status (*ddp_comm_hook)(void *user, ddp_group *group, const ddp_bucket *bucket);

typedef enum ddp_overlap {
    DDP_OVERLAP_AUTO, /* a thread when the ranks of the host leave cores for it, and one more may be started */
    DDP_OVERLAP_OFF,  /* reduce inside ddp_reducer_ready */
    DDP_OVERLAP_ON,
} ddp_overlap;

/* Ranks with different numbers of batches, see ddp_reducer_join. */
typedef enum ddp_uneven {
    DDP_UNEVEN_NO,     /* all have the same number */
    DDP_UNEVEN_WORLD,  /* averages divide by the world size: each sample has the same weight all along */
    DDP_UNEVEN_ACTIVE, /* averages divide by the ranks that still have batches */
    DDP_UNEVEN_STOP,   /* the first rank that has none is an error on all ranks */
} ddp_uneven;

typedef struct ddp_reducer_options {
    size_t size;               /* sizeof, set by the INIT macro */
    size_t first_bucket_bytes; /* 0 = 1 MiB */
    size_t bucket_cap_bytes;   /* 0 = 25 MiB */
    const ddp_param *buffers; /* not trained, but rank 0's on all ranks: running means, for example. Copied */
    size_t buffer_count;
    int keep_buffers;    /* 1: do not broadcast them again at each forward */
    int keep_order;      /* 1: never rebuild buckets in the order of readiness */
    int find_unused;     /* 1: not every step uses every parameter; see ddp_reducer_unused */
    ddp_overlap overlap; /* the same on all ranks or not, as you like */
    ddp_uneven uneven;   /* the same on all ranks, as are all that follow */
    int compress;        /* 1: gradients of f32 travel as `wire` */
    ddp_dtype wire;      /* DDP_F16 or DDP_BF16; summed in f32 all the same, and rounded once */
    double predivide;    /* 0 = sum, then divide by N; f = divide by f, sum, divide by N / f */
    ddp_comm_hook hook;  /* NULL = all_reduce */
    void *hook_user;     /* for the hook */
    void *stream;        /* with a device: the cudaStream_t on which gradients are written and read */
} ddp_reducer_options;

#define DDP_REDUCER_OPTIONS_INIT                                                                             \
    {                                                                                                        \
        sizeof(ddp_reducer_options), 0, 0, NULL, 0, 0, 0, 0, (ddp_overlap)0, (ddp_uneven)0, 0, (ddp_dtype)0, \
            0.0, NULL, NULL, NULL                                                                            \
    }

/* Collective. `params` is copied (not what it points to). Compares count, names, shapes and types of parameters and
 * buffers, and the options, with rank 0 (DDP_ERR_MISMATCH names what differs), then overwrites every parameter and
 * buffer with rank 0's. */
DDP_API ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                                      const ddp_reducer_options *options, ddp_reducer **out);

/* Where parameter i's gradient is written and read, 256-byte aligned; zero at the start. ddp_reducer_forward moves it (with
 * its contents) once in the reducer's life, so ask again after each. NULL: there is no parameter i. */
DDP_API void *ddp_reducer_grad(ddp_reducer *reducer, size_t i);

/* A step begins. Collective if buffers are broadcast, buckets rebuilt (at the second step with sync), or inputs uneven.
 * DDP_ERR_ARG when the last step was begun but not finished: names parameters, buckets. A program that has neither
 * buffers nor uneven inputs may leave it out; buckets then stay as they are. */
DDP_API ddp_status ddp_reducer_forward(ddp_reducer *reducer);

/* The gradient of parameter i is complete in this step. Twice in one step is DDP_ERR_ARG naming the parameter. A full
 * bucket is reduced, or handed to the thread that does it, when it is its turn. In a step without sync it only notes that
 * the parameter was used, and may be called again. */
DDP_API ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i);

/* With find_unused: parameter i takes no part in this step, so that its bucket need not wait until finish, where all
 * that were not marked are taken for unused. This rank counts as a zero, unless it has accumulated something before.
 * A parameter that no rank has used keeps its gradient; leave out the optimiser's update then, as asked with
 * ddp_reducer_used, and its step, too: see ddp_optim_begin. */
DDP_API ddp_status ddp_reducer_unused(ddp_reducer *reducer, size_t i);

/* All buckets are reduced when this returns. DDP_ERR_ARG names parameters that were not marked ready. */
DDP_API ddp_status ddp_reducer_finish(ddp_reducer *reducer);

/* Has any rank used parameter i, in the step that was finished last? 1 without find_unused. */
DDP_API int ddp_reducer_used(const ddp_reducer *reducer, size_t i);

/* Do steps from the next forward on average (1, the start) or only accumulate (0)? The same on all ranks. */
DDP_API void ddp_reducer_set_sync(ddp_reducer *reducer, int on);

/* This rank has no more batches (`uneven` must be set, and steps begin with ddp_reducer_forward). Takes part with zeros in
 * the steps of those that have, returns when all ranks are here, with the parameters and buffers of the rank that came last
 * (of several the largest). Then all may begin again. DDP_UNEVEN_STOP: DDP_ERR_ARG here and in the next forward of the
 * others, naming the rank. */
DDP_API ddp_status ddp_reducer_join(ddp_reducer *reducer);

/* Number of buckets and, for bucket b, how many bytes it holds; which bucket parameter i is in. */
DDP_API size_t ddp_reducer_buckets(const ddp_reducer *reducer);
DDP_API size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b);
DDP_API size_t ddp_reducer_bucket_of(const ddp_reducer *reducer, size_t i);

/* Collective, as the shared memory is given back, and so before ddp_finalize. NULL is allowed. */
DDP_API ddp_status ddp_reducer_free(ddp_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
