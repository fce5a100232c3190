/* Compare the model with a naive model in double precision, and its gradients with finite differences. The naive
 * model has only loops, so that a reader can check it. */
#include "train/models/models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 6, INPUT = 784, HIDDEN = 200, CLASSES = 10, TENSORS = 6, PARAMS = 199210 };
enum { MLP, SEQNET }; /* indices of the array `models` */

static struct model *model;
static int kind;
static float x[ROWS * INPUT], weight[ROWS], gradient[PARAMS], *grad[TENSORS];
static int32_t label[ROWS];
static struct ddp_err err;

static void make_seeded(int which, uint64_t seed)
{
    const struct model_spec spec = {
        .rows = ROWS, .channels = 1, .height = 28, .width = 28, .classes = CLASSES, .seed = seed
    };
    kind = which;
    model_free(model);
    cr_assert_eq(model_create(&models[which], &spec, &model, &err), DDP_OK, "%s", err.msg);
}

static void make_model(int which)
{
    make_seeded(which, 7);
    model_views(&model->params, gradient, grad);
    srand(3);
    for (int i = 0; i < ROWS * INPUT; i++)
        x[i] = (float)(rand() % 256) / 255;
    for (int i = 0; i < ROWS; i++) {
        label[i] = rand() % CLASSES;
        weight[i] = 1.0f / ROWS;
    }
}

/* Compute the loss of the first `rows` rows, and all gradients. */
static double compute(size_t rows)
{
    const struct model_batch batch = {
        .rows = rows, .length = 1, .picture = x, .target = label, .weight = weight
    };
    double loss;
    cr_assert_eq(model_forward(model, &batch, MODEL_TRAIN, &loss, &err), DDP_OK);
    cr_assert_eq(model_backward(model, grad, NULL, &err), DDP_OK);
    return loss;
}

static void free_model(void)
{
    model_free(model);
}

TestSuite(mlp, .fini = free_model);

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
    double lse = log_sum(y, HIDDEN);
    for (int i = 0; i < HIDDEN; i++) {
        if (kind == MLP)
            y[i] = y[i] > 0 ? y[i] : 0;
        else
            y[i] = layer == 0 ? 1 / (1 + exp(-y[i])) : y[i] - lse;
    }
}

/* Return the sum of weight x cross-entropy. The parameters are in double precision. */
static double naive_loss(const double *params)
{
    double in[INPUT], h1[HIDDEN], h2[HIDDEN], z[CLASSES], loss = 0;
    const double *second = params + HIDDEN * INPUT + HIDDEN;
    const double *third = second + HIDDEN * HIDDEN + HIDDEN;
    for (int row = 0; row < ROWS; row++) {
        for (int i = 0; i < INPUT; i++)
            in[i] = x[row * INPUT + i];
        naive_layer(h1, in, params, INPUT, HIDDEN);
        naive_activation(h1, 0);
        naive_layer(h2, h1, second, HIDDEN, HIDDEN);
        naive_activation(h2, 1);
        naive_layer(z, h2, third, HIDDEN, CLASSES);
        loss += weight[row] * (log_sum(z, CLASSES) - z[label[row]]);
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

/* Check 16 parameters of each tensor, spread over the tensor. */
static void check_gradients(void)
{
    static double params[PARAMS];
    for (int i = 0; i < PARAMS; i++)
        params[i] = model->params.values[i];
    cr_expect_float_eq(compute(ROWS) / ROWS, naive_loss(params), 1e-5);
    size_t first = 0;
    for (const struct model_tensor *t = model->params.each; t < model->params.each + TENSORS; t++) {
        size_t step = t->count / 16 + 1;
        for (size_t i = first; i < first + t->count; i += step) {
            double expected = difference(params, i);
            cr_expect_float_eq(gradient[i], expected, 1e-6 + 1e-3 * fabs(expected),
                               "%s[%zu]: %g, expected %g", t->name, i - first, gradient[i], expected);
        }
        first += t->count;
    }
}

Test(mlp, gradients_of_seqnet_are_those_of_differences)
{
    make_model(SEQNET);
    check_gradients();
}

Test(mlp, gradients_of_relu_are_those_of_differences)
{
    make_model(MLP);
    check_gradients();
}

Test(mlp, a_row_of_weight_0_counts_for_nothing)
{
    static float with[PARAMS];
    make_model(MLP);
    weight[ROWS - 1] = 0;
    double loss = compute(ROWS);
    memcpy(with, gradient, sizeof(with));
    cr_expect_float_eq(compute(ROWS - 1), loss, 1e-6);
    for (int i = 0; i < PARAMS; i++)
        cr_assert_float_eq(with[i], gradient[i], 1e-7);
}

Test(mlp, equal_seeds_give_equal_parameters_within_torchs_bounds)
{
    make_model(MLP);
    uint64_t hash = model_hash(model);
    make_seeded(MLP, 8);
    cr_expect_neq(model_hash(model), hash);
    make_seeded(MLP, 7);
    cr_expect_eq(model_hash(model), hash);
    const struct model_tensor *first = &model->params.each[0], *last = &model->params.each[5];
    for (size_t i = 0; i < first->count; i++)
        cr_assert_leq(fabsf(first->value[i]), 1.0f / 28);
    for (size_t i = 0; i < last->count; i++)
        cr_assert_leq(fabsf(last->value[i]), 1.0f / sqrtf(200));
}

Test(mlp, the_tutorials_model_has_199210_parameters)
{
    make_model(SEQNET);
    cr_expect_eq(model->params.count, PARAMS);
    cr_expect_eq(model->params.n, TENSORS);
}

Test(mlp, huge_logits_do_not_overflow)
{
    make_model(MLP);
    for (int i = 0; i < PARAMS; i++)
        model->params.values[i] *= 1000;
    cr_expect(isfinite(compute(ROWS)));
}

/* First and last element of each tensor of three nn.Linear after torch.manual_seed(42), as torch 1.13 printed them.
 * This build of torch fuses a product and a sum, so the last bit may differ. */
Test(mlp, seed_42_gives_torchs_parameters_but_for_the_last_bit)
{
    const float expected[TENSORS][2] = {
        { 0x1.bf5d42p-6f, -0x1.5cc602p-6f }, { -0x1.66402ap-6f, 0x1.26d126p-9f },
        { 0x1.a4b1e2p-6f, 0x1.680dc2p-5f },  { -0x1.038e1ep-8f, -0x1.2444acp-5f },
        { 0x1.c45b6p-7f, 0x1.914312p-6f },   { 0x1.0af39cp-9f, -0x1.4c5718p-15f },
    };
    make_seeded(MLP, 42);
    for (int i = 0; i < TENSORS; i++) {
        const struct model_tensor *t = &model->params.each[i];
        cr_expect_float_eq(t->value[0], expected[i][0], 4e-9, "%s: %a", t->name, t->value[0]);
        cr_expect_float_eq(t->value[t->count - 1], expected[i][1], 4e-9, "%s", t->name);
    }
}

/* --- reports of ready gradients, and results of a test ------------------------------------------- */

static size_t order[TENSORS], told;

static ddp_status note(void *user, size_t parameter, struct ddp_err *e)
{
    if (told == *(size_t *)user)
        return ddp_fail(e, DDP_ERR_IO, "enough");
    order[told++] = parameter;
    return DDP_OK;
}

static ddp_status backward_until(size_t most)
{
    const struct model_ready ready = { note, &most };
    const struct model_batch batch = {
        .rows = ROWS, .length = 1, .picture = x, .target = label, .weight = weight
    };
    double loss;
    told = 0;
    cr_assert_eq(model_forward(model, &batch, MODEL_TRAIN, &loss, &err), DDP_OK);
    return model_backward(model, grad, &ready, &err);
}

Test(mlp, parameters_become_ready_from_the_last_layer_back)
{
    const size_t expected[TENSORS] = { 5, 4, 3, 2, 1, 0 };
    make_model(MLP);
    cr_assert_eq(backward_until(TENSORS), DDP_OK);
    cr_expect_eq(told, TENSORS);
    cr_expect_eq(memcmp(order, expected, sizeof(order)), 0);
}

Test(mlp, an_error_of_who_is_told_ends_the_backward_pass)
{
    make_model(MLP);
    cr_expect_eq(backward_until(3), DDP_ERR_IO);
    cr_expect_str_eq(err.msg, "enough");
    cr_expect_eq(told, 3);
}

Test(mlp, a_test_leaves_logits_and_counts_what_is_right)
{
    make_model(MLP);
    const struct model_batch batch = {
        .rows = ROWS, .length = 1, .picture = x, .target = label, .weight = weight
    };
    double loss;
    cr_assert_eq(model_forward(model, &batch, MODEL_TEST, &loss, &err), DDP_OK);
    for (int i = 0; i < ROWS; i++) {
        label[i] = 0;
        for (int k = 1; k < CLASSES; k++)
            label[i] = model->logits[i * CLASSES + k] > model->logits[i * CLASSES + label[i]] ? k : label[i];
    }
    cr_expect_eq(model_correct(model, &batch), ROWS);
    label[2] = (label[2] + 1) % CLASSES;
    cr_expect_eq(model_correct(model, &batch), ROWS - 1);
}
