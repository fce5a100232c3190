/* staged.h -- how the staged backend cuts a call into chunks that fit into a slot. */
#ifndef WORKER_CUDA_STAGED_H
#define WORKER_CUDA_STAGED_H

#include "core/call.h"

/* Some elements of every rank's part. Buffers of one part have one row, those with a part for each rank have `world`. */
struct staged_chunk {
    size_t k;                 /* its number */
    uint64_t count;           /* elements of each row */
    size_t width, pitch;      /* bytes of a row in the slot, and from row to row in the caller's buffer */
    size_t in_rows, out_rows; /* 0: this rank passes no such buffer */
    const char *in;           /* the first row */
    char *out;
};

/* Chunk `k` of a call, with slots of `room` bytes; false: there are no more. Depends on nothing but what is the same
 * on all ranks, so all cut alike. */
bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
                  struct staged_chunk *chunk);

#endif
