/* conv_tile.c -- see conv_tile.h.
 *
 * The inner loop computes OUTS channels at a time. For each channel, three registers contain the sums of consecutive
 * pixels. Each loaded number is then used in several sums, so loads do not limit the speed. */
#include "train/layers/conv_tile.h"

#ifdef __x86_64__
#define FOR(name) name##_avx512
#define TARGET    __attribute__((target("avx512f")))
#define BYTES     64
#define OUTS      8
#include "train/layers/conv_tile_body.h"

#define FOR(name) name##_avx2
#define TARGET    __attribute__((target("avx2,fma")))
#define BYTES     32
#define OUTS      4
#include "train/layers/conv_tile_body.h"

/* This version is for old x86 processors. The Makefile allows fused multiply-add in this file, but these processors
 * lack the instruction. So their results may have other bits. */
#define FOR(name) name##_plain
#define TARGET
#define BYTES 16
#define OUTS  4
#include "train/layers/conv_tile_body.h"

void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight)
{
    if (__builtin_cpu_supports("avx512f"))
        sum_avx512(s, y, pitch, n, x, weight);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        sum_avx2(s, y, pitch, n, x, weight);
    else
        sum_plain(s, y, pitch, n, x, weight);
}

void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x)
{
    if (__builtin_cpu_supports("avx512f"))
        product_avx512(p, dw, dy, x);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        product_avx2(p, dw, dy, x);
    else
        product_plain(p, dw, dy, x);
}
#else
#define FOR(name) name##_plain
#define TARGET
#define BYTES 16
#define OUTS  8 /* 8 * 3 sums and their operands fit into the 32 vector registers of arm64 */
#include "train/layers/conv_tile_body.h"

void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight)
{
    sum_plain(s, y, pitch, n, x, weight);
}

void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x)
{
    product_plain(p, dw, dy, x);
}
#endif
