/* Fifty steps of each model against torch 1.13 (tests/data/torch_models.json): the same first parameters, the same batches, the
 * same losses. */
#include "ddp/optim.h"
#include "known_model.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

enum { STEPS = 50 };
static const double tolerance = 1e-4;

struct training {
    struct model *model;
    enum model_input input;
    ddp_optim optim;
    double decay; /* of weights; nothing else is decayed */
    float *memory, **grad, **s0, **s1;
};

static void start(struct training *t, const char *name)
{
    t->model = known_model(name);
    t->input = known_kind(name)->input;
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

/* The mean loss before the step. */
static double train(struct training *t, int step)
{
    const struct model_batch batch = known_batch(t->input, step);
    struct ddp_err err;
    double loss;
    cr_assert_eq(model_forward(t->model, &batch, MODEL_TRAIN, &loss, &err), DDP_OK);
    cr_assert_eq(model_backward(t->model, &batch, t->grad, NULL, &err), DDP_OK);
    ddp_optim_begin(&t->optim);
    for (size_t i = 0; i < t->model->params.n; i++) {
        const struct model_tensor *p = &t->model->params.each[i];
        t->optim.weight_decay = model_decays(p) ? t->decay : 0;
        ddp_optim_update(&t->optim, p->value, t->grad[i], t->s0[i], t->s1[i], p->count);
    }
    return loss / (double)(batch.rows * batch.length);
}

static void compare(struct training *t, const char *name)
{
    float expected[STEPS];
    cJSON *file = numbers_read("models");
    double worst = 0;
    cr_assert_eq(numbers_floats(cJSON_GetObjectItem(file, name), expected, STEPS), STEPS);
    start(t, name);
    for (int step = 0; step < STEPS; step++) {
        double loss = train(t, step), distance = fabs(loss - (double)expected[step]);
        cr_assert(distance <= tolerance, "%s, step %d: %.9g, torch has %.9g", name, step, loss,
                  expected[step]);
        worst = distance > worst ? distance : worst;
    }
    cr_log_info("%s: no loss is further than %g from torch's\n", name, worst);
    finish(t);
    cJSON_Delete(file);
}

Test(torch_models, mlp_with_adam)
{
    struct training t = { .optim = DDP_ADAM_INIT };
    compare(&t, "mlp");
}

Test(torch_models, seqnet_with_adam)
{
    struct training t = { .optim = DDP_ADAM_INIT };
    compare(&t, "seqnet");
}

Test(torch_models, gpt2_with_adamw_that_decays_weights_only)
{
    struct training t = { .optim = DDP_ADAMW_INIT, .decay = 0.1 };
    t.optim.beta2 = 0.95;
    compare(&t, "gpt2:tiny");
}
