/* cudart_abi.h -- declarations of CUDA runtime functions, so that libddp_cuda builds without NVIDIA's headers. All
 * functions here are the same in CUDA 11, 12 and 13. */
#ifndef CUDA_CUDART_ABI_H
#define CUDA_CUDART_ABI_H

#include <stddef.h>

struct CUstream_st;
struct CUevent_st;

#ifndef CUDART_ABI_TYPES
#define CUDART_ABI_TYPES
typedef unsigned cuda_error;
typedef unsigned cuda_copy_kind;
/* cudaPointerAttributes, with `reserved` for the members that later CUDA versions append. */
typedef struct {
    unsigned type;
    int device;
    void *device_pointer, *host_pointer;
    long reserved[24];
} cuda_pointer;
#endif

enum cuda_errors {
    CUDA_SUCCESS_ = 0,
    CUDA_INVALID_VALUE = 1,
    CUDA_NO_MEMORY = 2,
    CUDA_OLD_DRIVER = 35,
    CUDA_NO_DEVICE = 100,
    CUDA_NOT_READY = 600,
};

enum cuda_memory { CUDA_MEMORY_HOST = 1, CUDA_MEMORY_DEVICE = 2, CUDA_MEMORY_MANAGED = 3 };
enum cuda_flags {
    CUDA_COPY_DEFAULT = 4,        /* the runtime derives the direction from the addresses */
    CUDA_STREAM_NON_BLOCKING = 1, /* no implicit order between this stream and stream 0 */
    CUDA_EVENT_NO_TIMING = 2,
};

/* Columns: member of the struct, symbol, result, parameters. Every function is required. */
#define CUDART_FUNCTION_LIST(X)                                                                            \
    X(runtime_version, cudaRuntimeGetVersion, cuda_error, (int *version))                                  \
    X(driver_version, cudaDriverGetVersion, cuda_error, (int *version))                                    \
    X(device_count, cudaGetDeviceCount, cuda_error, (int *count))                                          \
    X(set_device, cudaSetDevice, cuda_error, (int device))                                                 \
    X(bus_id, cudaDeviceGetPCIBusId, cuda_error, (char *id, int room, int device))                         \
    X(error_name, cudaGetErrorName, const char *, (cuda_error error))                                      \
    X(error_string, cudaGetErrorString, const char *, (cuda_error error))                                  \
    X(last_error, cudaGetLastError, cuda_error, (void))                                                    \
    X(alloc, cudaMalloc, cuda_error, (void **out, size_t bytes))                                           \
    X(free, cudaFree, cuda_error, (void *block))                                                           \
    X(set_async, cudaMemsetAsync, cuda_error,                                                              \
      (void *at, int value, size_t bytes, struct CUstream_st *stream))                                     \
    X(copy_async, cudaMemcpyAsync, cuda_error,                                                             \
      (void *to, const void *from, size_t bytes, cuda_copy_kind kind, struct CUstream_st *stream))         \
    X(copy_rows, cudaMemcpy2DAsync, cuda_error,                                                            \
      (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t rows,          \
       cuda_copy_kind kind, struct CUstream_st *stream))                                                   \
    X(host_alloc, cudaMallocHost, cuda_error, (void **out, size_t bytes))                                  \
    X(host_free, cudaFreeHost, cuda_error, (void *block))                                                  \
    X(host_register, cudaHostRegister, cuda_error, (void *block, size_t bytes, unsigned int flags))        \
    X(host_unregister, cudaHostUnregister, cuda_error, (void *block))                                      \
    X(pointer, cudaPointerGetAttributes, cuda_error, (cuda_pointer * out, const void *at))                 \
    X(stream_make, cudaStreamCreateWithFlags, cuda_error, (struct CUstream_st * *out, unsigned int flags)) \
    X(stream_free, cudaStreamDestroy, cuda_error, (struct CUstream_st * stream))                           \
    X(stream_query, cudaStreamQuery, cuda_error, (struct CUstream_st * stream))                            \
    X(stream_sync, cudaStreamSynchronize, cuda_error, (struct CUstream_st * stream))                       \
    X(stream_follow, cudaStreamWaitEvent, cuda_error,                                                      \
      (struct CUstream_st * stream, struct CUevent_st * event, unsigned int flags))                        \
    X(event_make, cudaEventCreateWithFlags, cuda_error, (struct CUevent_st * *out, unsigned int flags))    \
    X(event_free, cudaEventDestroy, cuda_error, (struct CUevent_st * event))                               \
    X(event_record, cudaEventRecord, cuda_error, (struct CUevent_st * event, struct CUstream_st * stream)) \
    X(event_sync, cudaEventSynchronize, cuda_error, (struct CUevent_st * event))                           \
    X(event_query, cudaEventQuery, cuda_error, (struct CUevent_st * event))

#endif
