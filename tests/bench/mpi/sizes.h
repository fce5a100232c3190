/* sizes.h -- the sizes that both all-reduce programs measure, so that their results can be compared. The sizes are 4
 * KiB to 64 MiB of f32, summed in place. Each size is repeated often enough that a batch takes some milliseconds. */
#ifndef BENCH_ALLREDUCE_SIZES_H
#define BENCH_ALLREDUCE_SIZES_H

#include <stddef.h>

enum {
    SIZE_LEAST = 4 << 10,
    SIZE_MOST = 64 << 20,
    SIZE_FACTOR = 4,
    BATCH_BYTES = 64 << 20,
    BATCH_LEAST = 2,
    BATCH_MOST = 500
};

/* Return the number of calls in a batch. This number must be equal on all ranks, so it depends only on the size. */
static inline int batch_of(size_t bytes)
{
    size_t calls = BATCH_BYTES / bytes;
    return calls < BATCH_LEAST ? BATCH_LEAST : calls > BATCH_MOST ? BATCH_MOST : (int)calls;
}

#endif
