/* linear.h -- y = x W^T + b, with the weight as [out][in] like torch's nn.Linear. */
#ifndef TRAIN_LAYERS_LINEAR_H
#define TRAIN_LAYERS_LINEAR_H

#include "train/layers/real.h"

/* y: rows x out. `bias` may be NULL. */
void linear_forward(real *y, const real *x, const real *weight, const real *bias, size_t rows, size_t in,
                    size_t out);

/* y = before + x W^T + b; `before` may be y. */
void linear_forward_add(real *y, const real *before, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t in, size_t out);

/* From dy, overwrite the gradients of weight and bias; dbias may be NULL. */
void linear_backward_params(real *dweight, real *dbias, const real *dy, const real *x, size_t rows, size_t in,
                            size_t out);

/* From dy, overwrite the gradient of x. */
void linear_backward_input(real *dx, const real *dy, const real *weight, size_t rows, size_t in, size_t out);

#endif
