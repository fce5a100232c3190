/* layers.h -- the layers of the models on the CPU: each has a forward and a backward function.
 *
 * All functions are pure and work on the caller's arrays. A batch has `rows` rows of `n` numbers. */
#ifndef WORKER_TRAIN_LAYERS_LAYERS_H
#define WORKER_TRAIN_LAYERS_LAYERS_H

#include "train/layers/real.h"

/* --- embedding and linear -------------------------------------------------------------------------------- */

/* A linear layer is y = x W^T + b, with the weight as [out][in] as in torch's nn.Linear. An embedding adds two rows
 * of numbers: the row of the token and the row of its place in the sequence. */

/* Compute y, which has rows x length x n numbers. Each of the rows x length tokens is the number of a row of
 * `tokens`. `places` has at least `length` rows. */
void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n);

/* Add to dtokens, because the head may use the same weight and adds its gradient first. Overwrite all `max_length`
 * rows of the gradient of `places`. */
void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n);

/* Compute y, which has rows x out numbers. `bias` may be NULL. */
void linear_forward(real *y, const real *x, const real *weight, const real *bias, size_t rows, size_t in,
                    size_t out);

/* Compute y = before + x W^T + b. `before` may be y. */
void linear_forward_add(real *y, const real *before, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t in, size_t out);

/* Overwrite the gradients of weight and bias. dbias may be NULL. */
void linear_backward_params(real *dweight, real *dbias, const real *dy, const real *x, size_t rows, size_t in,
                            size_t out);

/* Overwrite the gradient of x. */
void linear_backward_input(real *dx, const real *dy, const real *weight, size_t rows, size_t in, size_t out);

/* --- activations and the shortcut ------------------------------------------------------------------------ */

/* Activations follow a linear layer.
 *
 * GELU's forward pass writes to another array, and its backward pass needs the input x. All other activations work
 * in place on rows x n numbers, and their backward pass needs only the output y. Each backward function turns d,
 * the gradient of the output, into the gradient of the input. */

/* Compute GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */

void gelu_forward(real *y, const real *x, size_t n);

/* Turn d, the gradient of y, into the gradient of x. */
void gelu_backward(real *d, const real *x, size_t n);

/* --- shortcut --------------------------------------------------------------------------------------------- */

/* The shortcut: the input that a residual block adds to its result. If the block halves the picture and has more
 * channels, the shortcut uses every second pixel of every second line, and the new channels get zeros (option A of
 * He et al. 2015). */

struct shortcut {
    size_t in, out, side; /* channels of x and y (in <= out), side of x */
    size_t stride;        /* the side of y is side / stride, rounded up */
};

/* Add the shortcut of x to y. If y has more channels, half of the new channels come before the channels of x and half
 * after them, as in PyTorch programs with option A. */
void shortcut_forward(const struct shortcut *s, real *y, const real *x, size_t rows);

/* Overwrite dx with the shortcut's gradient. */
void shortcut_backward(const struct shortcut *s, real *dx, const real *dy, size_t rows);

/* Kinds of activations, by which a device chooses its kernel. */
enum activation_kind { ACTIVATION_RELU, ACTIVATION_SIGMOID, ACTIVATION_LOG_SOFTMAX };

struct activation {
    enum activation_kind kind;
    void (*forward)(real *y, size_t rows, size_t n);
    void (*backward)(real *d, const real *y, size_t rows, size_t n);
};

extern const struct activation activation_relu, activation_sigmoid, activation_log_softmax;

/* --- layer norm ------------------------------------------------------------------------------------------ */

/* torch's nn.LayerNorm: y = (x - mean) / sqrt(variance + 1e-5) weight + bias, for each row. */

/* Normalize x into y. Store the mean of each row, and 1 / sqrt(variance + 1e-5) as `scale`, for backward. */
void layer_norm_forward(real *y, real *mean, real *scale, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t n);

/* Overwrite the gradients of weight and bias. Add the gradient of x to dx, which already has the gradient of the
 * shortcut. */
void layer_norm_backward(real *dx, real *dweight, real *dbias, const real *dy, const real *x,
                         const real *mean, const real *scale, const real *weight, size_t rows, size_t n);

/* --- attention and cross entropy ------------------------------------------------------------------------- */

/* Causal self-attention with several heads: each token uses only itself and earlier tokens. */

struct attention {
    size_t rows, length, heads, width; /* width: sum over all heads */
};

/* Return the number of scratch elements that forward and backward need. */
size_t attention_scratch(size_t length);

/* Compute y, which has rows x length x width numbers. qkv has rows x length x 3 width numbers: for each token its
 * queries, keys and values, each with one head after another. log_sum has rows x heads x length numbers, for
 * backward. */
void attention_forward(real *y, real *log_sum, const real *qkv, real *scratch, const struct attention *a);

/* Overwrite the gradient of qkv. */
void attention_backward(real *dqkv, const real *dy, const real *qkv, const real *log_sum, real *scratch,
                        const struct attention *a);

/* --- cross entropy ---------------------------------------------------------------------------------------- */

/* The cross-entropy loss of logits, which includes the softmax. */

/* Return log(sum(exp(z))). Subtract the largest z first, so that nothing overflows. */
real log_sum_exp(const real *z, size_t n);

/* Return the sum of the losses of all rows whose weight is not 0. Overwrite d with the gradient of sum(weight x
 * loss). `z` has rows x length x n logits, `target` the class of each of rows x length targets, and `weight` one
 * number for each row. d may be z, or NULL if only the loss is needed. */
double cross_entropy(real *d, const real *z, const int32_t *target, const real *weight, size_t rows,
                     size_t length, size_t n);

/* Return the same loss, for models with many classes. Overwrite z with the gradient. The bits differ from those of
 * cross_entropy, because this function uses lanes_exp. */
double cross_entropy_wide(real *z, const int32_t *target, const real *weight, size_t rows, size_t length,
                          size_t n);

/* --- convolution and pooling ----------------------------------------------------------------------------- */

/* Convolutions of square pictures, as in torch's nn.Conv2d without bias. A picture has channels x side x side
 * numbers and is padded with zeros.
 *
 * A weight has out x in x kernel x kernel numbers. `columns` is scratch with room for conv_columns() numbers.
 * Pictures are processed one by one, so the result of a picture does not depend on the other pictures. */

enum { CONV_MOST_KERNEL = 8 };

struct conv {
    size_t in, out, side;           /* channels of x; channels of y; side of x */
    size_t kernel, stride, padding; /* kernel <= CONV_MOST_KERNEL */
};

/* Return the side of y. */
size_t conv_side(const struct conv *c);
size_t conv_columns(const struct conv *c);

/* Return the number of multiplications and additions in a forward pass for one picture. */
double conv_flops(const struct conv *c);

void conv_forward(const struct conv *c, real *y, const real *x, const real *weight, size_t rows,
                  real *columns);

/* Overwrite the gradient of the weight. With 0 rows, the gradient is zero. */
void conv_backward_weight(const struct conv *c, real *dweight, const real *dy, const real *x, size_t rows,
                          real *columns);

/* Overwrite dx (add = 0), or add to dx (add = 1). */
void conv_backward_input(const struct conv *c, real *dx, const real *dy, const real *weight, size_t rows,
                         int add, real *columns);

/* --- pool ------------------------------------------------------------------------------------------------- */

/* The mean of each channel, as in torch's nn.AdaptiveAvgPool2d(1). */

/* Compute y, which has one number for each plane, from x, which has planes x n numbers. */
void pool_forward(real *y, const real *x, size_t planes, size_t n);

/* Overwrite dx with the gradient of the mean. */
void pool_backward(real *dx, const real *dy, size_t planes, size_t n);

#endif
