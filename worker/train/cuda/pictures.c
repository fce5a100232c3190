/* pictures.c -- see compute.h: the layers of pictures as the kernels that they take. */
#include "train/cuda/device.h"

enum {
    THREADS = 256,
    BLOCKS =
        512 /* that sums are cut into, more or less; not the GPU's number, so that bits do not depend on it */
};

static size_t by_packs(const struct cuda *c, size_t n)
{
    return cuda_blocks(n, THREADS * (16 / c->base.value_bytes));
}

/* Kernels count inside a picture, and inside a weight, with int. */
static bool fits(struct cuda *c, size_t channels, size_t side)
{
    struct ddp_err err = { 0 };
    if (channels <= INT32_MAX && side <= UINT16_MAX && channels * side * side <= INT32_MAX)
        return true;
    cuda_failed(c,
                ddp_fail(&err, DDP_ERR_UNSUPPORTED,
                         "%zu channels of %zux%zu pixels are more than the kernels for a GPU can count",
                         channels, side, side),
                &err);
    return false;
}

static bool conv_fits(struct cuda *c, const struct conv *conv)
{
    return fits(c, conv->in, conv->side) && fits(c, conv->out, conv_side(conv)) &&
           fits(c, conv->in * conv->out, conv->kernel);
}

/* --- convolution ------------------------------------------------------------------------------------------------------------ */

/* Tensor cores want 16 bits. */
static bool in_tiles(const struct cuda *c)
{
    return c->base.value_bytes == 2;
}

static size_t outs_of_block(const struct cuda *c)
{
    return in_tiles(c) ? KERNEL_TILE : KERNEL_OUTS;
}

static void convolve(struct cuda *c, struct convolve_args *args)
{
    const size_t places = args->rows * (size_t)args->to_side * (size_t)args->to_side;
    const size_t groups = cuda_blocks((size_t)args->to_channels, outs_of_block(c));
    if (in_tiles(c))
        cuda_launch(c, KERNEL_convolve_tiles, cuda_blocks(places, KERNEL_TILE), groups, args);
    else
        cuda_launch(c, KERNEL_convolve, cuda_blocks(places, THREADS), groups, args);
}

static void conv_there(struct compute *base, const struct conv *conv, void *y, const void *x,
                       const void *weight, size_t rows, float *scratch)
{
    struct cuda *c = cuda_of(base);
    const int taps = (int)(conv->kernel * conv->kernel);
    struct convolve_args args = { .to = y,
                                  .from = x,
                                  .weight = weight,
                                  .rows = rows,
                                  .from_channels = (int)conv->in,
                                  .from_side = (int)conv->side,
                                  .to_channels = (int)conv->out,
                                  .to_side = (int)conv_side(conv),
                                  .kernel = (int)conv->kernel,
                                  .step = (int)conv->stride,
                                  .before = (int)conv->padding,
                                  .apart = 1,
                                  .weight_to = (int)conv->in * taps,
                                  .weight_from = taps };
    (void)scratch;
    if (conv_fits(c, conv))
        convolve(c, &args);
}

/* dy lies a stride apart; the kernel that goes over it is turned round, and reaches over its edge where that of x does not. */
static void conv_back(struct compute *base, const struct conv *conv, void *dx, const void *dy,
                      const void *weight, size_t rows, bool add, float *scratch)
{
    struct cuda *c = cuda_of(base);
    const int taps = (int)(conv->kernel * conv->kernel);
    struct convolve_args args = { .to = dx,
                                  .from = dy,
                                  .weight = weight,
                                  .rows = rows,
                                  .from_channels = (int)conv->out,
                                  .from_side = (int)conv_side(conv),
                                  .to_channels = (int)conv->in,
                                  .to_side = (int)conv->side,
                                  .kernel = (int)conv->kernel,
                                  .step = 1,
                                  .before = (int)conv->kernel - 1 - (int)conv->padding,
                                  .apart = (int)conv->stride,
                                  .weight_to = taps,
                                  .weight_from = (int)conv->in * taps,
                                  .turned = true,
                                  .add = add };
    (void)scratch;
    if (conv_fits(c, conv))
        convolve(c, &args);
}

/* Places of a strip, so that `groups` blocks for each strip are about BLOCKS together, each with something to do. */
static size_t strip_of(size_t places, size_t groups)
{
    const size_t strips = groups < BLOCKS ? BLOCKS / groups : 1, least = 8 * KERNEL_PLACES;
    const size_t strip = cuda_blocks(cuda_blocks(places, strips), KERNEL_PLACES) * KERNEL_PLACES;
    return strip > least ? strip : least;
}

static void conv_back_params(struct compute *base, const struct conv *conv, float *dweight, const void *dy,
                             const void *x, size_t rows, float *scratch)
{
    struct cuda *c = cuda_of(base);
    const size_t side = conv_side(conv), all = conv->in * conv->kernel * conv->kernel, n = conv->out * all;
    const size_t groups = cuda_blocks(all, KERNEL_TAPS) * cuda_blocks(conv->out, outs_of_block(c));
    const size_t strip = strip_of(rows * side * side, groups);
    const size_t strips = cuda_blocks(rows * side * side, strip);
    (void)scratch;
    if (!conv_fits(c, conv))
        return;
    if (strips == 0) {
        base->ops->zero(base, dweight, n * sizeof(float));
        return;
    }
    struct conv_weight_sums_args args = { .part = cuda_room(c, &c->part, strips * n * sizeof(float)),
                                          .dy = dy,
                                          .x = x,
                                          .rows = rows,
                                          .strip = strip,
                                          .in = (int)conv->in,
                                          .side = (int)conv->side,
                                          .out = (int)conv->out,
                                          .out_side = (int)side,
                                          .kernel = (int)conv->kernel,
                                          .stride = (int)conv->stride,
                                          .padding = (int)conv->padding };
    cuda_launch(c, in_tiles(c) ? KERNEL_conv_weight_tiles : KERNEL_conv_weight_sums, groups, strips, &args);
    cuda_join_sums(c, dweight, args.part, n, strips, n);
}

/* --- batch normalisation ---------------------------------------------------------------------------------------------------- */

enum { STRIPS = 64, LEAST = 2048 };

/* Rows of a strip. More strips than STRIPS would take long to join, fewer values than LEAST are not worth a block. */
static size_t rows_of_strip(const struct batch_norm *n, size_t rows)
{
    const size_t strips = n->channels < BLOCKS ? BLOCKS / n->channels : 1;
    const size_t strip = cuda_blocks(rows, strips < STRIPS ? strips : STRIPS);
    const size_t least = cuda_blocks(LEAST, n->spatial);
    return strip > least ? strip : least;
}

static void norm_measure(struct compute *base, const struct batch_norm *n, double *record, const void *x,
                         size_t rows)
{
    struct cuda *c = cuda_of(base);
    const size_t words = batch_norm_numbers(n->channels), strip = rows_of_strip(n, rows);
    if (rows == 0) {
        base->ops->zero(base, record, words * sizeof(double));
        return;
    }
    const size_t strips = cuda_blocks(rows, strip);
    struct norm_measure_args each = { cuda_room(c, &c->part, strips * words * sizeof(double)),
                                      x,
                                      rows,
                                      strip,
                                      (int)n->channels,
                                      (int)n->spatial };
    struct norm_join_args all = {
        .to = record, .record = each.record, .parts = strips, .channels = (int)n->channels
    };
    cuda_launch(c, KERNEL_norm_measure, n->channels, strips, &each);
    cuda_launch(c, KERNEL_norm_join, cuda_blocks(n->channels, THREADS), 1, &all);
}

static void norm_learn(struct compute *base, const struct batch_norm *n, const double *records, size_t ranks)
{
    struct norm_join_args args = { .record = records,
                                   .saved = n->saved,
                                   .running_mean = n->running_mean,
                                   .running_var = n->running_var,
                                   .parts = ranks,
                                   .channels = (int)n->channels,
                                   .eps = n->eps,
                                   .momentum = n->momentum };
    cuda_launch(cuda_of(base), KERNEL_norm_join, cuda_blocks(n->channels, THREADS), 1, &args);
}

static void norm_apply(struct compute *base, const struct batch_norm *n, void *y, const void *x, size_t rows,
                       bool test)
{
    struct cuda *c = cuda_of(base);
    struct norm_apply_args args = { .y = y,
                                    .x = x,
                                    .weight = n->weight,
                                    .bias = n->bias,
                                    .saved = test ? NULL : n->saved,
                                    .running_mean = n->running_mean,
                                    .running_var = n->running_var,
                                    .n = rows * n->channels * n->spatial,
                                    .channels = (int)n->channels,
                                    .spatial = (int)n->spatial,
                                    .eps = (float)n->eps };
    cuda_launch(c, KERNEL_norm_apply, by_packs(c, args.n), 1, &args);
}

static void norm_sums(struct compute *base, const struct batch_norm *n, double *sums, float *dweight,
                      float *dbias, const void *dy, const void *x, size_t rows)
{
    struct cuda *c = cuda_of(base);
    const size_t strip = rows_of_strip(n, rows), strips = cuda_blocks(rows, strip);
    struct norm_sums_args each = { cuda_room(c, &c->part, 2 * strips * n->channels * sizeof(double)),
                                   dy,
                                   x,
                                   n->saved,
                                   rows,
                                   strip,
                                   (int)n->channels,
                                   (int)n->spatial };
    struct norm_join_sums_args all = { sums, dweight, dbias, each.part, n->saved, strips, (int)n->channels };
    cuda_launch(c, KERNEL_norm_sums, n->channels, strips, &each);
    cuda_launch(c, KERNEL_norm_join_sums, cuda_blocks(n->channels, THREADS), 1, &all);
}

static void norm_gradient(struct compute *base, const struct batch_norm *n, void *dx, const double *sums,
                          const void *dy, const void *x, size_t rows)
{
    struct cuda *c = cuda_of(base);
    struct norm_gradient_args args = { .dx = dx,
                                       .dy = dy,
                                       .x = x,
                                       .weight = n->weight,
                                       .saved = n->saved,
                                       .sums = sums,
                                       .n = rows * n->channels * n->spatial,
                                       .channels = (int)n->channels,
                                       .spatial = (int)n->spatial };
    cuda_launch(c, KERNEL_norm_gradient, by_packs(c, args.n), 1, &args);
}

/* --- what is added, what is averaged ---------------------------------------------------------------------------------------- */

static struct shortcut_args shortcut_of(const struct shortcut *s, void *to, const void *from)
{
    return (struct shortcut_args){ .to = to,
                                   .from = from,
                                   .in = (int)s->in,
                                   .out = (int)s->out,
                                   .side = (int)s->side,
                                   .out_side = (int)cuda_blocks(s->side, s->stride),
                                   .stride = (int)s->stride };
}

static void shortcut_there(struct compute *base, const struct shortcut *s, void *y, const void *x,
                           size_t rows)
{
    struct cuda *c = cuda_of(base);
    const size_t side = cuda_blocks(s->side, s->stride);
    struct shortcut_args args = shortcut_of(s, y, x);
    args.n = rows * s->out * side * side;
    if (fits(c, s->out, s->side))
        cuda_launch(c, KERNEL_shortcut_forward, by_packs(c, args.n), 1, &args);
}

static void shortcut_back(struct compute *base, const struct shortcut *s, void *dx, const void *dy,
                          size_t rows)
{
    struct cuda *c = cuda_of(base);
    struct shortcut_args args = shortcut_of(s, dx, dy);
    args.n = rows * s->in * s->side * s->side;
    if (fits(c, s->out, s->side))
        cuda_launch(c, KERNEL_shortcut_backward, by_packs(c, args.n), 1, &args);
}

static void pool_there(struct compute *base, void *y, const void *x, size_t planes, size_t n)
{
    struct pool_args args = { y, x, planes, n };
    cuda_launch(cuda_of(base), KERNEL_pool_forward, cuda_blocks(planes, KERNEL_WARPS), 1, &args);
}

static void pool_back(struct compute *base, void *dx, const void *dy, size_t planes, size_t n)
{
    struct pool_args args = { dx, dy, planes, n };
    cuda_launch(cuda_of(base), KERNEL_pool_backward, by_packs(cuda_of(base), planes * n), 1, &args);
}

void cuda_set_pictures(struct compute_ops *ops)
{
    ops->conv_forward = conv_there;
    ops->conv_backward_params = conv_back_params;
    ops->conv_backward_input = conv_back;
    ops->norm_measure = norm_measure;
    ops->norm_learn = norm_learn;
    ops->norm_apply = norm_apply;
    ops->norm_sums = norm_sums;
    ops->norm_gradient = norm_gradient;
    ops->shortcut_forward = shortcut_there;
    ops->shortcut_backward = shortcut_back;
    ops->pool_forward = pool_there;
    ops->pool_backward = pool_back;
}
