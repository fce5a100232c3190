/* attention.h -- causal self-attention of several heads: each token looks at itself and those before it. */
#ifndef WORKER_TRAIN_LAYERS_ATTENTION_H
#define WORKER_TRAIN_LAYERS_ATTENTION_H

#include "train/layers/real.h"

/* One row of exp(x - log(sum(exp(x)))). */

/* x becomes the softmax of scale x; *log_sum is log(sum(exp(scale x))). */
void softmax(real *x, real scale, size_t n, real *log_sum);

/* The same from the log_sum that softmax returned for this row. */
void softmax_again(real *x, real scale, real log_sum, size_t n);

/* Turn d, the gradient of the result p, into the gradient of softmax's input. */
void softmax_backward(real *d, const real *p, real scale, size_t n);

struct attention {
    size_t rows, length, heads, width; /* width of all heads together */
};

/* Numbers of scratch that both need: attention_scratch(length). */
size_t attention_scratch(size_t length);

/* qkv: rows x length x 3 width, queries, keys and values side by side, in each a head beside the other. y: rows x length x
 * width. Keeps log(sum(exp)) of each head's each row of scores: rows x heads x length numbers. */
void attention_forward(real *y, real *log_sum, const real *qkv, real *scratch, const struct attention *a);

/* From dy, overwrite the gradient of qkv. */
void attention_backward(real *dqkv, const real *dy, const real *qkv, const real *log_sum, real *scratch,
                        const struct attention *a);

/* --- cross entropy ---------------------------------------------------------------------------------------- */

/* The loss of logits against classes, with the softmax inside. */

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
