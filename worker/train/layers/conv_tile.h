/* conv_tile.h -- the inner loops of convolutions (conv.c): sums that stay in registers until they are complete.
 *
 * The loops are compiled for several kinds of processors, and the functions choose the kind at run time. The order of
 * each sum does not depend on the width of registers. All processors except old x86 ones round a product and its sum
 * once, so these processors give the same bits. */
#ifndef TRAIN_LAYERS_CONV_TILE_H
#define TRAIN_LAYERS_CONV_TILE_H

#include "train/layers/real.h"

/* CONV_OUTS channels of a result are summed together. The numbers of a line are rounded up to CONV_LANES. */
enum { CONV_OUTS = 8, CONV_LANES = 16 };

/* CONV_OUTS results at each of n consecutive places:
 *
 *     y[o * pitch + p] = sum over channel c and tap t of  weight[(c * taps + t) * CONV_OUTS + o] * x[c * plane + at[t] + p]
 *
 * n is a multiple of CONV_LANES, and x must be readable that far. */
struct conv_sum {
    size_t channels, plane, taps;
    const size_t *at;
};
void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight);

/* Sums over the places of a square of `side` lines. dy has `outs` channels of side * side values. Each place in x is
 * followed by `width` numbers (a multiple of CONV_LANES):
 *
 *     dw[o * pitch + i] += sum over line l and column k of  dy[o][l][k] * x[l * line + k * step + i] */
struct conv_product {
    size_t side, line, step;
    size_t outs, width, pitch;
};
void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x);

#endif
