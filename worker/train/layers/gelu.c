/* gelu.c -- see gelu.h.
 *
 * tanh comes from exp: 1 - 2 / (exp(2u) + 1). Its absolute error near 0 is that of exp, and as 1 is added to it no digit is
 * lost. */
#include "train/layers/gelu.h"

#include "train/layers/lanes.h"

static const real slope = (real)0.7978845608028654, cube = (real)0.044715;

REAL_BODY real tanh_of(real x)
{
    return 1 - 2 / (lanes_exp(2 * (slope * (x + cube * x * x * x))) + 1);
}

REAL_BODY void gelu_forward_body(real *restrict y, const real *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (real)0.5 * x[i] * (1 + tanh_of(x[i]));
}
REAL_WIDE(gelu_forward, (real * y, const real *x, size_t n), (y, x, n))

REAL_BODY void gelu_backward_body(real *restrict d, const real *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real t = tanh_of(x[i]);
        real inner = slope * (1 + 3 * cube * x[i] * x[i]);
        d[i] *= (real)0.5 * (1 + t) + (real)0.5 * x[i] * (1 - t * t) * inner;
    }
}
REAL_WIDE(gelu_backward, (real * d, const real *x, size_t n), (d, x, n))
