/* Tests of the layers of resnet in double precision. Gradients are compared with central differences. Convolution and
 * normalization are also compared with their definitions. The code of batch normalization is in libddp. This file
 * compiles that code a second time, with double in place of float and with other names. */
#define LAYERS_IN_DOUBLE
#include "train/layers/conv.c"
#include "train/layers/conv_tile.c"
#include "train/layers/activation.c"

#include "ddp/error.h"
#include "ddp/group.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <stdbool.h>

#define float double
#define batch_measure   measure_in_double
#define batch_merge     merge_in_double
#define batch_learn     learn_in_double
#define batch_normalize normalize_in_double
#define batch_sums      sums_in_double
#define batch_gradient  gradient_in_double
#include "reducer/batchnorm.c"
#undef float

enum { ROWS = 3, ROOM = 2048 };

static double x[ROOM], dx[ROOM], w[ROOM], dw[ROOM], y[ROOM], mix[ROOM], columns[16384];

/* --- convolution ------------------------------------------------------------------------------------------- */

static struct conv conv;

static size_t x_values(void)
{
    return ROWS * conv.in * conv.side * conv.side;
}

static size_t y_values(void)
{
    return ROWS * conv.out * conv_side(&conv) * conv_side(&conv);
}

static size_t w_values(void)
{
    return conv.out * conv.in * CONV_TAPS;
}

static void conv_there(void)
{
    cpu_conv_forward(NULL, &conv, y, x, w, ROWS, columns);
}

static void conv_back(void)
{
    cpu_conv_backward_params(NULL, &conv, dw, mix, x, ROWS, columns);
    cpu_conv_backward_input(NULL, &conv, dx, mix, w, ROWS, false, columns);
}

/* Columns: in, out, side, stride. The rows are small forms of resnet20's convolutions, and shapes with remainders. */
static const struct conv convs[] = {
    { 2, 3, 6, 1 }, { 2, 4, 6, 2 }, { 3, 2, 5, 2 }, { 1, 1, 2, 1 }, { 1, 2, 7, 2 }
};
enum { CONVS = sizeof(convs) / sizeof(convs[0]) };

Test(resnet_layers, convolution)
{
    for (int i = 0; i < CONVS; i++) {
        conv = convs[i];
        const struct grad_check c = { .in = { { "x", x, dx, x_values() }, { "weight", w, dw, w_values() } },
                                      .out = y,
                                      .mix = mix,
                                      .n = y_values(),
                                      .forward = conv_there,
                                      .backward = conv_back };
        cr_assert(x_values() <= ROOM && y_values() <= ROOM && w_values() <= ROOM);
        cr_assert_leq(conv_columns(&conv), sizeof(columns) / sizeof(columns[0]));
        grad_check(&c);
    }
}

/* Compute one value by the definition, element by element. */
static double naive(size_t row, size_t out, size_t line, size_t column)
{
    double sum = 0;
    for (size_t in = 0; in < conv.in; in++) {
        for (size_t k = 0; k < CONV_TAPS; k++) {
            size_t i = line * conv.stride + k / 3, j = column * conv.stride + k % 3;
            if (i >= 1 && j >= 1 && i <= conv.side && j <= conv.side)
                sum += w[(out * conv.in + in) * CONV_TAPS + k] *
                       x[((row * conv.in + in) * conv.side + i - 1) * conv.side + j - 1];
        }
    }
    return sum;
}

Test(resnet_layers, a_convolution_is_what_its_definition_says)
{
    for (int i = 0; i < CONVS; i++) {
        conv = convs[i];
        const size_t n = conv_side(&conv);
        grad_check_random(x, x_values(), 1);
        grad_check_random(w, w_values(), 2);
        conv_there();
        for (size_t k = 0; k < y_values(); k++)
            cr_assert_float_eq(y[k], naive(k / n / n / conv.out, k / n / n % conv.out, k / n % n, k % n),
                               1e-12, "convolution %d, value %zu", i, k);
    }
}

Test(resnet_layers, a_gradient_is_added_to_what_is_there)
{
    for (int i = 0; i < CONVS; i++) {
        conv = convs[i];
        grad_check_random(mix, y_values(), 3);
        grad_check_random(w, w_values(), 4);
        cpu_conv_backward_input(NULL, &conv, dx, mix, w, ROWS, false, columns);
        for (size_t k = 0; k < x_values(); k++)
            x[k] = dx[k] + (double)k;
        for (size_t k = 0; k < x_values(); k++)
            dx[k] = (double)k;
        cpu_conv_backward_input(NULL, &conv, dx, mix, w, ROWS, true, columns);
        for (size_t k = 0; k < x_values(); k++)
            cr_assert_float_eq(dx[k], x[k], 1e-12, "convolution %d, value %zu", i, k);
    }
}

Test(resnet_layers, no_rows_have_no_gradient)
{
    conv = convs[0];
    dw[3] = 7;
    cpu_conv_backward_params(NULL, &conv, dw, mix, x, 0, columns);
    cr_expect_eq(dw[3], 0);
}

/* --- the inner loops, for each processor ------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    void (*sum)(const struct conv_sum *, real *, size_t, size_t, const real *, const real *);
    void (*product)(const struct conv_product *, real *, const real *, const real *);
} kinds[] = {
    { "plain", sum_plain, product_plain },
#ifdef __x86_64__
    { "avx2", sum_avx2, product_avx2 },
    { "avx512f", sum_avx512, product_avx512 },
#endif
};

static bool is_there(const struct kind *k)
{
#ifdef __x86_64__
    if (strcmp(k->name, "avx2") == 0)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (strcmp(k->name, "avx512f") == 0)
        return __builtin_cpu_supports("avx512f");
#endif
    return strcmp(k->name, "plain") == 0;
}

/* The code computes three vector registers of sums at a time. The values of `n` include lengths after which zero, one
 * or two registers remain. */
Test(resnet_layers, sums_over_taps_on_each_processor)
{
    const size_t at[3] = { 0, 2, 31 };
    const struct conv_sum s = { 2, 200, 3, at };
    grad_check_random(x, ROOM, 5);
    grad_check_random(w, ROOM, 6);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t n = CONV_LANES; n <= 7 * CONV_LANES && is_there(&kinds[k]); n += CONV_LANES) {
            kinds[k].sum(&s, y, n, n, x, w);
            for (size_t i = 0; i < CONV_OUTS * n; i++) {
                double sum = 0;
                for (size_t t = 0; t < 6; t++)
                    sum += w[t * CONV_OUTS + i / n] * x[t / 3 * 200 + at[t % 3] + i % n];
                cr_assert_float_eq(y[i], sum, 1e-12, "%s, %zu places, value %zu", kinds[k].name, n, i);
            }
        }
    }
}

Test(resnet_layers, sums_over_places_on_each_processor)
{
    grad_check_random(x, ROOM, 7);
    grad_check_random(mix, ROOM, 8);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t width = CONV_LANES; width <= 7 * CONV_LANES && is_there(&kinds[k]); width += CONV_LANES) {
            const struct conv_product p = { 3, 100, 5, 9, width, width + 1 };
            memset(y, 0, sizeof(y));
            kinds[k].product(&p, y, mix, x);
            for (size_t i = 0; i < 9 * width; i++) {
                double sum = 0;
                for (size_t at = 0; at < 9; at++)
                    sum += mix[i / width * 9 + at] * x[at / 3 * 100 + at % 3 * 5 + i % width];
                cr_assert_float_eq(y[i / width * (width + 1) + i % width], sum, 1e-12,
                                   "%s, width %zu, value %zu", kinds[k].name, width, i);
            }
        }
    }
}

/* --- shortcut, pooling ------------------------------------------------------------------------------------- */

static struct shortcut shortcut;
static size_t y_n;

static void shortcut_there(void)
{
    memset(y, 0, sizeof(y));
    cpu_shortcut_forward(NULL, &shortcut, y, x, ROWS);
}

static void shortcut_back(void)
{
    cpu_shortcut_backward(NULL, &shortcut, dx, mix, ROWS);
}

Test(resnet_layers, shortcut)
{
    const struct shortcut all[] = { { 3, 3, 5, 1 }, { 2, 4, 6, 2 }, { 2, 5, 5, 2 } };
    for (int i = 0; i < 3; i++) {
        shortcut = all[i];
        const size_t side = (shortcut.side + shortcut.stride - 1) / shortcut.stride;
        const struct grad_check c = { .in = { { "x", x, dx,
                                                ROWS * shortcut.in * shortcut.side * shortcut.side } },
                                      .out = y,
                                      .mix = mix,
                                      .n = ROWS * shortcut.out * side * side,
                                      .forward = shortcut_there,
                                      .backward = shortcut_back };
        grad_check(&c);
    }
}

Test(resnet_layers, a_shortcut_adds_every_second_pixel_between_new_channels)
{
    shortcut = (struct shortcut){ 2, 4, 4, 2 };
    for (int i = 0; i < 32; i++)
        x[i] = i;
    memset(y, 0, sizeof(y));
    y[4] = 100;
    cpu_shortcut_forward(NULL, &shortcut, y, x, 1);
    const double expected[16] = { 0, 0, 0, 0, 100, 2, 8, 10, 16, 18, 24, 26, 0, 0, 0, 0 };
    for (int i = 0; i < 16; i++)
        cr_expect_eq(y[i], expected[i], "%d: %g", i, y[i]);
}

static void pool_there(void)
{
    cpu_pool_forward(NULL, y, x, y_n, 6);
}

static void pool_back(void)
{
    cpu_pool_backward(NULL, dx, mix, y_n, 6);
}

Test(resnet_layers, pooling)
{
    y_n = 5;
    const struct grad_check c = { .in = { { "x", x, dx, 30 } },
                                  .out = y,
                                  .mix = mix,
                                  .n = 5,
                                  .forward = pool_there,
                                  .backward = pool_back };
    grad_check(&c);
    for (int i = 0; i < 6; i++)
        x[i] = i;
    pool_there();
    cr_expect_eq(y[0], 2.5);
}

/* --- batch normalization ----------------------------------------------------------------------------------- */

enum { CHANNELS = 3, SPATIAL = 7, VALUES = ROWS * CHANNELS * SPATIAL };

static double saved[2 * CHANNELS], bias[CHANNELS], dbias[CHANNELS];
static ddp_syncbn bn = { .channels = CHANNELS, .spatial = SPATIAL, .eps = 1e-5, .saved = saved };

static void bn_there(void)
{
    double batch[2 * CHANNELS + 1];
    measure_in_double(&bn, x, ROWS, batch);
    learn_in_double(&bn, batch);
    normalize_in_double(&bn, saved, saved + CHANNELS, x, ROWS, y);
}

static void bn_back(void)
{
    double sums[2 * CHANNELS];
    sums_in_double(&bn, x, mix, ROWS, sums);
    gradient_in_double(&bn, sums, x, mix, ROWS, dx);
    for (int c = 0; c < CHANNELS; c++) {
        dbias[c] = sums[c];
        dw[c] = sums[CHANNELS + c] * saved[CHANNELS + c];
    }
}

Test(resnet_layers, batch_normalization)
{
    bn.weight = w;
    bn.bias = bias;
    const struct grad_check c = {
        .in = { { "x", x, dx, VALUES }, { "weight", w, dw, CHANNELS }, { "bias", bias, dbias, CHANNELS } },
        .out = y,
        .mix = mix,
        .n = VALUES,
        .forward = bn_there,
        .backward = bn_back
    };
    grad_check(&c);
}
