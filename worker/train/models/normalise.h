/* normalise.h -- batch normalisation for a model's layers, of this rank's batch or that of all ranks, wherever it is computed.
 *
 * On the CPU it is libddp's (ddp/syncbn.h). On a device kernels measure this rank's values and normalise them (compute.h); in
 * between, a few hundred numbers of each rank go from one device's memory to the others' on the stream, and no host waits for
 * them. The algorithm is the same, so is what it refuses. */
#ifndef TRAIN_NORMALISE_H
#define TRAIN_NORMALISE_H

#include "train/compute.h"

#include "ddp/context.h"

struct normalise {
    struct compute *on; /* both borrowed */
    ddp_ctx *ctx;       /* of the ranks that are one batch; NULL = this one alone */
    double *records;    /* of all ranks, on the device; or sums */
};

/* For layers of `channels` at most. False: there is no memory; close it all the same. */
bool normalise_open(struct normalise *n, struct compute *on, ddp_ctx *ctx, size_t channels);
void normalise_close(struct normalise *n);

/* Collective with a context. Any rank may have no rows. */
ddp_status normalise_forward(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                             size_t rows, struct ddp_err *err);
/* dx may be dy. */
ddp_status normalise_backward(struct normalise *n, const struct batch_norm *b, void *dx, float *dweight,
                              float *dbias, const void *dy, const void *x, size_t rows, struct ddp_err *err);

/* For a test, with the running numbers; not collective. */
ddp_status normalise_infer(struct normalise *n, const struct batch_norm *b, void *y, const void *x,
                           size_t rows, struct ddp_err *err);

#endif
