/* Tests of the optimizer: 16-bit types, a loss scale that is too large, clipping, weight decay, and the restored state.
 * The world has one rank; tests/e2e/test_train.c has tests of many ranks. */
#include "train/optimizer.h"

#include "train/models/models.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static struct ddp_err err;
static struct train_options options;
static ddp_ctx *ctx;
static struct model *model;
static struct optimizer o;

/* Open the optimizer with the words of a command line. NULL ends the words. */
static void open_with(const char *const words[])
{
    static const struct model_spec spec = {
        .rows = 1, .channels = 1, .height = 1, .width = 8, .classes = 3, .seed = 1
    };
    char *argv[16] = { "train" };
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    cr_assert_eq(train_options_parse(&options, argc, argv, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_init_from_env(NULL, &ctx), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(model_create(&models[0], &spec, &model, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(optimizer_open(&o, &options, model, ctx, &err), DDP_OK, "%s", err.msg);
}

#define OPEN(...) open_with((const char *const[]){ __VA_ARGS__, NULL })

static void close_all(void)
{
    cr_expect_eq(optimizer_close(&o, &err), DDP_OK);
    model_free(model);
    cr_expect_eq(ddp_finalize(ctx), DDP_OK);
}

/* Make a step in which every element of every gradient is `g`, multiplied by the loss scale as after a backward
 * pass. */
static void step(float g, bool wants_norm)
{
    cr_assert_eq(optimizer_begin(&o, &err), DDP_OK, "%s", err.msg);
    for (size_t i = 0; i < model->params.n; i++) {
        for (size_t k = 0; k < model->params.each[i].count; k++)
            o.grad[i][k] = g * optimizer_weight(&o);
        cr_assert_eq(optimizer_round(&o, i, o.grad[i], &err), DDP_OK, "%s", err.msg);
        cr_assert_eq(optimizer_ready(&o, i, &err), DDP_OK, "%s", err.msg);
    }
    cr_assert_eq(optimizer_average(&o, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(optimizer_update(&o, 0.5, wants_norm, &err), DDP_OK, "%s", err.msg);
}

Test(optimizer, a_scaled_loss_that_overflows_skips_steps_until_it_fits, .fini = close_all)
{
    OPEN("--precision", "fp16", "--optimizer", "sgd");
    uint64_t before = model_hash(model);
    step(1.5f, false); /* 1.5 times 65536 does not fit into 16 bits, but 1.5 times 32768 does */
    cr_expect(o.scaler.scale == 32768 && optimizer_rule(&o)->step == 0);
    cr_expect_eq(model_hash(model), before, "the step was made");
    step(1.5f, false);
    cr_expect(o.scaler.scale == 32768 && optimizer_rule(&o)->step == 1);
    cr_expect_neq(model_hash(model), before);
}

/* Each change is too small for the 16-bit values of the model, but the changes add up in the master copy. */
Test(optimizer, small_updates_are_kept_in_float32, .fini = close_all)
{
    OPEN("--precision", "bf16", "--optimizer", "sgd");
    float *p = model->params.values, first = p[0], master = o.slot[0][0];
    cr_expect(fabsf(master - first) < 0.004f * fabsf(master) && master != first);
    for (int i = 0; i < 200; i++)
        step(-ldexpf(1, -14), false);
    cr_expect_float_eq(o.slot[0][0], master + 200 * 0.5f * ldexpf(1, -14), 1e-5f);
    cr_expect_float_eq(p[0], o.slot[0][0], 0.004f * fabsf(p[0]));
}

Test(optimizer, a_norm_above_the_limit_is_told_and_shortened, .fini = close_all)
{
    OPEN("--optimizer", "sgd", "--clip", "1");
    float was = model->params.values[0];
    double norm = sqrt((double)model->params.count);
    step(1, false);
    cr_expect_float_eq(o.norm, norm, 1e-9);
    cr_expect_float_eq(was - model->params.values[0], 0.5 / norm, 1e-6);
}

Test(optimizer, nobody_wants_the_norm_nobody_computes_it, .fini = close_all)
{
    OPEN("--optimizer", "sgd");
    step(1, false);
    cr_expect(isnan(o.norm));
    step(1, true);
    cr_expect_float_eq(o.norm, sqrt((double)model->params.count), 1e-9);
}

Test(optimizer, biases_do_not_decay, .fini = close_all)
{
    OPEN("--optimizer", "adamw", "--weight_decay", "0.5");
    const struct model_tensor *weight = &model->params.each[0], *bias = &model->params.each[1];
    float w = weight->value[0], b = bias->value[0];
    step(0, false);
    cr_expect_float_eq(weight->value[0], w * (1 - 0.5f * 0.5f), 1e-6f);
    cr_expect_eq(bias->value[0], b);
}

/* Expect the same bits with and without --zero1, also after the state was exported to whole arrays and imported
 * again. */
static void expect_equal_after_a_detour(const char *zero1)
{
    static float whole[OPTIMIZER_SLOTS][1 << 16];
    OPEN("--optimizer", "adamw", "--precision", "bf16", zero1);
    for (int i = 0; i < 3; i++)
        step(0.25f, false);
    cr_assert_eq(optimizer_gather(&o, &err), DDP_OK, "%s", err.msg);
    cr_assert_leq(model->params.count, 1u << 16);
    for (int slot = 0; slot < o.slots; slot++)
        memcpy(whole[slot], o.slot[slot], model->params.count * sizeof(float));
    step(0.25f, false);
    uint64_t expected = model_hash(model);
    close_all();
    OPEN("--optimizer", "adamw", "--precision", "bf16", zero1);
    cr_assert_eq(optimizer_room(&o, &err), DDP_OK, "%s", err.msg);
    for (int slot = 0; slot < o.slots; slot++)
        memcpy(o.slot[slot], whole[slot], model->params.count * sizeof(float));
    cr_assert_eq(optimizer_restore(&o, &err), DDP_OK, "%s", err.msg);
    optimizer_rule(&o)->step = 3;
    step(0.25f, false);
    cr_expect_eq(model_hash(model), expected, "%s", zero1);
    close_all();
}

Test(optimizer, what_is_saved_and_restored_goes_on_as_if_nothing_had_happened)
{
    expect_equal_after_a_detour("--zero1");
    expect_equal_after_a_detour("--quiet");
}
