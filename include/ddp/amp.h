/* amp.h -- mixed precision: 16-bit parameters and gradients, a float32 copy of the parameters, and a scaled loss.
 *
 *     ddp_scaler scaler = DDP_SCALER_INIT;                         f16 only; bf16 needs no scaler
 *     each step:  backward pass of loss * scaler.scale, then average the gradients over the ranks
 *                 found = 0; for each parameter:
 *                     found |= ddp_unscale(grad, DDP_F16, scaler.scale, master_grad, n)
 *                 ddp_scaler_unscaled(&scaler, found, &err)
 *                 clip master_grad (optional)
 *                 ddp_scaler_step(&scaler, &go, &err)
 *                 if (go) update `master` from master_grad (optim.h), ddp_round_f32(master, param, DDP_F16, n)
 *                 ddp_scaler_update(&scaler, &err)
 *
 * The float32 copy ("master weights") is needed because an update is often too small to change a 16-bit parameter. Save
 * the copy in checkpoints, because only the copy has the exact values. All functions only compute: they use no file,
 * thread or clock. */
#ifndef DDP_AMP_H
#define DDP_AMP_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Convert n elements of type F32, F16 or BF16 to float32, without any rounding. Use this function, for example, to make
 * the float32 copy of the parameters. If the type is F32, `to` may be `from`. Return DDP_ERR_ARG for all other
 * types. */
DDP_API ddp_status ddp_widen_f32(const void *from, ddp_dtype dtype, float *to, size_t n, struct ddp_err *err);

/* Round n float32 elements to `dtype`: to the nearest, ties to even. Values that are too large become infinite, and a
 * NaN stays a NaN. Return DDP_ERR_ARG for a type other than F32, F16 and BF16. */
DDP_API ddp_status ddp_round_f32(const float *from, void *to, ddp_dtype dtype, size_t n, struct ddp_err *err);

/* Write to[i] = (float)from[i] * (float)(1 / scale) for n elements of type F32, F16 or BF16. The arithmetic is the
 * same as in torch, and subnormals count as zero (context.h). If the type is F32, `to` may be `from`. Return 1 if 1 /
 * scale or an element of `from` is infinite or NaN, otherwise 0. For all other types, write nothing and return -1. */
DDP_API int ddp_unscale(const void *from, ddp_dtype dtype, double scale, float *to, size_t n);

/* The latest call in the current step (see the table below). READY means that this step has had no call yet. */
typedef enum ddp_scaler_stage { DDP_SCALER_READY, DDP_SCALER_UNSCALED, DDP_SCALER_STEPPED } ddp_scaler_stage;

/* The constants and the state of torch.cuda.amp.GradScaler for one optimizer. The struct has no pointers, so it may be
 * copied. The struct is equal on all ranks if all ranks pass the same found_inf. Averaged gradients give the same
 * found_inf on all ranks, because a sum with infinity or NaN is infinite or NaN. */
typedef struct ddp_scaler {
    float scale;      /* multiply the loss by this number; finite and above 0 */
    double growth;    /* multiplies `scale` after `interval` steps in a row with finite gradients; above 1 */
    double backoff;   /* multiplies `scale` after a step with an infinite or NaN gradient; between 0 and 1 */
    int32_t interval; /* number of steps in a row with finite gradients before `growth` applies; at least 1 */
    int32_t tracker;  /* number of steps with finite gradients since the last change of the scale */
    ddp_scaler_stage stage;
    int found_inf; /* the found_inf that was passed for this step */
} ddp_scaler;

#define DDP_SCALER_INIT                                     \
    {                                                       \
        65536.0f, 2.0, 0.5, 2000, 0, (ddp_scaler_stage)0, 0 \
    }

/* The next stage, for each call (row) and stage (column). "error" means that the call changes nothing and returns
 * DDP_ERR_ARG with a text that names the call and the stage:
 *
 *                 READY          UNSCALED         STEPPED
 *     unscaled    -> UNSCALED    error            error
 *     step        error          -> STEPPED       error
 *     update      error          -> READY         -> READY
 *
 * Unlike torch's step, ddp_scaler_step does not unscale. */

/* Record that the gradients of this step were unscaled. Pass found_inf != 0 if a gradient of any rank was infinite or
 * NaN. */
DDP_API ddp_status ddp_scaler_unscaled(ddp_scaler *scaler, int found_inf, struct ddp_err *err);

/* Set *go to 1 if the parameters may be updated, or to 0 if found_inf is not 0. */
DDP_API ddp_status ddp_scaler_step(ddp_scaler *scaler, int *go, struct ddp_err *err);

/* Set the scale for the next step. If the found_inf of this step is not 0, multiply the scale by `backoff`. After
 * `interval` steps in a row in which found_inf was 0, multiply the scale by `growth`, unless the result is infinite. */
DDP_API ddp_status ddp_scaler_update(ddp_scaler *scaler, struct ddp_err *err);

/* Number of values in the saved state: scale, growth, backoff, interval, tracker. */
enum { DDP_SCALER_STATE = 5 };
/* Write the state to `state`, for a checkpoint. */
DDP_API void ddp_scaler_save(const ddp_scaler *scaler, double state[DDP_SCALER_STATE]);

/* Restore a saved state, and set the stage to READY. Return DDP_ERR_CORRUPT if a number is out of its limits. The error
 * text then names the number, and `scaler` is unchanged. */
DDP_API ddp_status ddp_scaler_load(ddp_scaler *scaler, const double state[DDP_SCALER_STATE],
                                   struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
