/* gpu.c -- see gpu.h.
 *
 * A CUDA runtime that is newer than the driver does not work, but an older runtime may also be installed. So gpu_open
 * tries all file names of the runtime until one of them works with the driver. */
#include "cuda/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Report that a library was not found. `why` is the message of dlopen for the first file name. Include this message,
 * because the file may exist, but may be damaged or may need another library that is missing. */
static ddp_status not_found(const struct lib_kind *kind, const char *tried, const char *why,
                            struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "%s: not found: tried %s (loader: %.200s); %s; if the library is elsewhere, set %s=FILE",
                    kind->what, tried, why, kind->install, kind->variable);
}

static ddp_status open_given(const struct lib_kind *kind, const char *given, void **handle,
                             struct ddp_err *err)
{
    *handle = dlopen(given, RTLD_NOW | RTLD_LOCAL);
    if (*handle != NULL)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "%s=%.300s: cannot load %s: %.300s; unset %s, or set it to the path of the library",
                    kind->variable, given, kind->what, dlerror(), kind->variable);
}

ddp_status lib_open(const struct lib_kind *kind, const char *given, size_t *place, void **handle,
                    struct ddp_err *err)
{
    char tried[400] = "", why[256] = "";
    size_t used = 0;

    if (given[0] != '\0')
        return open_given(kind, given, handle, err);
    for (; kind->places[*place] != NULL; ++*place) {
        *handle = dlopen(kind->places[*place], RTLD_NOW | RTLD_LOCAL);
        if (*handle != NULL)
            return DDP_OK;
        const char *words = dlerror();
        if (why[0] == '\0' && words != NULL)
            snprintf(why, sizeof(why), "%.250s", words);
        if (used + strlen(kind->places[*place]) + 3 < sizeof(tried))
            used += (size_t)snprintf(tried + used, sizeof(tried) - used, "%s%s", used ? ", " : "",
                                     kind->places[*place]);
    }
    return not_found(kind, tried, why, err);
}

ddp_status lib_symbols(const struct lib_kind *kind, void *handle, const struct lib_symbol *symbols, size_t n,
                       void *table, struct ddp_err *err)
{
    for (size_t i = 0; i < n; i++) {
        void *found = dlsym(handle, symbols[i].name);
        if (found == NULL && symbols[i].needed)
            return ddp_fail(
                err, DDP_ERR_UNSUPPORTED,
                "%s: the loaded file has no function %s: the file is too old, or is another library; "
                "set %s to the path of the right file",
                kind->what, symbols[i].name, kind->variable);
        memcpy((char *)table + symbols[i].at, &found, sizeof(found));
    }
    return DDP_OK;
}

/* --- the CUDA runtime and a device ------------------------------------------------------------------------ */

static const char *const places[] = { "libcudart.so.13",
                                      "libcudart.so.12",
                                      "libcudart.so.11.0",
                                      "libcudart.so",
                                      "/usr/local/cuda/lib64/libcudart.so",
                                      NULL };

static const struct lib_kind kind = {
    "the CUDA runtime (libcudart)", "DDP_CUDART_LIBRARY", places,
    "install the CUDA toolkit, or `pip install nvidia-cuda-runtime`, which installs "
    "site-packages/nvidia/cu13/lib/libcudart.so.13 (for CUDA 12: nvidia-cuda-runtime-cu12 installs "
    "site-packages/nvidia/cuda_runtime/lib/libcudart.so.12)"
};

static const struct lib_symbol symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct cudart, member) },
    CUDART_FUNCTION_LIST(X)
#undef X
};

ddp_status gpu_fail(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err)
{
    gpu->call.last_error(); /* clear the error, so that the program's next CUDA call does not report it */
    return ddp_fail(err, error == CUDA_NO_MEMORY ? DDP_ERR_NOMEM : DDP_ERR_CUDA, "%s: %.60s (%.200s)%s",
                    doing, gpu->call.error_name(error), gpu->call.error_string(error),
                    error == CUDA_NO_MEMORY ? "; end other processes on this GPU, or use less memory" : "");
}

ddp_status gpu_check(const struct gpu *gpu, cuda_error error, const char *doing, struct ddp_err *err)
{
    return error == CUDA_SUCCESS_ ? DDP_OK : gpu_fail(gpu, error, doing, err);
}

/* Report why no device can be used. CUDA reports driver version 0 if there is no driver. */
static ddp_status no_device(const struct gpu *gpu, cuda_error error, struct ddp_err *err)
{
    int driver = 0, runtime = 0;
    gpu->call.driver_version(&driver);
    gpu->call.runtime_version(&runtime);
    if (driver == 0)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "GPU: cannot be used: this machine has no NVIDIA driver (libcuda.so.1); install the driver");
    if (error == CUDA_OLD_DRIVER)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "GPU: cannot be used: the driver supports CUDA %d.%d, but the runtime library needs "
                        "%d.%d; install a newer driver, or set DDP_CUDART_LIBRARY to an older libcudart",
                        driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == CUDA_SUCCESS_ || error == CUDA_NO_DEVICE)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "GPU: cannot be used: the driver shows no GPU to this process; check "
            "CUDA_VISIBLE_DEVICES, which may hide GPUs; `nvidia-smi -L` lists the GPUs of the machine");
    gpu_fail(gpu, error, "GPU: cannot be used: cannot read the number of GPUs", err);
    return err->code = DDP_ERR_UNSUPPORTED;
}

static ddp_status try_place(struct gpu *gpu, const char *path, size_t *place, int *count, cuda_error *error,
                            struct ddp_err *err)
{
    ddp_status status = lib_open(&kind, path, place, &gpu->handle, err);
    if (status == DDP_OK)
        status =
            lib_symbols(&kind, gpu->handle, symbols, sizeof(symbols) / sizeof(symbols[0]), &gpu->call, err);
    if (status != DDP_OK)
        return status;
    *error = gpu->call.device_count(count);
    return *error == CUDA_SUCCESS_ && *count > 0 ? DDP_OK : no_device(gpu, *error, err);
}

/* Load the runtime and count the devices. If the driver is too old for a runtime, try the next file of `places`. If no
 * runtime works, report the error of the first file. */
ddp_status gpu_open(struct gpu *gpu, const char *path, int *count, struct ddp_err *err)
{
    struct ddp_err first = { 0 };
    cuda_error error = CUDA_OLD_DRIVER;
    size_t place = 0;

    *gpu = (struct gpu){ .device = -1 };
    while (error == CUDA_OLD_DRIVER) {
        error = CUDA_SUCCESS_;
        if (try_place(gpu, path, &place, count, &error, err) == DDP_OK)
            return DDP_OK;
        if (first.code == DDP_OK)
            first = *err;
        place++;
        if (path[0] != '\0' || places[place - 1] == NULL || places[place] == NULL)
            break;
    }
    *err = first;
    return err->code;
}

ddp_status gpu_use(struct gpu *gpu, int device, int count, struct ddp_err *err)
{
    if (device >= count)
        return ddp_fail(err, DDP_ERR_ARG,
                        "GPU %d: does not exist: this process sees %d GPU%s, numbered from 0; start "
                        "fewer workers, or share GPUs with ddprun --share_gpu (for tests)",
                        device, count, count == 1 ? "" : "s");
    ddp_status status = gpu_check(gpu, gpu->call.set_device(device), "cannot select the GPU", err);
    if (status != DDP_OK)
        return status;
    gpu->device = device;
    return gpu_check(gpu, gpu->call.bus_id(gpu->bus_id, sizeof(gpu->bus_id), device),
                     "cannot read the GPU's bus id", err);
}

cuda_error gpu_query(const struct gpu *gpu, struct CUevent_st *event)
{
    cuda_error error = gpu->call.event_query(event);
    if (error == CUDA_NOT_READY)
        gpu->call.last_error();
    return error;
}

/* Check whether `at` is in device memory. Old runtimes report CUDA_INVALID_VALUE for unknown memory. Clear this error,
 * because the program's next CUDA call would report it. After any other error the kind of memory is unknown. */
ddp_status gpu_owns(const struct gpu *gpu, const void *at, bool *owns, struct ddp_err *err)
{
    cuda_pointer found = { 0 };
    cuda_error error = at != NULL ? gpu->call.pointer(&found, at) : CUDA_SUCCESS_;
    *owns = error == CUDA_SUCCESS_ && (found.type == CUDA_MEMORY_DEVICE || found.type == CUDA_MEMORY_MANAGED);
    if (error == CUDA_INVALID_VALUE) {
        gpu->call.last_error();
        return DDP_OK;
    }
    return gpu_check(gpu, error, "cannot find out whether a buffer is in GPU memory", err);
}

/* Allocate device memory and zero it on stream 0. Wait until all bytes are zero, because the program may use the memory
 * on any stream. */
ddp_status gpu_alloc(const struct gpu *gpu, size_t bytes, void **out, struct ddp_err *err)
{
    cuda_error error = gpu->call.set_device(gpu->device); /* each thread has its own current device */
    if (error == CUDA_SUCCESS_)
        error = gpu->call.alloc(out, bytes);
    if (gpu_check(gpu, error, "cudaMalloc", err) != DDP_OK)
        return ddp_wrap(err, "cannot allocate %zu bytes of device memory", bytes);
    error = gpu->call.set_async(*out, 0, bytes, NULL);
    if (error == CUDA_SUCCESS_)
        error = gpu->call.stream_sync(NULL);
    if (error == CUDA_SUCCESS_)
        return DDP_OK;
    gpu->call.free(*out);
    return gpu_fail(gpu, error, "cannot clear device memory", err);
}
