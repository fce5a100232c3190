/* reducer.h -- averages gradients over all ranks, in buckets, while the backward pass still runs.
 *
 *     ddp_reducer_create(world, params, np, NULL, &reducer);     verifies names and shapes, broadcasts rank 0's values
 *     each step:  ddp_reducer_forward(reducer)                   gets rank 0's buffers; gradient addresses may change
 *                 write gradients into ddp_reducer_grad(reducer, i)
 *                 ddp_reducer_ready(reducer, i) for each gradient, in the order of the backward pass
 *                 ddp_reducer_finish(reducer)                    now every gradient is the average
 *
 * Buckets follow PyTorch's rule (compute_bucket_assignment_by_size). Parameters are assigned to buckets in order. The
 * first bucket is full at 1 MiB, each later bucket at 25 MiB. The list of buckets is then reversed, because the
 * gradients of the last layers are ready first. The second ddp_reducer_forward makes new buckets, in the order in
 * which gradients of rank 0 were ready in the first step. With keep_order or find_unused, the buckets of the first step
 * are kept. Buckets are reduced strictly in order, so all ranks agree. Gradients are in shared memory of the reducer,
 * so the reduction copies nothing.
 *
 * By default, a thread of the library reduces buckets during the backward pass if the process may use two cores for
 * each rank of its host. ddp_reducer_options.overlap overrides this rule. Because of this thread, a rank must not write
 * a gradient between ddp_reducer_ready and ddp_reducer_finish. A collective within a step waits for the
 * buckets whose reduction has begun. Such a collective is allowed only after all ranks have marked the same
 * gradients. Otherwise one rank may run the collective while another rank reduces a bucket (DDP_ERR_MISMATCH). So with
 * find_unused and, for example, batch normalization over all ranks, mark unused parameters before the backward pass.
 *
 * With a device (ddp_options.device), gradients are in device memory. Parameters and buffers may be in device memory or
 * in host memory. With NCCL, the host seldom waits for other ranks or for the device. The host waits only in these
 * cases: in the second ddp_reducer_forward, with find_unused, with `uneven`, for buffers in host memory, and where a
 * collective waits (group.h). With backend "cpu", each bucket blocks the thread that reduces it. ddp_reducer_ready
 * means that earlier operations on `stream` complete the gradient. Operations on `stream` after ddp_reducer_finish read
 * the averages. `compress`, `predivide` and DDP_UNEVEN_ACTIVE need gradients in host memory.
 *
 * Accumulation: after ddp_reducer_set_sync(reducer, 0), steps are local, and the program adds to the gradients (+=).
 * The first step with sync averages the sums. */
#ifndef DDP_REDUCER_H
#define DDP_REDUCER_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_reducer ddp_reducer;

enum { DDP_MAX_DIMS = 8 };

typedef struct ddp_param {
    const char *name; /* for messages; must exist as long as the reducer */
    void *data;       /* `count` elements, owned by the caller */
    size_t count;
    ddp_dtype dtype;
    const size_t *shape; /* `dims` sizes, used only by ddp_reducer_create; their product is `count` */
    size_t dims;         /* at most DDP_MAX_DIMS; 0 means one dimension of size `count` */
} ddp_param;

/* A bucket, as passed to a hook. */
typedef struct ddp_bucket {
    size_t index;
    int last;     /* 1 if this is the last bucket of the step, else 0 */
    void *grads;  /* `count` elements, to be reduced in place, with zeros between the gradients */
    size_t count; /* elements */
    ddp_dtype dtype;
    size_t divisor; /* divisor for an average: the world size, or the number of ranks with batches */
    void *stream;   /* ddp_reducer_options.stream */
} ddp_bucket;

/* Replace the reducer's all-reduce. The reducer calls the hook for each bucket, in order, on the thread that reduces,
 * with subnormals flushed (context.h). The hook must finish the bucket before it returns. For an average, the hook
 * divides by `divisor`. The hook may call collectives of `group`, if it calls the same collectives on every rank. Zeros
 * between gradients must stay zero. An error of the hook ends the step, and ddp_reducer_finish returns this error. */
typedef ddp_status (*ddp_comm_hook)(void *user, ddp_group *group, const ddp_bucket *bucket);

typedef enum ddp_overlap {
    /* use a thread if this process may use at least two cores for each rank of its host; a process that is bound to
     * fewer cores uses no thread */
    DDP_OVERLAP_AUTO,
    DDP_OVERLAP_OFF, /* reduce inside ddp_reducer_ready */
    DDP_OVERLAP_ON,
} ddp_overlap;

/* How the reducer handles ranks with different numbers of batches; see ddp_reducer_join. */
typedef enum ddp_uneven {
    DDP_UNEVEN_NO,     /* all ranks have the same number of batches */
    DDP_UNEVEN_WORLD,  /* divide gradients by the world size, so that every sample has the same weight */
    DDP_UNEVEN_ACTIVE, /* divide gradients by the number of ranks that still have batches */
    DDP_UNEVEN_STOP,   /* if a rank has no more batches, all ranks get an error */
} ddp_uneven;

typedef struct ddp_reducer_options {
    size_t size;               /* sizeof(ddp_reducer_options), set by the INIT macro */
    size_t first_bucket_bytes; /* size of the first bucket; 0 means 1 MiB */
    size_t bucket_cap_bytes;   /* size of other buckets; 0 means 25 MiB */
    const ddp_param *buffers;  /* arrays that are not trained, such as running means; the list is copied */
    size_t buffer_count;
    int keep_buffers;    /* 1 to broadcast buffers only in ddp_reducer_create */
    int keep_order;      /* 1 to keep the buckets of the first step in all later steps */
    int find_unused;     /* 1 if some steps do not use all parameters; see ddp_reducer_unused */
    ddp_overlap overlap; /* may differ between ranks, unlike most other options */
    ddp_uneven uneven;   /* how to handle ranks with different numbers of batches */
    int compress;        /* 1 to convert f32 gradients to `wire` before sending */
    ddp_dtype wire;      /* type of sent values, DDP_F16 or DDP_BF16; sums are in f32 and rounded once */
    double predivide;    /* if not 0: divide gradients by predivide, and their sum by divisor / predivide */
    ddp_comm_hook hook;  /* NULL means ddp_all_reduce */
    void *hook_user;     /* argument of the hook */
    void *stream;        /* with a device: cudaStream_t on which the program writes and reads gradients */
} ddp_reducer_options;

#define DDP_REDUCER_OPTIONS_INIT                                                                             \
    {                                                                                                        \
        sizeof(ddp_reducer_options), 0, 0, NULL, 0, 0, 0, 0, (ddp_overlap)0, (ddp_uneven)0, 0, (ddp_dtype)0, \
            0.0, NULL, NULL, NULL                                                                            \
    }

/* Create a reducer; collective. The options must equal those of rank 0. The same applies to the number, names, shapes
 * and types of the parameters and buffers. DDP_ERR_MISMATCH names a difference. Without a difference, all parameters
 * and buffers get the values of rank 0. The array `params` is copied, but not the memory to which its entries point. */
DDP_API ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                                      const ddp_reducer_options *options, ddp_reducer **out);

/* Return the address of parameter i's gradient, a multiple of 256. After ddp_reducer_create, the gradient is zero.
 * ddp_reducer_forward may move the gradient once, so call this function again after each forward. Return NULL if there
 * is no parameter i. */
DDP_API void *ddp_reducer_grad(ddp_reducer *reducer, size_t i);

/* Begin a step. The call is collective in three cases: if `uneven` is set, if the call broadcasts buffers, or if the
 * call makes new buckets. The first call after the first step with sync makes new buckets, unless `keep_order` or
 * `find_unused` is set. Return DDP_ERR_ARG if the previous step was not finished; the error text then names the
 * parameters and buckets. With DDP_UNEVEN_STOP, also return DDP_ERR_ARG if a rank has no more batches. If the reducer
 * has no buffers and `uneven` is not set, a program may omit this call, but then the reducer makes no new buckets. */
DDP_API ddp_status ddp_reducer_forward(ddp_reducer *reducer);

/* Mark the gradient of parameter i as complete in this step. A second call in one step returns DDP_ERR_ARG. This
 * call or the library's thread reduces a bucket as soon as its gradients are marked and all earlier buckets are
 * reduced. In a step without sync, the call only records that the parameter was used, and may be repeated. */
DDP_API ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i);

/* Mark parameter i as not used in this step, so that its bucket can be reduced earlier. The option find_unused must be
 * set. With find_unused, ddp_reducer_finish marks all remaining parameters as not used. For such a parameter, this rank
 * contributes the gradient that it has accumulated in steps without sync, or zero. If no rank has used a parameter, its
 * gradient does not change. The program must then call neither ddp_optim_begin nor ddp_optim_update for this parameter
 * (see ddp_reducer_used). */
DDP_API ddp_status ddp_reducer_unused(ddp_reducer *reducer, size_t i);

/* Wait until all buckets are reduced. DDP_ERR_ARG names the parameters that were not marked. */
DDP_API ddp_status ddp_reducer_finish(ddp_reducer *reducer);

/* Return 1 if any rank used parameter i in the last finished step with sync, else 0. Without find_unused, always
 * return 1. */
DDP_API int ddp_reducer_used(const ddp_reducer *reducer, size_t i);

/* Choose whether steps average gradients (on = 1, the default) or only accumulate gradients (on = 0). The choice
 * applies from the next ddp_reducer_forward on, and must be the same on all ranks. */
DDP_API void ddp_reducer_set_sync(ddp_reducer *reducer, int on);

/* Report that this rank has no more batches. `uneven` must be set, and each step must begin with ddp_reducer_forward.
 * This call returns when all ranks have called this function. Until then, this rank takes part in the steps of the
 * other ranks, with zeros as gradients. At the end all ranks get the parameters and buffers of the rank that called
 * last. If several ranks called last, the rank with the highest number counts. Then all ranks may begin steps again.
 * With DDP_UNEVEN_STOP, this call and the next forward of the other ranks return DDP_ERR_ARG. The error text names a
 * rank without a batch. */
DDP_API ddp_status ddp_reducer_join(ddp_reducer *reducer);

DDP_API size_t ddp_reducer_buckets(const ddp_reducer *reducer); /* number of buckets */
DDP_API size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer,
                                        size_t b); /* size of bucket `b` in bytes */
DDP_API size_t ddp_reducer_bucket_of(const ddp_reducer *reducer,
                                     size_t i); /* index of the bucket of parameter `i` */

/* Free the reducer; collective. Call this function before ddp_finalize. NULL is allowed. */
DDP_API ddp_status ddp_reducer_free(ddp_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
