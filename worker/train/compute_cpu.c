/* compute_cpu.c -- see compute.h: memory and batches on the CPU. The layers are in the folder layers/. A batch is not
 * copied, because the layers read it in the caller's memory. */
#include "train/compute.h"

#include <stdlib.h>

static void *cpu_alloc(ON_CPU, size_t bytes)
{
    return calloc(bytes > 0 ? bytes : 1, 1);
}

static void cpu_release(ON_CPU, void *memory)
{
    free(memory);
}

static void cpu_zero(ON_CPU, void *at, size_t bytes)
{
    memset(at, 0, bytes);
}

static ddp_status cpu_begin(ON_CPU, const struct model_batch *from, size_t pixels, struct model_batch *on,
                            struct ddp_err *err)
{
    (void)pixels, (void)err;
    *on = *from;
    return DDP_OK;
}

static ddp_status cpu_end(ON_CPU, struct ddp_err *err)
{
    (void)err;
    return DDP_OK;
}

/* Add with BLAS. BLAS multiplies `right` by 1, which is exact. So each sum is rounded only once, with or without fused
 * multiply-add. */
static void cpu_add(ON_CPU, float *left, const float *right, size_t n)
{
    cblas_saxpy((int)n, 1, right, 1, left, 1);
}

static const struct compute_ops cpu_ops = { .alloc = cpu_alloc,
                                            .release = cpu_release,
                                            .zero = cpu_zero,
                                            .begin = cpu_begin,
                                            .end = cpu_end,
                                            .add = cpu_add,
#define X(member) .member = cpu_##member,
                                            COMPUTE_LAYERS(X)
#undef X
};

struct compute compute_cpu = { .ops = &cpu_ops, .value_bytes = sizeof(float), .pack = 1 };
