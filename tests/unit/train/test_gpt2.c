/* Tests of GPT-2 as a model: its tensors, its first values, and the gradients of a pass. test_torch_models.c tests the
 * losses. */
#include "numbers.h"
#include "run.h"
#include "train/models/gpt2.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct model *m;
static float *memory, **grad;
static struct ddp_err err;

static ddp_status make(struct model_spec spec)
{
    return model_create(known_kind("gpt2:tiny"), &spec, &m, &err);
}

static void make_known(void)
{
    m = known_model("gpt2:tiny");
    memory = calloc(m->params.count, sizeof(float));
    grad = calloc(m->params.n, sizeof(float *));
    cr_assert(memory != NULL && grad != NULL);
    model_views(&m->params, memory, grad);
}

static void release(void)
{
    model_free(m);
    free(memory);
    free(grad);
}

TestSuite(gpt2, .fini = release);

static const struct model_tensor *tensor(const char *name)
{
    for (size_t i = 0; i < m->params.n; i++) {
        if (strcmp(m->params.each[i].name, name) == 0)
            return &m->params.each[i];
    }
    cr_assert_fail("there is no %s", name);
    return NULL;
}

static double deviation(const struct model_tensor *t)
{
    double sum = 0;
    for (size_t i = 0; i < t->count; i++)
        sum += (double)t->value[i] * t->value[i];
    return sqrt(sum / (double)t->count);
}

/* The 12 tensors of a block have 12 width^2 + 13 width numbers in total. The two embeddings and the two tensors of the
 * last norm are not part of a block. */
Test(gpt2, has_the_tensors_of_llm_c)
{
    cr_assert_eq(make((struct model_spec){ .rows = 1 }), DDP_OK, "%s", err.msg);
    cr_expect_eq(m->params.n, 2 + 2 * 12 + 2);
    cr_expect_eq(m->params.count, (256 + 64) * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64);
    const struct model_tensor *fc = tensor("h.1.mlp.c_fc.weight");
    cr_expect(fc->dims == 2 && fc->shape[0] == 256 && fc->shape[1] == 64);
    cr_expect_eq(tensor("h.0.attn.c_attn.bias")->dims, 1);
    cr_expect_eq(m->params.each[gpt2_tensor(1, GPT2_FC_WEIGHT)].value, fc->value);
}

Test(gpt2, begins_as_gpt2_does)
{
    cr_assert_eq(make((struct model_spec){ .rows = 1, .seed = 42 }), DDP_OK, "%s", err.msg);
    cr_expect_float_eq(deviation(tensor("wte.weight")), 0.02, 0.001);
    cr_expect_float_eq(deviation(tensor("h.0.attn.c_attn.weight")), 0.02, 0.001);
    cr_expect_float_eq(deviation(tensor("h.1.mlp.c_proj.weight")), 0.01, 0.0005); /* 0.02 / sqrt(2 x 2) */
    cr_expect_eq(deviation(tensor("h.1.ln_2.weight")), 1);
    cr_expect_eq(deviation(tensor("ln_f.weight")), 1);
    cr_expect_eq(deviation(tensor("h.1.mlp.c_fc.bias")), 0);
}

/* torch.manual_seed(42); torch.empty(256, 64).normal_(0, 0.02), printed by torch 1.13. */
Test(gpt2, draws_the_numbers_that_torch_draws)
{
    cr_assert_eq(make((struct model_spec){ .rows = 1, .seed = 42 }), DDP_OK, "%s", err.msg);
    const struct model_tensor *t = tensor("wte.weight");
    const size_t at[] = { 0, 1, 8, 17, 16383 };
    const float expected[] = { 0.0385383032f, 0.0297456812f, -0.0150427055f, -0.00319194933f,
                               -0.00586812198f };
    for (int i = 0; i < 5; i++)
        cr_expect_float_eq(t->value[at[i]], expected[i], 1e-8, "%zu: %.9g", at[i], t->value[at[i]]);
}

static size_t told[64], n_told;

static ddp_status note(void *user, size_t parameter, struct ddp_err *e)
{
    (void)user, (void)e;
    told[n_told++] = parameter;
    return DDP_OK;
}

static double forward(const struct model_batch *batch, enum model_mode mode)
{
    double loss;
    cr_assert_eq(model_forward(m, batch, mode, &loss, &err), DDP_OK);
    return loss;
}

/* The embedding of the tokens is also the head. The model uses this tensor first and last, so the gradient of this
 * tensor is ready last. */
Test(gpt2, tells_of_every_parameter_once_from_the_last_back)
{
    const struct model_ready ready = { note, NULL };
    const struct model_batch batch = known_batch(known_kind("gpt2:tiny"), 0);
    make_known();
    forward(&batch, MODEL_TRAIN);
    cr_assert_eq(model_backward(m, grad, &ready, &err), DDP_OK);
    cr_assert_eq(n_told, m->params.n);
    cr_expect_eq(told[n_told - 1], GPT2_TOKENS);
    for (size_t i = 2; i < n_told; i++)
        cr_expect(told[i] < told[i - 2], "parameter %zu behind %zu", told[i], told[i - 2]);
}

/* In the direction of the gradient, the slope of the loss is the length of the gradient. */
Test(gpt2, its_gradient_is_that_of_its_loss)
{
    const struct model_batch batch = known_batch(known_kind("gpt2:tiny"), 0);
    const double targets = (double)(batch.rows * batch.length);
    double squares = 0, loss[2];
    make_known();
    forward(&batch, MODEL_TRAIN);
    cr_assert_eq(model_backward(m, grad, NULL, &err), DDP_OK);
    for (size_t i = 0; i < m->params.count; i++)
        squares += (double)memory[i] * memory[i];
    for (int side = 0; side < 2; side++) {
        const float step = (side == 0 ? 5e-3f : -1e-2f) / (float)sqrt(squares);
        for (size_t i = 0; i < m->params.count; i++)
            m->params.values[i] += step * memory[i];
        loss[side] = forward(&batch, MODEL_TEST) / targets;
    }
    cr_expect_float_eq((loss[0] - loss[1]) / 1e-2, sqrt(squares), 1e-3 * sqrt(squares));
}

Test(gpt2, a_test_has_the_loss_of_training_and_logits)
{
    const struct model_batch batch = known_batch(known_kind("gpt2:tiny"), 3);
    make_known();
    double loss = forward(&batch, MODEL_TRAIN);
    cr_expect_null(m->logits);
    cr_expect_float_eq(forward(&batch, MODEL_TEST), loss, 1e-4);
    cr_expect_not_null(m->logits);
    cr_expect_lt(model_correct(m, &batch), batch.rows * batch.length / 4);
}

Test(gpt2, a_shorter_sequence_gives_the_same_logits)
{
    enum { SHORT = 11 };
    static float first[SHORT * 256];
    struct model_batch batch = known_batch(known_kind("gpt2:tiny"), 0);
    make_known();
    batch.rows = 1;
    forward(&batch, MODEL_TEST);
    memcpy(first, m->logits, sizeof(first));
    batch.length = SHORT;
    forward(&batch, MODEL_TEST);
    for (int i = 0; i < SHORT * 256; i++)
        cr_assert_float_eq(m->logits[i], first[i], 1e-5);
    cr_assert_eq(model_backward(m, grad, NULL, &err), DDP_OK);
    cr_expect_eq(grad[GPT2_PLACES][SHORT * 64], 0);
}

Test(gpt2, refuses_what_it_is_not_made_for)
{
    cr_expect_eq(make((struct model_spec){ .rows = 1, .length = 65 }), DDP_ERR_ARG);
    cr_expect(has_parts(err.msg, "--model gpt2:tiny: |65 tokens: "), "%s", err.msg);
    cr_expect_eq(make((struct model_spec){ .rows = (size_t)1 << 45 }), DDP_ERR_NOMEM);
    cr_expect(strstr(err.msg, "of memory"), "%s", err.msg);
}
