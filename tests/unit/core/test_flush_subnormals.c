/* Tests of the functions of libddp that compute. The results must not depend on the mode of the calling thread, which
 * keeps or flushes subnormals. Each call must restore this mode. Each test computes into zeroed memory twice, once in
 * each mode. */
#include "ddp/amp.h"
#include "ddp/optim.h"
#include "ddp/syncbn.h"

#include "core/half.h"
#include "reducer/reduce.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>

static void need_mode(void)
{
    if (FLUSH_SUBNORMALS_BITS == 0)
        cr_skip_test("skipped, because this processor cannot flush subnormals");
}

static void keep_again(void)
{
    flush_subnormals_set(KEEP);
}

TestSuite(flush_subnormals, .init = need_mode, .fini = keep_again);

enum { N = 300, MEMORY = 1 << 20 };

static unsigned char results[2][MEMORY];

/* Expect the same bytes in both modes. `compute` returns how many bytes it wrote. */
static void expect_same(size_t (*compute)(unsigned char *to))
{
    static const uint64_t modes[] = { KEEP, FLUSH };
    size_t bytes[2];
    for (int m = 0; m < 2; m++) {
        memset(results[m], 0, MEMORY);
        flush_subnormals_set(modes[m]);
        bytes[m] = compute(results[m]);
        const uint64_t after = subnormals_mode();
        flush_subnormals_set(KEEP);
        cr_assert_eq(after, modes[m], "the mode was %#lx and is %#lx", modes[m], after);
    }
    cr_assert(bytes[0] > 0 && bytes[0] == bytes[1] && bytes[0] <= MEMORY);
    for (size_t i = 0; i < bytes[0]; i++)
        cr_assert_eq(results[0][i], results[1][i], "byte %zu is %02x where the caller keeps, else %02x", i,
                     results[0][i], results[1][i]);
}

static bool is_subnormal(uint32_t bits)
{
    return (bits & 0x7f800000u) == 0 && (bits & 0x7fffffu) != 0;
}

static void expect_no_subnormal(const float *x, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_not(is_subnormal(half_bits(x[i])), "%s %zu is %a", what, i, (double)x[i]);
}

/* --- the mode --------------------------------------------------------------------------------------------- */

static bool vanish_in_a_block(bool flush)
{
    FLUSH_SUBNORMALS(flush);
    return subnormals_vanish();
}

Test(flush_subnormals, a_block_sets_the_mode_and_its_end_restores_it)
{
    for (int before = 0; before < 2; before++) {
        flush_subnormals_set(before ? FLUSH : KEEP);
        const bool flushed = vanish_in_a_block(true), between = subnormals_vanish();
        const bool kept = !vanish_in_a_block(false), after = subnormals_vanish();
        flush_subnormals_set(KEEP);
        cr_expect(flushed && kept, "flushed %d, kept %d", flushed, kept);
        cr_expect(between == before && after == before, "mode %d became %d, then %d", before, between, after);
    }
}

Test(flush_subnormals, a_block_leaves_rounding_and_exceptions_alone)
{
    feclearexcept(FE_ALL_EXCEPT);
    {
        FLUSH_SUBNORMALS(true);
        fesetround(FE_UPWARD);
        feraiseexcept(FE_INEXACT);
    }
    cr_expect_eq(fegetround(), FE_UPWARD);
    cr_expect(fetestexcept(FE_INEXACT));
    fesetround(FE_TONEAREST);
}

/* --- 16 bits ---------------------------------------------------------------------------------------------- */

/* Compare every converted f16 with its definition by sign, exponent and mantissa. */
Test(flush_subnormals, conversions_are_exact_in_both_modes)
{
    static float expected[1 << 16], wide[1 << 16];
    static uint16_t half[1 << 16], back[1 << 16];
    for (uint32_t h = 0; h < 1 << 16; h++) {
        const int exponent = (int)(h >> 10 & 31), mantissa = (int)(h & 1023);
        const double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        half[h] = (uint16_t)h;
        expected[h] = (float)(h & 0x8000 ? -value : value);
    }
    for (int mode = 0; mode < 2; mode++) {
        flush_subnormals_set(mode ? FLUSH : KEEP);
        const ddp_status widened = ddp_widen_f32(half, DDP_F16, wide, 1 << 16, NULL);
        const ddp_status rounded = ddp_round_f32(wide, back, DDP_F16, 1 << 16, NULL);
        flush_subnormals_set(KEEP);
        cr_assert(widened == DDP_OK && rounded == DDP_OK);
        for (uint32_t h = 0; h < 1 << 16; h++) {
            if ((h & 0x7c00) == 0x7c00) /* skip infinity and NaN */
                continue;
            cr_assert_eq(half_bits(wide[h]), half_bits(expected[h]), "%04x is %a, mode %d", h,
                         (double)wide[h], mode);
            cr_assert_eq(back[h], half[h], "%04x came back as %04x, mode %d", h, back[h], mode);
        }
    }
}

/* Convert three kinds of numbers: f32 near the smallest f16, subnormal bf16, and subnormal f32. */
static size_t convert(unsigned char *to)
{
    float wide[N];
    uint16_t half[N];
    for (uint32_t i = 0; i < N; i++)
        wide[i] = half_float(0x33000000u + i * 0x1234567u % 0x6000000u);
    subnormals_fill(half, DDP_BF16, N, 3);
    ddp_round_f32(wide, to, DDP_F16, N, NULL);
    ddp_widen_f32(half, DDP_BF16, (float *)(to + 2 * N), N, NULL);
    subnormals_fill(wide, DDP_F32, N, 5);
    ddp_round_f32(wide, to + 6 * N, DDP_BF16, N, NULL);
    ddp_round_f32(wide, to + 8 * N, DDP_F16, N, NULL);
    return 10 * N;
}

Test(flush_subnormals, conversions_of_all_ranges_are_the_same)
{
    uint16_t bf16 = 0x8001;
    float wide;
    expect_same(convert);
    ddp_widen_f32(&bf16, DDP_BF16, &wide, 1, NULL);
    cr_expect_eq(half_bits(wide), 0x80010000u, "a subnormal bf16 is the same number as f32");
}

/* --- sums of ranks ---------------------------------------------------------------------------------------- */

static const ddp_dtype types[] = { DDP_F32, DDP_F64, DDP_F16, DDP_BF16 };
enum { TYPES = 4, WORLDS = 5 };

static size_t reduce_all(unsigned char *to)
{
    static uint64_t rows[WORLDS][N], partial[2][N];
    size_t used = 0;
    for (int t = 0; t < TYPES; t++) {
        for (uint32_t r = 0; r < WORLDS; r++)
            subnormals_fill(rows[r], types[t], N, r);
        for (size_t world = 1; world <= WORLDS; world++) {
            for (int op = DDP_SUM; op <= DDP_PROD; op++) {
                const void *in[WORLDS] = { rows[0], rows[1], rows[2], rows[3], rows[4] };
                void *out = to + used;
                reduce_range(types[t], (ddp_op)op, in, world, 0, N, &out, 1);
                used += N * sizeof(uint64_t);
            }
        }
        /* two hosts of two ranks each */
        for (int op = DDP_SUM; op <= DDP_PROD; op++) {
            static const struct reduce_piece pieces[] = { { 0, 2 }, { 2, 2 } };
            const void *first[] = { rows[0], rows[1] }, *second[] = { rows[2], rows[3] };
            const void *partials[] = { partial[0], partial[1] };
            reduce_piece(types[t], (ddp_op)op, first, 2, N, partial[0]);
            reduce_piece(types[t], (ddp_op)op, second, 2, N, partial[1]);
            reduce_join(types[t], (ddp_op)op, pieces, 4, partials, N, to + used);
            used += N * sizeof(uint64_t);
        }
    }
    return used;
}

Test(flush_subnormals, reductions_are_the_same)
{
    expect_same(reduce_all);
}

/* Reduce one number from each of two ranks. Return the bits of the result. */
static uint32_t of_two(ddp_dtype dtype, ddp_op op, uint32_t a, uint32_t b)
{
    uint32_t out = 0;
    const void *in[] = { &a, &b };
    void *to = &out;
    reduce_range(dtype, op, in, 2, 0, 1, &to, 1);
    return out;
}

Test(flush_subnormals, sums_lose_subnormals_of_f32_and_bf16_and_no_others)
{
    cr_expect_eq(of_two(DDP_F32, DDP_SUM, 0x00000005, 0x00000003), 0);
    cr_expect_eq(of_two(DDP_F32, DDP_AVG, 0x00800000, 0x00000000), 0, "half of the smallest normal number");
    cr_expect_eq(of_two(DDP_F32, DDP_PROD, 0x20000000, 0x1f000000), 0);
    cr_expect_eq(of_two(DDP_F32, DDP_SUM, 0x00800000, 0x00000003), 0x00800000);
    cr_expect_eq(of_two(DDP_BF16, DDP_SUM, 0x0005, 0x0003), 0);
    cr_expect_eq(of_two(DDP_F16, DDP_SUM, 0x0005, 0x0003), 0x0008);
    cr_expect_eq(of_two(DDP_F16, DDP_AVG, 0x0004, 0x0002), 0x0003);
}

Test(flush_subnormals, minima_and_maxima_are_exact)
{
    for (int mode = 0; mode < 2; mode++) {
        flush_subnormals_set(mode ? FLUSH : KEEP);
        const uint32_t max[] = { of_two(DDP_F32, DDP_MAX, 3, 0), of_two(DDP_F32, DDP_MAX, 0, 3) };
        const uint32_t min[] = { of_two(DDP_F32, DDP_MIN, 3, 5), of_two(DDP_BF16, DDP_MIN, 5, 3) };
        flush_subnormals_set(KEEP);
        cr_expect(max[0] == 3 && max[1] == 3, "mode %d: %u %u", mode, max[0], max[1]);
        cr_expect(min[0] == 3 && min[1] == 3, "mode %d: %u %u", mode, min[0], min[1]);
    }
}

/* --- updates ---------------------------------------------------------------------------------------------- */

static const ddp_optim rules[] = {
    { DDP_SGD, 0.01, 0, 0, 0, 0, 0, 0, 0, 0 },
    { DDP_SGD, 0.01, 0.1, 0.9, 0, 1, 0, 0, 0, 0 },
    { DDP_SGD, 0.01, 0.1, 0.9, 0.1, 0, 0, 0, 0, 0 },
    { DDP_ADAM, 1e-3, 0.1, 0, 0, 0, 0.9, 0.999, 1e-8, 0 },
    { DDP_ADAMW, 1e-3, 1e-2, 0, 0, 0, 0.9, 0.99, 1e-8, 0 },
};

static size_t update_all(unsigned char *to)
{
    float(*x)[3][N] = (void *)to;
    for (size_t r = 0; r < 5; r++) {
        ddp_optim optim = rules[r];
        float grad[N];
        subnormals_fill(x[r][0], DDP_F32, N, 1);
        subnormals_fill(grad, DDP_F32, N, 2);
        for (int step = 0; step < 4; step++) {
            ddp_optim_begin(&optim);
            ddp_optim_update(&optim, x[r][0], grad, x[r][1], x[r][2], N);
        }
    }
    return 5 * sizeof(*x);
}

Test(flush_subnormals, optimizers_are_the_same_and_keep_no_subnormal_state)
{
    expect_same(update_all);
    expect_no_subnormal((const float *)results[0], 5 * 3 * N, "number");
}

static size_t clip(unsigned char *to)
{
    float *x = (float *)to;
    const float tiny[] = { half_float(77), 0 };
    subnormals_fill(x, DDP_F32, N, 1);
    for (int i = 0; i < 20; i++)
        x[N + i] = half_float(0x1000u + (uint32_t)i);
    float *arrays[] = { x, x + N };
    const size_t counts[] = { N, 20 };
    const double norm = ddp_clip_grad_norm(arrays, counts, 2, 0.5);
    const double small = ddp_grad_norm((const float *const[]){ x + N }, counts + 1, 1);
    memcpy(x + N + 20, &norm, sizeof(norm));
    memcpy(x + N + 22, &small, sizeof(small));
    const double one = ddp_grad_norm((const float *const[]){ tiny }, (const size_t[]){ 2 }, 1);
    memcpy(x + N + 24, &one, sizeof(one));
    return (N + 26) * sizeof(*x);
}

Test(flush_subnormals, clipping_is_the_same)
{
    double one;
    expect_same(clip);
    memcpy(&one, results[0] + (N + 24) * sizeof(float), sizeof(one));
    cr_expect_eq(one, 0, "the norm of a subnormal gradient is %a", one);
    expect_no_subnormal((const float *)results[0], N + 20, "gradient");
}

static size_t unscale(unsigned char *to)
{
    float *x = (float *)to;
    for (int t = 0; t < TYPES; t++) {
        uint64_t from[N];
        if (types[t] == DDP_F64)
            continue;
        subnormals_fill(from, types[t], N, 1);
        x[0] = (float)ddp_unscale(from, types[t], 65536, x + 1, N);
        x += N + 1;
    }
    return 3 * (N + 1) * sizeof(*x);
}

Test(flush_subnormals, unscaling_is_the_same)
{
    expect_same(unscale);
    expect_no_subnormal((const float *)results[0], 3 * (N + 1), "gradient");
}

/* Reduce the scale until it is below the normal f32 numbers. The scale is not a gradient, so it must not be flushed to
 * 0. */
static size_t back_off(unsigned char *to)
{
    double(*state)[DDP_SCALER_STATE] = (void *)to;
    ddp_scaler scaler = DDP_SCALER_INIT, loaded = DDP_SCALER_INIT;
    for (int step = 0; step < 150; step++) {
        ddp_scaler_unscaled(&scaler, 1, NULL);
        ddp_scaler_update(&scaler, NULL);
    }
    ddp_scaler_save(&scaler, state[0]);
    ddp_scaler_load(&loaded, state[0], NULL);
    ddp_scaler_save(&loaded, state[1]);
    return 2 * sizeof(*state);
}

Test(flush_subnormals, the_scale_backs_off_the_same)
{
    double scale[2];
    expect_same(back_off);
    memcpy(&scale[0], results[0], sizeof(double));
    memcpy(&scale[1], results[0] + DDP_SCALER_STATE * sizeof(double), sizeof(double));
    cr_expect(scale[0] == 0x1p-134 && scale[1] == 0x1p-134, "%a, %a", scale[0], scale[1]);
}

/* --- batch normalization ---------------------------------------------------------------------------------- */

static size_t normalize(unsigned char *to)
{
    enum { CHANNELS = 3, SPATIAL = 20, ROWS = 5 };
    float *y = (float *)to, *dx = y + N, *running = dx + N, *gradients = running + 2 * CHANNELS;
    float x[N], dy[N], weight[CHANNELS], bias[CHANNELS];
    double saved[2 * CHANNELS];
    ddp_syncbn bn = DDP_SYNCBN_INIT;
    subnormals_fill(x, DDP_F32, N, 1);
    subnormals_fill(dy, DDP_F32, N, 2);
    subnormals_fill(weight, DDP_F32, CHANNELS, 3);
    subnormals_fill(bias, DDP_F32, CHANNELS, 4);
    subnormals_fill(running, DDP_F32, CHANNELS, 5);
    bn.channels = CHANNELS;
    bn.spatial = SPATIAL;
    bn.saved = saved;
    bn.weight = weight;
    bn.bias = bias;
    bn.running_mean = running;
    bn.running_var = running + CHANNELS;
    ddp_syncbn_forward(NULL, &bn, x, ROWS, y);
    ddp_syncbn_backward(NULL, &bn, x, dy, ROWS, dx, gradients, gradients + CHANNELS);
    float *inferred = gradients + 2 * CHANNELS;
    ddp_syncbn_infer(&bn, x, ROWS, inferred);
    return (size_t)((unsigned char *)(inferred + N) - to);
}

Test(flush_subnormals, batch_normalization_is_the_same)
{
    expect_same(normalize);
    expect_no_subnormal((const float *)results[0], 3 * N + 12, "number");
}
