/* Compare the GPU kernels of image layers with the CPU, as test_kernels.c does for other layers. The layers of images
 * are convolutions, batch normalization, shortcuts and means. */
#include "numbers.h"
#include "train/models/resnet.c"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct devices d;
static struct ddp_err err;

/* --- convolution ---------------------------------------------------------------------------------------- */

static void convolution(struct conv conv, size_t rows)
{
    const size_t side = conv_side(&conv), n = rows * conv.out * side * side;
    const size_t pixels = rows * conv.in * conv.side * conv.side;
    const size_t weights = conv.out * conv.in * CONV_TAPS;
    float *const scratch = calloc(conv_columns(&conv), sizeof(float));
    struct both x = devices_values(&d, pixels, 1), w = devices_values(&d, weights, 0.3);
    struct both y = devices_values(&d, n, 1), dy = devices_values(&d, n, 1),
                dx = devices_values(&d, pixels, 1);
    struct both dw = devices_floats(&d, weights, 1);
    char name[120];
    snprintf(name, sizeof(name), "convolution of %zu x %zu to %zu, side %zu, stride %zu", rows, conv.in,
             conv.out, conv.side, conv.stride);
#define FORWARD(to) on->ops->conv_forward(on, &conv, y.to, x.to, w.to, rows, scratch)
#define PARAMS(to)  on->ops->conv_backward_params(on, &conv, dw.to, dy.to, x.to, rows, scratch)
#define INPUT(to)   on->ops->conv_backward_input(on, &conv, dx.to, dy.to, w.to, rows, false, scratch)
#define ADD(to)     on->ops->conv_backward_input(on, &conv, dx.to, dy.to, w.to, rows, true, scratch)
    BOTH(FORWARD);
    devices_expect_same(&d, name, y);
    BOTH(PARAMS);
    devices_expect_same(&d, name, dw);
    BOTH(INPUT);
    devices_expect_same(&d, name, dx);
    BOTH(ADD);
    devices_expect_same(&d, name, dx);
#undef FORWARD
#undef PARAMS
#undef INPUT
#undef ADD
    free(scratch);
}

/* Convolutions as in resnet20, and shapes with remainders. The members of struct conv are in, out, side and stride. */
EACH_PRECISION(kernels_pictures, convolutions)
{
    const size_t rows = 1 + devices_random(4);
    convolution((struct conv){ 3, 16, 8, 1 }, rows);
    convolution((struct conv){ 16, 32, 8, 2 }, rows);
    convolution((struct conv){ 1 + devices_random(20), 1 + devices_random(36), 3 + devices_random(9), 1 },
                rows);
    convolution((struct conv){ 2, 65 + devices_random(20), 4, 1 }, rows);
    convolution((struct conv){ 2, 3, 5 + devices_random(4), 2 }, rows);
}

/* The batch has more pictures than are processed at a time. */
EACH_PRECISION(kernels_pictures, convolutions_of_many_pictures)
{
    convolution((struct conv){ 2, 3, 4, 1 }, 70);
}

/* The tolerance is larger, because the CPU adds many values one after the other, in float. */
EACH_PRECISION(kernels_pictures, convolutions_of_many_places)
{
    if (d.precision == PRECISION_FP32)
        d.tolerance = 1e-5;
    convolution((struct conv){ 2, 17, 24, 1 }, 30);
}

EACH_PRECISION(kernels_pictures, no_rows_have_no_gradient)
{
    const struct conv conv = { 2, 3, 4, 1 };
    const struct linear l = { 0, 16, 8 };
    struct both dw = devices_floats(&d, 3 * 2 * 9, 1), of_linear = devices_floats(&d, 16 * 8, 1);
    struct both db = devices_floats(&d, 8, 1), some = devices_values(&d, 128, 1);
    memset(dw.cpu, 0, dw.n * sizeof(float));
    memset(of_linear.cpu, 0, of_linear.n * sizeof(float));
    memset(db.cpu, 0, db.n * sizeof(float));
    d.gpu->ops->conv_backward_params(d.gpu, &conv, dw.gpu, some.gpu, some.gpu, 0, NULL);
    d.gpu->ops->linear_backward_params(d.gpu, of_linear.gpu, db.gpu, some.gpu, some.gpu, l);
    d.gpu->ops->linear_forward(d.gpu, some.gpu, NULL, some.gpu, some.gpu, NULL, l);
    d.gpu->ops->linear_backward_input(d.gpu, some.gpu, some.gpu, some.gpu, l);
    devices_expect_same(&d, "of a convolution", dw);
    devices_expect_same(&d, "of a linear layer", of_linear);
    devices_expect_same(&d, "of its bias", db);
    devices_expect_same(&d, "all else", some);
}

/* --- batch normalization -------------------------------------------------------------------------------- */

struct layer {
    size_t rows, channels, spatial;
    struct both x, y, dy, weight, bias, mean, var, dweight, dbias;
    double *saved_cpu, *saved_gpu;
};

static struct layer layer_of(size_t rows, size_t channels, size_t spatial)
{
    const size_t n = rows * channels * spatial, numbers = batch_norm_numbers(channels) * sizeof(double);
    struct layer l = { rows, channels, spatial, .x = devices_values(&d, n, 2) };
    l.y = devices_values(&d, n, 1);
    l.dy = devices_values(&d, n, 1);
    l.weight = devices_values(&d, channels, 1);
    l.bias = devices_values(&d, channels, 1);
    l.mean = devices_floats(&d, channels, 1);
    l.var = devices_floats(&d, channels, 0);
    l.dweight = devices_floats(&d, channels, 1);
    l.dbias = devices_floats(&d, channels, 1);
    l.saved_cpu = compute_cpu.ops->alloc(&compute_cpu, numbers);
    l.saved_gpu = d.gpu->ops->alloc(d.gpu, numbers);
    return l;
}

static void layer_free(struct layer *l)
{
    compute_cpu.ops->release(&compute_cpu, l->saved_cpu);
    d.gpu->ops->release(d.gpu, l->saved_gpu);
}

static struct batch_norm norm_for(const struct layer *l, bool on_cpu, bool keeps)
{
    struct batch_norm b = { l->channels, l->spatial, 1e-5, 0.1,
                            .weight = on_cpu ? l->weight.cpu : l->weight.gpu };
    b.bias = on_cpu ? (const void *)l->bias.cpu : l->bias.gpu;
    b.running_mean = !keeps ? NULL : on_cpu ? l->mean.cpu : l->mean.gpu;
    b.running_var = !keeps ? NULL : on_cpu ? l->var.cpu : l->var.gpu;
    b.saved = on_cpu ? l->saved_cpu : l->saved_gpu;
    return b;
}

/* Return a network without layers, for functions that only normalize. The caller releases `records`. */
static struct resnet resnet_on(struct compute *on, size_t channels)
{
    return (struct resnet){ .on = on,
                            .records = on->ops->alloc(on, batch_norm_numbers(channels) * sizeof(double)) };
}

static void normalize_on(struct compute *on, struct layer *l)
{
    const bool cpu = on == &compute_cpu;
    const struct batch_norm b = norm_for(l, cpu, true), still = norm_for(l, cpu, false);
    void *x = cpu ? (void *)l->x.cpu : l->x.gpu, *y = cpu ? (void *)l->y.cpu : l->y.gpu;
    void *dy = cpu ? (void *)l->dy.cpu : l->dy.gpu;
    const struct resnet r = resnet_on(on, l->channels);
    cr_expect_eq(normalize_forward(&r, &still, y, x, l->rows, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(normalize_forward(&r, &b, y, x, l->rows, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(normalize_backward(&r, &b, dy, cpu ? l->dweight.cpu : l->dweight.gpu,
                                    cpu ? l->dbias.cpu : l->dbias.gpu, dy, x, l->rows, &err),
                 DDP_OK, "%s", err.msg);
    on->ops->release(on, r.records);
}

static void infer_on(struct compute *on, struct layer *l)
{
    const bool cpu = on == &compute_cpu;
    const struct batch_norm b = norm_for(l, cpu, true);
    const struct resnet r = resnet_on(on, l->channels);
    cr_expect_eq(normalize_infer(&r, &b, cpu ? (void *)l->y.cpu : l->y.gpu, cpu ? (void *)l->x.cpu : l->x.gpu,
                                 l->rows, &err),
                 DDP_OK, "%s", err.msg);
    on->ops->release(on, r.records);
}

static void normalization(size_t rows, size_t channels, size_t spatial)
{
    struct layer l = layer_of(rows, channels, spatial);
    char name[80];
    snprintf(name, sizeof(name), "batch norm %zu x %zu x %zu", rows, channels, spatial);
    normalize_on(&compute_cpu, &l);
    normalize_on(d.gpu, &l);
    devices_expect_same(&d, name, l.y);
    devices_expect_same(&d, "running mean", l.mean);
    devices_expect_same(&d, "running variance", l.var);
    devices_expect_same(&d, "dx", l.dy);
    devices_expect_same(&d, "dweight", l.dweight);
    devices_expect_same(&d, "dbias", l.dbias);
    infer_on(&compute_cpu, &l);
    infer_on(d.gpu, &l);
    devices_expect_same(&d, "with the running numbers", l.y);
    layer_free(&l);
}

EACH_PRECISION(kernels_pictures, normalizations)
{
    normalization(2 + devices_random(4), 16, 64);
    normalization(2 + devices_random(90), 1 + devices_random(20), 1 + devices_random(40));
    normalization(70, 3, 50);
    normalization(5, 3, 1000);
    normalization(1, 2, 700);
    normalization(3, 300, 2);
}

/* The gradients of weight and bias are 0. */
EACH_PRECISION(kernels_pictures, batches_that_are_empty)
{
    struct layer l = layer_of(2, 3, 1);
    const struct batch_norm b = norm_for(&l, false, true);
    const struct resnet r = resnet_on(d.gpu, 3);
    cr_expect_eq(normalize_forward(&r, &b, l.y.gpu, l.x.gpu, 0, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(normalize_backward(&r, &b, l.dy.gpu, l.dweight.gpu, l.dbias.gpu, l.dy.gpu, l.x.gpu, 0, &err),
                 DDP_OK, "%s", err.msg);
    memset(l.dweight.cpu, 0, 3 * sizeof(float));
    memset(l.dbias.cpu, 0, 3 * sizeof(float));
    devices_expect_same(&d, "y", l.y);
    devices_expect_same(&d, "running mean", l.mean);
    devices_expect_same(&d, "running variance", l.var);
    devices_expect_same(&d, "dweight", l.dweight);
    devices_expect_same(&d, "dbias", l.dbias);
    d.gpu->ops->release(d.gpu, r.records);
    layer_free(&l);
}

/* --- shortcuts and means -------------------------------------------------------------------------------- */

static void shortcut(struct shortcut s, size_t rows)
{
    const size_t side = (s.side + s.stride - 1) / s.stride;
    struct both x = devices_values(&d, rows * s.in * s.side * s.side, 1);
    struct both y = devices_values(&d, rows * s.out * side * side, 1);
#define FORWARD(to)  on->ops->shortcut_forward(on, &s, y.to, x.to, rows)
#define BACKWARD(to) on->ops->shortcut_backward(on, &s, x.to, y.to, rows)
    BOTH(FORWARD);
    devices_expect_same(&d, "shortcut", y);
    BOTH(BACKWARD);
    devices_expect_same(&d, "its gradient", x);
#undef FORWARD
#undef BACKWARD
}

EACH_PRECISION(kernels_pictures, shortcuts)
{
    shortcut((struct shortcut){ 4, 4, 3 + devices_random(8), 1 }, 3);
    shortcut((struct shortcut){ 16, 32, 8, 2 }, 2);
    shortcut((struct shortcut){ 3, 5 + devices_random(5), 3 + devices_random(6), 2 }, 3);
    shortcut((struct shortcut){ 2, 5, 4, 1 }, 1);
}

EACH_PRECISION(kernels_pictures, means_of_planes)
{
    const size_t planes = 1 + devices_random(50), n = 1 + devices_random(80);
    struct both x = devices_values(&d, planes * n, 1), y = devices_values(&d, planes, 1);
#define FORWARD(to)  on->ops->pool_forward(on, y.to, x.to, planes, n)
#define BACKWARD(to) on->ops->pool_backward(on, x.to, y.to, planes, n)
    BOTH(FORWARD);
    devices_expect_same(&d, "means", y);
    BOTH(BACKWARD);
    devices_expect_same(&d, "their gradient", x);
#undef FORWARD
#undef BACKWARD
}
