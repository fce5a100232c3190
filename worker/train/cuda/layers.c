/* layers.c -- see compute.h: starts the kernels of each layer. Sums over rows are computed in strips, and a second
 * kernel adds the strips in order, so a repeated run gives the same bits. */
#include "train/cuda/device.h"

enum { STRIPS = 64 };

/* --- embedding ---------------------------------------------------------------------------------------- */

void cuda_embedding_forward(struct compute *base, void *y, const struct model_batch *batch,
                            const void *tokens, const void *places, size_t n)
{
    const size_t count = batch->rows * batch->length;
    struct embedding_forward_args args = { y, batch->token, tokens, places, count, batch->length, n };
    cuda_launch(cuda_of(base), KERNEL_embedding_forward, cuda_by_packs(cuda_of(base), count * n), 1, &args);
}

void cuda_embedding_backward(struct compute *base, float *dtokens, float *dplaces, const void *dy,
                             const struct model_batch *batch, size_t max_length, size_t n)
{
    struct cuda *c = cuda_of(base);
    struct embedding_backward_tokens_args tokens = { dtokens, dy, batch->token, c->order, c->first, n };
    struct embedding_backward_places_args places = { dplaces, dy, batch->rows, batch->length, max_length, n };
    cuda_launch(c, KERNEL_embedding_backward_tokens, c->distinct, 1, &tokens);
    cuda_launch(c, KERNEL_embedding_backward_places, cuda_by_elements(max_length * n), 1, &places);
}

/* --- sums over rows ----------------------------------------------------------------------------------- */

void cuda_join_sums(struct cuda *c, float *to, const float *part, size_t n, size_t parts, size_t stride)
{
    struct join_sums_args args = { to, part, n, parts, stride };
    cuda_launch(c, KERNEL_join_sums, cuda_by_elements(n), 1, &args);
}

/* Sum the columns of dy, whose rows are `stride` values apart. */
static void column_sums(struct cuda *c, float *to, const void *dy, size_t rows, size_t stride, size_t n)
{
    const size_t strip = cuda_blocks(rows, STRIPS), strips = cuda_blocks(rows, strip);
    struct column_sums_args args = { cuda_room(c, &c->part, strips * stride * sizeof(float)), dy, rows,
                                     stride, strip };
    cuda_launch(c, KERNEL_column_sums, cuda_blocks(stride, KERNEL_COLUMNS), strips, &args);
    cuda_join_sums(c, to, args.part, n, strips, stride);
}

/* --- layer norm --------------------------------------------------------------------------------------- */

void cuda_layer_norm_forward(struct compute *base, void *y, float *mean, float *scale, const void *x,
                             const void *weight, const void *bias, size_t rows, size_t n)
{
    struct layer_norm_args args = {
        .y = y, .x = x, .weight = weight, .bias = bias, .mean = mean, .scale = scale, .rows = rows, .n = n
    };
    cuda_launch(cuda_of(base), KERNEL_layer_norm_forward, cuda_by_rows(rows), 1, &args);
}

void cuda_layer_norm_backward(struct compute *base, void *dx, float *dweight, float *dbias, const void *dy,
                              const void *x, const float *mean, const float *scale, const void *weight,
                              size_t rows, size_t n)
{
    struct cuda *c = cuda_of(base);
    const size_t strip = cuda_blocks(rows, STRIPS), strips = cuda_blocks(rows, strip);
    float *part = cuda_room(c, &c->part, 2 * strips * n * sizeof(float));
    struct layer_norm_args args = {
        dx, dy, x, weight, NULL, (float *)(uintptr_t)mean, (float *)(uintptr_t)scale, part, rows, n, strip
    };
    cuda_launch(c, KERNEL_layer_norm_sums, cuda_blocks(n, KERNEL_COLUMNS), strips, &args);
    cuda_join_sums(c, dweight, part, n, strips, 2 * n);
    cuda_join_sums(c, dbias, part + n, n, strips, 2 * n);
    cuda_launch(c, KERNEL_layer_norm_backward, cuda_by_rows(rows), 1, &args);
}

/* --- linear: cuBLASLt is column-major, so each row of our matrices is a column for cuBLASLt --------------- */

void cuda_linear_forward(struct compute *base, void *y, const void *before, const void *x, const void *weight,
                         const void *bias, struct linear l)
{
    const struct gemm g = { .m = l.out,
                            .n = l.rows,
                            .k = l.in,
                            .lda = (int64_t)l.in,
                            .ldb = (int64_t)l.in,
                            .ldd = (int64_t)compute_stride(base, l.out),
                            .transpose_a = true,
                            .bias = bias != NULL };
    cuda_gemm(cuda_of(base), &g, weight, x, before, bias, y);
}

void cuda_linear_backward_params(struct compute *base, float *dweight, float *dbias, const void *dy,
                                 const void *x, struct linear l)
{
    const size_t stride = compute_stride(base, l.out);
    const struct gemm g = { .m = l.in,
                            .n = l.out,
                            .k = l.rows,
                            .lda = (int64_t)l.in,
                            .ldb = (int64_t)stride,
                            .ldd = (int64_t)l.in,
                            .transpose_b = true,
                            .to_float = true };
    if (l.rows == 0) { /* all rows of the batch are padding */
        base->ops->zero(base, dweight, l.in * l.out * sizeof(float));
        if (dbias != NULL)
            base->ops->zero(base, dbias, l.out * sizeof(float));
        return;
    }
    cuda_gemm(cuda_of(base), &g, x, dy, NULL, NULL, dweight);
    if (dbias != NULL)
        column_sums(cuda_of(base), dbias, dy, l.rows, stride, l.out);
}

void cuda_linear_backward_input(struct compute *base, void *dx, const void *dy, const void *weight,
                                struct linear l)
{
    const struct gemm g = { .m = l.in,
                            .n = l.rows,
                            .k = l.out,
                            .lda = (int64_t)l.in,
                            .ldb = (int64_t)compute_stride(base, l.out),
                            .ldd = (int64_t)l.in };
    cuda_gemm(cuda_of(base), &g, weight, dy, NULL, NULL, dx);
}

/* --- attention ---------------------------------------------------------------------------------------- */

/* Return true if tensor cores can compute the attention. This is the case if values have 16 bits. The kernels also need
 * heads of at most KERNEL_TILE numbers, and every GPT-2 has such heads. */
static bool in_tiles(const struct cuda *c)
{
    return c->base.value_bytes == 2;
}

void cuda_attention_forward(struct compute *base, void *y, float *log_sum, const void *qkv, float *scratch,
                            const struct attention *a)
{
    struct cuda *c = cuda_of(base);
    struct attention_args args = { y, log_sum, qkv, a->rows, a->length, a->heads, a->width };
    (void)scratch;
    if (in_tiles(c))
        cuda_launch(c, KERNEL_attention_forward_tiles,
                    a->rows * a->heads * cuda_blocks(a->length, KERNEL_TILE), 1, &args);
    else
        cuda_launch(c, KERNEL_attention_forward, cuda_by_rows(a->rows * a->heads * a->length), 1, &args);
}

void cuda_attention_backward(struct compute *base, void *dqkv, const void *dy, const void *y, const void *qkv,
                             const float *log_sum, float *scratch, const struct attention *a)
{
    struct cuda *c = cuda_of(base);
    const size_t rows = cuda_by_rows(a->rows * a->heads * a->length);
    const size_t tiles = a->rows * a->heads * cuda_blocks(a->length, KERNEL_TILE);
    const bool tiled = in_tiles(c);
    struct attention_back_args args = { dqkv,    dy,      qkv,       y,        log_sum,
                                        scratch, a->rows, a->length, a->heads, a->width };
    cuda_launch(c, KERNEL_attention_dots, rows, 1, &args);
    cuda_launch(c, tiled ? KERNEL_attention_backward_query_tiles : KERNEL_attention_backward_queries,
                tiled ? tiles : rows, 1, &args);
    cuda_launch(c, tiled ? KERNEL_attention_backward_key_tiles : KERNEL_attention_backward_keys,
                tiled ? tiles : rows, 1, &args);
}

/* --- activations -------------------------------------------------------------------------------------- */

void cuda_gelu_forward(struct compute *base, void *y, const void *x, size_t n)
{
    struct gelu_args args = { y, x, n };
    cuda_launch(cuda_of(base), KERNEL_gelu_forward, cuda_by_packs(cuda_of(base), n), 1, &args);
}

void cuda_gelu_backward(struct compute *base, void *d, const void *x, size_t n)
{
    struct gelu_args args = { d, x, n };
    cuda_launch(cuda_of(base), KERNEL_gelu_backward, cuda_by_packs(cuda_of(base), n), 1, &args);
}

static const struct {
    enum kernel forward, backward;
    bool by_rows;
} kernels_of[] = {
    [ACTIVATION_RELU] = { KERNEL_relu_forward, KERNEL_relu_backward, false },
    [ACTIVATION_SIGMOID] = { KERNEL_sigmoid_forward, KERNEL_sigmoid_backward, false },
    [ACTIVATION_LOG_SOFTMAX] = { KERNEL_log_softmax_forward, KERNEL_log_softmax_backward, true },
};

static size_t activation_blocks(const struct cuda *c, enum activation f, size_t rows, size_t stride)
{
    return kernels_of[f].by_rows ? cuda_by_rows(rows) : cuda_by_packs(c, rows * stride);
}

void cuda_activation_forward(struct compute *base, enum activation f, void *y, size_t rows, size_t n)
{
    struct activation_args args = { y, y, rows, compute_stride(base, n) };
    cuda_launch(cuda_of(base), kernels_of[f].forward, activation_blocks(cuda_of(base), f, rows, args.n), 1,
                &args);
}

void cuda_activation_backward(struct compute *base, enum activation f, void *d, const void *y, size_t rows,
                              size_t n)
{
    struct activation_args args = { d, y, rows, compute_stride(base, n) };
    cuda_launch(cuda_of(base), kernels_of[f].backward, activation_blocks(cuda_of(base), f, rows, args.n), 1,
                &args);
}

/* --- losses ------------------------------------------------------------------------------------------- */

/* Add the losses of all targets to total[0], and the number of correct predictions to total[1]. */
static void losses(struct cuda *c, void *z, const struct model_batch *batch, size_t classes, bool gradient,
                   double *total)
{
    const size_t n = batch->rows * batch->length;
    float *loss = cuda_room(c, &c->losses, 2 * n * sizeof(float));
    if (loss == NULL)
        return;
    struct cross_entropy_args each = {
        z,        batch->target, batch->weight, loss,
        loss + n, batch->length, classes,       compute_stride(&c->base, classes),
        gradient
    };
    struct join_losses_args sum = { total, loss, loss + n, n };
    cuda_launch(c, KERNEL_cross_entropy, n, 1, &each);
    cuda_launch(c, KERNEL_join_losses, 1, 1, &sum);
}

double cuda_cross_entropy(struct compute *base, void *d, void *z, const struct model_batch *batch,
                          size_t classes, bool wide)
{
    struct cuda *c = cuda_of(base);
    const size_t bytes = batch->rows * batch->length * compute_stride(base, classes) * base->value_bytes;
    (void)wide;
    if (d != z)
        cuda_check(c, c->gpu.call.copy_async(d, z, bytes, CUDA_COPY_DEFAULT, c->stream),
                   "cannot copy logits");
    losses(c, d, batch, classes, true, c->total);
    return 0;
}

double cuda_examine(struct compute *base, void *z, const struct model_batch *batch, size_t classes,
                    size_t *correct)
{
    struct cuda *c = cuda_of(base);
    double found[2] = { 0, 0 };
    base->ops->zero(base, c->total + 2, sizeof(found));
    losses(c, z, batch, classes, false, c->total + 2);
    cuda_error error =
        c->gpu.call.copy_async(found, c->total + 2, sizeof(found), CUDA_COPY_DEFAULT, c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.stream_sync(c->stream);
    cuda_check(c, error, "cannot wait for a test");
    *correct = (size_t)found[1];
    return found[0];
}

void cuda_add(struct compute *base, float *left, const float *right, size_t n)
{
    struct add_args args = { left, right, n };
    cuda_launch(cuda_of(base), KERNEL_add, cuda_by_packs(cuda_of(base), n), 1, &args);
}
