/* The model against a naive one in double precision, and its gradients against differences. */
#include "train/mlp.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6 };

static struct mlp mlp;
static float x[ROWS * MLP_INPUT], weight[ROWS], gradient[MLP_PARAMS], *grad[MLP_TENSORS];
static uint8_t label[ROWS];

static void make_model(enum mlp_model model)
{
    cr_assert(mlp_init(&mlp, model, ROWS));
    mlp_seed(&mlp, 7);
    mlp_views(gradient, grad);
    srand(3);
    for (int i = 0; i < ROWS * MLP_INPUT; i++)
        x[i] = (float)(rand() % 256) / 255;
    for (int i = 0; i < ROWS; i++) {
        label[i] = (uint8_t)(rand() % MLP_CLASSES);
        weight[i] = 1.0f / ROWS;
    }
}

/* --- the naive model --------------------------------------------------------------------------------- */

static void naive_layer(double *y, const double *in, const double *params, int n_in, int n_out)
{
    for (int o = 0; o < n_out; o++) {
        y[o] = params[n_in * n_out + o];
        for (int i = 0; i < n_in; i++)
            y[o] += params[o * n_in + i] * in[i];
    }
}

static double log_sum(const double *z, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += exp(z[i]);
    return log(sum);
}

static void naive_activation(double *y, int layer)
{
    double lse = log_sum(y, MLP_HIDDEN);
    for (int i = 0; i < MLP_HIDDEN; i++) {
        if (mlp.model == MLP_RELU)
            y[i] = y[i] > 0 ? y[i] : 0;
        else
            y[i] = layer == 0 ? 1 / (1 + exp(-y[i])) : y[i] - lse;
    }
}

/* Sum of weight x cross-entropy, from parameters in double. */
static double naive_loss(const double *params)
{
    double in[MLP_INPUT], h1[MLP_HIDDEN], h2[MLP_HIDDEN], z[MLP_CLASSES], loss = 0;
    const double *second = params + MLP_HIDDEN * MLP_INPUT + MLP_HIDDEN;
    const double *third = second + MLP_HIDDEN * MLP_HIDDEN + MLP_HIDDEN;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < MLP_INPUT; i++)
            in[i] = x[row * MLP_INPUT + i];
        naive_layer(h1, in, params, MLP_INPUT, MLP_HIDDEN);
        naive_activation(h1, 0);
        naive_layer(h2, h1, second, MLP_HIDDEN, MLP_HIDDEN);
        naive_activation(h2, 1);
        naive_layer(z, h2, third, MLP_HIDDEN, MLP_CLASSES);
        loss += weight[row] * (log_sum(z, MLP_CLASSES) - z[label[row]]);
    }
    return loss;
}

static double difference(double *params, size_t i)
{
    const double h = 1e-5, kept = params[i];
    params[i] = kept + h;
    double above = naive_loss(params);
    params[i] = kept - h;
    double below = naive_loss(params);
    params[i] = kept;
    return (above - below) / (2 * h);
}

/* 60 parameters of each tensor, spread over it. */
static void check_gradients(void)
{
    static double params[MLP_PARAMS];
    for (int i = 0; i < MLP_PARAMS; i++)
        params[i] = mlp.params[i];
    mlp_forward(&mlp, x, ROWS);
    cr_expect_float_eq(mlp_loss(&mlp, label, weight, ROWS) / ROWS, naive_loss(params), 1e-5);
    mlp_backward(&mlp, x, ROWS, grad);
    size_t first = 0;
    for (int t = 0; t < MLP_TENSORS; first += mlp_tensors[t++].count) {
        size_t step = mlp_tensors[t].count / 60 + 1;
        for (size_t i = first; i < first + mlp_tensors[t].count; i += step) {
            double expected = difference(params, i);
            cr_expect_float_eq(gradient[i], expected, 1e-6 + 1e-3 * fabs(expected),
                               "%s[%zu]: %g, expected %g", mlp_tensors[t].name, i - first, gradient[i],
                               expected);
        }
    }
    mlp_free(&mlp);
}

Test(mlp, gradients_of_seqnet_are_those_of_differences)
{
    make_model(MLP_SEQNET);
    check_gradients();
}

Test(mlp, gradients_of_relu_are_those_of_differences)
{
    make_model(MLP_RELU);
    check_gradients();
}

Test(mlp, a_row_of_weight_0_counts_for_nothing)
{
    static float with[MLP_PARAMS];
    make_model(MLP_RELU);
    weight[ROWS - 1] = 0;
    mlp_forward(&mlp, x, ROWS);
    double loss = mlp_loss(&mlp, label, weight, ROWS);
    mlp_backward(&mlp, x, ROWS, grad);
    memcpy(with, gradient, sizeof(with));
    mlp_forward(&mlp, x, ROWS - 1);
    cr_expect_float_eq(mlp_loss(&mlp, label, weight, ROWS - 1), loss, 1e-6);
    mlp_backward(&mlp, x, ROWS - 1, grad);
    for (int i = 0; i < MLP_PARAMS; i++)
        cr_assert_float_eq(with[i], gradient[i], 1e-7);
    mlp_free(&mlp);
}

Test(mlp, equal_seeds_give_equal_parameters_within_torchs_bounds)
{
    make_model(MLP_RELU);
    uint64_t hash = mlp_hash(&mlp);
    mlp_seed(&mlp, 8);
    cr_expect_neq(mlp_hash(&mlp), hash);
    mlp_seed(&mlp, 7);
    cr_expect_eq(mlp_hash(&mlp), hash);
    for (size_t i = 0; i < mlp_tensors[0].count; i++)
        cr_assert_leq(fabsf(mlp.tensor[0][i]), 1.0f / 28);
    for (size_t i = 0; i < mlp_tensors[5].count; i++)
        cr_assert_leq(fabsf(mlp.tensor[5][i]), 1.0f / sqrtf(200));
    mlp_free(&mlp);
}

Test(mlp, the_tutorials_model_has_199210_parameters)
{
    cr_expect_eq(MLP_PARAMS, 199210);
    cr_expect_eq(MLP_TENSORS, 6);
}

Test(mlp, huge_logits_do_not_overflow)
{
    make_model(MLP_RELU);
    for (int i = 0; i < MLP_PARAMS; i++)
        mlp.params[i] *= 1000;
    mlp_forward(&mlp, x, ROWS);
    cr_expect(isfinite(mlp_loss(&mlp, label, weight, ROWS)));
    mlp_free(&mlp);
}

/* First and last element of each tensor after torch.manual_seed(42), three nn.Linear; printed by torch 1.13,
 * whose build fuses the product and the sum that make a number of the range. */
Test(mlp, seed_42_gives_torchs_parameters_but_for_the_last_bit)
{
    const float expected[MLP_TENSORS][2] = {
        { 0x1.bf5d42p-6f, -0x1.5cc602p-6f }, { -0x1.66402ap-6f, 0x1.26d126p-9f },
        { 0x1.a4b1e2p-6f, 0x1.680dc2p-5f },  { -0x1.038e1ep-8f, -0x1.2444acp-5f },
        { 0x1.c45b6p-7f, 0x1.914312p-6f },   { 0x1.0af39cp-9f, -0x1.4c5718p-15f },
    };
    make_model(MLP_RELU);
    mlp_seed(&mlp, 42);
    for (int i = 0; i < MLP_TENSORS; i++) {
        const float *values = mlp.tensor[i];
        cr_expect_float_eq(values[0], expected[i][0], 4e-9, "%s: %a", mlp_tensors[i].name, values[0]);
        cr_expect_float_eq(values[mlp_tensors[i].count - 1], expected[i][1], 4e-9, "%s", mlp_tensors[i].name);
    }
    mlp_free(&mlp);
}
