/* gelu.h -- GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
#ifndef TRAIN_LAYERS_GELU_H
#define TRAIN_LAYERS_GELU_H

#include "train/layers/real.h"

void gelu_forward(real *y, const real *x, size_t n);

/* d, the gradient of y, becomes that of x. */
void gelu_backward(real *d, const real *x, size_t n);

#endif
