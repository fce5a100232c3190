/* conv.h -- convolutions of square pictures, without bias, as torch's nn.Conv2d: channels x side x side, padded with zeros.
 *
 * Weights are out x in x kernel x kernel. `columns` is memory for conv_columns() values; what is in it before does not matter.
 * Picture after picture, so the bits of one do not depend on how many there are. */
#ifndef WORKER_TRAIN_LAYERS_CONV_H
#define WORKER_TRAIN_LAYERS_CONV_H

#include "train/layers/real.h"

enum { CONV_MOST_KERNEL = 8 };

struct conv {
    size_t in, out, side;           /* channels of x and y, side of x */
    size_t kernel, stride, padding; /* kernel <= CONV_MOST_KERNEL */
};

/* The side of y. */
size_t conv_side(const struct conv *c);
size_t conv_columns(const struct conv *c);

/* Products and sums of a forward pass for one picture. */
double conv_flops(const struct conv *c);

void conv_forward(const struct conv *c, real *y, const real *x, const real *weight, size_t rows,
                  real *columns);

/* From dy, overwrite the gradient of the weight; zero when there are no rows. */
void conv_backward_weight(const struct conv *c, real *dweight, const real *dy, const real *x, size_t rows,
                          real *columns);

/* From dy, overwrite the gradient of x (add = 0), or add to it (add = 1). */
void conv_backward_input(const struct conv *c, real *dx, const real *dy, const real *weight, size_t rows,
                         int add, real *columns);

/* --- pool ------------------------------------------------------------------------------------------------- */

/* The mean of each channel, as torch's nn.AdaptiveAvgPool2d(1). */

/* x: planes x n values; y: one for each plane. */
void pool_forward(real *y, const real *x, size_t planes, size_t n);

/* Overwrite dx. */
void pool_backward(real *dx, const real *dy, size_t planes, size_t n);

#endif
