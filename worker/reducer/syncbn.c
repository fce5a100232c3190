/* syncbn.c -- see ddp/syncbn.h: the exchange between ranks; batchnorm.c has the arithmetic.
 *
 * The forward pass uses an all-gather instead of an all-reduce, because each rank's sums of squares use that rank's
 * own mean and cannot be added. All ranks merge the statistics in the order of ranks, so all ranks get the same
 * bits. */
#include "ddp/syncbn.h"

#include "reducer/batchnorm.h"
#include "core/context.h"
#include "core/flush_subnormals.h"
#include "core/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Store the error for ddp_last_error(). `group` may be NULL; then the text has no rank number. */
static ddp_status syncbn_fail(ddp_group *group, struct ddp_err *err)
{
    return group != NULL ? ctx_fail(group->ctx, err) : last_error_keep(err);
}

/* Check sizes. After this check no product of sizes can overflow. */
static ddp_status check_arrays(const ddp_syncbn *bn, const float *x, const float *y, size_t n,
                               struct ddp_err *err)
{
    if (bn->channels == 0 || bn->spatial == 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "batch normalization: %zu channels of %zu elements: expected at least 1 of each",
                        bn->channels, bn->spatial);
    if (bn->channels > SIZE_MAX / 64 / bn->spatial || n > SIZE_MAX / 64 / bn->channels / bn->spatial)
        return ddp_fail(err, DDP_ERR_ARG,
                        "batch normalization: %zu x %zu x %zu values do not fit into the address space", n,
                        bn->channels, bn->spatial);
    if (n > 0 && (x == NULL || y == NULL))
        return ddp_fail(err, DDP_ERR_ARG, "batch normalization: %zu samples, but x or y is NULL", n);
    if (!(bn->eps >= 0) || !(bn->momentum >= 0 && bn->momentum <= 1))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "batch normalization: eps=%g, momentum=%g: expected eps of at least 0, and momentum from 0 to 1",
            bn->eps, bn->momentum);
    return DDP_OK;
}

/* Check the arrays for training, which also needs the array `saved`. */
static ddp_status check_training(const ddp_syncbn *bn, const float *x, const float *y, size_t n,
                                 struct ddp_err *err)
{
    ddp_status status = check_arrays(bn, x, y, n, err);
    if (status == DDP_OK && bn->saved == NULL)
        return ddp_fail(err, DDP_ERR_ARG,
                        "batch normalization: `saved` is NULL: must point to 2 x %zu doubles", bn->channels);
    return status;
}

/* Allocate n doubles for each of `ranks` ranks, which the caller frees. If memory is short, set *err and return
 * NULL. */
static double *alloc_numbers(size_t n, size_t ranks, struct ddp_err *err)
{
    double *room = calloc(n, ranks * sizeof(*room));
    if (room == NULL)
        ddp_fail(err, DDP_ERR_NOMEM,
                 "batch normalization: out of memory for %zu values from each of %zu "
                 "ranks",
                 n, ranks);
    return room;
}

/* Gather and merge the statistics of all ranks; collective. The first entry of `batches` is input and result. */
static ddp_status merge_batches(ddp_group *group, double *batches, size_t channels)
{
    const size_t words = batch_words(channels), world = (size_t)ddp_world_size(group->ctx);
    double *mine = batches + words * (size_t)ddp_rank(group->ctx);
    if (mine != batches)
        memcpy(mine, batches, words * sizeof(*mine));
    ddp_status status = ddp_all_gather(group, mine, batches, words, DDP_F64, NULL, NULL);
    for (size_t r = 1; r < world && status == DDP_OK; r++)
        batch_merge(batches, batches + r * words, channels);
    return status;
}

/* Check that no channel has exactly one value, because the running variance is divided by count - 1. All ranks have the
 * same count, so all ranks fail together. */
static ddp_status check_count(double count, struct ddp_err *err)
{
    return count != 1 ? DDP_OK
                      : ddp_fail(err, DDP_ERR_ARG,
                                 "batch normalization: the variance needs at least two values per "
                                 "channel, but all ranks together have one; use a larger batch");
}

/* Run the forward pass; collective. An error leaves *bn unchanged. */
ddp_status ddp_syncbn_forward(ddp_group *group, ddp_syncbn *bn, const float *x, size_t n, float *y)
{
    NOT_NULL(bn, NULL);
    FLUSH_SUBNORMALS(true);
    struct ddp_err err;
    const size_t world = group != NULL ? (size_t)ddp_world_size(group->ctx) : 1;
    ddp_status status = check_training(bn, x, y, n, &err);
    double *batches = status == DDP_OK ? alloc_numbers(batch_words(bn->channels), world, &err) : NULL;
    if (batches == NULL)
        return syncbn_fail(group, &err);
    batch_measure(bn, x, n, batches);
    if (group != NULL)
        status = merge_batches(group, batches, bn->channels);
    if (status == DDP_OK && check_count(batches[2 * bn->channels], &err) != DDP_OK)
        status = syncbn_fail(group, &err);
    if (status == DDP_OK) {
        batch_learn(bn, batches);
        batch_normalize(bn, bn->saved, bn->saved + bn->channels, x, n, y);
    }
    free(batches);
    return status;
}

/* Compute this rank's part of the gradients of weight and bias. `saved` may be uninitialized if n is 0. */
static void local_gradients(const ddp_syncbn *bn, const double *sums, size_t n, float *dweight, float *dbias)
{
    for (size_t c = 0; c < bn->channels; c++) {
        if (dweight != NULL)
            dweight[c] = n > 0 ? (float)(sums[bn->channels + c] * bn->saved[bn->channels + c]) : 0;
        if (dbias != NULL)
            dbias[c] = (float)sums[c];
    }
}

/* Run the backward pass. Compute the gradients of weight and bias before the all-reduce, from only this rank's sums.
 * The reducer averages these gradients later. */
ddp_status ddp_syncbn_backward(ddp_group *group, const ddp_syncbn *bn, const float *x, const float *dy,
                               size_t n, float *dx, float *dweight, float *dbias)
{
    NOT_NULL(bn, NULL);
    FLUSH_SUBNORMALS(true);
    struct ddp_err err;
    ddp_status status = check_training(bn, x, dx, n, &err);
    if (status == DDP_OK && n > 0 && dy == NULL)
        status = ddp_fail(&err, DDP_ERR_ARG, "batch normalization: %zu samples, but dy is NULL", n);
    double *sums = status == DDP_OK ? alloc_numbers(2 * bn->channels, 1, &err) : NULL;
    if (sums == NULL)
        return syncbn_fail(group, &err);
    batch_sums(bn, x, dy, n, sums);
    local_gradients(bn, sums, n, dweight, dbias);
    if (group != NULL)
        status = ddp_all_reduce(group, sums, sums, 2 * bn->channels, DDP_F64, DDP_SUM, NULL, NULL);
    if (status == DDP_OK)
        batch_gradient(bn, sums, x, dy, n, dx);
    free(sums);
    return status;
}

/* Normalize with the running statistics; not collective. In evaluation, the result of a sample must not depend on
 * other samples. */
ddp_status ddp_syncbn_infer(const ddp_syncbn *bn, const float *x, size_t n, float *y)
{
    NOT_NULL(bn, NULL);
    FLUSH_SUBNORMALS(true);
    struct ddp_err err;
    ddp_status status = check_arrays(bn, x, y, n, &err);
    if (status == DDP_OK && (bn->running_mean == NULL || bn->running_var == NULL))
        status =
            ddp_fail(&err, DDP_ERR_ARG, "batch normalization: evaluation needs running_mean and running_var");
    double *mean = status == DDP_OK ? alloc_numbers(2 * bn->channels, 1, &err) : NULL;
    if (mean == NULL)
        return last_error_keep(&err);
    for (size_t c = 0; c < bn->channels; c++) {
        mean[c] = bn->running_mean[c];
        mean[bn->channels + c] = 1 / sqrt(bn->running_var[c] + bn->eps);
    }
    batch_normalize(bn, mean, mean + bn->channels, x, n, y);
    free(mean);
    return DDP_OK;
}
