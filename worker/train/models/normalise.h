/* normalise.h -- batch normalization for a model's layers, over this rank's batch or over the batches of all ranks,
 * on the CPU or on a device.
 *
 * On the CPU, libddp computes the normalization (ddp/syncbn.h). On a device, one kernel computes a record of this
 * rank's values, and another kernel normalizes the values (compute.h). Between these kernels the ranks exchange
 * their records on the device's stream, without waiting on the host. The algorithm and the errors are the same. */
#ifndef TRAIN_NORMALISE_H
#define TRAIN_NORMALISE_H

#include "train/compute.h"

#include "ddp/context.h"

struct normalise {
    struct compute *on; /* borrowed, like `ctx` */
    ddp_ctx *ctx;       /* ranks with a common batch; NULL = only this rank */
    double *records;    /* owned, on the device: records of all ranks, or sums */
};

/* Open for layers of at most `channels` channels. Return false if memory is short. The caller must close *n also
 * after a failure. */
bool normalise_open(struct normalise *n, struct compute *on, ddp_ctx *ctx, size_t channels);
void normalise_close(struct normalise *n);

/* Run the forward pass; collective if there is a context. A rank may have 0 rows. */
ddp_status normalise_forward(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                             size_t rows, struct ddp_err *err);
/* Run the backward pass. dx may be dy. */
ddp_status normalise_backward(struct normalise *n, const struct batch_norm *b, void *dx, float *dweight,
                              float *dbias, const void *dy, const void *x, size_t rows, struct ddp_err *err);

/* Normalize with the running numbers, for a test; not collective. */
ddp_status normalise_infer(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                           size_t rows, struct ddp_err *err);

#endif
