/* conv_tile.h -- the inner loops of convolutions (conv.c): sums that stay in registers until they are complete. Each
 * loop is compiled for AVX-512, for AVX2 and for any processor, and the functions choose the version at run time. All
 * versions add in the same order, so all processors with fused multiply-add give the same bits. */
#ifndef TRAIN_LAYERS_CONV_TILE_H
#define TRAIN_LAYERS_CONV_TILE_H

#include "train/layers/real.h"

/* Each call of conv_tile_sum computes CONV_OUTS output channels. The length of a line of results is rounded up to a
 * multiple of CONV_LANES numbers. */
enum { CONV_OUTS = 8, CONV_LANES = 16 };

/* Arguments of conv_tile_sum, which computes CONV_OUTS channels of n consecutive pixels p. A tap is one weight of the
 * kernel.
 *
 *     y[o * pitch + p] = sum over channel c and tap t of  weight[(c * taps + t) * CONV_OUTS + o] * x[c * plane + at[t] + p]
 *
 * n must be a multiple of CONV_LANES. All elements of x in the formula must be readable. `at` is borrowed. */
struct conv_sum {
    size_t channels, plane, taps;
    const size_t *at;
};
void conv_tile_sum(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                   const real *weight);

/* Arguments of conv_tile_product, which computes for each channel o below `outs` and each i below `width`:
 *
 *     dw[o * pitch + i] += sum over line l and column k of  dy[o][l][k] * x[l * line + k * step + i]
 *
 * l and k are below `side`. `width` is a multiple of CONV_LANES. */
struct conv_product {
    size_t side, line, step;
    size_t outs, width, pitch;
};
void conv_tile_product(const struct conv_product *p, real *dw, const real *dy, const real *x);

#endif
