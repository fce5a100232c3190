/* linear.c -- see layers.h. BLAS computes the matrix products. */
#include "train/layers/layers.h"

#include <string.h>

void embedding_forward(real *y, const int32_t *token, const real *tokens, const real *places, size_t rows,
                       size_t length, size_t n)
{
    for (size_t at = 0; at < rows * length; at++, y += n) {
        const real *of_token = tokens + (size_t)token[at] * n, *of_place = places + at % length * n;
        for (size_t i = 0; i < n; i++)
            y[i] = of_token[i] + of_place[i];
    }
}

void embedding_backward(real *dtokens, real *dplaces, const real *dy, const int32_t *token, size_t rows,
                        size_t length, size_t max_length, size_t n)
{
    memset(dplaces, 0, max_length * n * sizeof(real));
    for (size_t at = 0; at < rows * length; at++, dy += n) {
        real *restrict of_token = dtokens + (size_t)token[at] * n, *restrict of_place =
                                                                       dplaces + at % length * n;
        for (size_t i = 0; i < n; i++) {
            of_token[i] += dy[i];
            of_place[i] += dy[i];
        }
    }
}

/* Copy the bias (or `before`) to y, and let the product add to y (beta = 1), which saves a pass over the output. */
void linear_forward(real *y, const real *x, const real *weight, const real *bias, size_t rows, size_t in,
                    size_t out)
{
    for (size_t row = 0; row < rows && bias != NULL; row++)
        memcpy(y + row * out, bias, out * sizeof(real));
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, (int)in, 1, x, (int)in, weight,
              (int)in, bias != NULL, y, (int)out);
}

void linear_forward_add(real *y, const real *before, const real *x, const real *weight, const real *bias,
                        size_t rows, size_t in, size_t out)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < out; i++)
            y[row * out + i] = before[row * out + i] + bias[i];
    }
    real_gemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)out, (int)in, 1, x, (int)in, weight,
              (int)in, 1, y, (int)out);
}

/* Sum the columns, row by row. The order of additions is then the order in memory. */
static void column_sums(real *sum, const real *d, size_t rows, size_t n)
{
    memset(sum, 0, n * sizeof(real));
    for (; rows > 0; rows--, d += n) {
        for (size_t i = 0; i < n; i++)
            sum[i] += d[i];
    }
}

/* Overwrite the gradients of weight and bias (beta = 0), so that the caller need not clear them. */
void linear_backward_params(real *dweight, real *dbias, const real *dy, const real *x, size_t rows, size_t in,
                            size_t out)
{
    real_gemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)out, (int)in, (int)rows, 1, dy, (int)out, x,
              (int)in, 0, dweight, (int)in);
    if (dbias != NULL)
        column_sums(dbias, dy, rows, out);
}

void linear_backward_input(real *dx, const real *dy, const real *weight, size_t rows, size_t in, size_t out)
{
    real_gemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)in, (int)out, 1, dy, (int)out,
              weight, (int)in, 0, dx, (int)in);
}
