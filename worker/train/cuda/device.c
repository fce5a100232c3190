/* device.c -- see device.h: opens libraries, reads kernels, starts kernels and allocates memory. Most functions of
 * compute.h return no status, so the first error is kept, and cuda_end returns it. After this error, cuda_launch starts
 * no kernel. */
#include "train/cuda/device.h"

#include "cuda/gpu.h"
#include "train/train_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const driver_places[] = { "libcuda.so.1", NULL };
static const struct lib_kind driver_kind = { "the CUDA driver (libcuda)", "DDP_CUDA_DRIVER_LIBRARY",
                                             driver_places, "install NVIDIA's driver" };
static const struct lib_symbol driver_symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct driver, member) },
    DRIVER_FUNCTION_LIST(X)
#undef X
};

static const char *const lt_places[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                         "/usr/local/cuda/lib64/libcublasLt.so", NULL };
static const struct lib_kind lt_kind = {
    "cuBLASLt (libcublasLt)", "DDP_CUBLASLT_LIBRARY", lt_places,
    "install the CUDA toolkit, or `pip install nvidia-cublas`, which installs "
    "site-packages/nvidia/cu13/lib/libcublasLt.so.13"
};
static const struct lib_symbol lt_symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct cublaslt, member) },
    CUBLASLT_FUNCTION_LIST(X)
#undef X
};

static const char *given(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL ? value : "";
}

static ddp_status load_symbols(const struct lib_kind *kind, size_t place, const struct lib_symbol *symbols,
                               size_t n, void *table, struct ddp_err *err)
{
    void *handle;
    ddp_status status = lib_open(kind, given(kind->variable), &place, &handle, err);
    return status == DDP_OK ? lib_symbols(kind, handle, symbols, n, table, err) : status;
}

/* Return the index in lt_places of the cuBLASLt that belongs to the version of the CUDA runtime. */
static size_t place_of(const struct gpu *gpu)
{
    int version = 0;
    gpu->call.runtime_version(&version);
    return version >= 13000 ? 0 : version >= 12000 ? 1 : 2;
}

/* Open the libraries. Open the driver first, because its error is the clearest if the machine has no GPU. */
ddp_status libraries_open(struct cuda *c, int *count, struct ddp_err *err)
{
    ddp_status status = load_symbols(&driver_kind, 0, driver_symbols,
                                     sizeof(driver_symbols) / sizeof(driver_symbols[0]), &c->driver, err);
    if (status == DDP_OK)
        status = gpu_open(&c->gpu, given("DDP_CUDART_LIBRARY"), count, err);
    if (status != DDP_OK)
        return status;
    return load_symbols(&lt_kind, place_of(&c->gpu), lt_symbols, sizeof(lt_symbols) / sizeof(lt_symbols[0]),
                        &c->lt, err);
}

/* --- kernels ------------------------------------------------------------------------------------------ */

enum { PATH_ROOM = 4352, KERNELS_MOST = 1 << 28 };

static const char *const types[] = {
    [PRECISION_FP32] = "f32", [PRECISION_BF16] = "bf16", [PRECISION_FP16] = "f16"
};

/* Folders of the kernels, relative to the program's folder: the first is for build/, the second for an installed
 * program. */
static const char *const beside[] = { "", "../../share/ddprun/" };

static FILE *open_in(const char *directory, const char *below, const char *type, char path[PATH_ROOM])
{
    snprintf(path, PATH_ROOM, "%.4096s/%strain_kernels.%s.fatbin", directory, below, type);
    return fopen(path, "rbe");
}

static FILE *open_kernels(const char *type, char path[PATH_ROOM])
{
    char own[4096];
    FILE *file = NULL;
    if (given("DDP_TRAIN_KERNELS")[0] != '\0')
        return open_in(given("DDP_TRAIN_KERNELS"), "", type, path);
    const ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
    own[n > 0 ? n : 0] = '\0';
    if (strrchr(own, '/') != NULL)
        *strrchr(own, '/') = '\0';
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]) && file == NULL; i++)
        file = open_in(own, beside[i], type, path);
    return file;
}

static ddp_status read_all(FILE *file, const char *path, char **image, struct ddp_err *err)
{
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 0)
        return ddp_fail(err, DDP_ERR_IO, "%s: cannot read: %s; build it again with `make`", path,
                        strerror(errno));
    if (size == 0 || size > KERNELS_MOST)
        return ddp_fail(err, DDP_ERR_CORRUPT,
                        "%s: a file of %ld bytes cannot contain kernels; build the file again with `make`",
                        path, size);
    *image = calloc((size_t)size + 1, 1);
    rewind(file);
    if (*image != NULL && fread(*image, 1, (size_t)size, file) == (size_t)size)
        return DDP_OK;
    free(*image);
    *image = NULL;
    return ddp_fail(err, DDP_ERR_IO, "%s: cannot read: %s; build it again with `make`", path,
                    strerror(errno));
}

ddp_status libraries_kernels(int precision, char **image, struct ddp_err *err)
{
    char path[PATH_ROOM];
    FILE *file = open_kernels(types[precision], path);
    *image = NULL;
    if (file == NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "%s: %s; `make` builds this file if nvcc is installed (in PATH, or CUDA_HOME=DIR); "
                        "set DDP_TRAIN_KERNELS=DIR if the file is in another folder",
                        path, strerror(errno));
    ddp_status status = read_all(file, path, image, err);
    fclose(file);
    return status;
}

static const unsigned threads_of[] = {
#define X(name, threads, args) threads,
    KERNEL_LIST(X)
#undef X
};
const char *const cuda_kernel_names[] = {
#define X(name, threads, args) #name,
    KERNEL_LIST(X)
#undef X
};

/* --- errors ------------------------------------------------------------------------------------------- */

void cuda_failed(struct cuda *c, ddp_status status, const struct ddp_err *err)
{
    if (status != DDP_OK && c->failed.code == DDP_OK)
        c->failed = *err;
}

bool cuda_check(struct cuda *c, cuda_error error, const char *doing)
{
    struct ddp_err err = { 0 };
    cuda_failed(c, gpu_check(&c->gpu, error, doing, &err), &err);
    return error == CUDA_SUCCESS_;
}

ddp_status cuda_driver_check(struct cuda *c, driver_result result, const char *doing, const char *what,
                             struct ddp_err *err)
{
    const char *words = NULL;
    if (result == 0)
        return DDP_OK;
    if (c->driver.error_string(result, &words) != 0 || words == NULL)
        words = "unknown error";
    return ddp_fail(err, DDP_ERR_CUDA, "%s %s: error %u (%.200s)", doing, what, result, words);
}

ddp_status cuda_end(struct compute *base, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    if (c->failed.code == DDP_OK)
        return DDP_OK;
    *err = c->failed;
    return err->code;
}

/* --- calls and memory --------------------------------------------------------------------------------- */

void cuda_launch(struct cuda *c, enum kernel kernel, size_t x, size_t y, void *args)
{
    struct ddp_err err = { 0 };
    void *parameters[] = { args };
    if (x == 0 || y == 0 || c->failed.code != DDP_OK)
        return;
    if (x > INT32_MAX || y > UINT16_MAX) {
        ddp_fail(&err, DDP_ERR_ARG, "kernel %s: a GPU cannot run %zu x %zu blocks; use a smaller --batch",
                 cuda_kernel_names[kernel], x, y);
        cuda_failed(c, err.code, &err);
        return;
    }
    driver_result result = c->driver.launch(c->kernel[kernel], (unsigned)x, (unsigned)y, 1,
                                            threads_of[kernel], 1, 1, 0, c->stream, parameters, NULL);
    cuda_failed(c, cuda_driver_check(c, result, "cannot start kernel", cuda_kernel_names[kernel], &err),
                &err);
}

void *cuda_alloc(struct compute *base, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    struct ddp_err err = { 0 };
    void *memory = NULL;
    if (gpu_alloc(&c->gpu, bytes > 0 ? bytes : 1, &memory, &err) != DDP_OK)
        return NULL;
    return memory;
}

/* Free memory. First wait for all work, because queued kernels may still use the memory. */
void cuda_release(struct compute *base, void *memory)
{
    struct cuda *c = cuda_of(base);
    if (memory == NULL)
        return;
    cuda_check(c, c->gpu.call.stream_sync(c->stream), "cannot wait for the GPU before cudaFree");
    cuda_check(c, c->gpu.call.free(memory), "cudaFree");
}

void cuda_zero(struct compute *base, void *at, size_t bytes)
{
    struct cuda *c = cuda_of(base);
    cuda_check(c, c->gpu.call.set_async(at, 0, bytes, c->stream), "cudaMemsetAsync");
}

void *cuda_room(struct cuda *c, struct room *room, size_t bytes)
{
    struct ddp_err err = { 0 };
    if (room->bytes >= bytes && room->memory != NULL)
        return room->memory;
    cuda_release(&c->base, room->memory);
    *room = (struct room){ cuda_alloc(&c->base, bytes), bytes };
    if (room->memory == NULL)
        cuda_failed(c,
                    ddp_fail(&err, DDP_ERR_NOMEM,
                             "cannot allocate %zu bytes of device memory; use a smaller --batch", bytes),
                    &err);
    return room->memory;
}
