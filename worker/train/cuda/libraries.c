/* libraries.c -- see libraries.h. */
#include "train/cuda/libraries.h"

#include "cuda/gpu.h"
#include "train/train_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const driver_places[] = { "libcuda.so.1", NULL };
static const struct lib_kind driver_kind = { "the CUDA driver (libcuda)", "DDP_CUDA_DRIVER_LIBRARY",
                                             driver_places, "It comes with NVIDIA's driver" };
static const struct lib_symbol driver_symbols[] = {
#define X(member, symbol, result, parameters) { #symbol, true, offsetof(struct driver, member) },
    DRIVER_FUNCTION_LIST(X)
#undef X
};

static const char *const lt_places[] = { "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                         "/usr/local/cuda/lib64/libcublasLt.so", NULL };
static const struct lib_kind lt_kind = {
    "cuBLASLt (libcublasLt)", "DDP_CUBLASLT_LIBRARY", lt_places,
    "Install the CUDA toolkit, or `pip install nvidia-cublas`, whose file is "
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

static ddp_status load(const struct lib_kind *kind, size_t place, const struct lib_symbol *symbols, size_t n,
                       void *table, struct ddp_err *err)
{
    void *handle;
    ddp_status status = lib_open(kind, given(kind->variable), &place, &handle, err);
    return status == DDP_OK ? lib_symbols(kind, handle, symbols, n, table, err) : status;
}

/* The first place of lt_places that is of the runtime's version, which the driver is new enough for. */
static size_t place_of(const struct gpu *gpu)
{
    int version = 0;
    gpu->call.runtime_version(&version);
    return version >= 13000 ? 0 : version >= 12000 ? 1 : 2;
}

/* The driver first: without it there is no GPU, whatever else is missing. */
ddp_status libraries_open(struct cuda *c, int *count, struct ddp_err *err)
{
    ddp_status status = load(&driver_kind, 0, driver_symbols,
                             sizeof(driver_symbols) / sizeof(driver_symbols[0]), &c->driver, err);
    if (status == DDP_OK)
        status = gpu_open(&c->gpu, given("DDP_CUDART_LIBRARY"), count, err);
    if (status != DDP_OK)
        return status;
    return load(&lt_kind, place_of(&c->gpu), lt_symbols, sizeof(lt_symbols) / sizeof(lt_symbols[0]), &c->lt,
                err);
}

/* --- kernels ------------------------------------------------------------------------------------------------------------ */

enum { PATH_ROOM = 4352, KERNELS_MOST = 1 << 28 };

static const char *const types[] = {
    [PRECISION_FP32] = "f32", [PRECISION_BF16] = "bf16", [PRECISION_FP16] = "f16"
};

/* From the directory of the program: in build/, and installed. */
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
    if (size <= 0 || size > KERNELS_MOST)
        return ddp_fail(err, DDP_ERR_CORRUPT, "%s: %ld bytes are no file of kernels; build it again", path,
                        size);
    *image = calloc((size_t)size + 1, 1);
    rewind(file);
    if (*image != NULL && fread(*image, 1, (size_t)size, file) == (size_t)size)
        return DDP_OK;
    free(*image);
    *image = NULL;
    return ddp_fail(err, DDP_ERR_IO, "%s: read: %s", path, strerror(errno));
}

ddp_status libraries_kernels(int precision, char **image, struct ddp_err *err)
{
    char path[PATH_ROOM];
    FILE *file = open_kernels(types[precision], path);
    *image = NULL;
    if (file == NULL)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                        "%s: %s; `make` builds it where nvcc is (in PATH, or CUDA_HOME=DIR), and "
                        "DDP_TRAIN_KERNELS=DIR names "
                        "another place",
                        path, strerror(errno));
    ddp_status status = read_all(file, path, image, err);
    fclose(file);
    return status;
}
