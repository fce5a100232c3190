/* Tests of the reduction kernels: exact values, the order of the tree, and conversions against every bit pattern. A
 * repeated run must give the same bits, so the order of the additions is a part of the result. */
#include "core/half.h"
#include "reducer/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RANKS = 7, LENGTH = 1031 }; /* no multiple of a tile or vector */

/* Reduce `world` rows of `rows` into `out`. */
static void reduce_rows(ddp_dtype dtype, ddp_op op, const void *rows, size_t world, size_t n, void *out)
{
    const void *in[RANKS];
    for (size_t r = 0; r < world; r++)
        in[r] = (const char *)rows + r * n * ddp_dtype_size(dtype);
    reduce_range(dtype, op, in, world, 0, n, &out, 1);
}

/* Return the sum in the order of the tree. This is a second, simpler implementation, with which the results are
 * compared. */
static float tree_sum(const float *x, size_t count)
{
    if (count == 1)
        return x[0];
    size_t left = 1;
    while (left * 2 < count)
        left *= 2;
    return tree_sum(x, left) + tree_sum(x + left, count - left);
}

static float rows[RANKS][LENGTH];

static void fill_with_noise(void)
{
    srand(7);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < LENGTH; i++)
            rows[r][i] = (float)rand() / (float)RAND_MAX * powf(10, (float)(rand() % 8)) - 3;
}

Test(reduce, f32_sums_follow_the_binary_tree_for_every_world_size, .init = fill_with_noise)
{
    for (size_t world = 1; world <= RANKS; world++) {
        float out[LENGTH];
        reduce_rows(DDP_F32, DDP_SUM, rows, world, LENGTH, out);
        for (int i = 0; i < LENGTH; i++) {
            float column[RANKS];
            for (size_t r = 0; r < world; r++)
                column[r] = rows[r][i];
            float expected = tree_sum(column, world);
            cr_assert_eq(memcmp(&out[i], &expected, 4), 0, "world %zu, element %d", world, i);
        }
    }
}

/* reduce.c has special loops for 2 and 4 ranks. If each result overwrites its input, these loops must give the same
 * bits as a reduction whose result is written to a separate array. */
Test(reduce, in_place_gives_the_same_bits_as_out_of_place, .init = fill_with_noise)
{
    for (size_t world = 2; world <= 4; world += 2) {
        for (int op = DDP_SUM; op <= DDP_AVG; op++) {
            static float copy[RANKS][LENGTH];
            float expected[LENGTH];
            const void *in[RANKS];
            void *out[RANKS];
            memcpy(copy, rows, sizeof(rows));
            for (size_t r = 0; r < world; r++)
                in[r] = out[r] = copy[r];
            reduce_rows(DDP_F32, (ddp_op)op, rows, world, LENGTH, expected);
            reduce_range(DDP_F32, (ddp_op)op, in, world, 0, LENGTH, out, world);
            for (size_t r = 0; r < world; r++)
                cr_assert_eq(memcmp(copy[r], expected, sizeof(expected)), 0, "world %zu op %d rank %zu",
                             world, op, r);
        }
    }
}

/* Reduce the elements [at, at + n) of x[0 .. world) in place, and compare each result with tree_sum. All other
 * elements must keep their values. */
static void check_in_place(float *const x[], size_t world, ddp_op op, size_t at, size_t n, size_t length)
{
    const void *in[RANKS];
    void *out[RANKS];
    float expected[RANKS][LENGTH], column[RANKS];
    for (size_t r = 0; r < world; r++) {
        in[r] = out[r] = x[r];
        memcpy(x[r], rows[r], length * sizeof(float));
        memcpy(expected[r], rows[r], length * sizeof(float));
    }
    for (size_t i = at; i < at + n; i++) {
        for (size_t r = 0; r < world; r++)
            column[r] = rows[r][i];
        float sum = tree_sum(column, world);
        for (size_t r = 0; r < world; r++)
            expected[r][i] = op == DDP_AVG ? sum / (float)world : sum;
    }
    reduce_range(DDP_F32, op, in, world, at, n, out, world);
    for (size_t r = 0; r < world; r++)
        cr_assert_eq(memcmp(x[r], expected[r], length * sizeof(float)), 0, "world %zu, %s, [%zu, +%zu)",
                     world, ddp_op_name(op), at, n);
}

/* Test all lengths from 0 to a little more than two strips. Most starts are not aligned to a vector. */
Test(reduce, in_place_sums_of_every_length_and_start, .init = fill_with_noise)
{
    enum { LONGEST = 131, STARTS = 5 };
    static float copy[RANKS][LONGEST + 2 * STARTS];
    for (size_t world = 2; world <= 4; world++) {
        for (size_t n = 0; n <= LONGEST; n++) {
            for (size_t at = 0; at < STARTS; at++) {
                /* The arrays of the ranks begin at different offsets within a vector. */
                float *x[] = { copy[0], copy[1] + 1, copy[2] + 2, copy[3] + 3 };
                check_in_place(x, world, DDP_SUM, at, n, LONGEST + STARTS);
                check_in_place(x, world, DDP_AVG, at, n, LONGEST + STARTS);
            }
        }
    }
}

/* In the first-level cache of some processors, the arrays of all ranks share the same lines. Such collisions may cost
 * time, but must not change a bit. */
Test(reduce, streams_that_collide_in_the_cache_give_the_same_bits, .init = fill_with_noise)
{
    const size_t apart[] = { 0, 1u << 27 | 1u << 12, 1u << 26 | 1u << 13, 1u << 25 | 1u << 14 };
    const size_t bytes = (size_t)1 << 28;
    char *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    float *x[4];
    cr_assert_neq(base, MAP_FAILED);
    for (size_t r = 0; r < 4; r++)
        x[r] = (float *)(base + apart[r]);
    for (size_t world = 2; world <= 4; world++)
        check_in_place(x, world, DDP_SUM, 0, LENGTH, LENGTH);
    munmap(base, bytes);
}

Test(reduce, a_range_leaves_its_surroundings_alone)
{
    float a[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, b[8] = { 2, 2, 2, 2, 2, 2, 2, 2 }, out[8] = { 0 };
    const void *in[] = { a, b };
    void *const outs[] = { out };
    const float expected[8] = { 0, 0, 0, 3, 3, 0, 0, 0 };
    reduce_range(DDP_F32, DDP_SUM, in, 2, 3, 2, outs, 1);
    cr_assert_eq(memcmp(out, expected, sizeof(out)), 0);
}

Test(reduce, every_operation_on_every_integer_type)
{
    const int32_t i[3][2] = { { 5, -7 }, { -2, 100 }, { 9, 1 } };
    const int64_t l[3][2] = { { 5, -7 }, { -2, 1ll << 40 }, { 9, 1 } };
    const uint8_t u[3][2] = { { 5, 250 }, { 2, 100 }, { 9, 1 } };
    const int64_t expected_i[5][2] = { { 12, 94 }, { 4, 31 }, { -2, -7 }, { 9, 100 }, { -90, -700 } };
    const uint8_t expected_u[5][2] = { { 16, 95 }, { 5, 117 }, { 2, 1 }, { 9, 250 }, { 90, 168 } };

    for (int op = DDP_SUM; op <= DDP_PROD; op++) {
        int32_t out_i[2];
        int64_t out_l[2];
        uint8_t out_u[2];
        reduce_rows(DDP_I32, (ddp_op)op, i, 3, 2, out_i);
        reduce_rows(DDP_I64, (ddp_op)op, l, 3, 2, out_l);
        reduce_rows(DDP_U8, (ddp_op)op, u, 3, 2, out_u);
        for (int k = 0; k < 2; k++) {
            cr_assert_eq(out_i[k], expected_i[op][k], "i32 %s", ddp_op_name((ddp_op)op));
            cr_assert_eq(out_u[k], expected_u[op][k], "u8 %s: %d", ddp_op_name((ddp_op)op), out_u[k]);
        }
        cr_assert_eq(out_l[0], expected_i[op][0], "i64 %s", ddp_op_name((ddp_op)op));
    }
}

Test(reduce, integers_wrap_around)
{
    const int32_t x[2][1] = { { INT32_MAX }, { 1 } };
    const int64_t y[2][1] = { { INT64_MIN }, { 3 } };
    int32_t out_x;
    int64_t out_y;
    reduce_rows(DDP_I32, DDP_SUM, x, 2, 1, &out_x);
    reduce_rows(DDP_I64, DDP_PROD, y, 2, 1, &out_y);
    cr_assert_eq(out_x, INT32_MIN);
    cr_assert_eq(out_y, INT64_MIN);
}

Test(reduce, an_average_over_three_is_divided_once)
{
    const double d[3][1] = { { 0.1 }, { 0.2 }, { 0.7 } };
    const float f[3][1] = { { 1 }, { 1 }, { 8 } };
    double out_d;
    float out_f;
    reduce_rows(DDP_F64, DDP_AVG, d, 3, 1, &out_d);
    reduce_rows(DDP_F32, DDP_AVG, f, 3, 1, &out_f);
    cr_assert_eq(out_d, ((0.1 + 0.2) + 0.7) / 3);
    cr_assert_eq(out_f, 10.0f / 3.0f);
}

Test(reduce, minimum_and_maximum_keep_a_nan)
{
    float x[2][4] = { { NAN, 1, 2, -0.5f }, { 1, NAN, 3, 0.5f } }, low[4], high[4];
    reduce_rows(DDP_F32, DDP_MIN, x, 2, 4, low);
    reduce_rows(DDP_F32, DDP_MAX, x, 2, 4, high);
    cr_assert(isnan(low[0]) && isnan(low[1]) && isnan(high[0]) && isnan(high[1]));
    cr_assert(low[2] == 2 && low[3] == -0.5f && high[2] == 3 && high[3] == 0.5f);
}

/* An f16 cannot have the value 2048 + 1. If every addition were rounded, both additions of 1 would be lost. If the sum
 * is rounded only once, both additions count. */
Test(reduce, f16_and_bf16_are_rounded_once)
{
    uint16_t h[3][1] = { { f32_to_f16(2048) }, { f32_to_f16(1) }, { f32_to_f16(1) } }, out;
    reduce_rows(DDP_F16, DDP_SUM, h, 3, 1, &out);
    cr_assert_eq(f16_to_f32(out), 2050);
    uint16_t b[3][1] = { { f32_to_bf16(256) }, { f32_to_bf16(1) }, { f32_to_bf16(1) } };
    reduce_rows(DDP_BF16, DDP_SUM, b, 3, 1, &out);
    cr_assert_eq(bf16_to_f32(out), 258);
}

/* Return the value of an f16 by its definition. */
static double f16_value(unsigned h)
{
    unsigned exponent = h >> 10 & 31, mantissa = h & 1023;
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return mantissa ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24));
}

Test(half, every_f16_becomes_the_right_f32_and_comes_back)
{
    for (unsigned h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        double expected = f16_value(h);
        if (isnan(expected)) {
            cr_assert(isnan(f) && isnan(f16_to_f32(f32_to_f16(f))), "%04x", h);
            continue;
        }
        cr_assert(f == expected && !!signbit(f) == (h >> 15), "%04x", h);
        cr_assert_eq(f32_to_f16(f), h);
    }
}

/* A value halfway between two neighbouring f16 numbers is rounded to the even number. A value slightly above or below
 * the middle is rounded to the nearer number. */
Test(half, f16_rounds_to_nearest_even)
{
    for (unsigned h = 0; h < 0x7bff; h++) {
        float low = f16_to_f32((uint16_t)h), high = f16_to_f32((uint16_t)(h + 1));
        float middle = low + (high - low) / 2;
        cr_assert_eq(f32_to_f16(middle), h + (h & 1), "%04x", h);
        cr_assert_eq(f32_to_f16(nextafterf(middle, low)), h, "%04x", h);
        cr_assert_eq(f32_to_f16(nextafterf(middle, high)), h + 1, "%04x", h);
        cr_assert_eq(f32_to_f16(-middle), 0x8000 | (h + (h & 1)), "%04x", h);
    }
    cr_assert_eq(f32_to_f16(65519.99f), 0x7bff);
    cr_assert_eq(f32_to_f16(65520.0f), 0x7c00);
    cr_assert_eq(f32_to_f16(1e30f), 0x7c00);
    cr_assert_eq(f32_to_f16(-INFINITY), 0xfc00);
}

Test(half, bf16_rounds_to_nearest_even_and_keeps_nan)
{
    for (unsigned h = 0; h < 0x7f7f; h++) {
        float low = bf16_to_f32((uint16_t)h), high = bf16_to_f32((uint16_t)(h + 1));
        float middle = half_float(half_bits(low) + 0x8000);
        cr_assert_eq(f32_to_bf16(low), h);
        cr_assert_eq(f32_to_bf16(middle), h + (h & 1), "%04x", h);
        cr_assert_eq(f32_to_bf16(half_float(half_bits(middle) + 1)), h + 1, "%04x", h);
        cr_assert(low < high);
    }
    cr_assert_eq(f32_to_bf16(INFINITY), 0x7f80);
    cr_assert(isnan(bf16_to_f32(f32_to_bf16(half_float(0x7fffffff)))));
    cr_assert(isnan(bf16_to_f32(f32_to_bf16(half_float(0x7f800001)))));
}
