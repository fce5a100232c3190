/* syncbn.h -- batch normalisation over the batches of all ranks: the same result as one rank with the whole batch.
 *
 *     double saved[2 * 16];
 *     ddp_syncbn bn = DDP_SYNCBN_INIT;
 *     bn.channels = 16;  bn.spatial = 32 * 32;  bn.saved = saved;
 *     bn.weight = w;  bn.bias = b;  bn.running_mean = rm;  bn.running_var = rv;       rm begins as 0, rv as 1
 *     ddp_syncbn_forward(world, &bn, x, n, y)                       n samples on this rank; 0 is allowed
 *     ddp_syncbn_backward(world, &bn, x, dy, n, dx, dw, db)
 *     ddp_syncbn_infer(&bn, x, n, y)                                evaluation: with the running numbers
 *
 * Arrays are float32 with the channel in the middle: x[(sample * channels + c) * spatial + i], as torch's (N, C, H,
 * W) and (N, C); x, y, dy and dx have n * channels * spatial elements. Sums are kept in double; subnormals are
 * flushed (context.h). The algorithm is torch.nn.SyncBatchNorm's: mean, squares and count of each rank are gathered
 * and merged (Chan, Golub & LeVeque 1979), so ranks may differ in n. The backward pass adds two sums per channel over
 * the ranks.
 *
 * Every rank calls with the same channels (else DDP_ERR_MISMATCH), even when its batch is empty. ddp_last_error()
 * returns the text of an error. If only this rank fails (DDP_ERR_ARG for its description, DDP_ERR_NOMEM), the other
 * ranks wait in their call until their step timeout, unless this rank calls again or ends. */
#ifndef DDP_SYNCBN_H
#define DDP_SYNCBN_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_syncbn {
    size_t channels; /* at least 1 */
    size_t spatial;  /* elements of one channel of one sample, at least 1 */
    double eps;      /* added to the variance; torch's default 1e-5 */
    double momentum; /* share of the new batch in the running numbers; torch's default 0.1 */
    /* `channels` elements each, owned by the caller */
    const float *weight, *bias;        /* NULL: 1 and 0 */
    float *running_mean, *running_var; /* NULL: not updated. The variance is the unbiased one, n/(n-1) */
    /* Passed from forward to backward: mean, then 1 / sqrt(variance + eps), 2 * channels elements, owned by the
     * caller; and the number of values of each channel over all ranks. */
    double *saved;
    double count;
} ddp_syncbn;

#define DDP_SYNCBN_INIT                                    \
    {                                                      \
        0, 1, 1e-5, 0.1, NULL, NULL, NULL, NULL, NULL, 0.0 \
    }

/* Normalize, fill `saved` and `count`, and update the running numbers; collective. `y` may be `x` if no backward pass
 * follows. A NULL group means this rank alone (plain batch normalization). A rank's batch may be empty. If all
 * batches are empty, nothing changes. DDP_ERR_ARG on all ranks if there is only one value per channel in total,
 * because one value has no variance. */
DDP_API ddp_status ddp_syncbn_forward(ddp_group *group, ddp_syncbn *bn, const float *x, size_t n, float *y);

/* Compute the gradients after a forward pass with the same x and n; collective. dx is the gradient of the whole
 * batch's loss, as one rank with the whole batch would compute it. `dx` may be `dy`. dweight and dbias (`channels`
 * each, overwritten, NULL = not needed) are this rank's part, to be averaged with the other gradients. */
DDP_API ddp_status ddp_syncbn_backward(ddp_group *group, const ddp_syncbn *bn, const float *x,
                                       const float *dy, size_t n, float *dx, float *dweight, float *dbias);

/* Compute y from the running numbers, which must be set; not collective. */
DDP_API ddp_status ddp_syncbn_infer(const ddp_syncbn *bn, const float *x, size_t n, float *y);

#ifdef __cplusplus
}
#endif
#endif
