/* optim.h -- optimisers over flat float32 arrays. Pure arithmetic; every rank computes the same bits from the
 * same averaged gradients. */
#ifndef DDP_OPTIM_H
#define DDP_OPTIM_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Adam (Kingma & Ba 2015, algorithm 1, with torch.optim.Adam's order of operations and defaults). */
typedef struct ddp_adam {
    double lr, beta1, beta2, eps; /* double, as torch computes the factors of a step from Python's floats */
    int64_t step;                 /* updates done so far; part of a checkpoint */
} ddp_adam;

#define DDP_ADAM_INIT                                         \
    {                                                         \
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 \
    }

/* Once per step, before the first ddp_adam_update of that step. */
DDP_API void ddp_adam_begin(ddp_adam *adam);

/* Update n parameters in place. m and v (n floats each, zero at the start) are the moments, yours. */
DDP_API void ddp_adam_update(const ddp_adam *adam, float *param, const float *grad, float *m, float *v,
                             size_t n);

#ifdef __cplusplus
}
#endif
#endif
