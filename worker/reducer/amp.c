/* amp.c -- numbers of 16 bits to float32 and back, over arrays; see ddp/amp.h.
 *
 * One loop per type, free of branches, for the vectoriser: half.h only selects. */
#include "ddp/amp.h"

#include "core/flush_subnormals.h"
#include "core/half.h"

#include <math.h>
#include <string.h>

static ddp_status unknown(ddp_dtype dtype, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG, "mixed precision: type %s, expected f32, f16 or bf16",
                    ddp_dtype_name(dtype));
}

/* --- one loop for each type ----------------------------------------------------------------------------- */

static void widen_f16(const uint16_t *restrict from, float *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f16_to_f32(from[i]);
}

static void widen_bf16(const uint16_t *restrict from, float *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(from[i]);
}

static void round_f16(const float *restrict from, uint16_t *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f32_to_f16(from[i]);
}

static void round_bf16(const float *restrict from, uint16_t *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f32_to_bf16(from[i]);
}

/* memmove, as source and target may be the same array. */
ddp_status ddp_widen_f32(const void *from, ddp_dtype dtype, float *to, size_t n, struct ddp_err *err)
{
    if (dtype == DDP_F16)
        widen_f16(from, to, n);
    else if (dtype == DDP_BF16)
        widen_bf16(from, to, n);
    else if (dtype != DDP_F32)
        return unknown(dtype, err);
    else if (n > 0)
        memmove(to, from, n * sizeof(*to));
    return DDP_OK;
}

ddp_status ddp_round_f32(const float *from, void *to, ddp_dtype dtype, size_t n, struct ddp_err *err)
{
    if (dtype == DDP_F16)
        round_f16(from, to, n);
    else if (dtype == DDP_BF16)
        round_bf16(from, to, n);
    else if (dtype != DDP_F32)
        return unknown(dtype, err);
    else if (n > 0)
        memmove(to, from, n * sizeof(*from));
    return DDP_OK;
}

/* Looked at before the multiplication, as torch does: 1 / scale may hide an infinity, or make one.
 * Comparing bits instead of calling isfinite is what the vectoriser understands. */
static int multiply(float *x, float factor, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = half_bits(x[i]) & 0x7fffffffu;
        worst = magnitude > worst ? magnitude : worst;
        x[i] *= factor;
    }
    return worst >= 0x7f800000u;
}

/* The reciprocal in double, as torch does it: with float, a compiler may be content with an estimate. An infinite one, of a
 * scale that has backed off to next to nothing, makes numbers of no use from any gradient. */
int ddp_unscale(const void *from, ddp_dtype dtype, double scale, float *to, size_t n)
{
    FLUSH_SUBNORMALS(true);
    if (ddp_widen_f32(from, dtype, to, n, NULL) != DDP_OK)
        return -1;
    const float factor = (float)(1.0 / scale);
    return multiply(to, factor, n) | !isfinite(factor);
}
