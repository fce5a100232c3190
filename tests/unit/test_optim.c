/* Adam against numbers worked out by hand and in double precision. */
#include "ddp/optim.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* The first step of Adam moves every parameter by lr, whatever the gradient's size: m/(1-b1) = g,
 * sqrt(v/(1-b2)) = |g|. */
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

/* The paper's algorithm 1, literally, in double. */
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

/* A model in one array or in many: the same bits. A build that fuses or reorders would break this first. */
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

/* Three steps of torch.optim.Adam(lr=0.01), printed by torch 1.13 on a CPU. That build fuses some products
 * and sums, which moves a last bit here and there. */
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

/* Every number that torch refuses, by its name. */
Test(optim, numbers_out_of_range_are_named)
{
    struct {
        ddp_optim optim;
        const char *says;
    } const cases[] = {
        { { .rule = (ddp_rule)9 }, "rule 9" },
        { { .rule = DDP_SGD, .lr = -1 }, "lr is -1" },
        { { .rule = DDP_SGD, .weight_decay = NAN }, "weight_decay is" },
        { { .rule = DDP_SGD, .momentum = -0.5 }, "momentum is -0.5" },
        { { .rule = DDP_SGD, .nesterov = 1 }, "nesterov needs momentum" },
        { { .rule = DDP_SGD, .nesterov = 1, .momentum = 0.9, .dampening = 0.1 }, "0.9 and 0.1" },
        { { .rule = DDP_ADAM, .beta1 = 1 }, "beta1 is 1" },
        { { .rule = DDP_ADAMW, .beta2 = -0.1 }, "beta2 is -0.1" },
        { { .rule = DDP_ADAM, .eps = -1e-8 }, "eps is -1e-08" },
        { { .rule = DDP_ADAM, .step = -1 }, "step is -1" },
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
