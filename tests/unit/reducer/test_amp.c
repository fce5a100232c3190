/* Compare the loss scaler with torch's GradScaler (tests/data/torch_scaler.json), call by call. Also test what rounding
 * to 16 bits does to a gradient. */
#include "ddp/amp.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static ddp_scaler scaler_of(const cJSON *run)
{
    ddp_scaler s = DDP_SCALER_INIT;
    s.scale = (float)numbers_get(run, "init_scale", 0);
    s.growth = numbers_get(run, "growth_factor", 0);
    s.backoff = numbers_get(run, "backoff_factor", 0);
    s.interval = (int32_t)numbers_get(run, "growth_interval", 0);
    return s;
}

static ddp_status make_call(ddp_scaler *s, const char *name, int found_inf, int *go, struct ddp_err *err)
{
    if (strcmp(name, "unscale") == 0)
        return ddp_scaler_unscaled(s, found_inf, err);
    return strcmp(name, "step") == 0 ? ddp_scaler_step(s, go, err) : ddp_scaler_update(s, err);
}

static void follow(const cJSON *run, int number)
{
    ddp_scaler s = scaler_of(run);
    const cJSON *call;
    int at = 0;
    cJSON_ArrayForEach(call, cJSON_GetObjectItem(run, "calls"))
    {
        struct ddp_err err;
        int go = 0;
        char *name = cJSON_GetObjectItem(call, "call")->valuestring;
        ddp_status status = make_call(&s, name, numbers_get(call, "found_inf", 0) != 0, &go, &err);
        cr_expect_eq(status, numbers_get(call, "refused", 0) != 0 ? DDP_ERR_ARG : DDP_OK,
                     "run %d call %d: %s", number, at, name);
        cr_expect_eq(go, (int)numbers_get(call, "updated", 0), "run %d call %d: %s", number, at, name);
        cr_expect_eq(s.scale, (float)numbers_get(call, "scale", -1), "run %d call %d: %s", number, at, name);
        cr_expect_eq(s.tracker, (int32_t)numbers_get(call, "tracker", -1), "run %d call %d: %s", number, at,
                     name);
        at++;
    }
}

Test(scaler, every_call_does_what_torchs_does)
{
    cJSON *json = numbers_read("scaler");
    const cJSON *run;
    int runs = 0;
    cJSON_ArrayForEach(run, cJSON_GetObjectItem(json, "runs"))
    {
        follow(run, runs++);
    }
    cr_expect_eq(runs, 6);
    cJSON_Delete(json);
}

/* `expected` is the table of ddp/amp.h: the stage after each call, or 'x' for a rejection that changes nothing. */
Test(scaler, every_call_in_every_stage)
{
    static const char expected[3][4] = { "Uxx", "xSx", "xRR" }; /* [call][stage] */
    static const char *const names[3] = { "unscale", "step", "update" };
    for (int call = 0; call < 3; call++) {
        for (int stage = 0; stage < 3; stage++) {
            ddp_scaler s = DDP_SCALER_INIT, before;
            struct ddp_err err = { 0 };
            int go;
            s.stage = (ddp_scaler_stage)stage;
            before = s;
            ddp_status status = make_call(&s, names[call], 0, &go, &err);
            if (expected[call][stage] == 'x')
                cr_expect(status == DDP_ERR_ARG && memcmp(&s, &before, sizeof(s)) == 0 && err.msg[0]);
            else
                cr_expect(status == DDP_OK && "RUS"[s.stage] == expected[call][stage]);
        }
    }
}

Test(scaler, a_stage_from_nowhere_is_refused)
{
    ddp_scaler s = DDP_SCALER_INIT;
    struct ddp_err err;
    s.stage = (ddp_scaler_stage)77;
    cr_expect_eq(ddp_scaler_update(&s, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "77"), "%s", err.msg);
}

Test(scaler, a_saved_state_continues)
{
    ddp_scaler s, other;
    double state[DDP_SCALER_STATE];
    memset(&s, 0, sizeof(s)); /* padding is compared, too */
    memset(&other, 0, sizeof(other));
    s.growth = other.growth = 2;
    s.backoff = other.backoff = 0.5;
    other.scale = 1;
    other.interval = 1;
    s.scale = 1024;
    s.tracker = 17;
    s.interval = 100;
    ddp_scaler_save(&s, state);
    other.stage = DDP_SCALER_STEPPED;
    cr_assert_eq(ddp_scaler_load(&other, state, NULL), DDP_OK);
    cr_expect_eq(memcmp(&s, &other, sizeof(s)), 0);
}

Test(scaler, a_senseless_state_is_refused_by_name_and_changes_nothing)
{
    static const char *const names[] = { "scale", "growth", "backoff", "interval", "tracker" };
    const double bad[][4] = { { NAN, 0, 1e-46, 0x1p128 },
                              { -1, 1, INFINITY, NAN },
                              { 1.5, 0, 1, NAN },
                              { 0, 1.5, 0x1p31, NAN },
                              { 0.5, -1, INT32_MAX, NAN } };
    for (int k = 0; k < DDP_SCALER_STATE * 4; k++) {
        ddp_scaler s = DDP_SCALER_INIT, before = s;
        int i = k / 4;
        double state[DDP_SCALER_STATE];
        struct ddp_err err;
        ddp_scaler_save(&s, state);
        state[i] = bad[i][k % 4];
        cr_expect_eq(ddp_scaler_load(&s, state, &err), DDP_ERR_CORRUPT);
        cr_expect(strstr(err.msg, names[i]), "%s", err.msg);
        cr_expect(strstr(err.msg, " above ") && strstr(err.msg, " below "), "%s", err.msg);
        cr_expect_eq(memcmp(&s, &before, sizeof(s)), 0);
    }
}

/* --- gradients and parameters --------------------------------------------------------------------------- */

Test(amp, rounding_to_16_bits_is_torchs)
{
    enum { ROOM = 64 };
    cJSON *json = numbers_read("round");
    float f32[ROOM], back[ROOM], torchs[ROOM];
    uint16_t half[ROOM];
    size_t n = numbers_floats(cJSON_GetObjectItem(json, "f32"), f32, ROOM);
    for (ddp_dtype dtype = DDP_F16; dtype <= DDP_BF16; dtype++) {
        numbers_floats(cJSON_GetObjectItem(json, ddp_dtype_name(dtype)), torchs, ROOM);
        cr_assert_eq(ddp_round_f32(f32, half, dtype, n, NULL), DDP_OK);
        cr_assert_eq(ddp_widen_f32(half, dtype, back, n, NULL), DDP_OK);
        for (size_t i = 0; i < n; i++)
            cr_expect_eq(back[i], torchs[i], "%s of %g: %g, torch has %g", ddp_dtype_name(dtype), f32[i],
                         back[i], torchs[i]);
    }
    cJSON_Delete(json);
}

Test(amp, unscaling_divides_and_finds_what_is_not_finite)
{
    float grad[3] = { 65536, -2, 0 }, out[3];
    cr_expect_eq(ddp_unscale(grad, DDP_F32, 65536, out, 3), 0);
    cr_expect(out[0] == 1 && out[1] == -2.0f / 65536 && out[2] == 0);
    const uint16_t f16[2] = { 0x3c00, 0x7c00 }, bf16[2] = { 0x3f80, 0xffc0 }; /* 1 and inf, 1 and NaN */
    cr_expect_eq(ddp_unscale(f16, DDP_F16, 2, out, 1), 0);
    cr_expect_eq(ddp_unscale(f16, DDP_F16, 2, out, 2), 1);
    cr_expect_eq(out[0], 0.5f);
    cr_expect_eq(ddp_unscale(bf16, DDP_BF16, 2, out, 2), 1);
    grad[2] = -INFINITY; /* an infinity must also be found if the result overwrites the input */
    cr_expect_eq(ddp_unscale(grad, DDP_F32, 1, grad, 3), 1);
}

/* If the scale is 0, or so small that 1 / scale is infinite, ddp_unscale must return 1. Then the step is skipped and
 * not made with infinite gradients. */
Test(amp, a_scale_without_a_reciprocal_is_found)
{
    const float grad[2] = { 1, 0 };
    float out[2];
    cr_expect_eq(ddp_unscale(grad, DDP_F32, 0, out, 2), 1);
    cr_expect_eq(ddp_unscale(grad, DDP_F32, 1e-40, out, 2), 1);
    cr_expect_eq(ddp_unscale(grad, DDP_F32, 1e-38, out, 2), 0);
}

Test(amp, other_types_are_refused)
{
    float f[1];
    struct ddp_err err;
    int32_t i[1] = { 1 };
    cr_expect_eq(ddp_unscale(i, DDP_I32, 1, f, 1), -1);
    cr_expect_eq(ddp_widen_f32(i, DDP_I32, f, 1, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "i32"), "%s", err.msg);
    cr_expect_eq(ddp_round_f32(f, i, DDP_F64, 1, &err), DDP_ERR_ARG);
}

/* A master copy is needed, because in bf16 the sum of 1 and 2^-10 is 1, even after a hundred additions. */
Test(amp, small_updates_survive_in_the_master_copy)
{
    float master = 1, alone = 1;
    uint16_t param;
    for (int step = 0; step < 100; step++) {
        master += 0x1p-10f;
        ddp_round_f32(&master, &param, DDP_BF16, 1, NULL);
        alone += 0x1p-10f;
        uint16_t lost;
        ddp_round_f32(&alone, &lost, DDP_BF16, 1, NULL);
        ddp_widen_f32(&lost, DDP_BF16, &alone, 1, NULL);
    }
    float seen;
    ddp_widen_f32(&param, DDP_BF16, &seen, 1, NULL);
    cr_expect_float_eq(seen, 1.09765625f, 0.004);
    cr_expect_eq(alone, 1.0f);
}
