/* subnormals.h -- numbers around the smallest normal one, and the mode of this thread (worker/core/flush_subnormals.h), for tests. */
#ifndef SUBNORMALS_H
#define SUBNORMALS_H

#include "core/flush_subnormals.h"

#include "ddp/group.h"

#include <string.h>

enum { KEEP = 0, FLUSH = FLUSH_SUBNORMALS_BITS };

static inline uint64_t subnormals_mode(void)
{
    return flush_subnormals_read() & FLUSH_SUBNORMALS_BITS;
}

/* Does arithmetic of this thread flush now? Asked of the processor, not of its control word. */
static inline bool subnormals_vanish(void)
{
    volatile float smallest = 0x1p-126f;
    volatile float half = smallest * 0.5f;
    uint32_t bits;
    memcpy(&bits, (const void *)&half, sizeof(bits));
    return bits == 0;
}

/* Numbers of either sign in turn: subnormal, zero, the smallest normal ones, and near 1. No operation makes them infinite. */
static inline uint32_t subnormals_f32(uint32_t i)
{
    static const uint32_t exponents[] = { 0, 0, 1, 2, 0, 126 };
    const uint32_t mixed = i * 2654435761u;
    return (mixed & 1) << 31 | exponents[i % 6] << 23 | (i % 7 == 3 ? 0 : mixed >> 9);
}

/* The same of each type of floats; n elements. */
static inline void subnormals_fill(void *to, ddp_dtype dtype, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t f32 = subnormals_f32((uint32_t)i + seed * 1000);
        if (dtype == DDP_F32)
            ((uint32_t *)to)[i] = f32;
        else if (dtype == DDP_BF16)
            ((uint16_t *)to)[i] = (uint16_t)(f32 >> 16);
        else if (dtype == DDP_F16)
            ((uint16_t *)to)[i] = (uint16_t)(f32 >> 16 & 0x83ff);
        else
            ((uint64_t *)to)[i] = (uint64_t)(f32 & 0x80000000u) << 32 | (uint64_t)(f32 >> 23 & 3) << 52 |
                                  (uint64_t)(f32 & 0x7fffffu) << 29;
    }
}

#endif
