/* layer_norm.c -- see compute.h. The variance is computed from the mean in a second pass over the row, because the
 * difference of two large sums would lose digits. */
#include "train/compute.h"

static const real epsilon = (real)1e-5;

REAL_BODY real mean_of(const real *x, size_t n)
{
    real lanes[REAL_LANES] = { 0 };
    LANES_LOOP(n, lanes, *lane += x[i]);
    return lanes_sum(lanes) / (real)n;
}

REAL_BODY real variance_of(const real *x, real mean, size_t n)
{
    real lanes[REAL_LANES] = { 0 };
    LANES_LOOP(n, lanes, *lane += (x[i] - mean) * (x[i] - mean));
    return lanes_sum(lanes) / (real)n;
}

REAL_BODY void cpu_layer_norm_forward_body(ON_CPU, real *restrict y, real *restrict mean,
                                           real *restrict scale, const real *restrict x,
                                           const real *restrict weight, const real *restrict bias,
                                           size_t rows, size_t n)
{
    for (size_t row = 0; row < rows; row++, x += n, y += n) {
        const real m = mean_of(x, n), s = 1 / real_sqrt(variance_of(x, m, n) + epsilon);
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - m) * s * weight[i] + bias[i];
        mean[row] = m;
        scale[row] = s;
    }
}
REAL_WIDE(cpu_layer_norm_forward,
          (ON_CPU, void *y, real *mean, real *scale, const void *x, const void *weight, const void *bias,
           size_t rows, size_t n),
          (on_cpu, y, mean, scale, x, weight, bias, rows, n))

/* Add the gradient of one row to dx. The gradient is scale * (G - g - H * gh), where G = dy * weight and
 * H = (x - mean) * scale. `g` is the mean of G, and `gh` is the mean of G * H. */
REAL_BODY void row_backward(real *restrict dx, const real *restrict dy, const real *restrict x, real mean,
                            real scale, const real *restrict weight, size_t n)
{
    real of_g[REAL_LANES] = { 0 }, of_gh[REAL_LANES] = { 0 };
    LANES_LOOP(n, of_g, *lane += dy[i] * weight[i]);
    LANES_LOOP(n, of_gh, *lane += dy[i] * weight[i] * ((x[i] - mean) * scale));
    const real g = lanes_sum(of_g) / (real)n, gh = lanes_sum(of_gh) / (real)n;
    for (size_t i = 0; i < n; i++)
        dx[i] += scale * (dy[i] * weight[i] - g - (x[i] - mean) * scale * gh);
}

REAL_BODY void cpu_layer_norm_backward_body(ON_CPU, real *restrict dx, real *restrict dweight,
                                            real *restrict dbias, const real *restrict dy,
                                            const real *restrict x, const real *restrict mean,
                                            const real *restrict scale, const real *restrict weight,
                                            size_t rows, size_t n)
{
    memset(dweight, 0, n * sizeof(real));
    memset(dbias, 0, n * sizeof(real));
    for (size_t row = 0; row < rows; row++, x += n, dx += n, dy += n) {
        row_backward(dx, dy, x, mean[row], scale[row], weight, n);
        for (size_t i = 0; i < n; i++) {
            dweight[i] += dy[i] * ((x[i] - mean[row]) * scale[row]);
            dbias[i] += dy[i];
        }
    }
}
REAL_WIDE(cpu_layer_norm_backward,
          (ON_CPU, void *dx, real *dweight, real *dbias, const void *dy, const void *x, const real *mean,
           const real *scale, const void *weight, size_t rows, size_t n),
          (on_cpu, dx, dweight, dbias, dy, x, mean, scale, weight, rows, n))
