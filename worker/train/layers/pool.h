/* pool.h -- the mean of each channel, as torch's nn.AdaptiveAvgPool2d(1). */
#ifndef TRAIN_LAYERS_POOL_H
#define TRAIN_LAYERS_POOL_H

#include "train/layers/real.h"

/* x: planes x n values; y: one for each plane. */
void pool_forward(real *y, const real *x, size_t planes, size_t n);

/* Overwrite dx. */
void pool_backward(real *dx, const real *dy, size_t planes, size_t n);

#endif
