/* Tests of the command line of train: every row of the table, and every error. This is the golden file of train, so
 * the errors are compared word by word. */
#include "train/models/models.h"
#include "train/train_options.h"

#include <criterion/criterion.h>
#include <string.h>

static struct train_options o;
static struct ddp_err err;

/* Parse the words after the program's name. NULL ends the words. */
static ddp_status parse(const char *const words[])
{
    char *argv[32] = { "train" };
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)words[argc - 1];
    return train_options_parse(&o, argc, argv, &err);
}

static bool is_model(const struct train_options *options, const char *name)
{
    return strcmp(models[options->model].name, name) == 0;
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

Test(train_options, without_words_the_recipe_of_the_tutorial)
{
    cr_expect_eq(parse((const char *const[]){ NULL }), DDP_OK, "%s", err.msg);
    cr_expect(o.batch == 100 && o.global_batch == 0 && o.epochs == 10 && o.lr == 0.01 && is_model(&o, "mlp"));
    cr_expect_str_eq(o.data, "data");
    cr_expect(o.checkpoint == NULL && !o.resume && o.threads == 0 && o.limit_steps == 0);
    ddp_optim adam = train_options_optim(&o);
    cr_expect(adam.rule == DDP_ADAM && adam.lr == 0.01 && adam.beta1 == 0.9 && adam.beta2 == 0.999 &&
              adam.weight_decay == 0);
    cr_expect(o.schedule == SCHEDULE_CONSTANT && o.precision == PRECISION_FP32 && o.accumulate == 1 &&
              o.determinism == DETERMINISM_RUN && o.clip == 0 && o.keep_last == 3 && o.eval_every == 1);
}

Test(train_options, both_spellings_with_a_space_or_an_equals_sign)
{
    cr_expect_eq(
        PARSE("--global-batch=400", "--limit_steps", "7", "--model=seqnet", "--lr", "1e-3", "--quiet"),
        DDP_OK);
    cr_expect(o.global_batch == 400 && o.batch == 0 && o.limit_steps == 7 && is_model(&o, "seqnet") &&
              o.lr == 1e-3 && o.quiet);
}

Test(train_options, optimizers_have_torchs_defaults_and_what_is_said)
{
    cr_expect_eq(PARSE("--optimizer", "adamw", "--lr", "3e-4", "--beta2", "0.95"), DDP_OK, "%s", err.msg);
    ddp_optim optim = train_options_optim(&o);
    cr_expect(optim.rule == DDP_ADAMW && optim.weight_decay == 0.01 && optim.beta2 == 0.95 &&
              optim.lr == 3e-4);
    cr_expect_eq(PARSE("--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--weight_decay", "1e-4"),
                 DDP_OK);
    optim = train_options_optim(&o);
    cr_expect(optim.rule == DDP_SGD && optim.momentum == 0.9 && optim.nesterov && optim.weight_decay == 1e-4);
    cr_expect_str_eq(train_options_word("optimizer", DDP_ADAMW), "adamw");
    cr_expect(train_options_word("optimizer", 3) == NULL && train_options_word("optimizer", -1) == NULL &&
              train_options_word("lr", 0) == NULL);
}

Test(train_options, what_is_wrong_is_named)
{
    const struct {
        const char *word[3];
        const char *says;
    } cases[] = {
        { { "--bacth", "3" }, "--bacth: unknown option; see --help" },
        { { "data" }, "'data': " },
        { { "--epochs" }, "--epochs N" },
        { { "--epochs", "ten" }, "--epochs=ten: expected a number from 1" },
        { { "--epochs", "0" }, "--epochs=0:" },
        { { "--epochs", "-1" }, "--epochs=-1:" },
        { { "--epochs=" }, "--epochs=:" },
        { { "--seed", "99999999999999999999" }, "--seed=99999999999999999999:" },
        { { "--lr", "0" }, "--lr=0: expected a finite number above 0" },
        { { "--lr", "nan" }, "--lr=nan:" },
        { { "--model", "vgg" }, "--model=vgg: expected 'mlp', 'seqnet', 'resnet20', 'gpt2:tiny', " },
        { { "--quiet=1" }, "--quiet=1: unexpected value: --quiet is a switch; leave out the value" },
        { { "--batch=1", "--global_batch=2" }, "--batch: cannot be used with --global_batch; leave out one" },
        { { "--resume" },
          "--resume: no --checkpoint; add --checkpoint DIR, the directory of the run to continue" },
        { { "--final_lr", "-1" }, "--final_lr=-1: expected a finite number of at least 0" },
        { { "--clip", "0" }, "--clip=0: expected a finite number above 0" },
        { { "--optimizer", "lion" }, "--optimizer=lion: expected 'sgd', 'adam' or 'adamw'" },
        { { "--momentum", "0.9" },
          "--momentum: --optimizer adam has no momentum; use --beta1, or --optimizer sgd" },
        { { "--optimizer", "sgd", "--nesterov" }, "--nesterov: no momentum; add --momentum 0.9" },
        { { "--nesterov" }, "--nesterov: --optimizer adam has no momentum" },
        { { "--beta1", "1" }, "--beta1=1: expected a number of at least 0 and below 1" },
        { { "--optimizer=adamw", "--beta2=1.5" },
          "--beta2=1.5: expected a number of at least 0 and below 1" },
        { { "--precision", "fp8" }, "--precision=fp8: expected 'fp32', 'bf16' or 'fp16'" },
        { { "--device", "cuda", "--dump_gradients=x" },
          "--device cuda: --dump_gradients is not supported on a GPU" },
        { { "--eval" },
          "--eval: no --checkpoint; add --checkpoint DIR, the directory of the checkpoint to test" },
        { { "--checkpoint_every", "5" },
          "--checkpoint_every: no --checkpoint; add --checkpoint DIR, the directory to save to" },
        { { "--keep_every", "5" }, "--keep_every: no --checkpoint; add" },
        { { "--hash_steps" }, "--hash_steps: no --metrics; add --metrics FILE, or leave out --hash_steps" },
        { { "--sync_bn", "--determinism", "world" }, "--sync_bn: cannot be used with --determinism world: " },
        { { "--sync_bn" }, "--sync_bn: --model mlp has no batch normalization" },
        { { "--length=8" }, "--length: --model mlp is for pictures; leave out --length" },
        { { "--length=8", "--model=resnet20" }, "--model resnet20 is for pictures" },
        { { "--zero1", "--dump_gradients=x" }, "--dump_gradients: cannot be used with --zero1; leave out" },
        { { "--grow" },
          "--grow: the restarted job would lose its progress; add --resume with --checkpoint DIR" },
        { { "--grow", "--resume", "--checkpoint=x" }, "--grow: with --batch, " },
        { { "--metrics=" }, "--metrics=: expected a text of 1 to 4095 bytes" },
        { { "--init_from", "x" }, "--init_from: llm.c has no file format for --model mlp; use" },
        { { "--lr", " 1" }, "--lr= 1: expected a finite number above 0" },
        { { "--lr", "0x1" }, "--lr=0x1: expected a finite number above 0" },
        { { "--lr", "+1" }, "--lr=+1: expected a finite number above 0" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(PARSE(cases[i].word[0], cases[i].word[1], cases[i].word[2]), DDP_ERR_ARG, "%s",
                     cases[i].says);
        cr_expect(strstr(err.msg, cases[i].says), "'%s' lacks '%s'", err.msg, cases[i].says);
    }
}

/* --- options that must be equal on all ranks --------------------------------------------------------------- */

/* Compare the options of rank 3, which has the additional argument `word`, with the options of rank 0. */
static ddp_status same_with(const char *word)
{
    int64_t first[TRAIN_FACTS], theirs[TRAIN_FACTS];
    cr_assert_eq(PARSE("--optimizer=sgd"), DDP_OK);
    train_options_facts(&o, first);
    cr_assert_eq(PARSE("--optimizer=sgd", word), DDP_OK, "%s", err.msg);
    train_options_facts(&o, theirs);
    return train_options_same(first, theirs, 3, &err);
}

Test(train_options, who_was_told_something_else_is_named_with_both_values)
{
    const struct {
        const char *word, *says;
    } cases[] = {
        { "--lr=0.02", "--lr differs: 0.01 on rank 0, but 0.02 on rank 3" },
        { "--model=seqnet", "--model differs: mlp on rank 0, but seqnet on rank 3" },
        { "--optimizer=adam", "--optimizer differs: sgd on rank 0, but adam on rank 3" },
        { "--batch=7", "--batch differs: 100 on rank 0, but 7 on rank 3" },
        { "--limit_steps=7", "--limit_steps differs: not given on rank 0, but 7 on rank 3" },
        { "--clip=1", "--clip differs: not given on rank 0, but 1 on rank 3" },
        { "--weight_decay=0", "--weight_decay differs: not given on rank 0, but 0 on rank 3" },
        { "--seed=7", "--seed differs: 0 on rank 0, but 7 on rank 3" },
        { "--zero1", "--zero1 differs: not given on rank 0, but given on rank 3" },
        { "--checkpoint=x", "--checkpoint differs: not given on rank 0, but given on rank 3" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(same_with(cases[i].word), DDP_ERR_ARG, "%s", cases[i].word);
        cr_expect(strstr(err.msg, cases[i].says), "'%s' lacks '%s'", err.msg, cases[i].says);
    }
}

Test(train_options, what_is_a_workers_own_may_differ)
{
    static const char *const own[] = {
        "--data=/scratch/3", "--loader_threads=2", "--device=cpu", "--threads=2",
        "--peak_tflops=1",   "--summary=x",        "--quiet"
    };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        cr_expect_eq(same_with(own[i]), DDP_OK, "%s: %s", own[i], err.msg);
}
