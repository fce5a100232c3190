/* group.h -- collectives.
 *
 * Every rank of a group calls the same collectives in the same order, with the same sizes, types and operations. A
 * difference is reported as DDP_ERR_MISMATCH with both calls. Exception: NCCL does not compare calls. So calls with
 * device memory are compared only with DDPRUN_DEBUG=detail. Without this setting, a difference may give wrong values.
 * If a peer dies, on any host, all waiting ranks return DDP_ERR_PEER_LOST within a second, and the error names the
 * peer.
 *
 * Results have the same bits on every rank, in every run, and for any number of hosts. Values are combined in the
 * fixed binary tree ((x0+x1)+(x2+x3))+... Values of f16 and bf16 are combined in f32 and rounded once, at the end.
 *
 * Without a device, `stream` is NULL, and a call is finished when it returns.
 *
 * With a device (ddp_options.device), buffers may also be in device memory. All buffers of a call are in the same kind
 * of memory, on all ranks. Calls with host memory work as without a device. `stream` is a cudaStream_t; NULL means the
 * default stream. A call with device memory begins when `stream` reaches the call, and runs on a stream of the library:
 *
 *     work is NULL        later operations on `stream` wait for the call
 *     work is not NULL    `stream` waits only when the program calls ddp_work_wait(*work), so the call can run while
 *                         the backward pass continues
 *
 * In both cases the host does not wait, unless many earlier calls are still running. The buffers must exist until the
 * call is done. If the call fails (a timeout, a rank that dies, an error of NCCL), its work on the GPU is stopped. So
 * no stream waits forever. The next call on the group returns the error. NCCL combines values in its own order: the
 * result is equal on all ranks, but may differ from the cpu backend. With backend "cpu" and a device, a call is
 * finished when it returns, and the result has the same bits as without a device. Every call sets the current device of
 * the calling thread to the device of the group. */
#ifndef DDP_GROUP_H
#define DDP_GROUP_H

#include "ddp/context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_group ddp_group;
typedef struct ddp_work ddp_work;

/* The types of elements, as rows of name, text and size in bytes. */
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

/* The operations, as rows of name and text.
 *
 * AVG divides the sum by the world size. The quotient of f32 and f64 is rounded once. For f16 and bf16, sum and
 * quotient are computed in f32, and the result is then rounded to the type. The quotient of integers is rounded towards
 * zero. Integer sums and products wrap around, except the sum inside an AVG of u8. If one operand of MIN or MAX is a
 * NaN, the result is a NaN. SUM, AVG and PROD of f32, f64 and bf16 treat subnormals as zero (context.h).
 *
 * NCCL differs. NCCL's AVG of floating-point types first divides and then adds, and NCCL may add f16 and bf16 in their
 * own type. The sum inside NCCL's AVG of u8 wraps around. NCCL's MIN and MAX ignore a NaN if another operand is a
 * number. */
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

DDP_API size_t ddp_dtype_size(ddp_dtype dtype);      /* size in bytes; 0 if `dtype` is unknown */
DDP_API const char *ddp_dtype_name(ddp_dtype dtype); /* "f32" */
DDP_API const char *ddp_op_name(ddp_op op);          /* "sum" */

/* Return the group of all ranks, owned by the context, or NULL if ctx is NULL. */
DDP_API ddp_group *ddp_world(ddp_ctx *ctx);

/* Allocate memory, filled with zeros; collective. Every rank requests the same number of bytes and gets its own
 * block. ddp_shared_free (also collective) or ddp_finalize frees the block.
 *
 * With a device, the block is in device memory. Otherwise the block is in host memory, which all ranks of the host
 * share. So collectives need not copy within a host. The address is a multiple of 256. The shared memory is in files
 * without a name, so nothing remains after the job. */
DDP_API ddp_status ddp_shared_alloc(ddp_group *group, size_t bytes, void **out);
DDP_API ddp_status ddp_shared_free(ddp_group *group, void *block);

/* Copy between memory of the host and of the group's device, in any direction, after the operations on `stream`. The
 * copy is done when the call returns. Without a device the function calls memmove. This call is not collective. */
DDP_API ddp_status ddp_copy(ddp_group *group, void *to, const void *from, size_t bytes, void *stream);

/* Counts are numbers of elements. `in` and `out` may be the same buffer if both have the same size. */

DDP_API ddp_status ddp_all_reduce(ddp_group *group, const void *in, void *out, size_t n, ddp_dtype dtype,
                                  ddp_op op, void *stream, ddp_work **work);
DDP_API ddp_status ddp_reduce(ddp_group *group, const void *in, void *out /* root only */, size_t n,
                              ddp_dtype dtype, ddp_op op, int root, void *stream, ddp_work **work);
DDP_API ddp_status ddp_broadcast(ddp_group *group, void *buf, size_t n, ddp_dtype dtype, int root,
                                 void *stream, ddp_work **work);
/* Gather the elements of all ranks. `out` has n_per_rank * world elements, in the order of the ranks. */
DDP_API ddp_status ddp_all_gather(ddp_group *group, const void *in, void *out, size_t n_per_rank,
                                  ddp_dtype dtype, void *stream, ddp_work **work);
DDP_API ddp_status ddp_gather(ddp_group *group, const void *in, void *out /* root only */, size_t n_per_rank,
                              ddp_dtype dtype, int root, void *stream, ddp_work **work);
DDP_API ddp_status ddp_scatter(ddp_group *group, const void *in /* root only */, void *out, size_t n_per_rank,
                               ddp_dtype dtype, int root, void *stream, ddp_work **work);
/* Reduce the elements of all ranks and scatter the result. `in` has n_per_rank * world elements. Rank r gets part r
 * of the reduced values. */
DDP_API ddp_status ddp_reduce_scatter(ddp_group *group, const void *in, void *out, size_t n_per_rank,
                                      ddp_dtype dtype, ddp_op op, void *stream, ddp_work **work);

/* Wait until all ranks of the group have called ddp_barrier. If timeout_ms is 0, the step timeout applies. An error
 * names the ranks that did not arrive. */
DDP_API ddp_status ddp_barrier(ddp_group *group, uint32_t timeout_ms);

/* Make a stream wait until the collective is done. The stream is the `stream` that was passed to the collective. The
 * host does not wait. */
DDP_API ddp_status ddp_work_wait(ddp_work *work);
/* Block the calling thread until the collective is done or has failed. Return DDP_IN_PROGRESS if the collective still
 * runs after timeout_ms. If timeout_ms is 0, the wait has no limit. */
DDP_API ddp_status ddp_work_sync(ddp_work *work, uint32_t timeout_ms);
/* Return 1 if the collective is done or has failed, else 0. */
DDP_API int ddp_work_done(const ddp_work *work);
/* Free a work handle. The caller must free each handle that a collective returns. This call does not stop the
 * collective. NULL is allowed, because a collective that fails sets *work to NULL. */
DDP_API void ddp_work_free(ddp_work *work);

#ifdef __cplusplus
}
#endif
#endif
