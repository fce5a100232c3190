/* softmax.c -- see softmax.h. The largest element is taken out first, so nothing overflows. */
#include "train/layers/softmax.h"

#include "train/layers/lanes.h"

REAL_BODY real largest(const real *x, size_t n)
{
    real lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = x[0];
    LANES_LOOP(n, lanes, *lane = x[i] > *lane ? x[i] : *lane);
    for (int i = 1; i < LANES; i++)
        lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    return lanes[0];
}

REAL_BODY void softmax_body(real *restrict x, real scale, size_t n, real *restrict log_sum)
{
    real lanes[LANES] = { 0 };
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
    real lanes[LANES] = { 0 };
    LANES_LOOP(n, lanes, *lane += d[i] * p[i]);
    const real mean = lanes_sum(lanes);
    for (size_t i = 0; i < n; i++)
        d[i] = p[i] * (d[i] - mean) * scale;
}
REAL_WIDE(softmax_backward, (real * d, const real *p, real scale, size_t n), (d, p, scale, n))
