/* blocks.h -- what both backends of libddp_cuda share: device memory that ddp_shared_alloc has handed out. Every rank
 * gets a block, or none does. */
#ifndef WORKER_CUDA_BLOCKS_H
#define WORKER_CUDA_BLOCKS_H

#include "core/call.h"
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

/* How the staged backend cuts a call into chunks that fit into a slot. */

/* Some elements of every rank's part. Buffers of one part have one row, those with a part for each rank have `world`. */
struct staged_chunk {
    size_t k;            /* its number */
    uint64_t count;      /* elements of each row */
    size_t width, pitch; /* bytes of a row in the slot, and the distance of rows in the caller's buffer */
    size_t in_rows, out_rows; /* 0: this rank passes no such buffer */
    const char *in;           /* the first row */
    char *out;
};

/* Return chunk `k` of a call, with slots of `room` bytes; false: there are no more. Depends only on values that are
 * the same on all ranks, so all cut alike. */
bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
                  struct staged_chunk *chunk);

#endif
