/* layers.h -- sizes of the layers, and pure functions that several layers share on the CPU. compute.h declares the
 * layers themselves. */
#ifndef WORKER_TRAIN_LAYERS_LAYERS_H
#define WORKER_TRAIN_LAYERS_LAYERS_H

#include "train/layers/real.h"

/* The first parameter of every function of a layer. The functions for the CPU do not use this parameter. */
#define ON_CPU struct compute *on_cpu __attribute__((unused))

/* The sizes of y = x W^T: x has `rows` rows of `in` numbers, and y has `rows` rows of `out` numbers. */
struct linear {
    size_t rows, in, out;
};

/* In-place activations. The backward pass needs only the output. */
enum activation { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

/* The shortcut: the input that a residual block adds to its result. If the block halves the picture and has more
 * channels, the shortcut uses every second pixel of every second line. It adds channels of zeros (option A of He et al.
 * 2015). As in PyTorch programs with option A, half of these zero channels come before the input's channels. */
struct shortcut {
    size_t in, out, side; /* channels of x; channels of y, at least `in`; side of x */
    size_t stride;        /* the side of y is side / stride, rounded up */
};

/* Causal self-attention with several heads: each token uses only itself and earlier tokens. */
struct attention {
    size_t rows, length, heads, width; /* `width` = `heads` * width of one head */
};

/* Return the number of scratch elements that forward and backward need, on the CPU or on a device. */
size_t attention_scratch(const struct attention *a);

/* Return log(sum(exp(z))). Subtract the largest z first, so that nothing overflows. */
real log_sum_exp(const real *z, size_t n);

/* Convolutions of square pictures, as in torch's nn.Conv2d(in, out, 3, stride, padding=1, bias=False). A picture has
 * channels x side x side numbers and is padded with zeros. A weight has [out][in][3][3] numbers. Pictures are
 * processed one by one, so the result of a picture does not depend on the other pictures. */

enum { CONV_KERNEL = 3, CONV_PADDING = 1, CONV_TAPS = CONV_KERNEL * CONV_KERNEL };

struct conv {
    size_t in, out, side; /* channels of x; channels of y; side of x, at least 2 */
    size_t stride;        /* 1 or 2 */
};

size_t conv_side(const struct conv *c);    /* returns the side of y */
size_t conv_columns(const struct conv *c); /* returns the number of scratch elements for any pass */

/* Return the number of multiplications and additions in a forward pass for one picture. */
double conv_flops(const struct conv *c);

#endif
