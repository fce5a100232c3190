/* gpu.h -- loads NVIDIA's libraries if they exist, and wraps the CUDA runtime and one device for collectives. */
#ifndef WORKER_CUDA_GPU_H
#define WORKER_CUDA_GPU_H

#include "cuda/cudart_abi.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The name of a library, and how to get it. */
struct lib_kind {
    const char *what;          /* "NCCL" */
    const char *variable;      /* variable that names its file */
    const char *const *places; /* file names in the order of trying; NULL ends the list */
    const char *install;       /* how to get it */
};

struct lib_symbol {
    const char *name;
    bool needed;
    size_t at; /* offset of its pointer in the table */
};

/* `given` is the variable's value; "" = try the places from number *place on, and store the one found there. The
 * caller owns *handle, for dlclose. DDP_ERR_UNSUPPORTED lists the places, and how to install it. */
ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err);

/* Fill in the pointers of `table`. DDP_ERR_UNSUPPORTED names the first missing one. */
ddp_status lib_symbols(const struct lib_kind *kind, void *handle, const struct lib_symbol *symbols, size_t n,
                       void *table, struct ddp_err *err);

/* --- the CUDA runtime and a device ------------------------------------------------------------------------ */

/* The functions of libcudart. */
struct cudart {
#define X(member, symbol, result, parameters) result(*member) parameters;
    CUDART_FUNCTION_LIST(X)
#undef X
};

struct gpu {
    void *handle; /* from dlopen; never closed */
    struct cudart call;
    int device;      /* -1 until gpu_use */
    char bus_id[32]; /* "0000:81:00.0" */
};

/* Load the runtime; `path` "" = the usual places. *count = the number of devices for this process.
 * DDP_ERR_UNSUPPORTED: no library, no driver, or no device; the text has the reason and the remedy. It is never
 * unloaded, because the runtime has state of the whole process. */
ddp_status gpu_open(struct gpu *gpu, const char *path, int *count, struct ddp_err *err);

/* Select device `device`, of `count`, for this thread. */
ddp_status gpu_use(struct gpu *gpu, int device, int count, struct ddp_err *err);

/* Format "doing: cudaErrorNoDevice (no CUDA-capable device is detected)". */
ddp_status gpu_fail(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* Return DDP_OK, or the error as gpu_fail does. */
ddp_status gpu_check(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* True if the event has occurred. Clears CUDA_NOT_READY, which CUDA would otherwise report to the program as its next
 * error. */
cuda_error gpu_query(const struct gpu *gpu, struct CUevent_st *event);

/* True if `at` is in the memory of a device. False for NULL, and for memory unknown to CUDA. */
bool gpu_owns(const struct gpu *gpu, const void *at);

/* Allocate device memory, zeroed. */
ddp_status gpu_alloc(const struct gpu *gpu, size_t bytes, void **out, struct ddp_err *err);

#endif
