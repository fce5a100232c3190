/* amp.c -- see ddp/amp.h: conversion between 16-bit numbers and float32, and the scale of the loss. Each type has
 * its own loop without branches, which the compiler can vectorize. Functions that change the scale do not flush
 * subnormals, because flushing would turn a tiny scale into 0. */
#include "ddp/amp.h"

#include "base/not_null.h"
#include "core/flush_subnormals.h"
#include "core/half.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static ddp_status unknown(ddp_dtype dtype, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_ARG, "mixed precision: type %s: expected f32, f16 or bf16",
                    ddp_dtype_name(dtype));
}

/* --- one loop for each type --------------------------------------------------------------------------- */

static void widen_f16(const uint16_t *restrict from, float *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f16_to_f32(from[i]);
}

static void widen_bf16(const uint16_t *restrict from, float *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_f32(from[i]);
}

static void round_f16(const float *restrict from, uint16_t *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f32_to_f16(from[i]);
}

static void round_bf16(const float *restrict from, uint16_t *restrict to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = f32_to_bf16(from[i]);
}

/* Convert an array to f32. If the values are already f32, copy them with memmove, because source and target may be
 * the same array. */
ddp_status ddp_widen_f32(const void *from, ddp_dtype dtype, float *to, size_t n, struct ddp_err *err)
{
    if (dtype == DDP_F16)
        widen_f16(from, to, n);
    else if (dtype == DDP_BF16)
        widen_bf16(from, to, n);
    else if (dtype != DDP_F32)
        return unknown(dtype, err);
    else if (n > 0)
        memmove(to, from, n * sizeof(*to));
    return DDP_OK;
}

ddp_status ddp_round_f32(const float *from, void *to, ddp_dtype dtype, size_t n, struct ddp_err *err)
{
    if (dtype == DDP_F16)
        round_f16(from, to, n);
    else if (dtype == DDP_BF16)
        round_bf16(from, to, n);
    else if (dtype != DDP_F32)
        return unknown(dtype, err);
    else if (n > 0)
        memmove(to, from, n * sizeof(*from));
    return DDP_OK;
}

/* Multiply n gradients by `factor`. Return 1 if a gradient was infinite or NaN before the multiplication, as in
 * torch. */
static int multiply(float *x, float factor, size_t n)
{
    uint32_t worst = 0;
    for (size_t i = 0; i < n; i++) {
        /* Compare bits, because the compiler does not vectorize isfinite. */
        uint32_t magnitude = half_bits(x[i]) & 0x7fffffffu;
        worst = magnitude > worst ? magnitude : worst;
        x[i] *= factor;
    }
    return worst >= 0x7f800000u;
}

/* Convert the gradients to f32 and divide them by the scale. Return 1 if a gradient is infinite or NaN, or if 1 / scale
 * is infinite. */
int ddp_unscale(const void *from, ddp_dtype dtype, double scale, float *to, size_t n)
{
    FLUSH_SUBNORMALS(true);
    if (ddp_widen_f32(from, dtype, to, n, NULL) != DDP_OK)
        return -1;
    /* As torch does, divide in double. */
    const float factor = (float)(1.0 / scale);
    return multiply(to, factor, n) | !isfinite(factor);
}

/* --- the scale ---------------------------------------------------------------------------------------- */

/* The calls of a step, in their order. */
enum scaler_call { UNSCALED, STEP, UPDATE };

static const char *const call_name[] = { "ddp_scaler_unscaled", "ddp_scaler_step", "ddp_scaler_update" };

/* The reasons why a call (row) is not allowed at a stage (column). NULL means that the call is allowed. */
static const char *const refusal[3][3] = {
    /*             READY                                 UNSCALED  STEPPED */
    [UNSCALED] = { NULL, "the gradients of this step have already been unscaled",
                   "this step is done; call ddp_scaler_update to begin the next step" },
    [STEP] = { "the gradients of this step have not been unscaled; call ddp_scaler_unscaled first", NULL,
               "this step is already done; call ddp_scaler_update to begin the next step" },
    [UPDATE] = { "the gradients of this step have not been unscaled; call ddp_scaler_unscaled first", NULL,
                 NULL },
};

/* Check that `call` is allowed at this stage. First check the number of the stage. */
static ddp_status check_stage(const ddp_scaler *scaler, enum scaler_call call, struct ddp_err *err)
{
    /* The struct may be uninitialized. */
    if ((unsigned)scaler->stage > DDP_SCALER_STEPPED)
        return ddp_fail(err, DDP_ERR_ARG, "%s: invalid stage %d; initialize the scaler with DDP_SCALER_INIT",
                        call_name[call], (int)scaler->stage);
    const char *why = refusal[call][scaler->stage];
    return why == NULL ? DDP_OK : ddp_fail(err, DDP_ERR_ARG, "%s: %s", call_name[call], why);
}

/* Record that the gradients are unscaled. ddp_scaler_update reads `found_inf` later. */
ddp_status ddp_scaler_unscaled(ddp_scaler *scaler, int found_inf, struct ddp_err *err)
{
    NOT_NULL(scaler, err);
    ddp_status status = check_stage(scaler, UNSCALED, err);
    if (status != DDP_OK)
        return status;
    scaler->found_inf = found_inf != 0;
    scaler->stage = DDP_SCALER_UNSCALED;
    return DDP_OK;
}

/* Set *go to 1 if the caller may update the parameters, else to 0. */
ddp_status ddp_scaler_step(ddp_scaler *scaler, int *go, struct ddp_err *err)
{
    NOT_NULL(scaler, err);
    NOT_NULL(go, err);
    *go = 0;
    ddp_status status = check_stage(scaler, STEP, err);
    if (status != DDP_OK)
        return status;
    *go = !scaler->found_inf;
    scaler->stage = DDP_SCALER_STEPPED;
    return DDP_OK;
}

/* Change the scale: reduce it after infinite gradients, and increase it after `interval` steps without infinite
 * gradients. If the increased scale is infinite, keep the old scale, but restart the counter. */
static void grow_or_back_off(ddp_scaler *s)
{
    FLUSH_SUBNORMALS(false); /* a tiny scale must not become 0 */
    /* As in torch, multiply in double and store as float. */
    if (s->found_inf) {
        s->scale = (float)((double)s->scale * s->backoff);
        s->tracker = 0;
        return;
    }
    if (++s->tracker < s->interval)
        return;
    float grown = (float)((double)s->scale * s->growth);
    if (isfinite(grown))
        s->scale = grown;
    s->tracker = 0;
}

/* Finish the step. A caller that abandons the step may leave out ddp_scaler_step, as in torch. */
ddp_status ddp_scaler_update(ddp_scaler *scaler, struct ddp_err *err)
{
    NOT_NULL(scaler, err);
    ddp_status status = check_stage(scaler, UPDATE, err);
    if (status != DDP_OK)
        return status;
    grow_or_back_off(scaler);
    scaler->stage = DDP_SCALER_READY;
    scaler->found_inf = 0;
    return DDP_OK;
}

/* --- the scale in checkpoints ------------------------------------------------------------------------- */

void ddp_scaler_save(const ddp_scaler *scaler, double state[DDP_SCALER_STATE])
{
    FLUSH_SUBNORMALS(false);
    state[0] = scaler->scale;
    state[1] = scaler->growth;
    state[2] = scaler->backoff;
    state[3] = scaler->interval;
    state[4] = scaler->tracker;
}

/* Limits of the numbers in a saved state. A number must be strictly between its two limits, so a NaN is rejected, too.
 * The limits of the scale exclude all numbers that become 0 or infinite as a float. A scale of 0 could never grow
 * again, so every later step would be skipped. */
static const struct {
    const char *name;
    double above, below;
    bool whole;
} limits[DDP_SCALER_STATE] = {
    /* A scale of 0 could never grow again. The limits exclude all numbers that are 0 or infinite as a float. */
    { "scale", 0x1p-150, 0x1.ffffffp127, false },
    { "growth", 1, 1e30, false },
    { "backoff", 0, 1, false },
    { "interval", 0, 0x1p31, true },
    { "tracker", -1, INT32_MAX, true },
};

ddp_status ddp_scaler_load(ddp_scaler *scaler, const double state[DDP_SCALER_STATE], struct ddp_err *err)
{
    NOT_NULL(scaler, err);
    NOT_NULL(state, err);
    FLUSH_SUBNORMALS(false);
    for (int i = 0; i < DDP_SCALER_STATE; i++) {
        bool in_range = state[i] > limits[i].above && state[i] < limits[i].below;
        if (!in_range || (limits[i].whole && state[i] != floor(state[i])))
            return ddp_fail(err, DDP_ERR_CORRUPT,
                            "scaler: the saved %s is %g: expected %s above %g and below %g", limits[i].name,
                            state[i], limits[i].whole ? "a whole number" : "a number", limits[i].above,
                            limits[i].below);
    }
    *scaler = (ddp_scaler){ .scale = (float)state[0],
                            .growth = state[1],
                            .backoff = state[2],
                            .interval = (int32_t)state[3],
                            .tracker = (int32_t)state[4] };
    return DDP_OK;
}
