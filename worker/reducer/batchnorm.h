/* batchnorm.h -- the arithmetic of ddp/syncbn.h, without communication. The module is pure. The caller owns all arrays,
 * and must have checked all sizes. */
#ifndef WORKER_REDUCER_BATCHNORM_H
#define WORKER_REDUCER_BATCHNORM_H

#include "ddp/syncbn.h"

/* Return the number of doubles in the statistics of a batch. The statistics are mean[channels], squares[channels]
 * and count. squares[c] is the sum of (x - mean[c])^2. count is the number of values in a channel. */
static inline size_t batch_words(size_t channels)
{
    return 2 * channels + 1;
}

/* Compute the statistics of n samples of this rank. n may be 0. */
void batch_measure(const ddp_syncbn *bn, const float *x, size_t n, double *batch);

/* Merge `other` into `batch`. An empty batch changes nothing. */
void batch_merge(double *batch, const double *other, size_t channels);

/* Set bn->saved, bn->count and the running mean and variance from the merged batch. An empty batch changes nothing. */
void batch_learn(ddp_syncbn *bn, const double *batch);

/* Compute y = (x - mean[c]) * invstd[c] * weight[c] + bias[c] for each channel c. */
void batch_normalize(const ddp_syncbn *bn, const double *mean, const double *invstd, const float *x, size_t n,
                     float *y);

/* Compute for each channel c: sums[c] = sum of dy, and sums[channels + c] = sum of dy * (x - mean[c]). */
void batch_sums(const ddp_syncbn *bn, const float *x, const float *dy, size_t n, double *sums);

/* Compute dx from the sums over all ranks. */
void batch_gradient(const ddp_syncbn *bn, const double *sums, const float *x, const float *dy, size_t n,
                    float *dx);

#endif
