/* fake_driver.c -- the CUDA driver of fake_gpu.h. The text of a module, such as "fake f32", names a table of shim.h. A
 * kernel runs on the thread of its stream. */
#include "fake_gpu.h"

#include "cuda/compute_abi.h"
#include "shim.h"
#include "train/cuda/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#define X(member, symbol, result, parameters) EXPORT result symbol parameters;
DRIVER_FUNCTION_LIST(X)
#undef X

enum { NO_MODULE = 200, NO_FUNCTION = 500, NO_MEMORY = 2, BAD_LAUNCH = 1 };

/* The modules. A loaded module needs no memory: its handle is the address of its table of kernels. */
static const struct {
    const char *image;
    const struct shim_kernel *kernels;
} modules[] = { { "fake f32", shim_f32 }, { "fake bf16", shim_bf16 }, { "fake f16", shim_f16 } };

static const unsigned threads_of[] = {
#define X(name, threads, args) threads,
    KERNEL_LIST(X)
#undef X
};

driver_result cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

driver_result cuDeviceGetName(char *name, int room, int device)
{
    const char *given = getenv("FAKE_CUDA_NAME");
    (void)device;
    snprintf(name, (size_t)room, "%s", given != NULL ? given : "a fake GPU");
    return 0;
}

driver_result cuModuleLoadData(struct CUmod_st **out, const void *image)
{
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
        if (strcmp(image, modules[i].image) == 0) {
            *out = (struct CUmod_st *)modules[i].kernels;
            return 0;
        }
    }
    return NO_MODULE;
}

driver_result cuModuleGetFunction(struct CUfunc_st **out, struct CUmod_st *module, const char *name)
{
    const struct shim_kernel *kernels = (const struct shim_kernel *)module;
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            *out = (struct CUfunc_st *)&kernels[i];
            return 0;
        }
    }
    return NO_FUNCTION;
}

struct launch {
    const struct shim_kernel *kernel;
    struct shim_place grid;
    unsigned threads;
    max_align_t args[];
};

static void run(void *user)
{
    struct launch *l = user;
    shim_run(l->kernel, l->grid, l->threads, l->args);
    free(l);
}

static unsigned expected_threads(const struct shim_kernel *kernel)
{
    for (int i = 0; i < KERNELS; i++) {
        if (strcmp(shim_f32[i].name, kernel->name) == 0)
            return threads_of[i];
    }
    return 0;
}

driver_result cuLaunchKernel(struct CUfunc_st *function, unsigned int grid_x, unsigned int grid_y,
                             unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                             unsigned int block_z, unsigned int shared_bytes, struct CUstream_st *stream,
                             void **parameters, void **extra)
{
    const struct shim_kernel *kernel = (const struct shim_kernel *)function;
    if (grid_x == 0 || grid_y == 0 || grid_y > 65535 || grid_z != 1 || block_x != expected_threads(kernel) ||
        block_y != 1 || block_z != 1 || shared_bytes != 0 || extra != NULL)
        return BAD_LAUNCH;
    struct launch *l = malloc(sizeof(*l) + kernel->bytes);
    if (l == NULL)
        return NO_MEMORY;
    l->kernel = kernel;
    l->grid = (struct shim_place){ grid_x, grid_y };
    l->threads = block_x;
    memcpy(l->args, parameters[0], kernel->bytes);
    fake_launch(stream, run, l);
    return 0;
}

driver_result cuGetErrorString(driver_result error, const char **words)
{
    (void)error;
    *words = "an error of the fake driver";
    return 0;
}
