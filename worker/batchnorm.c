/* batchnorm.c -- see batchnorm.h.
 *
 * A channel's values lie in n runs of `spatial` elements. Each run is summed up in a few running sums side
 * by side, because one alone waits for its own last addition; the variance is taken in a second pass, from
 * the mean, because the difference of two large sums of squares would be all rounding where the mean is
 * large. */
#include "batchnorm.h"

#include <math.h>
#include <string.h>

enum { LANES = 4 };

/* Where channel c of a sample begins. */
static size_t run_at(const ddp_syncbn *bn, size_t sample, size_t c)
{
    return (sample * bn->channels + c) * bn->spatial;
}

static double join(const double lane[LANES])
{
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* In double, so that a mean over a large batch has all digits of a float. */
static double sum_of_run(const float *x, size_t n)
{
    double lane[LANES] = { 0 };
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += x[i + k];
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += x[i];
    return join(lane);
}

/* The same order as the sum, from the mean that it has led to. */
static double squares_of_run(const float *x, size_t n, double mean)
{
    double lane[LANES] = { 0 };
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (x[i + k] - mean) * (x[i + k] - mean);
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (x[i] - mean) * (x[i] - mean);
    return join(lane);
}

/* An empty batch has count 0 and numbers that nobody looks at. */
void batch_measure(const ddp_syncbn *bn, const float *x, size_t n, double *batch)
{
    double *mean = batch, *squares = batch + bn->channels;
    double count = (double)n * (double)bn->spatial;
    memset(batch, 0, batch_words(bn->channels) * sizeof(*batch));
    batch[2 * bn->channels] = count;
    for (size_t c = 0; c < bn->channels && n > 0; c++) {
        for (size_t i = 0; i < n; i++)
            mean[c] += sum_of_run(x + run_at(bn, i, c), bn->spatial);
        mean[c] /= count;
        for (size_t i = 0; i < n; i++)
            squares[c] += squares_of_run(x + run_at(bn, i, c), bn->spatial, mean[c]);
    }
}

/* Chan, Golub & LeVeque: exact in real numbers, and gentle in floating point. */
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

/* torch's way round: momentum is the share of what is new. */
static float moved(float running, double now, double momentum)
{
    return (float)((1 - momentum) * running + momentum * now);
}

/* The variance that normalises is that of the batch, the one that is kept an estimate of the world's: n
 * and n - 1. */
void batch_learn(ddp_syncbn *bn, const double *batch)
{
    const double *mean = batch, *squares = batch + bn->channels;
    bn->count = batch[2 * bn->channels];
    memset(bn->saved, 0, 2 * bn->channels * sizeof(*bn->saved));
    for (size_t c = 0; c < bn->channels && bn->count > 0; c++) {
        bn->saved[c] = mean[c];
        bn->saved[bn->channels + c] = 1 / sqrt(squares[c] / bn->count + bn->eps);
        if (bn->running_mean != NULL)
            bn->running_mean[c] = moved(bn->running_mean[c], mean[c], bn->momentum);
        if (bn->running_var != NULL)
            bn->running_var[c] = moved(bn->running_var[c], squares[c] / (bn->count - 1), bn->momentum);
    }
}

/* Weight and scale are joined once for a run; the subtraction stays first, or large means would cost
 * digits. */
void batch_normalise(const ddp_syncbn *bn, const double *mean, const double *invstd, const float *x, size_t n,
                     float *y)
{
    for (size_t s = 0; s < n; s++) {
        for (size_t c = 0; c < bn->channels; c++) {
            const double factor = invstd[c] * (bn->weight != NULL ? bn->weight[c] : 1);
            const double shift = bn->bias != NULL ? bn->bias[c] : 0;
            const size_t at = run_at(bn, s, c);
            for (size_t i = at; i < at + bn->spatial; i++)
                y[i] = (float)((x[i] - mean[c]) * factor + shift);
        }
    }
}

/* What the backward pass must know of all samples, and no more. */
void batch_sums(const ddp_syncbn *bn, const float *x, const float *dy, size_t n, double *sums)
{
    memset(sums, 0, 2 * bn->channels * sizeof(*sums));
    for (size_t c = 0; c < bn->channels; c++) {
        for (size_t s = 0; s < n; s++) {
            const size_t at = run_at(bn, s, c);
            sums[c] += sum_of_run(dy + at, bn->spatial);
            for (size_t i = at; i < at + bn->spatial; i++)
                sums[bn->channels + c] += dy[i] * (x[i] - bn->saved[c]);
        }
    }
}

/* The derivative of (x - mean) / sqrt(var + eps), where mean and var are functions of all x. */
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
            for (size_t i = at; i < at + bn->spatial; i++)
                dx[i] = (float)((dy[i] - mean_dy - (x[i] - mean) * slope) * factor);
        }
    }
}
