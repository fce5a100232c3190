/* softmax.h -- one row of exp(x - log(sum(exp(x)))). */
#ifndef TRAIN_LAYERS_SOFTMAX_H
#define TRAIN_LAYERS_SOFTMAX_H

#include "train/layers/real.h"

/* x becomes the softmax of scale x; *log_sum is log(sum(exp(scale x))). */
void softmax(real *x, real scale, size_t n, real *log_sum);

/* The same from the log_sum of this row, as it was told before. */
void softmax_again(real *x, real scale, real log_sum, size_t n);

/* d, the gradient of softmax's result p, becomes that of what it was given. */
void softmax_backward(real *d, const real *p, real scale, size_t n);

#endif
