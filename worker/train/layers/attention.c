/* attention.c -- see compute.h. Attention processes the queries in blocks, because a block needs only the keys up to
 * its last query. So about half of the scores S are never computed. Backward computes the probabilities P again,
 * because storing P would need length^2 numbers per head. */
#include "train/compute.h"

#include <stdbool.h>

/* Return the largest element. Callers subtract the largest element before exp, so that nothing overflows. */
REAL_BODY real largest(const real *x, size_t n)
{
    real lanes[REAL_LANES];
    for (int i = 0; i < REAL_LANES; i++)
        lanes[i] = x[0];
    LANES_LOOP(n, lanes, *lane = x[i] > *lane ? x[i] : *lane);
    for (int i = 1; i < REAL_LANES; i++)
        lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    return lanes[0];
}

/* Set *log_sum to L = log(sum(exp(scale * x))). Replace x by the softmax of scale * x, which is exp(scale * x -
 * L). */
static void softmax(real *x, real scale, size_t n, real *log_sum);

/* Compute the softmax of x again, without a sum: `log_sum` is the value that softmax() has stored for this row. */
static void softmax_again(real *x, real scale, real log_sum, size_t n);

/* Turn d, the gradient of the softmax p, into the gradient of the softmax's input. */
static void softmax_backward(real *d, const real *p, real scale, size_t n);

REAL_BODY void softmax_body(real *restrict x, real scale, size_t n, real *restrict log_sum)
{
    real lanes[REAL_LANES] = { 0 };
    const real top = largest(x, n) * scale;
    for (size_t i = 0; i < n; i++)
        x[i] = lanes_exp(x[i] * scale - top);
    LANES_LOOP(n, lanes, *lane += x[i]);
    const real sum = lanes_sum(lanes), factor = 1 / sum;
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
    *log_sum = top + real_log(sum);
}
REAL_WIDE(softmax, (real * x, real scale, size_t n, real *log_sum), (x, scale, n, log_sum))

REAL_BODY void softmax_again_body(real *restrict x, real scale, real log_sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = lanes_exp(x[i] * scale - log_sum);
}
REAL_WIDE(softmax_again, (real * x, real scale, real log_sum, size_t n), (x, scale, log_sum, n))

REAL_BODY void softmax_backward_body(real *restrict d, const real *restrict p, real scale, size_t n)
{
    real lanes[REAL_LANES] = { 0 };
    LANES_LOOP(n, lanes, *lane += d[i] * p[i]);
    const real mean = lanes_sum(lanes);
    for (size_t i = 0; i < n; i++)
        d[i] = p[i] * (d[i] - mean) * scale;
}
REAL_WIDE(softmax_backward, (real * d, const real *p, real scale, size_t n), (d, p, scale, n))

/* Number of queries in a block. For one head of one sequence:
 *
 *     S = Q K^T    P = softmax(S / sqrt(width of a head))    Y = P V
 *
 * A query uses only the keys up to its token. P of a block needs memory for only BLOCK x length numbers. */
enum { BLOCK = 64 };

/* `head` is one attention head for one sequence. `block` is a block of the queries of a head. */
struct head {
    const real *q, *k, *v;
    size_t stride; /* number of elements from one token to the next in qkv */
    size_t width;  /* width of a head */
    real scale;
};

struct block {
    size_t first, n; /* the queries of the block are first .. first + n - 1 */
    size_t keys;     /* number of keys that the last query uses; also the row length of the scores */
};

/* Return room for two blocks of scores on the CPU, and for one number per query and head on a device. */
size_t attention_scratch(const struct attention *a)
{
    return (size_t)2 * BLOCK * a->length + a->rows * a->heads * a->length;
}

static struct head head_of(const real *qkv, const struct attention *a, size_t row, size_t head)
{
    const size_t width = a->width / a->heads;
    const real *q = qkv + row * a->length * 3 * a->width + head * width;
    return (
        struct head){ q, q + a->width, q + 2 * a->width, 3 * a->width, width, 1 / real_sqrt((real)width) };
}

static struct block block_of(size_t number, size_t length)
{
    struct block b = { .first = number * BLOCK, .n = BLOCK };
    if (b.first + b.n > length)
        b.n = length - b.first;
    b.keys = b.first + b.n;
    return b;
}

static size_t blocks(size_t length)
{
    return (length + BLOCK - 1) / BLOCK;
}

/* Compute S = Q K^T for a block of queries: n rows, each with `keys` numbers. */
static void scores(real *s, const struct head *h, const struct block *b)
{
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)b->n, (int)b->keys, (int)h->width, 1,
              h->q + b->first * h->stride, (int)h->stride, h->k, (int)h->stride, 0, s, (int)b->keys);
}

/* Set P of query i to 0 for the keys after that query. */
static void hide(real *row, const struct block *b, size_t i)
{
    const size_t seen = b->first + i + 1;
    memset(row + seen, 0, (b->keys - seen) * sizeof(real));
}

static void head_forward(real *y, size_t y_stride, real *log_sum, const struct head *h, real *p,
                         const struct block *b)
{
    scores(p, h, b);
    for (size_t i = 0; i < b->n; i++) {
        softmax(p + i * b->keys, h->scale, b->first + i + 1, &log_sum[b->first + i]);
        hide(p + i * b->keys, b, i);
    }
    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)b->n, (int)h->width, (int)b->keys, 1, p,
              (int)b->keys, h->v, (int)h->stride, 0, y + b->first * y_stride, (int)y_stride);
}

void cpu_attention_forward(ON_CPU, void *y, real *log_sum, const void *qkv, real *scratch,
                           const struct attention *a)
{
    for (size_t row = 0; row < a->rows; row++) {
        for (size_t i = 0; i < a->heads; i++, log_sum += a->length) {
            const struct head h = head_of(qkv, a, row, i);
            for (size_t n = 0; n < blocks(a->length); n++) {
                const struct block b = block_of(n, a->length);
                head_forward((real *)y + row * a->length * a->width + i * h.width, a->width, log_sum, &h,
                             scratch, &b);
            }
        }
    }
}

/* Compute the probabilities P of a block again, and write the gradient of the scores S to `ds`. */
static void scores_backward(real *p, real *ds, const real *dy, size_t dy_stride, const real *log_sum,
                            const struct head *h, const struct block *b)
{
    scores(p, h, b);
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)b->n, (int)b->keys, (int)h->width, 1, dy,
              (int)dy_stride, h->v, (int)h->stride, 0, ds, (int)b->keys);
    for (size_t i = 0; i < b->n; i++) {
        real *row = p + i * b->keys, *d = ds + i * b->keys;
        softmax_again(row, h->scale, log_sum[b->first + i], b->first + i + 1);
        softmax_backward(d, row, h->scale, b->first + i + 1);
        hide(row, b, i);
        hide(d, b, i);
    }
}

/* Compute the matrix product left^T * right. `left` has n rows and `keys` columns. If `overwrite` is true, write the
 * product to `to`. Otherwise add the product to `to`. */
static void to_keys(real *to, const real *left, const real *right, size_t right_stride, const struct head *h,
                    const struct block *b, bool overwrite)
{
    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)b->keys, (int)h->width, (int)b->n, 1, left,
              (int)b->keys, right, (int)right_stride, !overwrite, to, (int)h->stride);
}

/* Compute the gradients of queries, keys and values of one head. Compute P again from Q, K and log_sum, which
 * costs one more product:
 *
 *     dV = P^T dY    dP = dY V^T    dS = softmax backward    dQ = dS K    dK = dS^T Q
 *
 * Several blocks contribute to the gradients of keys and values. The last block uses all keys, so it is processed first
 * and overwrites these gradients. The other blocks add to these gradients. `dq` points into dqkv, which has the layout
 * of qkv. */
static void head_backward(real *dq, const real *dy, size_t dy_stride, const real *log_sum,
                          const struct head *h, real *scratch, size_t length)
{
    real *p = scratch, *ds = scratch + BLOCK * length, *dk = dq + (h->k - h->q), *dv = dq + (h->v - h->q);
    for (size_t n = blocks(length); n > 0; n--) {
        const struct block b = block_of(n - 1, length);
        const real *dy_block = dy + b.first * dy_stride;
        bool first = n == blocks(length);
        scores_backward(p, ds, dy_block, dy_stride, log_sum, h, &b);
        to_keys(dv, p, dy_block, dy_stride, h, &b, first);
        to_keys(dk, ds, h->q + b.first * h->stride, h->stride, h, &b, first);
        real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)b.n, (int)h->width, (int)b.keys, 1, ds,
                  (int)b.keys, h->k, (int)h->stride, 0, dq + b.first * h->stride, (int)h->stride);
    }
}

/* Compute the gradient. `y` is not used here, because softmax_backward needs only P and its gradient. */
void cpu_attention_backward(ON_CPU, void *dqkv, const void *dy, const void *y, const void *qkv,
                            const real *log_sum, real *scratch, const struct attention *a)
{
    (void)y;
    for (size_t row = 0; row < a->rows; row++) {
        for (size_t i = 0; i < a->heads; i++, log_sum += a->length) {
            const struct head h = head_of(qkv, a, row, i);
            head_backward((real *)dqkv + (h.q - (const real *)qkv),
                          (const real *)dy + row * a->length * a->width + i * h.width, a->width, log_sum, &h,
                          scratch, a->length);
        }
    }
}

/* --- cross entropy ---------------------------------------------------------------------------------------- */

real log_sum_exp(const real *z, size_t n)
{
    real top = z[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        top = z[i] > top ? z[i] : top;
    for (size_t i = 0; i < n; i++)
        sum += real_exp(z[i] - top);
    return top + real_log(sum);
}

/* Compute the gradient of the logits: weight * softmax(z), and weight * (softmax(z) - 1) at the target. */
static void gradient(real *d, const real *z, real lse, size_t target, real weight, size_t n)
{
    for (size_t k = 0; k < n; k++)
        d[k] = weight * (real_exp(z[k] - lse) - (k == target ? 1 : 0));
}

/* Return the sum of the losses. If `d` is not NULL, also write the gradient to `d`. The sum is a double, because an
 * epoch adds many losses. */
static double entropy(real *d, const real *z, const struct model_batch *b, size_t n)
{
    double loss = 0;
    for (size_t i = 0; i < b->rows * b->length; i++, z += n) {
        real lse = log_sum_exp(z, n);
        if (b->weight[i / b->length] != 0)
            loss += (double)(lse - z[b->target[i]]);
        if (d != NULL)
            gradient(d + i * n, z, lse, (size_t)b->target[i], b->weight[i / b->length], n);
    }
    return loss;
}

/* Return the loss as entropy() does, and overwrite z with the gradient. The loss and the gradient differ from those of
 * entropy() in the last bits, because this function uses lanes_exp. */
static double entropy_wide(real *z, const struct model_batch *b, size_t n)
{
    double loss = 0;
    for (size_t i = 0; i < b->rows * b->length; i++, z += n) {
        const real at_target = z[b->target[i]], w = b->weight[i / b->length];
        real log_sum;
        softmax(z, 1, n, &log_sum);
        if (w != 0)
            loss += (double)(log_sum - at_target);
        for (size_t k = 0; k < n; k++)
            z[k] *= w;
        z[b->target[i]] -= w;
    }
    return loss;
}

double cpu_cross_entropy(ON_CPU, void *d, void *z, const struct model_batch *batch, size_t classes, bool wide)
{
    return wide ? entropy_wide(z, batch, classes) : entropy(d, z, batch, classes);
}

double cpu_examine(ON_CPU, void *z, const struct model_batch *batch, size_t classes, size_t *correct)
{
    (void)correct;
    return entropy(NULL, z, batch, classes);
}
