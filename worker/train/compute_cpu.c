/* compute_cpu.c -- see compute.h: calls the layers of layers/layers.h. */
#include "train/compute.h"

#include "train/layers/layers.h"

#include <stdlib.h>

static void *cpu_alloc(struct compute *c, size_t bytes)
{
    (void)c;
    return calloc(bytes > 0 ? bytes : 1, 1);
}

static void cpu_release(struct compute *c, void *memory)
{
    (void)c;
    free(memory);
}

static void cpu_zero(struct compute *c, void *at, size_t bytes)
{
    (void)c;
    memset(at, 0, bytes);
}

static ddp_status cpu_begin(struct compute *c, const struct model_batch *from, size_t pixels,
                            struct model_batch *on, struct ddp_err *err)
{
    (void)c, (void)pixels, (void)err;
    *on = *from;
    return DDP_OK;
}

static ddp_status cpu_end(struct compute *c, struct ddp_err *err)
{
    (void)c, (void)err;
    return DDP_OK;
}

static void cpu_embedding_forward(struct compute *c, void *y, const struct model_batch *batch,
                                  const void *tokens, const void *places, size_t n)
{
    (void)c;
    embedding_forward(y, batch->token, tokens, places, batch->rows, batch->length, n);
}

static void cpu_embedding_backward(struct compute *c, float *dtokens, float *dplaces, const void *dy,
                                   const struct model_batch *batch, size_t max_length, size_t n)
{
    (void)c;
    embedding_backward(dtokens, dplaces, dy, batch->token, batch->rows, batch->length, max_length, n);
}

static void cpu_layer_norm_forward(struct compute *c, void *y, float *mean, float *scale, const void *x,
                                   const void *weight, const void *bias, size_t rows, size_t n)
{
    (void)c;
    layer_norm_forward(y, mean, scale, x, weight, bias, rows, n);
}

static void cpu_layer_norm_backward(struct compute *c, void *dx, float *dweight, float *dbias, const void *dy,
                                    const void *x, const float *mean, const float *scale, const void *weight,
                                    size_t rows, size_t n)
{
    (void)c;
    layer_norm_backward(dx, dweight, dbias, dy, x, mean, scale, weight, rows, n);
}

static void cpu_linear_forward(struct compute *c, void *y, const void *before, const void *x,
                               const void *weight, const void *bias, struct linear l)
{
    (void)c;
    if (before != NULL)
        linear_forward_add(y, before, x, weight, bias, l.rows, l.in, l.out);
    else
        linear_forward(y, x, weight, bias, l.rows, l.in, l.out);
}

static void cpu_linear_backward_params(struct compute *c, float *dweight, float *dbias, const void *dy,
                                       const void *x, struct linear l)
{
    (void)c;
    linear_backward_params(dweight, dbias, dy, x, l.rows, l.in, l.out);
}

static void cpu_linear_backward_input(struct compute *c, void *dx, const void *dy, const void *weight,
                                      struct linear l)
{
    (void)c;
    linear_backward_input(dx, dy, weight, l.rows, l.in, l.out);
}

static void cpu_attention_forward(struct compute *c, void *y, float *log_sum, const void *qkv, float *scratch,
                                  const struct attention *a)
{
    (void)c;
    attention_forward(y, log_sum, qkv, scratch, a);
}

/* Compute the gradient without `y`, because softmax_backward uses the scores. */
static void cpu_attention_backward(struct compute *c, void *dqkv, const void *dy, const void *y,
                                   const void *qkv, const float *log_sum, float *scratch,
                                   const struct attention *a)
{
    (void)c, (void)y;
    attention_backward(dqkv, dy, qkv, log_sum, scratch, a);
}

static void cpu_gelu_forward(struct compute *c, void *y, const void *x, size_t n)
{
    (void)c;
    gelu_forward(y, x, n);
}

static void cpu_gelu_backward(struct compute *c, void *d, const void *x, size_t n)
{
    (void)c;
    gelu_backward(d, x, n);
}

static void cpu_activation_forward(struct compute *c, const struct activation *f, void *y, size_t rows,
                                   size_t n)
{
    (void)c;
    f->forward(y, rows, n);
}

static void cpu_activation_backward(struct compute *c, const struct activation *f, void *d, const void *y,
                                    size_t rows, size_t n)
{
    (void)c;
    f->backward(d, y, rows, n);
}

static void cpu_conv_forward(struct compute *c, const struct conv *conv, void *y, const void *x,
                             const void *weight, size_t rows, float *scratch)
{
    (void)c;
    conv_forward(conv, y, x, weight, rows, scratch);
}

static void cpu_conv_backward_params(struct compute *c, const struct conv *conv, float *dweight,
                                     const void *dy, const void *x, size_t rows, float *scratch)
{
    (void)c;
    conv_backward_weight(conv, dweight, dy, x, rows, scratch);
}

static void cpu_conv_backward_input(struct compute *c, const struct conv *conv, void *dx, const void *dy,
                                    const void *weight, size_t rows, bool add, float *scratch)
{
    (void)c;
    conv_backward_input(conv, dx, dy, weight, rows, add, scratch);
}

static void cpu_shortcut_forward(struct compute *c, const struct shortcut *s, void *y, const void *x,
                                 size_t rows)
{
    (void)c;
    shortcut_forward(s, y, x, rows);
}

static void cpu_shortcut_backward(struct compute *c, const struct shortcut *s, void *dx, const void *dy,
                                  size_t rows)
{
    (void)c;
    shortcut_backward(s, dx, dy, rows);
}

static void cpu_pool_forward(struct compute *c, void *y, const void *x, size_t planes, size_t n)
{
    (void)c;
    pool_forward(y, x, planes, n);
}

static void cpu_pool_backward(struct compute *c, void *dx, const void *dy, size_t planes, size_t n)
{
    (void)c;
    pool_backward(dx, dy, planes, n);
}

static double cpu_cross_entropy(struct compute *c, void *d, void *z, const struct model_batch *b,
                                size_t classes, bool wide)
{
    (void)c;
    return wide ? cross_entropy_wide(z, b->target, b->weight, b->rows, b->length, classes)
                : cross_entropy(d, z, b->target, b->weight, b->rows, b->length, classes);
}

static double cpu_examine(struct compute *c, void *z, const struct model_batch *b, size_t classes,
                          size_t *correct)
{
    (void)c, (void)correct;
    return cross_entropy(NULL, z, b->target, b->weight, b->rows, b->length, classes);
}

/* Add with BLAS. The factor is 1, so each element is rounded only once, also with fused multiply-add. */
static void cpu_add(struct compute *c, float *left, const float *right, size_t n)
{
    (void)c;
    cblas_saxpy((int)n, 1, right, 1, left, 1);
}

static const struct compute_ops cpu_ops = {
    .alloc = cpu_alloc,
    .release = cpu_release,
    .zero = cpu_zero,
    .begin = cpu_begin,
    .end = cpu_end,
    .embedding_forward = cpu_embedding_forward,
    .embedding_backward = cpu_embedding_backward,
    .layer_norm_forward = cpu_layer_norm_forward,
    .layer_norm_backward = cpu_layer_norm_backward,
    .linear_forward = cpu_linear_forward,
    .linear_backward_params = cpu_linear_backward_params,
    .linear_backward_input = cpu_linear_backward_input,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .gelu_forward = cpu_gelu_forward,
    .gelu_backward = cpu_gelu_backward,
    .activation_forward = cpu_activation_forward,
    .activation_backward = cpu_activation_backward,
    .conv_forward = cpu_conv_forward,
    .conv_backward_params = cpu_conv_backward_params,
    .conv_backward_input = cpu_conv_backward_input,
    .shortcut_forward = cpu_shortcut_forward,
    .shortcut_backward = cpu_shortcut_backward,
    .pool_forward = cpu_pool_forward,
    .pool_backward = cpu_pool_backward,
    .cross_entropy = cpu_cross_entropy,
    .examine = cpu_examine,
    .add = cpu_add,
};

struct compute compute_cpu = { .ops = &cpu_ops, .value_bytes = sizeof(float), .pack = 1 };
