/* normalise.h -- batch normalization for a model's layers, of this rank's batch or of all ranks' batches, on the CPU
 * or on a device.
 *
 * On the CPU, libddp computes the normalization (ddp/syncbn.h). On a device, kernels measure this rank's values and
 * normalize the values (compute.h). Between the two kernels, a few hundred numbers of each rank go from device to
 * device on the stream, and no host waits for them. Algorithm and errors are the same in both cases. */
#ifndef TRAIN_NORMALISE_H
#define TRAIN_NORMALISE_H

#include "train/compute.h"

#include "ddp/context.h"

struct normalise {
    struct compute *on; /* borrowed, like `ctx` */
    ddp_ctx *ctx;       /* the ranks whose batches are one batch; NULL = this rank alone */
    double *records;    /* owned, on the device: records of all ranks, or sums */
};

/* Open for layers of at most `channels`. Return false if memory is short; normalise_close is still required. */
bool normalise_open(struct normalise *n, struct compute *on, ddp_ctx *ctx, size_t channels);
void normalise_close(struct normalise *n);

/* Run the forward pass; collective if there is a context. Any rank may have no rows. */
ddp_status normalise_forward(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                             size_t rows, struct ddp_err *err);
/* Run the backward pass. dx may be dy. */
ddp_status normalise_backward(struct normalise *n, const struct batch_norm *b, void *dx, float *dweight,
                              float *dbias, const void *dy, const void *x, size_t rows, struct ddp_err *err);

/* Run a test with the running numbers; not collective. */
ddp_status normalise_infer(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                           size_t rows, struct ddp_err *err);

#endif
