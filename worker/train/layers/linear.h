/* linear.h -- y = x W^T + b, with the weight as [out][in] like torch's nn.Linear. */
#ifndef WORKER_TRAIN_LAYERS_LINEAR_H
#define WORKER_TRAIN_LAYERS_LINEAR_H

#include "train/layers/real.h"

/* A row of numbers for each token plus one for each place in the sequence. */

/* y: rows x length x n; `token` rows x length, each below the rows of `tokens`; `places` has at least `length` rows. */
void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n);

/* From dy, add to the gradient of the tokens' numbers (which a tied head has a part in, too), and overwrite that of the
 * places', all `max_length` rows. */
void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n);

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
