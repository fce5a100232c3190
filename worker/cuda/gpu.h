/* gpu.h -- the CUDA runtime and one device of it, as far as collectives need them. */
#ifndef CUDA_GPU_H
#define CUDA_GPU_H

#include "ddp/error.h"

#include "cuda/cudart_abi.h"

#include <stdbool.h>

/* The functions of libcudart. */
struct cudart {
#define X(member, symbol, result, parameters) result(*member) parameters;
    CUDART_FUNCTION_LIST(X)
#undef X
};

struct gpu {
    void *handle; /* of dlopen; for good */
    struct cudart call;
    int device;      /* -1 until gpu_use */
    char bus_id[32]; /* "0000:81:00.0" */
};

/* Load the runtime; `path` "" = the usual places. *count = how many devices there are for this process.
 * DDP_ERR_UNSUPPORTED: no library, no driver, or no device; the words say which, and what to do. There is no opposite: the
 * runtime has state of the whole process, so it stays loaded. */
ddp_status gpu_open(struct gpu *gpu, const char *path, int *count, struct ddp_err *err);

/* Take device `device`, of `count`, for this thread. */
ddp_status gpu_use(struct gpu *gpu, int device, int count, struct ddp_err *err);

/* "doing: cudaErrorNoDevice (no CUDA-capable device is detected)". */
ddp_status gpu_fail(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* DDP_OK, or as gpu_fail. */
ddp_status gpu_check(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* Has the event come? CUDA_NOT_READY is left nowhere else: CUDA would tell it the program as its next error. */
cuda_error gpu_query(const struct gpu *gpu, struct CUevent_st *event);

/* Does `at` lie in the memory of a device? False of NULL, and of memory that CUDA does not know. */
bool gpu_owns(const struct gpu *gpu, const void *at);

/* Device memory, zeroed. */
ddp_status gpu_alloc(const struct gpu *gpu, size_t bytes, void **out, struct ddp_err *err);

#endif
