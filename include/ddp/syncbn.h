/* syncbn.h -- batch normalization over the batches of all ranks, with the same result as one rank with all samples.
 *
 *     double saved[2 * 16];
 *     ddp_syncbn bn = DDP_SYNCBN_INIT;
 *     bn.channels = 16;  bn.spatial = 32 * 32;  bn.saved = saved;
 *     bn.weight = w;  bn.bias = b;  bn.running_mean = rm;  bn.running_var = rv;       rm begins as 0, rv as 1
 *     ddp_syncbn_forward(world, &bn, x, n, y)                       n samples on this rank; 0 is allowed
 *     ddp_syncbn_backward(world, &bn, x, dy, n, dx, dw, db)
 *     ddp_syncbn_infer(&bn, x, n, y)                                evaluation: with running_mean and running_var
 *
 * x, y, dy and dx are float32 arrays of n * channels * spatial elements, in torch's order (N, C, H, W) or (N, C):
 * x[(sample * channels + c) * spatial + i]. Sums are computed in double. Subnormals are flushed (context.h).
 *
 * The algorithm is that of torch.nn.SyncBatchNorm. The mean, the sum of squared deviations and the count of each rank
 * are gathered and merged (Chan, Golub & LeVeque 1979). So n may differ between ranks. The backward pass adds two sums
 * of each channel over the ranks.
 *
 * Every rank must make each call with the same number of channels (else DDP_ERR_MISMATCH), even if the rank's batch is
 * empty. If only one rank fails (DDP_ERR_ARG, DDP_ERR_NOMEM), the other ranks wait until the failed rank repeats the
 * call or exits, but at most for the step timeout. ddp_last_error() returns the text of an error. */
#ifndef DDP_SYNCBN_H
#define DDP_SYNCBN_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_syncbn {
    size_t channels; /* at least 1 */
    size_t spatial;  /* number of elements of one channel in one sample, at least 1 */
    double eps;      /* added to the variance; default as in torch: 1e-5 */
    double momentum; /* weight of a new batch in the running values; default as in torch: 0.1 */
    /* `channels` elements each, owned by the caller. */
    const float *weight, *bias;        /* NULL means weight 1 and bias 0 */
    float *running_mean, *running_var; /* not updated if NULL; running_var uses the divisor n - 1 */
    /* Passed from ddp_syncbn_forward to ddp_syncbn_backward. `saved` has 2 * channels elements, owned by the caller:
     * the means, then the values of 1 / sqrt(variance + eps). `count` is the number of values of each channel over all
     * ranks. */
    double *saved;
    double count;
} ddp_syncbn;

#define DDP_SYNCBN_INIT                                    \
    {                                                      \
        0, 1, 1e-5, 0.1, NULL, NULL, NULL, NULL, NULL, 0.0 \
    }

/* Normalize, set `saved` and `count`, and update running_mean and running_var; collective. If `group` is NULL, only
 * this rank takes part. `y` may be `x` if no backward pass follows. If the batches of all ranks are empty, nothing
 * changes. All ranks return DDP_ERR_ARG if a channel has only one value over all ranks, because one value has no
 * variance. */
DDP_API ddp_status ddp_syncbn_forward(ddp_group *group, ddp_syncbn *bn, const float *x, size_t n, float *y);

/* Compute the gradients after ddp_syncbn_forward, with the same x and n; collective. dx is the gradient of the loss
 * over all samples, as one rank with all samples would compute it. `dx` may be `dy`. dweight and dbias have `channels`
 * elements each, or are NULL if they are not needed. Both arrays are overwritten with the gradients from this rank's
 * samples only. Average both arrays over the ranks, like all other gradients. */
DDP_API ddp_status ddp_syncbn_backward(ddp_group *group, const ddp_syncbn *bn, const float *x,
                                       const float *dy, size_t n, float *dx, float *dweight, float *dbias);

/* Compute y with running_mean and running_var, which must not be NULL. This call is not collective. */
DDP_API ddp_status ddp_syncbn_infer(const ddp_syncbn *bn, const float *x, size_t n, float *y);

#ifdef __cplusplus
}
#endif
#endif
