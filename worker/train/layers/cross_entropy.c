/* cross_entropy.c -- see cross_entropy.h. */
#include "train/layers/cross_entropy.h"

#include "train/layers/attention.h"

real log_sum_exp(const real *z, size_t n)
{
    real top = z[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        top = z[i] > top ? z[i] : top;
    for (size_t i = 0; i < n; i++)
        sum += real_exp(z[i] - top);
    return top + real_log(sum);
}

/* d(loss)/d(logit) is softmax minus 1 at the target. */
static void gradient(real *d, const real *z, real lse, size_t target, real weight, size_t n)
{
    for (size_t k = 0; k < n; k++)
        d[k] = weight * (real_exp(z[k] - lse) - (k == target ? 1 : 0));
}

/* Losses are summed in double: an epoch adds up many. */
double cross_entropy(real *d, const real *z, const int32_t *target, const real *weight, size_t rows,
                     size_t length, size_t n)
{
    double loss = 0;
    for (size_t i = 0; i < rows * length; i++, z += n) {
        real lse = log_sum_exp(z, n);
        if (weight[i / length] != 0)
            loss += (double)(lse - z[target[i]]);
        if (d != NULL)
            gradient(d + i * n, z, lse, (size_t)target[i], weight[i / length], n);
    }
    return loss;
}

double cross_entropy_wide(real *z, const int32_t *target, const real *weight, size_t rows, size_t length,
                          size_t n)
{
    double loss = 0;
    for (size_t i = 0; i < rows * length; i++, z += n) {
        const real at_target = z[target[i]], w = weight[i / length];
        real log_sum;
        softmax(z, 1, n, &log_sum);
        if (w != 0)
            loss += (double)(log_sum - at_target);
        for (size_t k = 0; k < n; k++)
            z[k] *= w;
        z[target[i]] -= w;
    }
    return loss;
}
