/* layers.h -- the layers of the models on the CPU: each has a forward and a backward function.
 *
 * All functions are pure and work on arrays of the caller. A batch has `rows` rows; `n` is the size of a row. */
#ifndef WORKER_TRAIN_LAYERS_LAYERS_H
#define WORKER_TRAIN_LAYERS_LAYERS_H

#include "train/layers/real.h"

/* --- embedding and linear -------------------------------------------------------------------------------- */

/* A linear layer is y = x W^T + b, with the weight as [out][in] as in torch's nn.Linear. An embedding has a row of
 * numbers for each token and one for each place in the sequence, and adds the two. */

/* Compute y: rows x length x n. `token` is rows x length; each token is the number of a row of `tokens`. `places` has
 * at least `length` rows. */
void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n);

/* Add to the gradient of `tokens`, to which a tied head adds too. Overwrite the gradient of `places`, all
 * `max_length` rows. */
void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n);

/* Compute y: rows x out. `bias` may be NULL. */
void linear_forward(real *y, const real *x, const real *weight, const real *bias, size_t rows, size_t in,
                    size_t out);

/* Compute y = before + x W^T + b; `before` may be y. */
void linear_forward_add(real *y, const real *before, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t in, size_t out);

/* Overwrite the gradients of weight and bias; dbias may be NULL. */
void linear_backward_params(real *dweight, real *dbias, const real *dy, const real *x, size_t rows, size_t in,
                            size_t out);

/* Overwrite the gradient of x. */
void linear_backward_input(real *dx, const real *dy, const real *weight, size_t rows, size_t in, size_t out);

/* --- activations and the shortcut ------------------------------------------------------------------------ */

/* Activations, which follow a linear layer and work in place. Backward needs only the output of forward.
 *
 * `y` has rows x n values. Backward turns d, the gradient of y, into the gradient of forward's input. */

/* Compute GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */

void gelu_forward(real *y, const real *x, size_t n);

/* Turn d, the gradient of y, into the gradient of x. */
void gelu_backward(real *d, const real *x, size_t n);

/* --- shortcut --------------------------------------------------------------------------------------------- */

/* The input that a residual block adds to its result. If the block halves the picture and has more channels, every
 * second pixel of every second line is used, and the new channels get zeros: option A of He et al. 2015, without
 * parameters. */

struct shortcut {
    size_t in, out, side; /* channels of x and y (in <= out), side of x */
    size_t stride;        /* side of y = side / stride, rounded up */
};

/* Add the shortcut of x to y, which has more channels. Half of the new channels come before the channels of x and
 * half after them, as in PyTorch programs with this option. */
void shortcut_forward(const struct shortcut *s, real *y, const real *x, size_t rows);

/* Overwrite dx with the shortcut's gradient. */
void shortcut_backward(const struct shortcut *s, real *dx, const real *dy, size_t rows);

/* The activations. Devices have their own functions and use the kind. */
enum activation_kind { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

struct activation {
    enum activation_kind kind;
    void (*forward)(real *y, size_t rows, size_t n);
    void (*backward)(real *d, const real *y, size_t rows, size_t n);
};

extern const struct activation activation_relu, activation_sigmoid, activation_log_softmax;

/* --- layer norm ------------------------------------------------------------------------------------------ */

/* torch's nn.LayerNorm: y = (x - mean) / sqrt(variance + 1e-5) weight + bias, for each row. */

/* Normalize x into y, rows x n. Mean and 1 / sqrt(variance + 1e-5) of each row are stored for backward. */
void layer_norm_forward(real *y, real *mean, real *scale, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t n);

/* Overwrite the gradients of weight and bias, and add the gradient of x to dx, because x is also used beside the
 * layer. */
void layer_norm_backward(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                         const real *mean, const real *scale, const real *weight, size_t rows, size_t n);

/* --- attention and cross entropy ------------------------------------------------------------------------- */

/* Causal self-attention of several heads: each token sees itself and the tokens before it. */

/* Softmax of one row: exp(x - log(sum(exp(x)))). */

/* Replace x by the softmax of scale x; *log_sum becomes log(sum(exp(scale x))). */
void softmax(real *x, real scale, size_t n, real *log_sum);

/* Compute the same softmax from the log_sum that softmax returned for this row. */
void softmax_again(real *x, real scale, real log_sum, size_t n);

/* Turn d, the gradient of the result p, into the gradient of softmax's input. */
void softmax_backward(real *d, const real *p, real scale, size_t n);

struct attention {
    size_t rows, length, heads, width; /* width of all heads together */
};

/* Return the numbers of scratch that forward and backward need. */
size_t attention_scratch(size_t length);

/* Compute attention. qkv: rows x length x 3 width: queries, keys and values, each of the three with one head after
 * the other. y: rows x length x width. log_sum gets log(sum(exp)) of each row of scores: rows x heads x length
 * numbers. */
void attention_forward(real *y, real *log_sum, const real *qkv, real *scratch, const struct attention *a);

/* Overwrite the gradient of qkv. */
void attention_backward(real *dqkv, const real *dy, const real *qkv, const real *log_sum, real *scratch,
                        const struct attention *a);

/* --- cross entropy ---------------------------------------------------------------------------------------- */

/* The loss of logits against classes, with the softmax included. */

/* Return log(sum(exp(z))). The largest z is subtracted first, so that nothing overflows. */
real log_sum_exp(const real *z, size_t n);

/* Return the sum of the losses of rows whose weight is not 0, and overwrite d with the gradient of sum(weight x
 * loss). `z`: logits, rows x length x n; `target`: the class of each of rows x length; `weight`: one number for each
 * row. d may be z, or NULL for the loss alone. */
double cross_entropy(real *d, const real *z, const int32_t *target, const real *weight, size_t rows,
                     size_t length, size_t n);

/* Compute the same loss for many classes. z becomes the gradient. This function uses exp of lanes.h, so its bits
 * differ from cross_entropy's. */
double cross_entropy_wide(real *z, const int32_t *target, const real *weight, size_t rows, size_t length,
                          size_t n);

/* --- convolution and pooling ----------------------------------------------------------------------------- */

/* Convolutions of square pictures without bias, as torch's nn.Conv2d: channels x side x side, padded with zeros.
 *
 * Weights are out x in x kernel x kernel. `columns` is scratch for conv_columns() values; its contents do not matter.
 * Pictures are processed one by one, so the bits of a picture's result do not depend on the number of pictures. */

enum { CONV_MOST_KERNEL = 8 };

struct conv {
    size_t in, out, side;           /* channels of x and y, side of x */
    size_t kernel, stride, padding; /* kernel <= CONV_MOST_KERNEL */
};

/* Return the side of y. */
size_t conv_side(const struct conv *c);
size_t conv_columns(const struct conv *c);

/* Return the number of products and sums of a forward pass for one picture. */
double conv_flops(const struct conv *c);

void conv_forward(const struct conv *c, real *y, const real *x, const real *weight, size_t rows,
                  real *columns);

/* Overwrite the gradient of the weight. Without rows the gradient is zero. */
void conv_backward_weight(const struct conv *c, real *dweight, const real *dy, const real *x, size_t rows,
                          real *columns);

/* Overwrite the gradient of x (add = 0), or add to it (add = 1). */
void conv_backward_input(const struct conv *c, real *dx, const real *dy, const real *weight, size_t rows,
                         int add, real *columns);

/* --- pool ------------------------------------------------------------------------------------------------- */

/* The mean of each channel, as torch's nn.AdaptiveAvgPool2d(1). */

/* Compute y, one value for each plane, from x: planes x n values. */
void pool_forward(real *y, const real *x, size_t planes, size_t n);

/* Overwrite dx with the gradient of the mean. */
void pool_backward(real *dx, const real *dy, size_t planes, size_t n);

#endif
