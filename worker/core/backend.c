/* backend.c -- see backend.h.
 *
 * libddp searches for libddp_cuda first near the file that contains this code (libddp.so, or a program with libddp.a),
 * then in the loader's path. libddp never unloads libddp_cuda, because threads of CUDA run code of libddp_cuda. */
#include "core/backend.h"

#include "core/recorder.h"

#include "ddp/context.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4352 };

const struct comm_host backend_host = { .cpu = &cpu_comm_ops,
                                        .publish = bootstrap_publish,
                                        .fetch = bootstrap_fetch,
                                        .clear = bootstrap_clear,
                                        .remaining_ms = bootstrap_remaining_ms,
                                        .complete = recorder_complete,
                                        .local_address = ddp_store_local_address };

struct comm_paths backend_paths(const struct worker_env *env)
{
    return (struct comm_paths){ env->cuda_library, env->cudart_library, env->nccl_library };
}

/* Paths from the folder of this code to the folder of libddp_cuda. In build/, this code and libddp_cuda are in one
 * folder. In an installation, libddp_cuda is in lib/, and this code is in lib/, bin/ or libexec/ddprun/. */
static const char *const beside[] = { "", "../lib/", "../../lib/" };

/* Set `path` to the folder of this code, with a '/' at the end, or to "" if the folder is unknown. dladdr may return a
 * name without a folder if the shell found the program in PATH. In this case read /proc/self/exe. */
static void own_directory(char path[PATH_ROOM])
{
    Dl_info info;
    path[0] = '\0';
    if (dladdr((const void *)&backend_host, &info) == 0 || info.dli_fname == NULL)
        return;
    char program[4096];
    const char *file = info.dli_fname;
    if (strchr(file, '/') == NULL) {
        const ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
        program[n > 0 ? n : 0] = '\0';
        file = program;
    }
    const char *end = strrchr(file, '/');
    if (end != NULL && (size_t)(end - file) + 64 < PATH_ROOM)
        snprintf(path, PATH_ROOM, "%.*s/", (int)(end - file), file);
}

/* Open libddp_cuda in the directories near libddp, so that a copied installation works without LD_LIBRARY_PATH. */
static void *open_beside(void)
{
    char directory[PATH_ROOM], path[PATH_ROOM + 64];
    void *handle = NULL;
    own_directory(directory);
    for (size_t i = 0; directory[0] != '\0' && handle == NULL && i < sizeof(beside) / sizeof(beside[0]);
         i++) {
        snprintf(path, sizeof(path), "%s%slibddp_cuda.so.%d", directory, beside[i], DDP_VERSION_MAJOR);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return handle;
}

/* Open the library file `given`. If `given` is "", search for libddp_cuda near libddp, then in the loader's path. */
static ddp_status open_library(const char *given, void **handle, struct ddp_err *err)
{
    char name[64];
    snprintf(name, sizeof(name), "libddp_cuda.so.%d", DDP_VERSION_MAJOR);
    *handle = given[0] != '\0' ? dlopen(given, RTLD_NOW | RTLD_LOCAL) : open_beside();
    if (*handle == NULL && given[0] == '\0')
        *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (*handle != NULL)
        return DDP_OK;
    if (given[0] != '\0')
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "DDP_CUDA_LIBRARY=%.300s: cannot load: %.300s; unset DDP_CUDA_LIBRARY, or set it to the "
            "path of %s",
            given, dlerror(), name);
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "%s: cannot load this library, which is required for a GPU: %.300s; install the library "
                    "beside libddp, or set DDP_CUDA_LIBRARY=FILE",
                    name, dlerror());
}

/* Load libddp_cuda and get its table of functions. libddp and libddp_cuda must have the same version, because the table
 * is not a stable interface. */
static ddp_status load_cuda(const struct worker_env *env, const struct cuda_entry **out, struct ddp_err *err)
{
    void *handle = NULL;
    cuda_entry_function function = NULL;
    ddp_status status = open_library(env->cuda_library, &handle, err);
    if (status != DDP_OK)
        return status;
    void *symbol = dlsym(handle, CUDA_ENTRY);
    /* C cannot convert a data pointer to a function pointer, so the bytes are copied. */
    memcpy(&function, &symbol, sizeof(function));
    *out = function != NULL ? function() : NULL;
    if (*out == NULL || strcmp((*out)->version, DDP_VERSION) != 0)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "libddp_cuda has version %s, but libddp has version %s; install both from one build",
                        *out != NULL ? (*out)->version : "unknown", DDP_VERSION);
    return DDP_OK;
}

static ddp_status check_name(const char *name, int device, struct ddp_err *err)
{
    if (name != NULL && strcmp(name, "cpu") != 0 && strcmp(name, "nccl") != 0)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "backend \"%.40s\": unknown; expected \"cpu\" or \"nccl\"",
                        name);
    if (device < DDP_DEVICE_LOCAL)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "ddp_options.device=%d: expected the number of a GPU, or a value of ddp_device_choice", device);
    return DDP_OK;
}

/* Find the backend `name`, and load libddp_cuda if a device is requested. With DDP_DEVICE_AUTO, a missing library is an
 * error only for the name "nccl". */
ddp_status backend_find(const char *name, int device, const struct worker_env *env, struct backend *out,
                        struct ddp_err *err)
{
    bool nccl = name != NULL && strcmp(name, "nccl") == 0;
    const struct cuda_entry *cuda = NULL;
    const struct comm_paths paths = backend_paths(env);
    int count = 0;

    *out = (struct backend){ &cpu_comm_ops, -1 };
    ddp_status status = check_name(name, device, err);
    if (status != DDP_OK || (device == DDP_DEVICE_NONE && !nccl))
        return status;
    status = load_cuda(env, &cuda, err);
    if (status == DDP_OK)
        status = cuda->devices(&paths, &count, err);
    if (status != DDP_OK && device == DDP_DEVICE_AUTO && !nccl) {
        *err = (struct ddp_err){ 0 };
        return DDP_OK;
    }
    if (status != DDP_OK)
        return status;
    out->ops = name == NULL || nccl ? cuda->nccl : cuda->staged;
    out->device = device >= 0 ? device : env->local_rank;
    if (env->share_gpu)
        out->device %= count;
    return DDP_OK;
}
