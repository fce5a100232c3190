/* gpt2:tiny as a user trains it: tokens from make-data, any number of workers, models of llm.c. */
#include "training.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(train_gpt2, .init = training_open, .fini = training_close);

#define RECIPE                                                                                              \
    "--model gpt2:tiny --data @/tokens --optimizer adamw --lr 0.003 --global_batch 8 --length 32 --epochs " \
    "1 "                                                                                                    \
    "--summary @/summary.json "

static void make_tokens(void)
{
    make_data("tokens", "4000", "--format=tokens");
}

Test(train_gpt2, one_two_and_four_workers_come_to_the_same_bits)
{
    make_tokens();
    train(1, RECIPE "--limit_steps 5");
    struct summary one = summary();
    cr_expect_leq(one.loss, log(256));
    for (int workers = 2; workers <= 4; workers *= 2) {
        train(workers, RECIPE "--limit_steps 5");
        cr_expect_str_eq(summary().hash, one.hash, "%d workers", workers);
    }
}

/* A rate of 1e-30 moves no parameter. */
Test(train_gpt2, an_exported_model_is_begun_with_by_all_workers)
{
    make_tokens();
    train(1, RECIPE "--limit_steps 3 --export @/model.bin");
    struct summary exported = summary();
    train(2, RECIPE "--limit_steps 1 --lr 1e-30 --init_from @/model.bin");
    cr_expect_str_eq(summary().hash, exported.hash);
    change_file("model.bin", 16, 3);
    train_fails(2, RECIPE "--init_from @/model.bin", 1,
                "model.bin: offset 16: 3 blocks, --model gpt2:tiny has 2");
}

Test(train_gpt2, what_fits_not_is_refused_before_it_is_trained)
{
    make_tokens();
    train_fails(1, RECIPE "--export @/nowhere/model.bin", 1, "nowhere: cannot write there");
    train_fails(1, "--model mlp --export @/model.bin", 2, "--export: llm.c's models are GPT-2");
    train_fails(1, RECIPE "--length 65", 2, "sequences of 65 tokens, 64 at most");
}
