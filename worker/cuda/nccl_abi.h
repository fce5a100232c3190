/* nccl_abi.h -- declarations of NCCL functions, one row each, so that libddp_cuda builds without nccl.h. If NVIDIA's
 * nccl.h and cuda_runtime_api.h are installed, tests/shell/test_abi.sh compiles these rows together with them. A wrong
 * type or value is then a compile error. */
#ifndef CUDA_NCCL_ABI_H
#define CUDA_NCCL_ABI_H

#include <stddef.h>

struct ncclComm;
struct CUstream_st;

/* Compilers represent the enums of nccl.h as unsigned int. tests/abi substitutes the real types. */
#ifndef NCCL_ABI_TYPES
#define NCCL_ABI_TYPES
typedef unsigned nccl_result;
typedef unsigned nccl_type;
typedef unsigned nccl_redop;
typedef struct {
    char internal[128];
} nccl_id;
/* The struct of NCCL 2.14. A newer NCCL reads `size` and uses defaults for its additional members. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
} nccl_config;
#endif

enum { NCCL_CONFIG_MAGIC_HIGH = 0xcafe, NCCL_CONFIG_MAGIC_LOW = 0xbeef };

/* NCCL_LEAST is the first version with a non-blocking mode. NCCL_SCALABLE is the first version that accepts several
 * unique ids. */
enum { NCCL_LEAST = 21400, NCCL_SCALABLE = 22300 };

/* Columns: name in libddp_cuda, name in NCCL, value, text for error messages. */
#define NCCL_RESULT_LIST(X)                                                                                 \
    X(NCCL_SUCCESS, ncclSuccess, 0, "no error")                                                             \
    X(NCCL_CUDA_ERROR, ncclUnhandledCudaError, 1, "a CUDA call of NCCL failed")                             \
    X(NCCL_SYSTEM_ERROR, ncclSystemError, 2, "a system call or a connection of NCCL failed")                \
    X(NCCL_INTERNAL_ERROR, ncclInternalError, 3, "NCCL found an internal error, or memory was overwritten") \
    X(NCCL_INVALID_ARGUMENT, ncclInvalidArgument, 4, "an argument is wrong")                                \
    X(NCCL_INVALID_USAGE, ncclInvalidUsage, 5, "invalid use of NCCL, for example two ranks on one GPU")     \
    X(NCCL_REMOTE_ERROR, ncclRemoteError, 6, "another rank has ended, or a network has failed")             \
    X(NCCL_IN_PROGRESS, ncclInProgress, 7, "not finished yet")

/* Columns: ddp_dtype, name in libddp_cuda, name in NCCL, value. */
#define NCCL_TYPE_LIST(X)                    \
    X(DDP_U8, NCCL_UINT8, ncclUint8, 1)      \
    X(DDP_I32, NCCL_INT32, ncclInt32, 2)     \
    X(DDP_I64, NCCL_INT64, ncclInt64, 4)     \
    X(DDP_F16, NCCL_FLOAT16, ncclFloat16, 6) \
    X(DDP_F32, NCCL_FLOAT32, ncclFloat32, 7) \
    X(DDP_F64, NCCL_FLOAT64, ncclFloat64, 8) \
    X(DDP_BF16, NCCL_BFLOAT16, ncclBfloat16, 9)

/* Columns: ddp_op, name in libddp_cuda, name in NCCL, value. */
#define NCCL_OP_LIST(X)                 \
    X(DDP_SUM, NCCL_SUM, ncclSum, 0)    \
    X(DDP_PROD, NCCL_PROD, ncclProd, 1) \
    X(DDP_MAX, NCCL_MAX, ncclMax, 2)    \
    X(DDP_MIN, NCCL_MIN, ncclMin, 3)    \
    X(DDP_AVG, NCCL_AVG, ncclAvg, 4)

enum nccl_results {
#define X(ours, theirs, value, words) ours = value,
    NCCL_RESULT_LIST(X)
#undef X
};

enum nccl_types {
#define X(dtype, ours, theirs, value) ours = value,
    NCCL_TYPE_LIST(X)
#undef X
};

enum nccl_redops {
#define X(op, ours, theirs, value) ours = value,
    NCCL_OP_LIST(X)
#undef X
};

/* Columns: member of the struct, symbol, true if the function is required, result, parameters. */
#define NCCL_FUNCTION_LIST(X)                                                                               \
    X(get_version, ncclGetVersion, true, nccl_result, (int *version))                                       \
    X(get_unique_id, ncclGetUniqueId, true, nccl_result, (nccl_id * id))                                    \
    X(init_rank, ncclCommInitRankConfig, true, nccl_result,                                                 \
      (struct ncclComm * *comm, int ranks, nccl_id id, int rank, nccl_config *config))                      \
    X(init_rank_scalable, ncclCommInitRankScalable, false, nccl_result,                                     \
      (struct ncclComm * *comm, int ranks, int rank, int id_count, nccl_id *ids, nccl_config *config))      \
    X(finalize, ncclCommFinalize, true, nccl_result, (struct ncclComm * comm))                              \
    X(destroy, ncclCommDestroy, true, nccl_result, (struct ncclComm * comm))                                \
    X(abort, ncclCommAbort, true, nccl_result, (struct ncclComm * comm))                                    \
    X(async_error, ncclCommGetAsyncError, true, nccl_result, (struct ncclComm * comm, nccl_result * error)) \
    X(error_string, ncclGetErrorString, true, const char *, (nccl_result result))                           \
    X(last_error, ncclGetLastError, false, const char *, (struct ncclComm * comm))                          \
    X(all_reduce, ncclAllReduce, true, nccl_result,                                                         \
      (const void *in, void *out, size_t count, nccl_type type, nccl_redop op, struct ncclComm *comm,       \
       struct CUstream_st *stream))                                                                         \
    X(reduce, ncclReduce, true, nccl_result,                                                                \
      (const void *in, void *out, size_t count, nccl_type type, nccl_redop op, int root,                    \
       struct ncclComm *comm, struct CUstream_st *stream))                                                  \
    X(broadcast, ncclBroadcast, true, nccl_result,                                                          \
      (const void *in, void *out, size_t count, nccl_type type, int root, struct ncclComm *comm,            \
       struct CUstream_st *stream))                                                                         \
    X(all_gather, ncclAllGather, true, nccl_result,                                                         \
      (const void *in, void *out, size_t count, nccl_type type, struct ncclComm *comm,                      \
       struct CUstream_st *stream))                                                                         \
    X(reduce_scatter, ncclReduceScatter, true, nccl_result,                                                 \
      (const void *in, void *out, size_t count, nccl_type type, nccl_redop op, struct ncclComm *comm,       \
       struct CUstream_st *stream))                                                                         \
    X(send, ncclSend, true, nccl_result,                                                                    \
      (const void *in, size_t count, nccl_type type, int peer, struct ncclComm *comm,                       \
       struct CUstream_st *stream))                                                                         \
    X(recv, ncclRecv, true, nccl_result,                                                                    \
      (void *out, size_t count, nccl_type type, int peer, struct ncclComm *comm,                            \
       struct CUstream_st *stream))                                                                         \
    X(group_start, ncclGroupStart, true, nccl_result, (void))                                               \
    X(group_end, ncclGroupEnd, true, nccl_result, (void))

#endif
