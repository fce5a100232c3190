/* part.h -- share elements out among ranks. Pure. */
#ifndef WORKER_CPU_PART_H
#define WORKER_CPU_PART_H

#include <stddef.h>

/* Bytes that no two writers share: two cache lines, because processors fetch neighbours in pairs. */
enum { PART_LINE = 128 };

/* Compute the part [*at, *at + *n) of `total` elements that number `which` of `count` works on. Parts end at
 * PART_LINE, so that two ranks never write into one cache line. Division first, because total * which could overflow.
 * The remainder is spread, so parts differ by one line at most. */
static inline void part_of(size_t total, size_t element_bytes, int which, int count, size_t *at, size_t *n)
{
    size_t line = PART_LINE / element_bytes;
    size_t lines = (total + line - 1) / line, w = (size_t)count, r = (size_t)which;
    size_t from = lines / w * r + lines % w * r / w, to = lines / w * (r + 1) + lines % w * (r + 1) / w;

    *at = from * line < total ? from * line : total;
    *n = (to * line < total ? to * line : total) - *at;
}

#endif
