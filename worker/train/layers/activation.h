/* activation.h -- what follows a linear layer, in place. Backward needs only what forward gave.
 *
 * `y` has rows x n values. Backward turns d, the gradient of y, into that of forward's input. */
#ifndef TRAIN_LAYERS_ACTIVATION_H
#define TRAIN_LAYERS_ACTIVATION_H

#include "train/layers/real.h"

/* A table for who computes elsewhere: which of them it is. */
enum activation_kind { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

struct activation {
    enum activation_kind kind;
    void (*forward)(real *y, size_t rows, size_t n);
    void (*backward)(real *d, const real *y, size_t rows, size_t n);
};

extern const struct activation activation_relu, activation_sigmoid, activation_log_softmax;

#endif
