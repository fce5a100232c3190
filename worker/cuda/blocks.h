/* blocks.h -- device memory for ddp_shared_alloc, in both backends of libddp_cuda. Either every rank gets a block,
 * or no rank. */
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
    /* runs a call of the cpu communicator, with which the ranks exchange statuses */
    ddp_status (*run)(void *user, const struct call *call, struct ddp_err *err);
    void *user;
};

/* Implement comm_ops.shared_alloc and comm_ops.shared_free. */
ddp_status blocks_alloc(struct blocks *blocks, size_t bytes, void **out, struct ddp_err *err);
ddp_status blocks_free(struct blocks *blocks, void *memory, struct ddp_err *err);

/* Free all blocks; not collective. */
void blocks_close(struct blocks *blocks);

/* --- how the staged backend divides a call into chunks that fit into a slot --- */

/* A chunk: some elements of every rank's part. A buffer with one part has one row. A buffer with a part for each
 * rank has `world` rows. */
struct staged_chunk {
    size_t k;                 /* number of the chunk */
    uint64_t count;           /* elements of a row */
    size_t width, pitch;      /* bytes of a row; bytes between two rows in the caller's buffer */
    size_t in_rows, out_rows; /* number of rows; 0 if the call has no such buffer on this rank */
    const char *in;           /* first row in the caller's buffer */
    char *out;
};

/* Set *chunk to chunk `k` of a call with slots of `room` bytes. Return false if there is no such chunk. All ranks
 * divide a call in the same way, because the chunks depend only on values that are equal on all ranks. */
bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
                  struct staged_chunk *chunk);

#endif
