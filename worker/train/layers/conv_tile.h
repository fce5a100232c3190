/* conv_tile.h -- the inner loops of convolutions (conv.c): sums that stay in registers until they are complete.
 *
 * The loops are compiled for several kinds of processors, and the functions choose the kind at run time. The order
 * of additions is the same for all kinds. All processors with fused multiply-add give the same bits; only old x86
 * processors lack this instruction. */
#ifndef TRAIN_LAYERS_CONV_TILE_H
#define TRAIN_LAYERS_CONV_TILE_H

#include "train/layers/real.h"

/* CONV_OUTS channels are summed together. A line of results is rounded up to a multiple of CONV_LANES numbers. */
enum { CONV_OUTS = 8, CONV_LANES = 16 };

/* Sums for CONV_OUTS channels at n consecutive places:
 *
 *     y[o * pitch + p] = sum over channel c and tap t of  weight[(c * taps + t) * CONV_OUTS + o] * x[c * plane + at[t] + p]
 *
 * n is a multiple of CONV_LANES, and all these elements of x must be readable. */
struct conv_sum {
    size_t channels, plane, taps;
    const size_t *at;
};
void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight);

/* Sums over all places of a square of side x side places. dy has `outs` channels. i runs over `width` numbers, a
 * multiple of CONV_LANES:
 *
 *     dw[o * pitch + i] += sum over line l and column k of  dy[o][l][k] * x[l * line + k * step + i] */
struct conv_product {
    size_t side, line, step;
    size_t outs, width, pitch;
};
void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x);

#endif
