/* pool.c -- see pool.h. */
#include "train/layers/pool.h"

void pool_forward(real *y, const real *x, size_t planes, size_t n)
{
    for (size_t plane = 0; plane < planes; plane++, x += n) {
        real sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += x[i];
        y[plane] = sum / (real)n;
    }
}

void pool_backward(real *dx, const real *dy, size_t planes, size_t n)
{
    for (size_t plane = 0; plane < planes; plane++, dx += n) {
        const real each = dy[plane] / (real)n;
        for (size_t i = 0; i < n; i++)
            dx[i] = each;
    }
}
