/* cross_entropy.h -- the loss of logits against classes, with the softmax inside. */
#ifndef TRAIN_LAYERS_CROSS_ENTROPY_H
#define TRAIN_LAYERS_CROSS_ENTROPY_H

#include "train/layers/real.h"

/* log(sum(exp(z))), with the largest taken out first so that nothing overflows. */
real log_sum_exp(const real *z, size_t n);

/* `z` are logits, rows x length x n; `target` the class of each of the rows x length, `weight` one number for each row.
 * Overwrites d with the gradient of sum(weight x loss) and returns the sum of the losses of rows whose weight is not 0. d may
 * be z itself, or NULL for the loss alone. */
double cross_entropy(real *d, const real *z, const int32_t *target, const real *weight, size_t rows,
                     size_t length, size_t n);

/* The same for many classes, with d in place of z. Its exp is that of lanes.h, so the bits are others. */
double cross_entropy_wide(real *z, const int32_t *target, const real *weight, size_t rows, size_t length,
                          size_t n);

#endif
