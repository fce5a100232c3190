/* gpu.h -- libraries of NVIDIA that may be there, the CUDA runtime among them, and one device of it, as far as
 * collectives need them. */
#ifndef WORKER_CUDA_GPU_H
#define WORKER_CUDA_GPU_H

#include "cuda/cudart_abi.h"
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>

/* The name of a library, and how a user gets it. */
struct lib_kind {
    const char *what;          /* "NCCL" */
    const char *variable;      /* that names its file */
    const char *const *places; /* file names in the order of trying; NULL at the end */
    const char *install;       /* how to get it */
};

struct lib_symbol {
    const char *name;
    bool needed;
    size_t at; /* of its pointer in the table */
};

/* `given` is the variable's value; "" = try the places from number *place on, and leave there which it was. *handle is the
 * caller's, for dlclose. DDP_ERR_UNSUPPORTED says what was tried, and how to install it. */
ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err);

/* Fill in the pointers of `table`. DDP_ERR_UNSUPPORTED names the first that is missing. */
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
