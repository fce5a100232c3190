/* Tests of twenty or fifty steps of each model against torch 1.13 (tests/data/torch_models.json). The first parameters
 * and the batches are the same as in torch, so the losses must agree. */
#include "ddp/optim.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { STEPS = 50 };
static const double tolerance = 1e-4;

struct training {
    struct model *model;
    const struct model_kind *kind;
    ddp_optim optim;
    double decay; /* decay of the weights; no other parameter is decayed */
    float *memory, **grad, **s0, **s1;
};

static void start(struct training *t, const char *name)
{
    t->model = known_model(name);
    t->kind = known_kind(name);
    const struct model_tensors *params = &t->model->params;
    t->memory = calloc(3 * params->count, sizeof(float));
    t->grad = calloc(3 * params->n, sizeof(float *));
    cr_assert(t->memory != NULL && t->grad != NULL);
    t->s0 = t->grad + params->n;
    t->s1 = t->s0 + params->n;
    model_views(params, t->memory, t->grad);
    model_views(params, t->memory + params->count, t->s0);
    model_views(params, t->memory + 2 * params->count, t->s1);
}

static void finish(struct training *t)
{
    model_free(t->model);
    free(t->memory);
    free(t->grad);
}

/* Make one training step. Return the mean loss before the update. */
static double train(struct training *t, int step)
{
    const struct model_batch batch = known_batch(t->kind, step);
    struct ddp_err err;
    double loss;
    cr_assert_eq(model_forward(t->model, &batch, MODEL_TRAIN, &loss, &err), DDP_OK);
    cr_assert_eq(model_backward(t->model, t->grad, NULL, &err), DDP_OK);
    ddp_optim_begin(&t->optim);
    for (size_t i = 0; i < t->model->params.n; i++) {
        const struct model_tensor *p = &t->model->params.each[i];
        t->optim.weight_decay = p->dims >= 2 ? t->decay : 0;
        ddp_optim_update(&t->optim, p->value, t->grad[i], t->s0[i], t->s1[i], p->count);
    }
    return loss / (double)(batch.rows * batch.length);
}

static void compare(struct training *t, const char *name)
{
    float expected[STEPS];
    cJSON *file = numbers_read("models");
    double worst = 0;
    const int steps = (int)numbers_floats(cJSON_GetObjectItem(file, name), expected, STEPS);
    cr_assert_geq(steps, 20);
    start(t, name);
    for (int step = 0; step < steps; step++) {
        double loss = train(t, step), distance = fabs(loss - (double)expected[step]);
        cr_assert(distance <= tolerance, "%s, step %d: %.9g, torch has %.9g", name, step, loss,
                  expected[step]);
        worst = distance > worst ? distance : worst;
    }
    cr_log_info("%s: no loss is further than %g from torch's\n", name, worst);
    cJSON_Delete(file);
}

Test(torch_models, mlp_with_adam)
{
    struct training t = { .optim = DDP_ADAM_INIT };
    compare(&t, "mlp");
    finish(&t);
}

Test(torch_models, seqnet_with_adam)
{
    struct training t = { .optim = DDP_ADAM_INIT };
    compare(&t, "seqnet");
    finish(&t);
}

Test(torch_models, gpt2_with_adamw_that_decays_weights_only)
{
    struct training t = { .optim = DDP_ADAMW_INIT, .decay = 0.1 };
    t.optim.beta2 = 0.95;
    compare(&t, "gpt2:tiny");
    finish(&t);
}

/* After the training, test on the first batch with the running means and variances of this training. torch has computed
 * the expected loss in the same way, with the running values of its training. */
Test(torch_models, resnet20_with_sgd_and_momentum)
{
    struct training t = { .optim = DDP_SGD_INIT, .decay = 1e-4 };
    struct ddp_err err;
    double loss;
    t.optim.lr = 2e-5; /* see torch_models.py */
    t.optim.momentum = 0.9;
    compare(&t, "resnet20");
    const struct model_batch batch = known_batch(t.kind, 0);
    cJSON *file = numbers_read("models");
    const double tested = numbers_get(file, "resnet20 tested", 0);
    cr_assert_eq(model_forward(t.model, &batch, MODEL_TEST, &loss, &err), DDP_OK);
    cr_expect_float_eq(loss / (double)batch.rows, tested, tolerance, "%.9g, torch has %.9g",
                       loss / (double)batch.rows, tested);
    cJSON_Delete(file);
    finish(&t);
}
