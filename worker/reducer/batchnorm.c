/* batchnorm.c -- see batchnorm.h. The mean is computed first, and the variance in a second pass, because a single pass
 * would lose most digits if the mean is large. The loops are compiled for several processors, but all versions give the
 * same bits. */
#include "reducer/batchnorm.h"

#include <math.h>
#include <string.h>

/* The values of a channel are in n ranges (runs) of `spatial` adjacent elements. The elements of a run are added
 * to LANES separate sums. With only one sum, each addition would wait for the previous addition. */
enum { LANES = 16 };

/* WIDE(name, (parameters), (arguments)) defines name(), which calls the version of name_body() for this processor. All
 * versions give the same bits, because each version adds in the same order and uses no fused multiply-add. */
#define BODY static inline __attribute__((always_inline)) void
#ifdef __x86_64__
#define WIDE_FOR(name, processor, params, args)                               \
    __attribute__((target(#processor))) static void name##_##processor params \
    {                                                                         \
        name##_body args;                                                     \
    }
#define WIDE(name, params, args)                 \
    WIDE_FOR(name, avx512f, params, args)        \
    WIDE_FOR(name, avx2, params, args)           \
    static void name params                      \
    {                                            \
        if (__builtin_cpu_supports("avx512f"))   \
            name##_avx512f args;                 \
        else if (__builtin_cpu_supports("avx2")) \
            name##_avx2 args;                    \
        else                                     \
            name##_body args;                    \
    }
#else
#define WIDE(name, params, args) \
    static void name params      \
    {                            \
        name##_body args;        \
    }
#endif

/* Return the index of the first element of channel c in a sample. */
static size_t run_at(const ddp_syncbn *bn, size_t sample, size_t c)
{
    return (sample * bn->channels + c) * bn->spatial;
}

/* Add the LANES sums as a balanced tree, and return the result. */
static inline __attribute__((always_inline)) double join(const double lane[LANES])
{
    double sum[LANES];
    memcpy(sum, lane, sizeof(sum));
    for (int n = LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            sum[i] += sum[i + n];
    return sum[0];
}

/* Add n values to *to. Sums are double, so that the mean over a large batch has all digits of a float. */
BODY add_sum_body(double *to, const float *x, size_t n)
{
    double lane[LANES] = { 0 };
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += x[i + k];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += x[i];
    *to += join(lane);
}
WIDE(add_sum, (double *to, const float *x, size_t n), (to, x, n))

/* Add n products (x - mean_x) * (y - mean_y) to *to, in the same order as add_sum. */
BODY add_products_body(double *to, const float *x, double mean_x, const float *y, double mean_y, size_t n)
{
    double lane[LANES] = { 0 };
    const size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (x[i + k] - mean_x) * (y[i + k] - mean_y);
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (x[i] - mean_x) * (y[i] - mean_y);
    *to += join(lane);
}
WIDE(add_products, (double *to, const float *x, double mean_x, const float *y, double mean_y, size_t n),
     (to, x, mean_x, y, mean_y, n))

BODY scale_run_body(float *y, const float *x, size_t n, double mean, double factor, double shift)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)((x[i] - mean) * factor + shift);
}
WIDE(scale_run, (float *y, const float *x, size_t n, double mean, double factor, double shift),
     (y, x, n, mean, factor, shift))

/* Compute dx for one run of consecutive elements. The compiler vectorizes a loop only for arrays that do not overlap.
 * So if dx and dy are the same array, use a loop that has only one of the two pointers. */
BODY slope_run_body(float *dx, const float *x, const float *dy, size_t n, double mean, double mean_dy,
                    double slope, double factor)
{
    if (dx == dy)
        for (size_t i = 0; i < n; i++)
            dx[i] = (float)((dx[i] - mean_dy - (x[i] - mean) * slope) * factor);
    else
        for (size_t i = 0; i < n; i++)
            dx[i] = (float)((dy[i] - mean_dy - (x[i] - mean) * slope) * factor);
}
WIDE(slope_run,
     (float *dx, const float *x, const float *dy, size_t n, double mean, double mean_dy, double slope,
      double factor),
     (dx, x, dy, n, mean, mean_dy, slope, factor))

/* Compute the statistics of this rank's batch. For an empty batch, set all statistics to 0. Compute the variance in a
 * second pass. A single pass would subtract two large sums, which are almost equal if the mean is large. */
void batch_measure(const ddp_syncbn *bn, const float *x, size_t n, double *batch)
{
    double *mean = batch, *squares = batch + bn->channels;
    double count = (double)n * (double)bn->spatial;
    memset(batch, 0, batch_words(bn->channels) * sizeof(*batch));
    batch[2 * bn->channels] = count;
    for (size_t c = 0; c < bn->channels && n > 0; c++) {
        for (size_t i = 0; i < n; i++)
            add_sum(&mean[c], x + run_at(bn, i, c), bn->spatial);
        mean[c] /= count;
        for (size_t i = 0; i < n; i++) {
            const float *run = x + run_at(bn, i, c);
            add_products(&squares[c], run, mean[c], run, mean[c], bn->spatial);
        }
    }
}

/* Merge the statistics `other` into `batch`, with the method of Chan, Golub & LeVeque, which is numerically
 * stable. */
void batch_merge(double *batch, const double *other, size_t channels)
{
    const double a = batch[2 * channels], b = other[2 * channels], all = a + b;
    if (b == 0)
        return;
    for (size_t c = 0; c < channels; c++) {
        double *mean = &batch[c], *squares = &batch[channels + c];
        double apart = other[c] - *mean;
        *mean += apart * (b / all);
        *squares += other[channels + c] + apart * apart * (a * b / all);
    }
    batch[2 * channels] = all;
}

/* Return the new running value. As in torch, `momentum` is the weight of the value `now`. */
static float moved(float running, double now, double momentum)
{
    return (float)((1 - momentum) * running + momentum * now);
}

/* Update the running mean and variance. The batch is normalized with its own variance, the sum of squares divided by
 * n. The running variance estimates the variance of all data, so here the sum is divided by n - 1. An empty batch
 * changes nothing. */
void batch_learn(ddp_syncbn *bn, const double *batch)
{
    const double *mean = batch, *squares = batch + bn->channels;
    if (batch[2 * bn->channels] == 0)
        return;
    bn->count = batch[2 * bn->channels];
    for (size_t c = 0; c < bn->channels; c++) {
        bn->saved[c] = mean[c];
        bn->saved[bn->channels + c] = 1 / sqrt(squares[c] / bn->count + bn->eps);
        if (bn->running_mean != NULL)
            bn->running_mean[c] = moved(bn->running_mean[c], mean[c], bn->momentum);
        if (bn->running_var != NULL)
            bn->running_var[c] = moved(bn->running_var[c], squares[c] / (bn->count - 1), bn->momentum);
    }
}

/* Compute y. Subtract the mean first, because the rounding error of x * factor would grow with the mean. */
void batch_normalize(const ddp_syncbn *bn, const double *mean, const double *invstd, const float *x, size_t n,
                     float *y)
{
    for (size_t s = 0; s < n; s++) {
        for (size_t c = 0; c < bn->channels; c++) {
            const double factor = invstd[c] * (bn->weight != NULL ? bn->weight[c] : 1);
            const double shift = bn->bias != NULL ? bn->bias[c] : 0;
            const size_t at = run_at(bn, s, c);
            scale_run(y + at, x + at, bn->spatial, mean[c], factor, shift);
        }
    }
}

/* Compute two sums for each channel (see batchnorm.h), over this rank's samples. The backward pass needs these sums. */
void batch_sums(const ddp_syncbn *bn, const float *x, const float *dy, size_t n, double *sums)
{
    memset(sums, 0, 2 * bn->channels * sizeof(*sums));
    for (size_t c = 0; c < bn->channels; c++) {
        for (size_t s = 0; s < n; s++) {
            const size_t at = run_at(bn, s, c);
            add_sum(&sums[c], dy + at, bn->spatial);
            add_products(&sums[bn->channels + c], dy + at, 0, x + at, bn->saved[c], bn->spatial);
        }
    }
}

/* Compute dx. In y = (x - mean) / sqrt(var + eps) * weight + bias, mean and var also depend on x. So dx has two more
 * terms: mean_dy comes from mean, and slope comes from var. */
void batch_gradient(const ddp_syncbn *bn, const double *sums, const float *x, const float *dy, size_t n,
                    float *dx)
{
    for (size_t s = 0; s < n; s++) {
        for (size_t c = 0; c < bn->channels; c++) {
            const double mean = bn->saved[c], invstd = bn->saved[bn->channels + c];
            const double mean_dy = sums[c] / bn->count;
            const double slope = sums[bn->channels + c] / bn->count * invstd * invstd;
            const double factor = invstd * (bn->weight != NULL ? bn->weight[c] : 1);
            const size_t at = run_at(bn, s, c);
            slope_run(dx + at, x + at, dy + at, bn->spatial, mean, mean_dy, slope, factor);
        }
    }
}
