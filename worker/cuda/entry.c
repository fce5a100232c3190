/* entry.c -- the one function that libddp_cuda exports. libddp loads the library at run time and needs no other
 * symbol. */
#include "cuda/blocks.h"
#include "ddp/context.h"

static ddp_status count_devices(const struct comm_paths *paths, int *count, struct ddp_err *err)
{
    struct gpu gpu;
    return gpu_open(&gpu, paths->cudart, count, err);
}

static const struct cuda_entry entry = { DDP_VERSION, count_devices, &nccl_comm_ops, &staged_comm_ops };

DDP_API const struct cuda_entry *ddp_cuda_entry(void);
const struct cuda_entry *ddp_cuda_entry(void)
{
    return &entry;
}
