/* A checkpoint must fit the run that continues it. Otherwise the error names the difference. The world size is 1. */
#include "run.h"
#include "train/checkpoint.h"

#include "train/models/models.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INPUTS = 8, CLASSES_HERE = 3 };

static struct ddp_err err;
static struct train_options options;
static ddp_ctx *ctx;
static struct model *model;
static struct optimizer optimizer;

/* Start a new run, with parameters from `seed`. */
static void open_run(const char *rule, uint64_t seed)
{
    char *argv[] = { "train", "--optimizer", (char *)rule, "--checkpoint", test_dir, "--resume", NULL };
    const struct model_spec spec = {
        .rows = 1, .channels = 1, .height = 1, .width = INPUTS, .classes = CLASSES_HERE, .seed = seed
    };
    cr_assert_eq(train_options_parse(&options, 6, argv, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_init_from_env(NULL, &ctx), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(model_create(&models[0], &spec, &model, &err), DDP_OK);
    cr_assert_eq(optimizer_open(&optimizer, &options, model, ctx, &err), DDP_OK, "%s", err.msg);
}

static void close_run(void)
{
    cr_expect_eq(optimizer_close(&optimizer, &err), DDP_OK);
    model_free(model);
    cr_expect_eq(ddp_finalize(ctx), DDP_OK);
}

static struct checkpoint some(void)
{
    return (
        struct checkpoint){ .fact = { 3, 180, models_mark("seqnet"), 42, 100, 6000, DDP_ADAM, 0, 0, 1, 180 },
                            .loss = 0.25,
                            .epoch_loss = 17,
                            .samples = 400,
                            .optimizer = &optimizer };
}

/* Save a checkpoint. The elements of the state arrays are 1, 2, ... */
static void save(void)
{
    ddp_ckpts *ckpts;
    struct checkpoint c = some();
    open_run("adam", 1);
    for (size_t i = 0; i < 2 * model->params.count; i++)
        optimizer.slot[1][i] = (float)i + 1;
    optimizer.scaler.scale = 128;
    cr_assert_eq(checkpoint_open(&options, &ckpts, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(checkpoint_save(ckpts, &c, 4, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_ckpts_close(ckpts, &err), DDP_OK, "%s", err.msg);
    close_run();
}

/* Resume from the newest checkpoint. Before the call, `c` has the facts of the new run. If a checkpoint is found and
 * adopted, `c` then has the progress that the checkpoint contains. */
static ddp_status resume(struct checkpoint *c, int *found)
{
    ddp_ckpts *ckpts = NULL;
    ddp_status status = checkpoint_open(&options, &ckpts, &err);
    if (status == DDP_OK)
        status = checkpoint_resume(ckpts, test_dir, c, found, &err);
    struct ddp_err ignored;
    ddp_ckpts_close(ckpts, &ignored);
    return status;
}

TestSuite(checkpoint, .init = test_dir_open, .fini = test_dir_close);

Test(checkpoint, what_was_saved_comes_back)
{
    struct checkpoint c = some();
    int found;
    save();
    open_run("adam", 1);
    uint64_t hash = model_hash(model);
    close_run();
    open_run("adam", 2);
    c.fact[FACT_EPOCHS] = c.fact[FACT_STEPS] = c.fact[FACT_UPDATES] = 0;
    cr_assert_eq(resume(&c, &found), DDP_OK, "%s", err.msg);
    cr_expect(found && c.fact[FACT_EPOCHS] == 3 && c.fact[FACT_STEPS] == 180 && c.samples == 400);
    cr_expect(c.loss == 0.25 && c.epoch_loss == 17 && optimizer.scaler.scale == 128);
    cr_expect_eq(optimizer_rule(&optimizer)->step, 180);
    cr_expect_eq(model_hash(model), hash);
    cr_expect(optimizer.slot[1][5] == 6 && optimizer.slot[2][0] == (float)model->params.count + 1);
    close_run();
}

Test(checkpoint, none_there_is_no_error)
{
    struct checkpoint c = some();
    char newest[64];
    int found = 1;
    open_run("adam", 1);
    cr_expect_eq(resume(&c, &found), DDP_OK);
    cr_expect_not(found);
    cr_expect_not(checkpoint_exists(test_dir, newest));
    close_run();
}

Test(checkpoint, of_another_run_it_names_the_difference)
{
    const char *says[FACTS] = { [FACT_MODEL] = "--model was",
                                [FACT_SEED] = "--seed was 42",
                                [FACT_GLOBAL_BATCH] = "global batch",
                                [FACT_SAMPLES] = "training samples",
                                [FACT_OPTIMIZER] = "--optimizer was",
                                [FACT_PRECISION] = "--precision was",
                                [FACT_DETERMINISM] = "--determinism was",
                                [FACT_ACCUMULATE] = "--accumulate was" };
    save();
    open_run("adam", 2);
    for (int i = FACT_MODEL; i <= FACT_ACCUMULATE; i++) {
        struct checkpoint c = some();
        int found;
        c.fact[i] = i == FACT_MODEL ? models_mark("mlp") : c.fact[i] + 1;
        cr_expect_eq(resume(&c, &found), DDP_ERR_MISMATCH);
        cr_expect(strstr(err.msg, test_dir) && strstr(err.msg, says[i]), "%s", err.msg);
    }
    close_run();
}

Test(checkpoint, of_another_optimizer_it_says_so_before_it_reads_facts)
{
    struct checkpoint c = some();
    int found;
    save();
    open_run("sgd", 1);
    cr_expect_eq(resume(&c, &found), DDP_ERR_MISMATCH);
    cr_expect(strstr(err.msg, "another --model") && strstr(err.msg, "step-00000180"), "%s", err.msg);
    close_run();
}

Test(checkpoint, when_the_only_one_is_damaged_it_says_where_and_what_to_do)
{
    struct checkpoint c = some();
    char path[128];
    int found;
    save();
    snprintf(path, sizeof(path), "%s/step-00000180/tensors.bin", test_dir);
    cr_assert_eq(truncate(path, 1000), 0);
    open_run("adam", 2);
    cr_expect_eq(resume(&c, &found), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, path) && strstr(err.msg, "offset 1000") && strstr(err.msg, "only checkpoint"),
              "%s", err.msg);
    close_run();
}
