/* activation.h -- what follows a linear layer, in place. Backward needs only what forward gave.
 *
 * `y` has rows x n values. Backward turns d, the gradient of y, into that of forward's input. */
#ifndef WORKER_TRAIN_LAYERS_ACTIVATION_H
#define WORKER_TRAIN_LAYERS_ACTIVATION_H

#include "train/layers/real.h"

/* GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */

void gelu_forward(real *y, const real *x, size_t n);

/* d, the gradient of y, becomes that of x. */
void gelu_backward(real *d, const real *x, size_t n);

/* --- shortcut --------------------------------------------------------------------------------------------- */

/* The input that a residual block adds to its result. Where the block halves the picture and has more
 * channels, every second pixel of every second line, and zeros for the new channels: option A of He et al.
 * 2015, without parameters. */

struct shortcut {
    size_t in, out, side; /* channels of x and y (in <= out), side of x */
    size_t stride;        /* side of y = side / stride, rounded up */
};

/* Add the shortcut of x to y, which has more channels: half of the extra ones are before the channels of x, half after
 * them, as in PyTorch programs with this option. */
void shortcut_forward(const struct shortcut *s, real *y, const real *x, size_t rows);

/* Overwrite dx. */
void shortcut_backward(const struct shortcut *s, real *dx, const real *dy, size_t rows);

/* A table for who computes elsewhere: which of them it is. */
enum activation_kind { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

struct activation {
    enum activation_kind kind;
    void (*forward)(real *y, size_t rows, size_t n);
    void (*backward)(real *d, const real *y, size_t rows, size_t n);
};

extern const struct activation activation_relu, activation_sigmoid, activation_log_softmax;

#endif
