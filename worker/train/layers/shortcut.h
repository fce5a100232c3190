/* shortcut.h -- what a residual block adds to its result: its input. Where the block halves the picture and has more channels,
 * every second pixel of every second line, and zeros for the new channels: option A of He et al. 2015, without parameters. */
#ifndef TRAIN_LAYERS_SHORTCUT_H
#define TRAIN_LAYERS_SHORTCUT_H

#include "train/layers/real.h"

struct shortcut {
    size_t in, out, side; /* channels of x and y (in <= out), side of x */
    size_t stride;        /* side of y = side / stride, rounded up */
};

/* y += the shortcut of x. New channels lie half before and half behind the old ones, as in PyTorch programs with this option. */
void shortcut_forward(const struct shortcut *s, real *y, const real *x, size_t rows);

/* Overwrite dx. */
void shortcut_backward(const struct shortcut *s, real *dx, const real *dy, size_t rows);

#endif
