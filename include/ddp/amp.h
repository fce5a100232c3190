/* amp.h -- mixed precision: parameters and gradients of 16 bits, a float32 copy of the parameters, a
 * scaled loss.
 *
 *     ddp_scaler scaler = DDP_SCALER_INIT;                         f16 only; bf16 has float32's range and needs none
 *     each step:  backward pass of loss * scaler.scale, then average the gradients over the ranks
 *                 found = 0; for each parameter:
 *                     found |= ddp_unscale(grad, DDP_F16, scaler.scale, master_grad, n)
 *                 ddp_scaler_unscaled(&scaler, found, &err)
 *                 clip master_grad, when wanted
 *                 ddp_scaler_step(&scaler, &go, &err)
 *                 if (go) update `master` from master_grad (optim.h), ddp_round_f32(master, param, DDP_F16, n)
 *                 ddp_scaler_update(&scaler, &err)
 *
 * The float32 copy ("master weights") exists because an update is often smaller than half a unit in the last place of
 * a 16-bit parameter, and would be lost there. The copy is the true parameter: save the copy in checkpoints. Pure
 * arithmetic. */
#ifndef DDP_AMP_H
#define DDP_AMP_H

#include "ddp/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Convert n elements of F32, F16 or BF16 to float32, exactly. Use this function to make the master copy. With F32,
 * `from` may be `to`. Return DDP_ERR_ARG for another type. */
DDP_API ddp_status ddp_widen_f32(const void *from, ddp_dtype dtype, float *to, size_t n, struct ddp_err *err);

/* Round n elements of float32 to `dtype`: to the nearest, ties to even; too large values become infinite, a NaN stays
 * a NaN. Use this function to copy the master copy back to the parameters. Errors as for ddp_widen_f32. */
DDP_API ddp_status ddp_round_f32(const float *from, void *to, ddp_dtype dtype, size_t n, struct ddp_err *err);

/* Write to[i] = (float)from[i] * (float)(1 / scale) for n elements of F32, F16 or BF16, with GradScaler's arithmetic
 * and subnormals flushed (context.h). With F32, `to` may be `from`. Return 1 if an element of `from` or 1 / scale is
 * infinite or NaN, otherwise 0. Return -1 for another type. */
DDP_API int ddp_unscale(const void *from, ddp_dtype dtype, double scale, float *to, size_t n);

typedef enum ddp_scaler_stage { DDP_SCALER_READY, DDP_SCALER_UNSCALED, DDP_SCALER_STEPPED } ddp_scaler_stage;

/* torch.cuda.amp.GradScaler for one optimizer: its constants and its state. Plain data. The struct stays equal on all
 * ranks if all ranks pass the same found_inf. After averaging with SUM or AVG all ranks have the same found_inf,
 * because infinities and NaN survive a sum. */
typedef struct ddp_scaler {
    float scale;      /* multiply the loss by this; finite, above 0 */
    double growth;    /* factor after `interval` good steps, above 1 */
    double backoff;   /* factor after a bad step, in (0, 1) */
    int32_t interval; /* at least 1 */
    int32_t tracker;  /* good steps since the last change of the scale */
    ddp_scaler_stage stage;
    int found_inf; /* found_inf of this step */
} ddp_scaler;

#define DDP_SCALER_INIT                                     \
    {                                                       \
        65536.0f, 2.0, 0.5, 2000, 0, (ddp_scaler_stage)0, 0 \
    }

/* The effect of each call at each stage. "error" is DDP_ERR_ARG, which names call and stage and changes nothing:
 *
 *                 READY          UNSCALED         STEPPED
 *     unscaled    -> UNSCALED    error            error
 *     step        error          -> STEPPED       error
 *     update      error          -> READY         -> READY
 *
 * torch's step unscales by itself if needed. ddp_scaler_step cannot, because it does not have the gradients. */

/* Report that this step's gradients have been unscaled. Pass found_inf != 0 if a gradient on any rank was not
 * finite. */
DDP_API ddp_status ddp_scaler_unscaled(ddp_scaler *scaler, int found_inf, struct ddp_err *err);

/* Set *go to 1 if the parameters may be updated, or to 0 if the update must be skipped, because the gradients are not
 * usable. */
DDP_API ddp_status ddp_scaler_step(ddp_scaler *scaler, int *go, struct ddp_err *err);

/* Set the scale of the next step. The scale is multiplied by `backoff` after a bad step, and by `growth` (if the
 * result is finite) after `interval` good steps in a row. */
DDP_API ddp_status ddp_scaler_update(ddp_scaler *scaler, struct ddp_err *err);

/* The state in a checkpoint: scale, growth, backoff, interval, tracker. */
enum { DDP_SCALER_STATE = 5 };
DDP_API void ddp_scaler_save(const ddp_scaler *scaler, double state[DDP_SCALER_STATE]);

/* Continue from a saved state, at stage READY. DDP_ERR_CORRUPT names a number out of its limits; then `scaler` is
 * unchanged. */
DDP_API ddp_status ddp_scaler_load(ddp_scaler *scaler, const double state[DDP_SCALER_STATE],
                                   struct ddp_err *err);

#ifdef __cplusplus
}
#endif
#endif
