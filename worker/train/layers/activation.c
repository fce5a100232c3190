/* activation.c -- see compute.h: GELU, the shortcut of residual blocks, ReLU, sigmoid and log_softmax. The last three
 * work in place, because their gradients need only the output. The gradient of GELU needs the input, so GELU has a
 * separate output. */
#include "train/compute.h"

#include <string.h>

/* cpu_gelu_forward computes tanh as 1 - 2 / (exp(2u) + 1). Near u = 0 the result has fewer correct digits. The missing
 * digits do not matter, because GELU adds 1 to tanh. */

static const real gelu_slope = (real)0.7978845608028654, gelu_cube = (real)0.044715;

REAL_BODY real tanh_of(real x)
{
    return 1 - 2 / (lanes_exp(2 * (gelu_slope * (x + gelu_cube * x * x * x))) + 1);
}

REAL_BODY void cpu_gelu_forward_body(ON_CPU, real *restrict y, const real *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (real)0.5 * x[i] * (1 + tanh_of(x[i]));
}
REAL_WIDE(cpu_gelu_forward, (ON_CPU, void *y, const void *x, size_t n), (on_cpu, y, x, n))

REAL_BODY void cpu_gelu_backward_body(ON_CPU, real *restrict d, const real *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        real t = tanh_of(x[i]);
        real inner = gelu_slope * (1 + 3 * gelu_cube * x[i] * x[i]);
        d[i] *= (real)0.5 * (1 + t) + (real)0.5 * x[i] * (1 - t * t) * inner;
    }
}
REAL_WIDE(cpu_gelu_backward, (ON_CPU, void *d, const void *x, size_t n), (on_cpu, d, x, n))

/* --- shortcut --------------------------------------------------------------------------------------------- */

static size_t side_of_y(const struct shortcut *s)
{
    return (s->side + s->stride - 1) / s->stride;
}

/* Return the plane of y to which plane `plane` of x is added. Planes are counted over all rows. */
static size_t shortcut_target(const struct shortcut *s, size_t plane)
{
    const size_t row = plane / s->in, channel = plane % s->in + (s->out - s->in) / 2;
    return (row * s->out + channel) * side_of_y(s) * side_of_y(s);
}

void cpu_shortcut_forward(ON_CPU, const struct shortcut *s, void *y, const void *x, size_t rows)
{
    const size_t n = side_of_y(s);
    for (size_t plane = 0; plane < rows * s->in; plane++) {
        real *to = (real *)y + shortcut_target(s, plane);
        const real *from = (const real *)x + plane * s->side * s->side;
        for (size_t line = 0; line < n; line++, to += n) {
            for (size_t i = 0; i < n; i++)
                to[i] += from[line * s->stride * s->side + i * s->stride];
        }
    }
}

void cpu_shortcut_backward(ON_CPU, const struct shortcut *s, void *dx, const void *dy, size_t rows)
{
    const size_t n = side_of_y(s), values = rows * s->in * s->side * s->side;
    if (s->stride == 1 && s->in == s->out) {
        memcpy(dx, dy, values * sizeof(real));
        return;
    }
    memset(dx, 0, values * sizeof(real));
    for (size_t plane = 0; plane < rows * s->in; plane++) {
        real *to = (real *)dx + plane * s->side * s->side;
        const real *from = (const real *)dy + shortcut_target(s, plane);
        for (size_t line = 0; line < n; line++, from += n) {
            for (size_t i = 0; i < n; i++)
                to[line * s->stride * s->side + i * s->stride] = from[i];
        }
    }
}

static void relu(real *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

static void relu_back(real *d, const real *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        d[i] = y[i] > 0 ? d[i] : 0;
}

static void sigmoid(real *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        y[i] = 1 / (1 + real_exp(-y[i]));
}

/* Turn d into the gradient of the input. The derivative is y (1 - y). */
static void sigmoid_back(real *d, const real *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        d[i] = d[i] * (y[i] * (1 - y[i]));
}

static void log_softmax(real *y, size_t rows, size_t n)
{
    for (; rows > 0; rows--, y += n) {
        real lse = log_sum_exp(y, n);
        for (size_t i = 0; i < n; i++)
            y[i] -= lse;
    }
}

/* Turn each row of d into the gradient of the input: d - softmax * sum(d), where softmax is exp(y). */
static void log_softmax_back(real *d, const real *y, size_t rows, size_t n)
{
    for (; rows > 0; rows--, y += n, d += n) {
        real sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += d[i];
        for (size_t i = 0; i < n; i++)
            d[i] -= real_exp(y[i]) * sum;
    }
}

static const struct {
    void (*forward)(real *y, size_t rows, size_t n);
    void (*backward)(real *d, const real *y, size_t rows, size_t n);
} activations[] = {
    [ACTIVATION_RELU] = { relu, relu_back },
    [ACTIVATION_SIGMOID] = { sigmoid, sigmoid_back },
    [ACTIVATION_LOG_SOFTMAX] = { log_softmax, log_softmax_back },
};

void cpu_activation_forward(ON_CPU, enum activation f, void *y, size_t rows, size_t n)
{
    activations[f].forward(y, rows, n);
}

void cpu_activation_backward(ON_CPU, enum activation f, void *d, const void *y, size_t rows, size_t n)
{
    activations[f].backward(d, y, rows, n);
}
