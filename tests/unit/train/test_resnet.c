/* Tests of resnet20 on pictures of 8 x 8: rows with a weight of 0, the test mode, and the running means and variances.
 * test_torch_models.c compares the losses with torch's losses. test_resnet_layers.c compares the gradients of each
 * layer with central differences. */
#include "train/models/models.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 20, PIXELS = 3 * 8 * 8, CLASSES = 10, PARAMS = 269722 };

static struct model *model;
static struct ddp_err err;
static float picture[ROWS * PIXELS], weight[ROWS], memory[2][PARAMS], *grad[2][59];
static int32_t target[ROWS];

static const struct model_kind *kind(void)
{
    const struct model_kind *k = models;
    while (strcmp(k->name, "resnet20") != 0)
        k++;
    return k;
}

static void make_model(void)
{
    const struct model_spec spec = {
        .rows = ROWS, .channels = 3, .height = 8, .width = 8, .classes = CLASSES, .seed = 5
    };
    cr_assert_eq(model_create(kind(), &spec, &model, &err), DDP_OK, "%s", err.msg);
    cr_assert(model->params.count == PARAMS && model->params.n == 59 && model->buffers.n == 38);
    srand(1);
    for (int i = 0; i < ROWS * PIXELS; i++)
        picture[i] = (float)(rand() % 512) / 256 - 1;
    for (int i = 0; i < ROWS; i++) {
        target[i] = i % CLASSES;
        weight[i] = 0.25f;
    }
    for (int i = 0; i < 2; i++)
        model_views(&model->params, memory[i], grad[i]);
}

static void free_model(void)
{
    model_free(model);
}

TestSuite(resnet, .init = make_model, .fini = free_model);

static struct model_batch batch(size_t first, size_t rows)
{
    return (struct model_batch){ .rows = rows,
                                 .length = 1,
                                 .picture = picture + first * PIXELS,
                                 .target = target + first,
                                 .weight = weight + first };
}

static double forward(const struct model_batch *b, enum model_mode mode)
{
    double loss;
    cr_assert_eq(model_forward(model, b, mode, &loss, &err), DDP_OK, "%s", err.msg);
    return loss;
}

static double train(const struct model_batch *b, int into)
{
    double loss = forward(b, MODEL_TRAIN);
    memset(memory[into], 0xff, sizeof(memory[into])); /* the NaNs show every element that is not written */
    cr_assert_eq(model_backward(model, grad[into], NULL, &err), DDP_OK, "%s", err.msg);
    return loss;
}

/* Rows of weight 0 must also be left out of the means, as if they did not exist. */
Test(resnet, rows_of_weight_0_at_the_end_do_not_count)
{
    weight[4] = weight[5] = 0;
    const struct model_batch with = batch(0, 6), without = batch(0, 4);
    cr_expect_eq(train(&with, 0), train(&without, 1));
    cr_expect_eq(memcmp(memory[0], memory[1], sizeof(memory[0])), 0);
}

Test(resnet, a_batch_of_padding_alone_has_no_gradient_and_teaches_nothing)
{
    weight[0] = 0;
    const struct model_batch padding = batch(0, 1);
    const uint64_t count = model->buffers.count * sizeof(float);
    float *before = malloc(count);
    memcpy(before, model->buffers.values, count);
    cr_expect_eq(train(&padding, 0), 0);
    for (size_t i = 0; i < PARAMS; i++)
        cr_assert_eq(memory[0][i], 0, "%zu: %g", i, (double)memory[0][i]);
    cr_expect_eq(memcmp(before, model->buffers.values, count), 0);
    free(before);
}

Test(resnet, a_part_that_is_to_be_still_leaves_the_running_numbers)
{
    struct model_batch b = batch(0, 4);
    const uint64_t count = model->buffers.count * sizeof(float);
    float *before = malloc(count), *after = malloc(count);
    cr_expect(model->buffers.each[0].value[0] == 0 && model->buffers.each[1].value[0] == 1);
    memcpy(before, model->buffers.values, count);
    b.still = true;
    double still = train(&b, 0);
    cr_expect_eq(memcmp(before, model->buffers.values, count), 0);
    b.still = false;
    cr_expect_eq(train(&b, 1), still);
    cr_expect_eq(memcmp(memory[0], memory[1], sizeof(memory[0])), 0);
    memcpy(after, model->buffers.values, count);
    for (size_t i = 0; i < model->buffers.count; i++)
        cr_expect_neq(after[i], before[i], "number %zu has not moved", i);
    free(before);
    free(after);
}

/* If the normalization uses the running means and variances, the result of an image does not depend on the position of
 * the image in a batch. */
Test(resnet, a_tests_logits_do_not_depend_on_the_batch)
{
    float all[ROWS * CLASSES];
    const struct model_batch learnt = batch(0, 8), whole = batch(0, ROWS);
    train(&learnt, 0);
    double loss = forward(&whole, MODEL_TEST), sum = 0;
    memcpy(all, model->logits, sizeof(all));
    for (size_t i = 0; i < ROWS; i++) {
        const struct model_batch one = batch(i, 1);
        sum += forward(&one, MODEL_TEST);
        for (int k = 0; k < CLASSES; k++)
            cr_assert_float_eq(model->logits[k], all[i * CLASSES + (size_t)k], 1e-5, "row %zu", i);
    }
    cr_expect_float_eq(sum, loss, 1e-4);
}

static size_t order[59], told;

static ddp_status note(void *user, size_t parameter, struct ddp_err *e)
{
    (void)user, (void)e;
    order[told++] = parameter;
    return told == 10 && user != NULL ? ddp_fail(e, DDP_ERR_ABORTED, "enough") : DDP_OK;
}

Test(resnet, parameters_are_ready_from_the_last_to_the_first)
{
    const struct model_batch b = batch(0, 2);
    const struct model_ready ready = { note, NULL }, stops = { note, &told };
    forward(&b, MODEL_TRAIN);
    cr_assert_eq(model_backward(model, grad[0], &ready, &err), DDP_OK);
    cr_assert_eq(told, 59);
    for (size_t i = 0; i < 59; i++)
        cr_expect_eq(order[i], 58 - i);
    told = 0;
    forward(&b, MODEL_TRAIN);
    cr_expect_eq(model_backward(model, grad[0], &stops, &err), DDP_ERR_ABORTED);
    cr_expect_eq(told, 10);
}

Test(resnet, pictures_that_cannot_be_halved_twice_are_refused)
{
    struct model_spec spec = { .rows = 1, .channels = 1, .height = 30, .width = 30, .classes = 10 };
    struct model *none;
    cr_expect_eq(model_create(kind(), &spec, &none, &err), DDP_ERR_ARG);
    cr_expect(strstr(err.msg, "--model resnet20: pictures of 30x30: "), "%s", err.msg);
    cr_expect_null(none);
    spec.height = 32;
    cr_expect_eq(model_create(kind(), &spec, &none, &err), DDP_ERR_ARG);
}
