/* --determinism world: after every step the same parameters, bit by bit, whatever the number of workers and of hosts, and
 * whoever went on where another number had stopped. */
#include "training.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Three steps an epoch, the last of which has eight samples in eight shards; so there are six, and an odd end. */
#define RUN                                                                                          \
    "--data @/data --global_batch 96 --epochs 2 --determinism world --quiet --hash_steps --metrics " \
    "@/metrics "
enum { STEPS = 6 };

TestSuite(world, .init = training_open, .fini = training_close, .timeout = 240);

/* Two hosts, the ranks shared out evenly, or in turn. */
static const char *const halves[] = { "sh", "-c",
                                      "DDP_TEST_HOST=h$((RANK * 2 / WORLD_SIZE)) exec \"$0\" \"$@\"", NULL };
static const char *const turns[] = { "sh", "-c", "DDP_TEST_HOST=h$((RANK % 2)) exec \"$0\" \"$@\"", NULL };
static const char *const none[] = { NULL };

/* `line` on so many workers and hosts gives the bits of `expected`, from step `from` on. */
static void expect_equal(int workers, const char *const *hosts, const char *line, const char *expected,
                         int from)
{
    training_prefix = hosts;
    train(workers, line);
    char *got = step_hashes();
    cr_expect(got[0] != '\0' && strncmp(got, expected + from * (HASH + 1), strlen(got)) == 0,
              "%d workers, %s:\n%s\n%s", workers, line, got, expected + from * (HASH + 1));
    free(got);
}

/* One worker's run, in steps. */
static char *alone(const char *line)
{
    train(1, line);
    char *one = step_hashes();
    cr_assert_eq(strlen(one), STEPS * (HASH + 1), "%s", one);
    return one;
}

Test(world, equal_after_every_step_for_1_2_4_and_8_workers)
{
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    for (int workers = 2; workers <= 8; workers *= 2)
        expect_equal(workers, none, RUN, one, 0);
    expect_equal(2, none, RUN "--zero1", one, 0);
    free(one);
}

Test(world, equal_on_several_hosts)
{
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    expect_equal(2, halves, RUN, one, 0);
    expect_equal(4, turns, RUN, one, 0);
    expect_equal(8, halves, RUN, one, 0);
    free(one);
}

/* Eight workers stop behind the fourth step, in the middle of the second epoch; two on two hosts go on, then one alone. */
Test(world, who_goes_on_in_the_middle_of_an_epoch_gets_the_same)
{
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    train(8, RUN "--limit_steps 4 --checkpoint @/ckpt");
    expect_equal(2, halves, RUN "--limit_steps 1 --checkpoint @/ckpt --resume", one, 4);
    expect_equal(1, none, RUN "--checkpoint @/ckpt --resume", one, 5);
    free(one);
}

/* Layers that normalise, attend and convolve; pictures that look different each time. */
Test(world, equal_for_every_kind_of_model)
{
    static const char gpt2[] =
        "--data @/tokens --model gpt2:tiny --global_batch 8 --limit_steps 3 --determinism world "
        "--quiet --hash_steps --metrics @/metrics";
    static const char resnet[] = "--data @/cifar --model resnet20 --augment --global_batch 8 --limit_steps 2 "
                                 "--determinism world --quiet --hash_steps --metrics @/metrics";
    make_data("tokens", "5000", "--format=tokens --test_samples=200");
    make_data("cifar", "16", "--format=cifar10 --test_samples=5");
    train(1, gpt2);
    char *one = step_hashes();
    cr_assert_eq(strlen(one), 3 * (HASH + 1), "%s", one);
    expect_equal(8, none, gpt2, one, 0);
    free(one);
    train(1, resnet);
    one = step_hashes();
    cr_assert_eq(strlen(one), 2 * (HASH + 1), "%s", one);
    expect_equal(4, halves, resnet, one, 0);
    free(one);
}

/* What rounds, and what a worker goes through in parts, is the same for all, too. */
Test(world, equal_with_16_bits_shares_of_the_state_and_parts_of_a_batch)
{
    static const char line[] = RUN
        "--precision fp16 --optimizer adamw --clip 0.5 --accumulate 2 --schedule cosine --warmup 2 --lr 1e-3";
    char shared[512];
    make_data("data", "200", NULL);
    char *one = alone(line);
    snprintf(shared, sizeof(shared), "%s --zero1", line);
    expect_equal(4, none, line, one, 0);
    expect_equal(8, halves, shared, one, 0);
    free(one);
}

Test(world, what_cannot_be_equal_is_refused)
{
    make_data("data", "200", NULL);
    train_fails(3, "--data @/data --global_batch 96 --determinism world", 2,
                "3 workers; there can be 1, 2, 4 or 8");
    train_fails(1, "--data @/data --global_batch 100 --determinism world", 2,
                "100 cannot be cut into 8 equal parts");
}
