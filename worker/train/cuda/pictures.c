/* pictures.c -- see compute.h: starts the GPU kernels of the layers for pictures. All layers share temporary memory,
 * because one stream runs these GPU kernels one after the other. */
#include "train/cuda/device.h"

/* Approximate number of blocks that compute parts of a sum, equal on all GPUs, so that the bits are equal. */
enum { BLOCKS = 512 };

/* --- convolution -------------------------------------------------------------------------------------- */

/* A convolution is a matrix product in cuBLASLt: the weights times the columns (kernels.h). The columns of a picture
 * are much larger than the picture. So pictures are processed in groups, and only the columns of one group are in
 * memory at a time. */

/* The limits of a group. COLUMNS: bytes of all columns, unless one picture needs more. PICTURES: number of pictures. */
enum { COLUMNS = 64 << 20, PICTURES = 64 };

/* Describe the columns of x. */
static struct columns_args view_of_x(const struct conv *conv)
{
    return (struct columns_args){ .channels = (int)conv->in,
                                  .side = (int)conv->side,
                                  .to_side = (int)conv_side(conv),
                                  .kernel = CONV_KERNEL,
                                  .step = (int)conv->stride,
                                  .before = CONV_PADDING,
                                  .apart = 1 };
}

/* Describe the columns of dy, for the gradient of x. This gradient is a convolution of dy with the same weights, turned
 * by 180 degrees. The pixels of dy are `stride` apart. The number of zeros before the first pixel of a row or a column
 * (`before`) is not CONV_PADDING, but CONV_KERNEL - 1 - CONV_PADDING. */
static struct columns_args view_of_dy(const struct conv *conv)
{
    return (struct columns_args){ .channels = (int)conv->out,
                                  .side = (int)conv_side(conv),
                                  .to_side = (int)conv->side,
                                  .kernel = CONV_KERNEL,
                                  .step = 1,
                                  .before = CONV_KERNEL - 1 - CONV_PADDING,
                                  .apart = (int)conv->stride };
}

static size_t square(int side)
{
    return (size_t)side * (size_t)side;
}

/* Return the number of rows in the matrix `columns` of one picture. The matrix has one row for each pair of a channel
 * and a weight (v->kernel * v->kernel weights). */
static size_t seen_of(const struct columns_args *v)
{
    return (size_t)v->channels * square(v->kernel);
}

/* Return the maximum number of pictures whose columns are in memory at once. Set v->pitch, the distance between
 * two rows of a matrix in values. */
static size_t pictures_at_once(const struct cuda *c, struct columns_args *v)
{
    v->pitch = cuda_blocks(square(v->to_side), KERNEL_PACK) * KERNEL_PACK;
    const size_t most = COLUMNS / (seen_of(v) * v->pitch * c->base.value_bytes);
    return most < 1 ? 1 : most < PICTURES ? most : PICTURES;
}

/* Make the columns of `many` pictures, beginning with picture `first`. */
static const void *make_columns(struct cuda *c, struct columns_args v, const void *from, size_t first,
                                size_t many)
{
    const size_t bytes = c->base.value_bytes;
    v.n = many * seen_of(&v) * v.pitch;
    v.to = cuda_room(c, &c->columns, v.n * bytes);
    v.from = (const char *)from + first * (size_t)v.channels * square(v.side) * bytes;
    cuda_launch(c, KERNEL_columns, cuda_by_packs(c, v.n), 1, &v);
    return v.to;
}

static void convolve(struct cuda *c, struct columns_args v, void *to, const void *from, const void *weight,
                     size_t channels, size_t rows, bool add)
{
    const size_t most = pictures_at_once(c, &v), n = channels * square(v.to_side);
    struct gemm g = { .m = square(v.to_side),
                      .n = channels,
                      .k = seen_of(&v),
                      .lda = (int64_t)v.pitch,
                      .ldb = (int64_t)seen_of(&v),
                      .ldd = (int64_t)square(v.to_side),
                      .apart_a = (int64_t)(seen_of(&v) * v.pitch),
                      .apart_d = (int64_t)n };
    for (size_t at = 0; at < rows; at += most) {
        void *here = (char *)to + at * n * c->base.value_bytes;
        g.batch = rows - at < most ? rows - at : most;
        const void *columns = make_columns(c, v, from, at, g.batch);
        cuda_gemm(c, &g, columns, weight, add ? here : NULL, NULL, here);
    }
}

void cuda_conv_forward(struct compute *base, const struct conv *conv, void *y, const void *x,
                       const void *weight, size_t rows, float *scratch)
{
    struct cuda *c = cuda_of(base);
    (void)scratch;
    convolve(c, view_of_x(conv), y, x, weight, conv->out, rows, false);
}

void cuda_conv_backward_input(struct compute *base, const struct conv *conv, void *dx, const void *dy,
                              const void *weight, size_t rows, bool add, float *scratch)
{
    struct cuda *c = cuda_of(base);
    const size_t n = conv->in * conv->out * CONV_TAPS;
    (void)scratch;
    struct turn_weight_args turn = { cuda_room(c, &c->part, n * base->value_bytes), weight, conv->in,
                                     conv->out, CONV_TAPS };
    cuda_launch(c, KERNEL_turn_weight, cuda_by_elements(n), 1, &turn);
    convolve(c, view_of_dy(conv), dx, dy, turn.to, conv->in, rows, add);
}

/* Compute the weight's gradient. Picture k of each group adds to sum k. At the end these sums are added in order. */
void cuda_conv_backward_params(struct compute *base, const struct conv *conv, float *dweight, const void *dy,
                               const void *x, size_t rows, float *scratch)
{
    struct cuda *c = cuda_of(base);
    struct columns_args v = view_of_x(conv);
    const size_t most = pictures_at_once(c, &v), places = square(v.to_side), n = conv->out * seen_of(&v);
    const size_t parts = rows < most ? rows : most, apart = cuda_blocks(n, KERNEL_PACK) * KERNEL_PACK;
    struct gemm g = { .m = seen_of(&v),
                      .n = conv->out,
                      .k = places,
                      .lda = (int64_t)v.pitch,
                      .ldb = (int64_t)places,
                      .ldd = (int64_t)seen_of(&v),
                      .apart_a = (int64_t)(seen_of(&v) * v.pitch),
                      .apart_b = (int64_t)(conv->out * places),
                      .apart_d = (int64_t)apart,
                      .transpose_a = true,
                      .to_float = true };
    (void)scratch;
    float *part = cuda_room(c, &c->part, parts * apart * sizeof(float));
    for (size_t at = 0; at < rows; at += most) {
        g.batch = rows - at < most ? rows - at : most;
        const void *columns = make_columns(c, v, x, at, g.batch);
        cuda_gemm(c, &g, columns, (const char *)dy + at * conv->out * places * base->value_bytes,
                  at > 0 ? part : NULL, NULL, part);
    }
    cuda_join_sums(c, dweight, part, n, parts, apart);
}

/* --- batch normalization ------------------------------------------------------------------------------ */

enum { STRIPS = 64, LEAST = 2048 };

/* Return the number of rows in a strip. A CUDA block sums one channel of one strip. There are at most STRIPS strips. In
 * all strips except the last one, a block sums at least LEAST values. */
static size_t rows_of_strip(const struct batch_norm *n, size_t rows)
{
    const size_t strips = n->channels < BLOCKS ? BLOCKS / n->channels : 1;
    /* Joining more strips would be slow. */
    const size_t strip = cuda_blocks(rows, strips < STRIPS ? strips : STRIPS);
    /* A smaller block takes longer to start than to run. */
    const size_t least = cuda_blocks(LEAST, n->spatial);
    return strip > least ? strip : least;
}

static struct norm_args norm_of(const struct batch_norm *n, size_t rows)
{
    return (struct norm_args){ .weight = n->weight,
                               .bias = n->bias,
                               .saved = n->saved,
                               .running_mean = n->running_mean,
                               .running_var = n->running_var,
                               .rows = rows,
                               .strip = rows_of_strip(n, rows),
                               .parts = cuda_blocks(rows, rows_of_strip(n, rows)),
                               .channels = (int)n->channels,
                               .spatial = (int)n->spatial,
                               .eps = n->eps,
                               .momentum = n->momentum };
}

/* Start a kernel with one thread for each channel. */
static void by_channels(struct compute *base, enum kernel kernel, struct norm_args *args)
{
    cuda_launch(cuda_of(base), kernel, cuda_by_elements((size_t)args->channels), 1, args);
}

static void by_values(struct compute *base, enum kernel kernel, struct norm_args *args)
{
    const size_t n = args->rows * (size_t)args->channels * (size_t)args->spatial;
    cuda_launch(cuda_of(base), kernel, cuda_by_packs(cuda_of(base), n), 1, args);
}

void cuda_norm_measure(struct compute *base, const struct batch_norm *n, double *record, const void *x,
                       size_t rows)
{
    struct cuda *c = cuda_of(base);
    struct norm_args args = norm_of(n, rows);
    args.part = cuda_room(c, &c->part, args.parts * batch_norm_numbers(n->channels) * sizeof(double));
    args.x = x;
    cuda_launch(c, KERNEL_norm_measure, n->channels, args.parts, &args);
    args.all = record;
    args.saved = NULL;
    by_channels(base, KERNEL_norm_join, &args);
}

void cuda_norm_learn(struct compute *base, const struct batch_norm *n, const double *records, size_t ranks)
{
    struct norm_args args = norm_of(n, 0);
    args.part = (double *)(uintptr_t)records;
    args.parts = ranks;
    by_channels(base, KERNEL_norm_join, &args);
}

void cuda_norm_apply(struct compute *base, const struct batch_norm *n, void *y, const void *x, size_t rows,
                     bool test)
{
    struct norm_args args = norm_of(n, rows);
    args.y = y;
    args.x = x;
    args.saved = test ? NULL : n->saved;
    by_values(base, KERNEL_norm_apply, &args);
}

void cuda_norm_sums(struct compute *base, const struct batch_norm *n, double *sums, float *dweight,
                    float *dbias, const void *dy, const void *x, size_t rows)
{
    struct cuda *c = cuda_of(base);
    struct norm_args args = norm_of(n, rows);
    args.part = cuda_room(c, &c->part, 2 * args.parts * n->channels * sizeof(double));
    args.all = sums;
    args.x = x;
    args.dy = dy;
    args.dweight = dweight;
    args.dbias = dbias;
    cuda_launch(c, KERNEL_norm_sums, n->channels, args.parts, &args);
    by_channels(base, KERNEL_norm_join_sums, &args);
}

void cuda_norm_gradient(struct compute *base, const struct batch_norm *n, void *dx, const double *sums,
                        const void *dy, const void *x, size_t rows)
{
    struct norm_args args = norm_of(n, rows);
    args.y = dx;
    args.x = x;
    args.dy = dy;
    args.all = (double *)(uintptr_t)sums;
    by_values(base, KERNEL_norm_gradient, &args);
}

/* --- shortcut and pool -------------------------------------------------------------------------------- */

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

void cuda_shortcut_forward(struct compute *base, const struct shortcut *s, void *y, const void *x,
                           size_t rows)
{
    struct cuda *c = cuda_of(base);
    const size_t side = cuda_blocks(s->side, s->stride);
    struct shortcut_args args = shortcut_of(s, y, x);
    args.n = rows * s->out * side * side;
    cuda_launch(c, KERNEL_shortcut_forward, cuda_by_packs(c, args.n), 1, &args);
}

void cuda_shortcut_backward(struct compute *base, const struct shortcut *s, void *dx, const void *dy,
                            size_t rows)
{
    struct cuda *c = cuda_of(base);
    struct shortcut_args args = shortcut_of(s, dx, dy);
    args.n = rows * s->in * s->side * s->side;
    cuda_launch(c, KERNEL_shortcut_backward, cuda_by_packs(c, args.n), 1, &args);
}

void cuda_pool_forward(struct compute *base, void *y, const void *x, size_t planes, size_t n)
{
    struct pool_args args = { y, x, planes, n };
    cuda_launch(cuda_of(base), KERNEL_pool_forward, cuda_by_rows(planes), 1, &args);
}

void cuda_pool_backward(struct compute *base, void *dx, const void *dy, size_t planes, size_t n)
{
    struct pool_args args = { dx, dy, planes, n };
    cuda_launch(cuda_of(base), KERNEL_pool_backward, cuda_by_packs(cuda_of(base), planes * n), 1, &args);
}
