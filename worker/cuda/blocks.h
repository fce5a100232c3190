/* blocks.h -- device memory for ddp_shared_alloc, in both backends of libddp_cuda. Either every rank gets a block,
 * or no rank. */
#ifndef WORKER_CUDA_BLOCKS_H
#define WORKER_CUDA_BLOCKS_H

#include "core/call.h"
#include "core/backend.h"
#include "cuda/gpu.h"

extern const struct comm_ops nccl_comm_ops;

struct block;

struct blocks {
    const struct gpu *gpu; /* borrowed */
    struct block *first;
    /* runs a call of the cpu communicator, with which the ranks exchange statuses */
    ddp_status (*run)(void *user, const struct call *call, struct ddp_err *err);
    void *user;
};

/* Implement comm_ops.shared_alloc and comm_ops.shared_free. */
ddp_status blocks_alloc(struct blocks *blocks, size_t bytes, void **out, struct ddp_err *err);
ddp_status blocks_free(struct blocks *blocks, void *memory, struct ddp_err *err);

/* Free all blocks; not collective. */
void blocks_close(struct blocks *blocks);

#endif
