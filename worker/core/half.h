/* half.h -- conversion of f16 and bf16 to f32 and back, mostly with integer operations. The functions use
 * selections instead of branches, because the compiler can then vectorize loops. */
#ifndef WORKER_CORE_HALF_H
#define WORKER_CORE_HALF_H

#include "ddp/group.h"
#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float half_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline float bf16_to_f32(uint16_t h)
{
    return half_float((uint32_t)h << 16);
}

/* Convert f32 to bf16, rounded to the nearest value, ties to even. Values that are too large become infinity; a NaN
 * stays a NaN. */
static inline uint16_t f32_to_bf16(float value)
{
    /* the upper 16 bits are the result; adding 0x7fff and the lowest of these upper bits rounds to the nearest value,
     * ties to even */
    uint32_t bits = half_bits(value);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    /* Set a bit of the mantissa, because rounding could turn a NaN into infinity. */
    uint32_t quiet = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

/* Convert f16 to f32. Shift exponent and mantissa to their positions in f32, and add 112, the difference of the
 * exponents' biases. A subnormal f16 has the value m * 2^-24, where m is the mantissa: compute 2^-14 + m * 2^-24 in
 * f32, then subtract 2^-14. Flushing of subnormals (flush_subnormals.h) changes no result, here and in f32_to_f16. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t magnitude = ((uint32_t)h & 0x7fff) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t small = half_bits(half_float(magnitude + (113u << 23)) - 0x1p-14f);
    uint32_t finite = (h & 0x7fff) < 0x400 ? small : normal;
    uint32_t special = magnitude | 0x7f800000u; /* infinity and NaN */
    uint32_t sign = ((uint32_t)h & 0x8000) << 16;
    return half_float(sign | ((h & 0x7fff) >= 0x7c00 ? special : finite));
}

/* Convert f32 to f16, rounded to the nearest value, ties to even. 0x47800000 is 65536, above the range of f16. Values
 * that are too large become infinity; a NaN stays a NaN. Below 0x38800000, which is 2^-14, the result is subnormal. */
static inline uint16_t f32_to_f16(float value)
{
    uint32_t bits = half_bits(value), magnitude = bits & 0x7fffffffu;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00 | (magnitude >> 13 & 0x3ff) : 0x7c00;
    /* Adding 0.5 rounds correctly, because f32 numbers between 0.5 and 1 are 2^-24 apart, as are subnormal f16 numbers.
     * The bits of the sum minus the bits of 0.5 are the f16 number without its sign. */
    uint32_t small = half_bits(half_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t result = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? small : normal;
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)result;
}

/* Store `value`, rounded to the type, in element `i` of a block whose type is known only at run time. This is slow.
 * `value` must be in the range of the type. For u8, a larger value is allowed, and its low 8 bits are stored. */
static inline void one_value_store(void *block, size_t i, ddp_dtype dtype, double value)
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

/* Return element `i` of a block whose type is known only at run time, as a double. An i64 above 2^53 loses digits. */
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
