/* one_value.h -- one element of a block whose type is known when the program runs: for those who look at values one
 * by one, and need not be fast. Pure. */
#ifndef WORKER_CORE_ONE_VALUE_H
#define WORKER_CORE_ONE_VALUE_H

#include "ddp/group.h"
#include "core/half.h"

/* Rounded, or cut, as the type wants it. It must be in its range; of a byte's the lowest bits are kept. */
static inline void one_value_put(void *block, size_t i, ddp_dtype dtype, double value)
{
    switch (dtype) {
    case DDP_F32:
        ((float *)block)[i] = (float)value;
        break;
    case DDP_F64:
        ((double *)block)[i] = value;
        break;
    case DDP_F16:
        ((uint16_t *)block)[i] = f32_to_f16((float)value);
        break;
    case DDP_BF16:
        ((uint16_t *)block)[i] = f32_to_bf16((float)value);
        break;
    case DDP_I32:
        ((int32_t *)block)[i] = (int32_t)value;
        break;
    case DDP_I64:
        ((int64_t *)block)[i] = (int64_t)value;
        break;
    case DDP_U8:
        ((uint8_t *)block)[i] = (uint8_t)(int64_t)value;
        break;
    }
}

static inline double one_value_get(const void *block, size_t i, ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_F32:
        return ((const float *)block)[i];
    case DDP_F64:
        return ((const double *)block)[i];
    case DDP_F16:
        return f16_to_f32(((const uint16_t *)block)[i]);
    case DDP_BF16:
        return bf16_to_f32(((const uint16_t *)block)[i]);
    case DDP_I32:
        return ((const int32_t *)block)[i];
    case DDP_I64:
        return (double)((const int64_t *)block)[i];
    case DDP_U8:
        break;
    }
    return ((const uint8_t *)block)[i];
}

#endif
