/* layer_norm.h -- y = (x - mean) / sqrt(variance + 1e-5) weight + bias, each row for itself; torch's nn.LayerNorm. */
#ifndef TRAIN_LAYERS_LAYER_NORM_H
#define TRAIN_LAYERS_LAYER_NORM_H

#include "train/layers/real.h"

/* x, y: rows x n. Keeps mean and 1 / sqrt(variance + 1e-5) of each row for backward. */
void layer_norm_forward(real *y, real *mean, real *scale, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t n);

/* From dy, overwrite the gradients of weight and bias, and add x's to dx: x goes on beside the layer, too. */
void layer_norm_backward(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                         const real *mean, const real *scale, const real *weight, size_t rows, size_t n);

#endif
