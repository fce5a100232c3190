/* gpu.h -- loads NVIDIA's libraries and wraps the functions of the CUDA runtime for one device. The libraries are
 * loaded at run time, so neither the build nor a machine without a GPU needs NVIDIA's software. One build works with
 * CUDA 11, 12 and 13. */
#ifndef WORKER_CUDA_GPU_H
#define WORKER_CUDA_GPU_H

#include "cuda/cudart_abi.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>

/* An NVIDIA library, and how a user installs it. All texts are constant. */
struct lib_kind {
    const char *what;          /* "NCCL" */
    const char *variable;      /* environment variable with the path of the library */
    const char *const *places; /* file names in the order of the search, ended by NULL */
    const char *install;       /* text for the user: how to install the library */
};

struct lib_symbol {
    const char *name;
    bool needed; /* true if a library without this function is an error */
    size_t at;   /* offset of the function pointer in the table */
};

/* Load a library. `given` is the value of kind->variable. If `given` is "", try the places from number *place on,
 * and set *place to the number of the place that has the library. The caller closes *handle with dlclose. The text
 * of DDP_ERR_UNSUPPORTED lists the places and explains how to install the library. */
ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err);

/* Find the n functions that `symbols` names, and store their addresses in `table`. Store NULL for an optional
 * function that is missing. The text of DDP_ERR_UNSUPPORTED names the first required function that is missing. */
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
    void *handle; /* from dlopen; never closed, because the runtime has state for the whole process */
    struct cudart call;
    int device;      /* number of the device; -1 before gpu_use */
    char bus_id[32]; /* "0000:81:00.0" */
};

/* Load the runtime from `path`. If `path` is "", search the usual places. Set *count to the number of devices that this
 * process may use. Return DDP_ERR_UNSUPPORTED, with reason and remedy, if there is no runtime, no driver or no
 * device. */
ddp_status gpu_open(struct gpu *gpu, const char *path, int *count, struct ddp_err *err);

/* Select a device for this thread. `count` is the count from gpu_open, for the error text. */
ddp_status gpu_use(struct gpu *gpu, int device, int count, struct ddp_err *err);

/* Report a CUDA error: "cannot select the GPU: cudaErrorNoDevice (no CUDA-capable device is detected)". `doing` is
 * the part before the colon. */
ddp_status gpu_fail(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* Return DDP_OK if there is no error. Otherwise call gpu_fail. */
ddp_status gpu_check(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err);

/* Return CUDA_SUCCESS_ if the event has occurred, otherwise CUDA_NOT_READY. Clear CUDA_NOT_READY in the runtime,
 * because the program's next CUDA call would report it as an error. */
cuda_error gpu_query(const struct gpu *gpu, struct CUevent_st *event);

/* Set *owns to true if `at` is in the memory of a device, and to false for NULL and for memory unknown to CUDA. After
 * an earlier error of the device, return that error. */
ddp_status gpu_owns(const struct gpu *gpu, const void *at, bool *owns, struct ddp_err *err);

/* Allocate zeroed device memory, which the caller frees. */
ddp_status gpu_alloc(const struct gpu *gpu, size_t bytes, void **out, struct ddp_err *err);

#endif
