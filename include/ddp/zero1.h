/* zero1.h -- an optimiser whose state is distributed over the ranks (ZeRO stage 1; Rajbhandari et al. 2020).
 *
 *     ddp_zero1_create(world, params, np, &options, &zero)       verifies, broadcasts rank 0's values
 *     each step:  add gradients into ddp_zero1_grad(zero, i)
 *                 ddp_zero1_reduce(zero)                        every rank now has the average of its share
 *                 ddp_zero1_unscale(zero, &scaler)              f16 only
 *                 ddp_zero1_clip(zero, 1.0, &norm)              optional
 *                 ddp_zero1_step(zero)                          update my share, gather all parameters
 *                 ddp_zero1_zero_grad(zero)
 *
 * Each rank keeps the moments and the float32 copy of only 1/world of the model. A step sends as many bytes as an
 * all-reduce. Parameters lie in flat buckets of one type each (25 MiB, then the next), padded with zeros so that
 * every bucket splits into equal shares, whatever the sizes. The result has the same bits as ddp_reducer followed by
 * ddp_optim_update on every rank, for every number of ranks that does not change the bits of the averages.
 *
 * The optimizer works only in host memory: a group with a device is rejected (DDP_ERR_UNSUPPORTED).
 *
 * Parameters are F32, F16 or BF16. Gradients have the parameter's type and are summed in float32. The update uses a
 * float32 copy of the parameters. All calls but _grad, _zero_grad, _optim and _import are collective.
 * ddp_last_error() returns the text of an error. */
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

/* Compare names, sizes, types, the optimiser's numbers and no_decay with rank 0 (DDP_ERR_MISMATCH names the
 * difference). Then overwrite every parameter with rank 0's, and make the float32 copies from them. The array
 * `params` is copied, but each step writes to the memory that it points to. The caller owns *out until
 * ddp_zero1_free, which must precede ddp_finalize. */
DDP_API ddp_status ddp_zero1_create(ddp_group *group, const ddp_param *params, size_t n,
                                    const ddp_zero1_options *options, ddp_zero1 **out);

/* Return where parameter i's gradient is accumulated: 256-byte aligned, and zero after create and zero_grad. The
 * address never changes. Return NULL if `i` is out of range. */
DDP_API void *ddp_zero1_grad(ddp_zero1 *zero, size_t i);

/* Average all gradients over the ranks. Each rank gets its share. Return DDP_ERR_ARG if the program calls this
 * function twice without zero_grad. */
DDP_API ddp_status ddp_zero1_reduce(ddp_zero1 *zero);

/* Divide by the scaler's scale after reduce, detect non-finite values on any rank, and report them to the scaler
 * (ddp_scaler_unscaled). So ddp_scaler_step returns the same on all ranks. If the scaler is not at DDP_SCALER_READY,
 * return DDP_ERR_ARG and divide nothing. */
DDP_API ddp_status ddp_zero1_unscale(ddp_zero1 *zero, ddp_scaler *scaler);

/* Clip after reduce, as ddp_clip_grad_norm over the whole model, with the same bits. *norm (may be NULL) is the norm
 * before clipping. */
DDP_API ddp_status ddp_zero1_clip(ddp_zero1 *zero, double max_norm, double *norm);

/* Update the parameters after reduce. Gradient memory is undefined until zero_grad, which must precede the next
 * reduce. If a scaler skips a step, the caller leaves this call out. */
DDP_API ddp_status ddp_zero1_step(ddp_zero1 *zero);

DDP_API void ddp_zero1_zero_grad(ddp_zero1 *zero);

/* Return the rule and its numbers, to change lr, and for `step` in a checkpoint; all ranks must make the same change.
 * `zero` owns the struct. A change that needs more state arrays than at create (a first momentum) makes the next step
 * return DDP_ERR_ARG. */
DDP_API ddp_optim *ddp_zero1_optim(ddp_zero1 *zero);

/* Save and restore the state, independently of the world size. Slot 0 is the float32 copy of the parameters, slots 1
 * and 2 are the optimizer's state arrays. Export writes whole arrays, out[i] with params[i].count floats; a rank that
 * does not need them passes out = NULL. Import reads whole arrays and keeps this rank's share; the caller restores
 * the parameters themselves (ddp_round_f32). Return DDP_ERR_ARG if the optimizer has no such slot. */
DDP_API ddp_status ddp_zero1_export(ddp_zero1 *zero, int slot, float *const out[]);
DDP_API ddp_status ddp_zero1_import(ddp_zero1 *zero, int slot, const float *const in[]);

/* Free the optimizer before ddp_finalize; collective. NULL is allowed. */
DDP_API ddp_status ddp_zero1_free(ddp_zero1 *zero);

#ifdef __cplusplus
}
#endif
#endif
