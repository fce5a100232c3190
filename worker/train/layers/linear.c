/* linear.c -- see compute.h. BLAS computes the matrix products, because its libraries have code that is tuned for each
 * processor. The other loops read and write memory in order. */
#include "train/compute.h"

#include <string.h>

void cpu_embedding_forward(ON_CPU, void *y, const struct model_batch *batch, const void *tokens,
                           const void *places, size_t n)
{
    real *to = y;
    for (size_t at = 0; at < batch->rows * batch->length; at++, to += n) {
        const real *of_token = (const real *)tokens + (size_t)batch->token[at] * n;
        const real *of_place = (const real *)places + at % batch->length * n;
        for (size_t i = 0; i < n; i++)
            to[i] = of_token[i] + of_place[i];
    }
}

void cpu_embedding_backward(ON_CPU, real *dtokens, real *dplaces, const void *dy,
                            const struct model_batch *batch, size_t max_length, size_t n)
{
    const real *from = dy;
    memset(dplaces, 0, max_length * n * sizeof(real));
    for (size_t at = 0; at < batch->rows * batch->length; at++, from += n) {
        real *restrict of_token = dtokens + (size_t)batch->token[at] * n;
        real *restrict of_place = dplaces + at % batch->length * n;
        for (size_t i = 0; i < n; i++) {
            of_token[i] += from[i];
            of_place[i] += from[i];
        }
    }
}

/* Set y to the bias. If `before` is not NULL, add `before` to y. BLAS then adds the product to y (beta = 1), which
 * saves a pass over y. */
static void begin_rows(real *y, const real *before, const real *bias, size_t rows, size_t n)
{
    for (size_t row = 0; row < rows; row++, y += n) {
        if (before == NULL)
            memcpy(y, bias, n * sizeof(real));
        for (size_t i = 0; i < n && before != NULL; i++)
            y[i] = before[row * n + i] + bias[i];
    }
}

void cpu_linear_forward(ON_CPU, void *y, const void *before, const void *x, const void *weight,
                        const void *bias, struct linear l)
{
    if (bias != NULL)
        begin_rows(y, before, bias, l.rows, l.out);
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)l.rows, (int)l.out, (int)l.in, 1, x, (int)l.in,
              weight, (int)l.in, bias != NULL, y, (int)l.out);
}

/* Sum the columns. Add row after row, so that the elements of `d` are read in their order in memory. */
static void column_sums(real *sum, const real *d, size_t rows, size_t n)
{
    memset(sum, 0, n * sizeof(real));
    for (; rows > 0; rows--, d += n) {
        for (size_t i = 0; i < n; i++)
            sum[i] += d[i];
    }
}

/* Overwrite the gradients of weight and bias (beta = 0), so that the caller need not clear them. */
void cpu_linear_backward_params(ON_CPU, real *dweight, real *dbias, const void *dy, const void *x,
                                struct linear l)
{
    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)l.out, (int)l.in, (int)l.rows, 1, dy, (int)l.out,
              x, (int)l.in, 0, dweight, (int)l.in);
    if (dbias != NULL)
        column_sums(dbias, dy, l.rows, l.out);
}

void cpu_linear_backward_input(ON_CPU, void *dx, const void *dy, const void *weight, struct linear l)
{
    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)l.rows, (int)l.in, (int)l.out, 1, dy,
              (int)l.out, weight, (int)l.in, 0, dx, (int)l.in);
}
