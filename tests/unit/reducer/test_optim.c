/* Compare Adam with numbers that were computed by hand, and with a computation in double precision. An update that
 * is only nearly right still trains a model, so losses would not show the mistake. */
#include "ddp/optim.h"
#include "reducer/optim.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* The first step of Adam moves every parameter by lr, for any size of the gradient: m/(1-b1) = g, sqrt(v/(1-b2)) =
 * |g|. */
Test(adam, first_step_is_lr_against_the_sign_of_the_gradient)
{
    ddp_optim adam = DDP_ADAM_INIT;
    float param[4] = { 1, 1, 1, 1 }, m[4] = { 0 }, v[4] = { 0 };
    const float grad[4] = { 0.5f, -0.5f, 100, -1e-3f };
    adam.lr = 0.01;
    ddp_optim_begin(&adam);
    ddp_optim_update(&adam, param, grad, m, v, 4);
    cr_expect_float_eq(param[0], 0.99f, 1e-6);
    cr_expect_float_eq(param[1], 1.01f, 1e-6);
    cr_expect_float_eq(param[2], 0.99f, 1e-6);
    cr_expect_float_eq(param[3], 1.01f, 1e-6);
    cr_expect_float_eq(m[0], 0.05f, 1e-8);
    cr_expect_float_eq(v[0], 0.00025f, 1e-9);
    cr_expect_eq(adam.step, 1);
}

Test(adam, no_gradient_moves_nothing)
{
    ddp_optim adam = DDP_ADAM_INIT;
    float param = 3, grad = 0, m = 0, v = 0;
    for (int i = 0; i < 5; i++) {
        ddp_optim_begin(&adam);
        ddp_optim_update(&adam, &param, &grad, &m, &v, 1);
    }
    cr_expect_eq(param, 3.0f);
}

/* Compute algorithm 1 of the Adam paper literally, in double precision. */
static double textbook(double param, const double *grads, int steps, double lr)
{
    double m = 0, v = 0;
    for (int t = 1; t <= steps; t++) {
        double g = grads[t - 1];
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        param -= lr * (m / (1 - pow(0.9, t))) / (sqrt(v / (1 - pow(0.999, t))) + 1e-8);
    }
    return param;
}

Test(adam, ten_steps_follow_the_paper)
{
    const double grads[10] = { 0.3, -0.2, 0.05, 1.5, -0.7, 0.0, 0.01, -0.4, 0.9, 0.33 };
    ddp_optim adam = DDP_ADAM_INIT;
    float param = 0.5f, m = 0, v = 0;
    adam.lr = 0.01;
    for (int t = 1; t <= 10; t++) {
        float g = (float)grads[t - 1];
        ddp_optim_begin(&adam);
        ddp_optim_update(&adam, &param, &g, &m, &v, 1);
        cr_expect_float_eq(param, textbook(0.5, grads, t, 0.01), 2e-7, "step %d", t);
    }
}

/* A model gives the same bits in one array and in several arrays. If the compiler fused or reordered operations, this
 * test would be the first to fail. */
Test(adam, splitting_the_array_changes_no_bit)
{
    enum { N = 1003 };
    static float whole[3][N], parts[3][N], grad[N];
    ddp_optim adam = DDP_ADAM_INIT;
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++)
            grad[i] = sinf((float)(i * 7 + step));
        ddp_optim_begin(&adam);
        ddp_optim_update(&adam, whole[0], grad, whole[1], whole[2], N);
        for (int i = 0; i < N; i++)
            ddp_optim_update(&adam, &parts[0][i], &grad[i], &parts[1][i], &parts[2][i], 1);
    }
    cr_expect_eq(memcmp(whole, parts, sizeof(whole)), 0);
}

Test(adam, a_restored_state_continues_bit_for_bit)
{
    ddp_optim a = DDP_ADAM_INIT, b;
    float param = 1, m = 0, v = 0;
    for (int i = 0; i < 6; i++) {
        float g = 0.1f * (float)i;
        ddp_optim_begin(&a);
        ddp_optim_update(&a, &param, &g, &m, &v, 1);
    }
    float param2 = param, m2 = m, v2 = v, g = -0.3f;
    b = (ddp_optim)DDP_ADAM_INIT;
    b.step = a.step;
    ddp_optim_begin(&a);
    ddp_optim_begin(&b);
    ddp_optim_update(&a, &param, &g, &m, &v, 1);
    ddp_optim_update(&b, &param2, &g, &m2, &v2, 1);
    cr_expect_eq(param, param2);
}

/* The expected numbers are the output of torch 1.13 after each of three steps of torch.optim.Adam(lr=0.01) on a CPU.
 * This build of torch fuses some products and sums, which changes the last bit of some values. */
Test(adam, three_steps_are_torchs_but_for_the_last_bit)
{
    const float grads[3][5] = {
        { 0.3f, -0.2f, 1e-9f, 5.0f, 0.7f },
        { -0.1f, -0.25f, 2e-3f, -4.0f, 0.7f },
        { 0.05f, 1.5f, -1e-4f, 0.125f, -0.9f },
    };
    const float expected[3][5] = {
        { 0x1.f5c29p-2f, -0x1.3d70a4p+0f, 0x1.7d4cfp-14f, 0x1.7eb852p+1f, -0x1.3d70a4p-2f },
        { 0x1.f1a96ap-2f, -0x1.3ae184p+0f, -0x1.e1b768p-8f, 0x1.7ea546p+1f, -0x1.47ae14p-2f },
        { 0x1.ed829ep-2f, -0x1.3c1152p+0f, -0x1.a2a6a2p-7f, 0x1.7e9276p+1f, -0x1.4921fap-2f },
    };
    ddp_optim adam = DDP_ADAM_INIT;
    float param[5] = { 0.5f, -1.25f, 0.001f, 3.0f, -0.3f }, m[5] = { 0 }, v[5] = { 0 };
    adam.lr = 0.01;
    for (int step = 0; step < 3; step++) {
        ddp_optim_begin(&adam);
        ddp_optim_update(&adam, param, grads[step], m, v, 5);
        for (int i = 0; i < 5; i++)
            cr_expect_float_eq(param[i], expected[step][i], 3e-7 * fabsf(expected[step][i]),
                               "step %d, parameter %d: %a, torch has %a", step, i, param[i],
                               expected[step][i]);
    }
}

/* The error names every number that torch rejects. */
Test(optim, numbers_out_of_range_are_named)
{
    struct {
        ddp_optim optim;
        const char *says;
    } const cases[] = {
        { { .rule = (ddp_rule)9 }, "rule=9" },
        { { .rule = DDP_SGD, .lr = -1 }, "lr=-1" },
        { { .rule = DDP_SGD, .weight_decay = NAN }, "weight_decay=" },
        { { .rule = DDP_SGD, .momentum = -0.5 }, "momentum=-0.5" },
        { { .rule = DDP_SGD, .nesterov = 1 }, "momentum=0 and" },
        { { .rule = DDP_SGD, .nesterov = 1, .momentum = 0.9, .dampening = 0.1 },
          "momentum=0.9 and dampening=0.1" },
        { { .rule = DDP_ADAM, .beta1 = 1 }, "beta1=1" },
        { { .rule = DDP_ADAMW, .beta2 = -0.1 }, "beta2=-0.1" },
        { { .rule = DDP_ADAM, .eps = -1e-8 }, "eps=-1e-08" },
        { { .rule = DDP_ADAM, .step = -1 }, "step=-1" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ddp_err err = { 0 };
        cr_expect_eq(ddp_optim_check(&cases[i].optim, &err), DDP_ERR_ARG, "%s", cases[i].says);
        cr_expect(strstr(err.msg, cases[i].says), "%s", err.msg);
    }
}

Test(optim, each_rule_says_how_many_arrays_it_keeps)
{
    ddp_optim sgd = DDP_SGD_INIT, adam = DDP_ADAM_INIT, adamw = DDP_ADAMW_INIT;
    cr_expect_eq(ddp_optim_states(&sgd), 0);
    sgd.momentum = 0.9;
    cr_expect_eq(ddp_optim_states(&sgd), 1);
    cr_expect_eq(ddp_optim_states(&adam), 2);
    cr_expect_eq(ddp_optim_states(&adamw), 2);
    cr_expect_str_eq(ddp_rule_name((ddp_rule)3), "?");
}

/* The global norm has the same bits however the leaves are distributed. Clipping never makes a gradient larger. */

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

/* The leaves (sums of squares) are added as a binary tree, ((l0+l1)+(l2+l3))+(l4+...). If the number of leaves is not a
 * power of two, the result must be the same as with zeros after the last leaf. */
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

/* Compare SGD, Adam, AdamW and clipping with torch 1.13 (tests/data/torch_optim.json, torch_clip.json).
 *
 * The tolerance is 1e-6 of the value plus 1e-7, after each of ten steps. torch's vector code fuses some products and
 * sums, which changes the last bit of some values. A wrong formula gives an error of 1e-3 or more. */

enum { SIZE = 13, STEPS = 10, HALVED_AT = 5 };

static void expect_near(const float *ours, const float *torchs, size_t n, const char *what, int step)
{
    for (size_t i = 0; i < n; i++) {
        float allowed = 1e-6f * fabsf(torchs[i]) + 1e-7f;
        cr_expect(fabsf(ours[i] - torchs[i]) <= allowed, "%s, step %d, element %zu: %.9g, torch has %.9g",
                  what, step, i, ours[i], torchs[i]);
    }
}

static ddp_rule rule_of(const char *name)
{
    ddp_rule rule = DDP_SGD;
    while (strcmp(ddp_rule_name(rule), name) != 0)
        rule++;
    return rule;
}

static ddp_optim optim_of(const cJSON *row)
{
    const ddp_optim defaults[] = { DDP_SGD_INIT, DDP_ADAM_INIT, DDP_ADAMW_INIT };
    ddp_optim o = defaults[rule_of(cJSON_GetObjectItem(row, "rule")->valuestring)];
    o.lr = numbers_get(row, "lr", o.lr);
    o.weight_decay = numbers_get(row, "weight_decay", o.weight_decay);
    o.momentum = numbers_get(row, "momentum", o.momentum);
    o.dampening = numbers_get(row, "dampening", o.dampening);
    o.nesterov = numbers_get(row, "nesterov", o.nesterov) != 0;
    o.beta1 = numbers_get(row, "beta1", o.beta1);
    o.beta2 = numbers_get(row, "beta2", o.beta2);
    o.eps = numbers_get(row, "eps", o.eps);
    return o;
}

static void follow(const cJSON *row, const cJSON *start, const cJSON *grads)
{
    ddp_optim o = optim_of(row);
    float param[SIZE], s0[SIZE] = { 0 }, s1[SIZE] = { 0 }, grad[SIZE], torchs[SIZE];
    char *what = cJSON_GetObjectItem(row, "rule")->valuestring;
    cr_assert_eq(ddp_optim_check(&o, NULL), DDP_OK);
    cr_assert_eq(numbers_floats(start, param, SIZE), SIZE);
    for (int step = 0; step < STEPS; step++) {
        if (step == HALVED_AT)
            o.lr /= 2;
        numbers_floats(cJSON_GetArrayItem(grads, step), grad, SIZE);
        numbers_floats(cJSON_GetArrayItem(cJSON_GetObjectItem(row, "params"), step), torchs, SIZE);
        ddp_optim_begin(&o);
        ddp_optim_update(&o, param, grad, s0, s1, SIZE);
        expect_near(param, torchs, SIZE, what, step);
    }
}

Test(torch_optim, ten_steps_of_eleven_optimizers_are_torchs)
{
    cJSON *json = numbers_read("optim");
    const cJSON *row;
    int cases = 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "cases"))
    {
        follow(row, cJSON_GetObjectItem(json, "start"), cJSON_GetObjectItem(json, "grads"));
        cases++;
    }
    cr_expect_eq(cases, 11);
    cJSON_Delete(json);
}

Test(torch_optim, clipping_is_torchs)
{
    enum { TENSORS = 4 };
    cJSON *json = numbers_read("clip");
    const cJSON *row;
    float tensor[TENSORS][600], torchs[16], ours[16];
    float *grads[TENSORS];
    size_t counts[TENSORS];
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(json, "cases"))
    {
        for (int i = 0; i < TENSORS; i++) {
            grads[i] = tensor[i];
            counts[i] =
                numbers_floats(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "grads"), i), tensor[i], 600);
        }
        double norm = ddp_clip_grad_norm(grads, counts, TENSORS, numbers_get(row, "max_norm", 0));
        cr_expect_float_eq(norm, numbers_get(row, "norm", 0), 1e-6 * norm);
        size_t n = 0;
        for (int i = 0; i < TENSORS; i++)
            for (size_t k = 0; k < 4 && k < counts[i]; k++)
                ours[n++] = tensor[i][k];
        cr_assert_eq(numbers_floats(cJSON_GetObjectItem(row, "first_four_of_each"), torchs, 16), n);
        expect_near(ours, torchs, n, "clipped", 0);
    }
    cJSON_Delete(json);
}
