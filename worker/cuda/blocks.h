/* blocks.h -- what both backends of libddp_cuda share: device memory that ddp_shared_alloc has handed out. Every rank
 * gets its own, or none does. */
#ifndef WORKER_CUDA_BLOCKS_H
#define WORKER_CUDA_BLOCKS_H

#include "core/backend.h"
#include "cuda/gpu.h"

extern const struct comm_ops nccl_comm_ops, staged_comm_ops;

struct block;

struct blocks {
    const struct gpu *gpu; /* borrowed */
    struct block *first;
    /* A call of the cpu communicator, by which the ranks agree. */
    ddp_status (*run)(void *user, const struct call *call, struct ddp_err *err);
    void *user;
};

/* As comm_ops.shared_alloc and shared_free. */
ddp_status blocks_alloc(struct blocks *blocks, size_t bytes, void **out, struct ddp_err *err);
ddp_status blocks_free(struct blocks *blocks, void *memory, struct ddp_err *err);

/* Free all; not collective. */
void blocks_close(struct blocks *blocks);

#endif
