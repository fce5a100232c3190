/* part.h -- share elements out among ranks. Pure. */
#ifndef WORKER_CPU_PART_H
#define WORKER_CPU_PART_H

#include <stddef.h>

/* Bytes that no two writers share: two cache lines, because processors fetch neighbours in pairs. */
enum { PART_LINE = 128 };

/* The part [*at, *at + *n) of `total` elements that number `which` of `count` works on; parts end at lines. */
void part_of(size_t total, size_t element_bytes, int which, int count, size_t *at, size_t *n);

#endif
