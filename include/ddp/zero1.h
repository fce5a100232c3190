/* zero1.h -- an optimiser whose state is shared out over the ranks (ZeRO stage 1; Rajbhandari et al. 2020).
 *
 *     ddp_zero1_create(world, params, np, &options, &zero)       verifies, broadcasts rank 0's values
 *     each step:  add gradients into ddp_zero1_grad(zero, i)
 *                 ddp_zero1_reduce(zero)                        every rank now has the average of its own share
 *                 ddp_zero1_unscale(zero, &scaler)              f16 only
 *                 ddp_zero1_clip(zero, 1.0, &norm)              when wanted
 *                 ddp_zero1_step(zero)                          update my share, gather all parameters
 *                 ddp_zero1_zero_grad(zero)
 *
 * Instead of every rank keeping moments and float32 copy of the whole model, each keeps 1/world of them; the traffic
 * is that of an all-reduce. Parameters lie in flat buckets of one type each (25 MiB, then the next), padded with
 * zeros so that every bucket is cut into equal shares, whatever the sizes. The result has the same bits as
 * ddp_reducer followed by ddp_optim_update on every rank, with any number of ranks for which the averages have.
 *
 * All of it is in the host's memory: a group with a device is refused (DDP_ERR_UNSUPPORTED).
 *
 * Parameters are F32, F16 or BF16; gradients have the parameter's type and are summed in float32; the update is made
 * on a float32 copy. All calls but _grad, _zero_grad, _optim and _import are collective. ddp_last_error() returns the
 * text of an error. */
#ifndef DDP_ZERO1_H
#define DDP_ZERO1_H

#include "ddp/amp.h"
#include "ddp/optim.h"
#include "ddp/reducer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_zero1 ddp_zero1;

typedef struct ddp_zero1_options {
    size_t size;                   /* sizeof, set by the INIT macro */
    ddp_optim optim;               /* copied */
    size_t bucket_bytes;           /* 0 = 25 MiB */
    const unsigned char *no_decay; /* copied; 1 = no weight_decay, for each parameter. NULL: all have it */
} ddp_zero1_options;

#define DDP_ZERO1_OPTIONS_INIT                             \
    {                                                      \
        sizeof(ddp_zero1_options), DDP_ADAMW_INIT, 0, NULL \
    }

/* Compares names, sizes, types, the optimiser's numbers and no_decay with rank 0 (DDP_ERR_MISMATCH names what differs),
 * overwrites every parameter with rank 0's, and begins the float32 copies from them. `params` is copied, not
 * what it points to: each step writes there. *out is yours until ddp_zero1_free, which comes before
 * ddp_finalize. */
DDP_API ddp_status ddp_zero1_create(ddp_group *group, const ddp_param *params, size_t n,
                                    const ddp_zero1_options *options, ddp_zero1 **out);

/* Where parameter i's gradient is added up: zero after create and zero_grad, 256-byte aligned, stable.
 * NULL: there is no i. */
DDP_API void *ddp_zero1_grad(ddp_zero1 *zero, size_t i);

/* Average all gradients over the ranks, each rank its share. Twice without zero_grad between:
 * DDP_ERR_ARG. */
DDP_API ddp_status ddp_zero1_reduce(ddp_zero1 *zero);

/* After reduce: divide by the scaler's scale, find what is not finite on any rank, and tell the scaler
 * (ddp_scaler_unscaled), so that ddp_scaler_step says the same on all ranks. DDP_ERR_ARG, and nothing is divided, when the
 * scaler is not at DDP_SCALER_READY. */
DDP_API ddp_status ddp_zero1_unscale(ddp_zero1 *zero, ddp_scaler *scaler);

/* After reduce: ddp_clip_grad_norm over the whole model, with the same bits. *norm (may be NULL) is the
 * norm from before. */
DDP_API ddp_status ddp_zero1_clip(ddp_zero1 *zero, double max_norm, double *norm);

/* After reduce: the update. Gradient memory is scratch then, until zero_grad, which comes before the next
 * reduce. A step that a scaler wants left out is simply not made. */
DDP_API ddp_status ddp_zero1_step(ddp_zero1 *zero);

DDP_API void ddp_zero1_zero_grad(ddp_zero1 *zero);

/* The rule and its numbers, for changing lr, and for `step` in a checkpoint; all ranks change the same. Belongs to
 * `zero`. A change that needs more state arrays than at create (a first momentum) is DDP_ERR_ARG in the next step. */
DDP_API ddp_optim *ddp_zero1_optim(ddp_zero1 *zero);

/* For checkpoints that do not depend on the world size. Slot 0 is the float32 copy of the parameters,
 * slots 1 and 2 the optimiser's state arrays. Export writes whole arrays, out[i] of params[i].count
 * floats; a rank that does not want them passes out = NULL. Import reads whole arrays and keeps this
 * rank's share; parameters themselves are the caller's to restore (ddp_round_f32). DDP_ERR_ARG for a slot
 * that the optimiser does not have. */
DDP_API ddp_status ddp_zero1_export(ddp_zero1 *zero, int slot, float *const out[]);
DDP_API ddp_status ddp_zero1_import(ddp_zero1 *zero, int slot, const float *const in[]);

/* Collective, and before ddp_finalize. NULL is allowed. */
DDP_API ddp_status ddp_zero1_free(ddp_zero1 *zero);

#ifdef __cplusplus
}
#endif
#endif
