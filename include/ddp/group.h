/* group.h -- collectives.
 *
 * Every rank of a group calls the same collectives in the same order with the same sizes, types and
 * operations. A difference is detected and reported as DDP_ERR_MISMATCH with both calls. Results are the same
 * bits on every rank and in every run: values are combined in the fixed binary tree ((x0+x1)+(x2+x3))+...,
 * f16 and bf16 in f32 with one rounding at the end. The number of hosts does not change the bits. If a peer
 * dies, every waiter returns within a second with DDP_ERR_PEER_LOST, which names the peer, also on other
 * hosts.
 *
 * Without a device `stream` is NULL, and a call is finished when it returns.
 *
 * A group with a device (ddp_options.device) takes buffers in the host's memory, for which all of the above holds,
 * and in the device's memory. Both buffers of a call are in the same kind of memory, on all ranks alike. `stream` is
 * a cudaStream_t (NULL = the default one). The call begins when that stream reaches it, and runs on a stream of the
 * library, so the program's stream continues.
 *
 *     work NULL     later operations on `stream` wait for the call
 *     *work         ddp_work_wait() makes `stream` wait later: gradients are reduced while the backward pass continues
 *
 * In both cases the host does not wait. Buffers must live until the call is done. A failure on the way (a timeout, a
 * rank that dies, an error of NCCL) ends the call on the GPU, so that no stream waits forever. The next call of the
 * group returns the error. Device values are combined by NCCL in NCCL's order: equal on all ranks, but not the bits
 * of the cpu backend. Backend "cpu" with a device finishes inside the call, with the bits of the cpu backend. A call
 * makes the device of the group the current one of its thread. */
#ifndef DDP_GROUP_H
#define DDP_GROUP_H

#include "ddp/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_group ddp_group;
typedef struct ddp_work ddp_work;

/* name, text, bytes */
#define DDP_DTYPE_LIST(X) \
    X(F32, "f32", 4)      \
    X(F64, "f64", 8)      \
    X(F16, "f16", 2)      \
    X(BF16, "bf16", 2)    \
    X(I32, "i32", 4)      \
    X(I64, "i64", 8)      \
    X(U8, "u8", 1)

typedef enum ddp_dtype {
#define X(name, word, bytes) DDP_##name,
    DDP_DTYPE_LIST(X)
#undef X
} ddp_dtype;

/* AVG divides the sum by the world size: floats with one correctly rounded division (f16 and bf16 in f32), integers
 * towards zero. Integer sums and products wrap around; the sum inside an AVG of u8 does not. If one operand of MIN or
 * MAX is a NaN, the result is a NaN. SUM, AVG and PROD of f32, f64 and bf16 treat subnormals as zero (context.h). */
/* name, text */
#define DDP_OP_LIST(X) \
    X(SUM, "sum")      \
    X(AVG, "avg")      \
    X(MIN, "min")      \
    X(MAX, "max")      \
    X(PROD, "prod")

typedef enum ddp_op {
#define X(name, word) DDP_##name,
    DDP_OP_LIST(X)
#undef X
} ddp_op;

DDP_API size_t ddp_dtype_size(ddp_dtype dtype);      /* bytes; 0 for a value that is not in the list */
DDP_API const char *ddp_dtype_name(ddp_dtype dtype); /* "f32" */
DDP_API const char *ddp_op_name(ddp_op op);          /* "sum" */

/* Return the group of all ranks, which the context owns. Return NULL for a NULL ctx. */
DDP_API ddp_group *ddp_world(ddp_ctx *ctx);

/* Allocate zeroed memory; collective. Every rank requests the same number of bytes and gets a separate block.
 * ddp_shared_free (also collective) or ddp_finalize frees the block.
 *
 * With a device, the block is in device memory. Otherwise it is 256-byte aligned host memory that all ranks of the
 * host share, and collectives on it copy nothing inside a host. That memory is in files without a name, so nothing
 * remains, however the job ends. */
DDP_API ddp_status ddp_shared_alloc(ddp_group *group, size_t bytes, void **out);
DDP_API ddp_status ddp_shared_free(ddp_group *group, void *block);

/* Copy between any memory of the host and of the group's device, after the operations on `stream`. The copy is done
 * when the call returns. Without a device this is a memmove. Not collective. */
DDP_API ddp_status ddp_copy(ddp_group *group, void *to, const void *from, size_t bytes, void *stream);

/* Counts are in elements. `in` == `out` (in place) is allowed if both have equal sizes. */
DDP_API ddp_status ddp_all_reduce(ddp_group *group, const void *in, void *out, size_t n, ddp_dtype dtype,
                                  ddp_op op, void *stream, ddp_work **work);
DDP_API ddp_status ddp_reduce(ddp_group *group, const void *in, void *out /* root only */, size_t n,
                              ddp_dtype dtype, ddp_op op, int root, void *stream, ddp_work **work);
DDP_API ddp_status ddp_broadcast(ddp_group *group, void *buf, size_t n, ddp_dtype dtype, int root,
                                 void *stream, ddp_work **work);
/* out: n_per_rank * world elements, rank 0's first. */
DDP_API ddp_status ddp_all_gather(ddp_group *group, const void *in, void *out, size_t n_per_rank,
                                  ddp_dtype dtype, void *stream, ddp_work **work);
DDP_API ddp_status ddp_gather(ddp_group *group, const void *in, void *out /* root only */, size_t n_per_rank,
                              ddp_dtype dtype, int root, void *stream, ddp_work **work);
DDP_API ddp_status ddp_scatter(ddp_group *group, const void *in /* root only */, void *out, size_t n_per_rank,
                               ddp_dtype dtype, int root, void *stream, ddp_work **work);
/* in: n_per_rank * world elements; rank r gets part r of the reduced values. */
DDP_API ddp_status ddp_reduce_scatter(ddp_group *group, const void *in, void *out, size_t n_per_rank,
                                      ddp_dtype dtype, ddp_op op, void *stream, ddp_work **work);

/* Wait until all ranks of the group have called this function. timeout_ms 0 = the step timeout. An error names the
 * ranks that did not arrive. */
DDP_API ddp_status ddp_barrier(ddp_group *group, uint32_t timeout_ms);

/* Make the call's stream wait for the work. The host does not wait. */
DDP_API ddp_status ddp_work_wait(ddp_work *work);
/* Wait on the host for at most timeout_ms. With timeout_ms 0, wait until the call is done or has failed; the call's
 * own deadline limits this wait. Return DDP_IN_PROGRESS if the call is still running. */
DDP_API ddp_status ddp_work_sync(ddp_work *work, uint32_t timeout_ms);
/* Return 1 if the call is done or has failed. */
DDP_API int ddp_work_done(const ddp_work *work);
DDP_API void ddp_work_free(ddp_work *work);

#ifdef __cplusplus
}
#endif
#endif
