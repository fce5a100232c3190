/* Tests of gradients before and after the sum: scaling factors, and transfers with 16 bits. The tests compare every
 * bit, because all ranks must get the same gradients. */
#include "reducer/reduce.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

Test(values, a_factor_is_as_good_as_one_rounding_allows)
{
    float v[5] = { 3, -6, 0, 1e30f, 7 };
    values_scale(DDP_F32, v, 5, 1.0 / 3);
    cr_assert_eq(v[0], 1.0f);
    cr_assert_eq(v[1], -2.0f);
    cr_assert_eq(v[2], 0.0f);
    cr_assert_eq(v[3], (float)(1e30f / 3.0));
    cr_assert_eq(v[4], 7.0f / 3.0f);
}

Test(values, sixteen_bit_types_and_doubles_are_scaled_too)
{
    uint16_t half[2] = { 0x4200, 0xc600 }, brain[2] = { 0x4040, 0xc0c0 }; /* 3, -6 */
    double wide[1] = { 3 };
    values_scale(DDP_F16, half, 2, 0.5);
    values_scale(DDP_BF16, brain, 2, 0.5);
    values_scale(DDP_F64, wide, 1, 0.5);
    cr_assert_eq(half[0], 0x3e00);
    cr_assert_eq(half[1], 0xc200);
    cr_assert_eq(brain[0], 0x3fc0);
    cr_assert_eq(brain[1], 0xc040);
    cr_assert_eq(wide[0], 1.5);
}

Test(values, a_trip_over_the_wire_rounds_once)
{
    static const ddp_dtype wires[] = { DDP_F16, DDP_BF16 };
    static const float digits[] = { 0x1p-11f, 0x1p-8f }; /* half a unit in the last place */
    for (int w = 0; w < 2; w++) {
        float v[1000], back[1000];
        uint16_t wire[1000];
        for (int i = 0; i < 1000; i++)
            v[i] = (float)sin(i) * 10;
        values_narrow(wires[w], wire, v, 1000, 4);
        values_widen(wires[w], back, wire, 1000, 0.25);
        for (int i = 0; i < 1000; i++)
            cr_assert(fabsf(back[i] - v[i]) <= fabsf(v[i]) * digits[w], "%g became %g", (double)v[i],
                      (double)back[i]);
    }
}

/* Gaps between gradients contain zeros. */
Test(values, zeros_stay_zeros)
{
    float zero[3] = { 0 };
    uint16_t wire[3];
    values_scale(DDP_F32, zero, 3, 1e9);
    values_narrow(DDP_F16, wire, zero, 3, 1e9);
    values_widen(DDP_F16, zero, wire, 3, 1e9);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(zero[i], 0.0f);
}

Test(values, fractions_are_for_real_types)
{
    cr_assert(values_are_real(DDP_F32) && values_are_real(DDP_F64));
    cr_assert(values_are_real(DDP_F16) && values_are_real(DDP_BF16));
    cr_assert_not(values_are_real(DDP_I32) || values_are_real(DDP_I64) || values_are_real(DDP_U8));
}
