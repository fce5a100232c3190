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

#define BEST(name)                                                                     \
    (__builtin_cpu_supports("avx512f")                                 ? name##_avx512 \
     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_avx2   \
                                                                       : name##_plain)
#else
#define FOR(name) name##_plain
#define TARGET
#define BYTES 16
#define OUTS  8 /* 8 * 3 sums and their operands fit into the 32 vector registers of arm64 */
#include "train/layers/conv_tile_body.h"

#define BEST(name) name##_plain
#endif

void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight)
{
    BEST(sum)(s, y, pitch, n, x, weight);
}

void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x)
{
    BEST(product)(p, dw, dy, x);
}
