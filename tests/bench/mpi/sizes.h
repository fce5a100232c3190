/* sizes.h -- the sizes that both all-reduce programs measure: 4 KiB to 64 MiB of f32. A batch of calls takes some
 * milliseconds. */
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

/* Return the number of calls in a batch. It must be equal on all ranks. */
static inline int batch_of(size_t bytes)
{
    size_t calls = BATCH_BYTES / bytes;
    return calls < BATCH_LEAST ? BATCH_LEAST : calls > BATCH_MOST ? BATCH_MOST : (int)calls;
}

#endif
