/* attention.h -- causal self-attention of several heads: each token looks at itself and those before it. */
#ifndef TRAIN_LAYERS_ATTENTION_H
#define TRAIN_LAYERS_ATTENTION_H

#include "train/layers/real.h"

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

#endif
