/* The command line of train: every row of the table, and what is refused. */
#include "train/models.h"
#include "train/train_options.h"

#include <criterion/criterion.h>
#include <string.h>

static struct train_options o;
static struct ddp_err err;

/* Words after the program's name, NULL at the end. */
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
}

Test(train_options, both_spellings_with_a_space_or_an_equals_sign)
{
    cr_expect_eq(
        PARSE("--global-batch=400", "--limit_steps", "7", "--model=seqnet", "--lr", "1e-3", "--quiet"),
        DDP_OK);
    cr_expect(o.global_batch == 400 && o.batch == 0 && o.limit_steps == 7 && is_model(&o, "seqnet") &&
              o.lr == 1e-3 && o.quiet);
}

Test(train_options, what_is_wrong_is_named)
{
    const struct {
        const char *word[3];
        const char *says;
    } cases[] = {
        { { "--bacth", "3" }, "there is no option '--bacth'" },
        { { "data" }, "'data' is not an option" },
        { { "--epochs" }, "--epochs needs a value: N" },
        { { "--epochs", "ten" }, "--epochs 'ten': expected a number from 1" },
        { { "--epochs", "0" }, "--epochs '0'" },
        { { "--epochs", "-1" }, "--epochs '-1'" },
        { { "--epochs=" }, "--epochs ''" },
        { { "--seed", "99999999999999999999" }, "--seed '99999999999999999999'" },
        { { "--lr", "0" }, "--lr '0': expected a number above 0" },
        { { "--lr", "nan" }, "--lr 'nan'" },
        { { "--model", "vgg" }, "--model 'vgg': expected mlp or seqnet" },
        { { "--quiet=1" }, "--quiet takes no value" },
        { { "--batch=1", "--global_batch=2" }, "give one of them" },
        { { "--resume" }, "--resume needs --checkpoint" },
        { { "--grow" }, "--grow needs --checkpoint DIR and --resume" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_expect_eq(PARSE(cases[i].word[0], cases[i].word[1], cases[i].word[2]), DDP_ERR_ARG, "%s",
                     cases[i].says);
        cr_expect(strstr(err.msg, cases[i].says), "'%s' lacks '%s'", err.msg, cases[i].says);
    }
}
