/* staged_plan.h -- how a call is cut into chunks that fit into a slot. Pure. */
#ifndef CUDA_STAGED_PLAN_H
#define CUDA_STAGED_PLAN_H

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

/* Chunk `k` of a call, with slots of `room` bytes; false: there are no more. Depends on nothing but what is the same on all ranks, so
 * all cut alike. */
bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
                  struct staged_chunk *chunk);

#endif
