/* activation.c -- see activation.h. */
#include "train/layers/activation.h"

#include "train/layers/cross_entropy.h"

/* The gradient at 0 is 0, as in torch. */
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

/* y (1 - y) is the slope, from the output alone. */
static void sigmoid_back(real *d, const real *y, size_t rows, size_t n)
{
    for (size_t i = 0; i < rows * n; i++)
        d[i] = d[i] * (y[i] * (1 - y[i]));
}

/* Row by row: each is a distribution of its own. */
static void log_softmax(real *y, size_t rows, size_t n)
{
    for (; rows > 0; rows--, y += n) {
        real lse = log_sum_exp(y, n);
        for (size_t i = 0; i < n; i++)
            y[i] -= lse;
    }
}

/* d - softmax * sum(d), and softmax is exp of the output. */
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

const struct activation activation_relu = { ACTIVATION_RELU, relu, relu_back };
const struct activation activation_sigmoid = { ACTIVATION_SIGMOID, sigmoid, sigmoid_back };
const struct activation activation_log_softmax = { ACTIVATION_LOG_SOFTMAX, log_softmax, log_softmax_back };
