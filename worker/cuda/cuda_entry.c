/* cuda_entry.c -- what libddp_cuda shows to the world: one function. */
#include "core/backend.h"
#include "ddp/context.h"
#include "cuda/cuda_backends.h"
#include "cuda/gpu.h"

static ddp_status devices(const struct comm_paths *paths, int *count, struct ddp_err *err)
{
    struct gpu gpu;
    return gpu_open(&gpu, paths->cudart, count, err);
}

static const struct cuda_entry entry = { DDP_VERSION, devices, &nccl_comm_ops, &staged_comm_ops };

DDP_API const struct cuda_entry *ddp_cuda_entry(void);
const struct cuda_entry *ddp_cuda_entry(void)
{
    return &entry;
}
