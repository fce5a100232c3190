/* zero1.h -- an optimizer whose state is distributed over the ranks (ZeRO stage 1; Rajbhandari et al. 2020).
 *
 *     ddp_zero1_create(world, params, np, &options, &zero)       checks that ranks agree, broadcasts rank 0's values
 *     each step:  add gradients into ddp_zero1_grad(zero, i)
 *                 ddp_zero1_reduce(zero)                        every rank now has the average of its share
 *                 ddp_zero1_unscale(zero, &scaler)              f16 only
 *                 ddp_zero1_clip(zero, 1.0, &norm)              optional
 *                 ddp_zero1_step(zero)                          updates this rank's share, gathers all parameters
 *                 ddp_zero1_zero_grad(zero)
 *
 * Each rank has the state arrays and the float32 copy only for its share, which is 1/world of the model. A step sends
 * as many bytes as an all-reduce. A bucket has parameters of one type, about 25 MiB in all. Each bucket is padded with
 * zeros, so that all ranks have equal shares.
 *
 * The result has the same bits as ddp_reducer with ddp_optim_update on every rank, if the averages have the same
 * bits.
 *
 * Parameters are F32, F16 or BF16. Gradients have the type of their parameter and are summed in float32. The update
 * uses a float32 copy of the parameters. All data is in host memory. A group with a device is an error
 * (DDP_ERR_UNSUPPORTED).
 *
 * All functions are collective, except _grad, _zero_grad, _optim and _import. ddp_last_error() returns the text of an
 * error. */
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
    size_t size;                   /* sizeof(ddp_zero1_options), set by the INIT macro */
    ddp_optim optim;               /* copied */
    size_t bucket_bytes;           /* size of a bucket; 0 means 25 MiB */
    const unsigned char *no_decay; /* copied; 1 for each parameter without decay; NULL if all have decay */
} ddp_zero1_options;

#define DDP_ZERO1_OPTIONS_INIT                             \
    {                                                      \
        sizeof(ddp_zero1_options), DDP_ADAMW_INIT, 0, NULL \
    }

/* Create an optimizer; collective. Names, sizes, types and options must equal those of rank 0 (else DDP_ERR_MISMATCH).
 * Then every parameter gets the value of rank 0. The array `params` is copied, but not the parameters: each step
 * updates the parameters in the caller's memory. The caller owns *out until ddp_zero1_free. */
DDP_API ddp_status ddp_zero1_create(ddp_group *group, const ddp_param *params, size_t n,
                                    const ddp_zero1_options *options, ddp_zero1 **out);

/* Return the memory to which the program adds the gradient of parameter i. The address is a multiple of 256 and never
 * changes. The memory is zero after ddp_zero1_create and ddp_zero1_zero_grad. Return NULL if there is no parameter
 * i. */
DDP_API void *ddp_zero1_grad(ddp_zero1 *zero, size_t i);

/* Average all gradients over the ranks; each rank gets its share. After DDP_OK, each further call returns DDP_ERR_ARG
 * until ddp_zero1_zero_grad is called. */
DDP_API ddp_status ddp_zero1_reduce(ddp_zero1 *zero);

/* Divide the averaged gradients by the scaler's scale, and call ddp_scaler_unscaled. If a value on any rank is infinite
 * or NaN, found_inf is 1 on all ranks. So ddp_scaler_step has the same result on all ranks. DDP_ERR_ARG means that
 * ddp_zero1_reduce was not called, or that the scaler is not at DDP_SCALER_READY; then nothing was divided. */
DDP_API ddp_status ddp_zero1_unscale(ddp_zero1 *zero, ddp_scaler *scaler);

/* Clip the averaged gradients of the whole model. The result is bitwise equal to the result of ddp_clip_grad_norm.
 * *norm becomes the norm before clipping; `norm` may be NULL. */
DDP_API ddp_status ddp_zero1_clip(ddp_zero1 *zero, double max_norm, double *norm);

/* Update the parameters with the averaged gradients. Afterwards, the gradients are undefined until ddp_zero1_zero_grad.
 * Do not call this function if a scaler skips the step. */
DDP_API ddp_status ddp_zero1_step(ddp_zero1 *zero);

/* Set all gradients to zero. */
DDP_API void ddp_zero1_zero_grad(ddp_zero1 *zero);

/* Return the update rule with its hyperparameters. `zero` owns the rule. For example, the caller may change `lr` of the
 * rule, or save `step` of the rule in a checkpoint. All ranks must make the same changes. If the changed rule needs
 * more state arrays than the rule at ddp_zero1_create, the next step returns DDP_ERR_ARG. */
DDP_API ddp_optim *ddp_zero1_optim(ddp_zero1 *zero);

/* Save and restore the state, for any world size. Slot 0 is the float32 copy of the parameters; slots 1 and 2 are the
 * state arrays of the rule. ddp_zero1_export writes the whole arrays: out[i] has params[i].count floats. A rank that
 * does not need the arrays passes out = NULL. ddp_zero1_import reads the whole arrays and keeps the share of this
 * rank. It does not change the parameters of the model: the caller sets them from the arrays of slot 0, with
 * ddp_round_f32(). DDP_ERR_ARG means that the optimizer has no such slot. */
DDP_API ddp_status ddp_zero1_export(ddp_zero1 *zero, int slot, float *const out[]);
DDP_API ddp_status ddp_zero1_import(ddp_zero1 *zero, int slot, const float *const in[]);

/* Free the optimizer; collective. Call this function before ddp_finalize. NULL is allowed. */
DDP_API ddp_status ddp_zero1_free(ddp_zero1 *zero);

#ifdef __cplusplus
}
#endif
#endif
