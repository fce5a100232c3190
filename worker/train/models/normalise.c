/* normalise.c -- see normalise.h. */
#include "train/models/normalise.h"

#include "ddp/syncbn.h"
#include "train/library.h"

static size_t ranks_of(const struct normalise *n)
{
    return n->ctx != NULL ? (size_t)ddp_world_size(n->ctx) : 1;
}

bool normalise_open(struct normalise *n, struct compute *on, ddp_ctx *ctx, size_t channels)
{
    *n = (struct normalise){ .on = on, .ctx = ctx };
    if (on->remote)
        n->records = on->ops->alloc(on, ranks_of(n) * batch_norm_numbers(channels) * sizeof(double));
    return n->records != NULL || !on->remote;
}

void normalise_close(struct normalise *n)
{
    if (n->records != NULL)
        n->on->ops->release(n->on, n->records);
    n->records = NULL;
}

/* --- on the CPU -------------------------------------------------------------------------------------------- */

static ddp_syncbn of_library(const struct batch_norm *b)
{
    return (ddp_syncbn){ .channels = b->channels,
                         .spatial = b->spatial,
                         .eps = b->eps,
                         .momentum = b->momentum,
                         .weight = b->weight,
                         .bias = b->bias,
                         .running_mean = b->running_mean,
                         .running_var = b->running_var,
                         .saved = b->saved,
                         .count = b->saved[2 * b->channels] };
}

static ddp_group *group_of(const struct normalise *n)
{
    return n->ctx != NULL ? ddp_world(n->ctx) : NULL;
}

static ddp_status cpu_forward(const struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                              size_t rows, struct ddp_err *err)
{
    ddp_syncbn bn = of_library(b);
    ddp_status status = ddp_syncbn_forward(group_of(n), &bn, x, rows, y);
    b->saved[2 * b->channels] = bn.count;
    return library(status, err);
}

/* --- on a device ------------------------------------------------------------------------------------------- */

/* Check the number of values in a channel, because one value has no variance. If spatial is not 1, a channel never
 * has exactly one value, so the ranks need not exchange their counts. */
static ddp_status check_count(const struct normalise *n, const struct batch_norm *b, size_t rows,
                              struct ddp_err *err)
{
    int64_t count = (int64_t)rows;
    ddp_status status = DDP_OK;
    if (b->spatial != 1)
        return DDP_OK;
    if (n->ctx != NULL)
        status = ddp_all_reduce(ddp_world(n->ctx), &count, &count, 1, DDP_I64, DDP_SUM, NULL, NULL);
    if (status != DDP_OK || count != 1)
        return library(status, err);
    return ddp_fail(err, DDP_ERR_ARG,
                    "batch normalization: all ranks together have one value per channel, which has no "
                    "variance; use a larger "
                    "batch");
}

/* Normalize on a device. Ranks exchange their records, and each rank merges them in the order of ranks. */
static ddp_status device_forward(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                                 size_t rows, struct ddp_err *err)
{
    const struct compute_ops *ops = n->on->ops;
    const size_t words = batch_norm_numbers(b->channels);
    double *mine = n->records + (n->ctx != NULL ? words * (size_t)ddp_rank(n->ctx) : 0);
    ddp_status status = check_count(n, b, rows, err);
    if (status != DDP_OK)
        return status;
    ops->norm_measure(n->on, b, mine, x, rows);
    if (n->ctx != NULL)
        status = library(
            ddp_all_gather(ddp_world(n->ctx), mine, n->records, words, DDP_F64, ops->stream(n->on), NULL),
            err);
    ops->norm_learn(n->on, b, n->records, ranks_of(n));
    ops->norm_apply(n->on, b, y, x, rows, false);
    return status;
}

static ddp_status device_backward(struct normalise *n, const struct batch_norm *b, void *dx, float *dweight,
                                  float *dbias, const void *dy, const void *x, size_t rows,
                                  struct ddp_err *err)
{
    const struct compute_ops *ops = n->on->ops;
    ddp_status status = DDP_OK;
    ops->norm_sums(n->on, b, n->records, dweight, dbias, dy, x, rows);
    if (n->ctx != NULL)
        status = library(ddp_all_reduce(ddp_world(n->ctx), n->records, n->records, 2 * b->channels, DDP_F64,
                                        DDP_SUM, ops->stream(n->on), NULL),
                         err);
    ops->norm_gradient(n->on, b, dx, n->records, dy, x, rows);
    return status;
}

/* --- on both ----------------------------------------------------------------------------------------------- */

ddp_status normalise_forward(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                             size_t rows, struct ddp_err *err)
{
    return n->on->remote ? device_forward(n, b, y, x, rows, err) : cpu_forward(n, b, y, x, rows, err);
}

ddp_status normalise_backward(struct normalise *n, const struct batch_norm *b, void *dx, float *dweight,
                              float *dbias, const void *dy, const void *x, size_t rows, struct ddp_err *err)
{
    if (n->on->remote)
        return device_backward(n, b, dx, dweight, dbias, dy, x, rows, err);
    const ddp_syncbn bn = of_library(b);
    return library(ddp_syncbn_backward(group_of(n), &bn, x, dy, rows, dx, dweight, dbias), err);
}

ddp_status normalise_infer(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                           size_t rows, struct ddp_err *err)
{
    if (n->on->remote) {
        n->on->ops->norm_apply(n->on, b, y, x, rows, true);
        return DDP_OK;
    }
    const ddp_syncbn bn = of_library(b);
    return library(ddp_syncbn_infer(&bn, x, rows, y), err);
}
