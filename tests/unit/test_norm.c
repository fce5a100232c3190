/* The global norm has the same bits however the leaves are dealt out; clipping keeps or shrinks, never
 * grows. */
#include "reducer/norm.h"

#include "ddp/optim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { N = 256 * 11 + 77 };

static float x[N];

static void fill(void)
{
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)i) * expf((float)(i % 19) - 9);
}

TestSuite(norm, .init = fill);

Test(norm, a_norm_is_the_root_of_the_sum_of_squares)
{
    const float a[2] = { 3, 0 }, b[1] = { 4 };
    const float *const both[3] = { a, b, NULL };
    const size_t counts[3] = { 2, 1, 0 };
    cr_expect_eq(ddp_grad_norm(both, counts, 3), 5.0);
    cr_expect_eq(ddp_grad_norm(both, counts, 0), 0.0);
    long double exact = 0;
    for (int i = 0; i < N; i++)
        exact += (long double)x[i] * x[i];
    const float *const all[1] = { x };
    cr_expect_float_eq(ddp_grad_norm(all, (const size_t[]){ N }, 1), (double)sqrtl(exact),
                       1e-14 * (double)sqrtl(exact));
}

Test(norm, a_leaf_padded_with_zeros_has_the_same_bits)
{
    for (size_t n = 0; n < NORM_LEAF; n += 5) {
        float padded[NORM_LEAF] = { 0 };
        memcpy(padded, x, n * sizeof(float));
        cr_expect_eq(norm_leaf(x, n), norm_leaf(padded, NORM_LEAF), "%zu elements", n);
    }
}

/* ((l0+l1)+(l2+l3))+(l4+...): a count that is no power of two behaves as if zeros followed. */
Test(norm, leaves_are_joined_as_a_tree_padded_with_zeros)
{
    for (size_t leaves = 1; leaves <= 16; leaves++) {
        struct norm_tree tree = { .leaves = 0 };
        double level[16] = { 0 };
        for (size_t i = 0; i < leaves; i++)
            norm_push(&tree, level[i] = norm_leaf(x + i * 100, 100));
        for (size_t width = 16; width > 1; width /= 2)
            for (size_t i = 0; i < width / 2; i++)
                level[i] = level[2 * i] + level[2 * i + 1];
        cr_expect_eq(norm_root(&tree), level[0], "%zu leaves", leaves);
    }
}

Test(norm, the_factor_never_grows_gradients_and_lets_nan_through)
{
    cr_expect_eq(norm_clip_factor(0.5, 1), 1.0f);
    cr_expect_eq(norm_clip_factor(0, 1), 1.0f);
    cr_expect_float_eq(norm_clip_factor(10, 1), 0.1f, 1e-7);
    cr_expect_eq(norm_clip_factor(INFINITY, 1), 0.0f);
    cr_expect(isnan(norm_clip_factor(NAN, 1)));
}
