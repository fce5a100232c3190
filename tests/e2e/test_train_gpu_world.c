/* train --device cuda with --determinism world and --zero1, on the fake GPU: the same bits for any number of workers, with and without
 * shares; and what one of them has saved another goes on from. */
#include "ranks.h"
#include "training.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_gpu(void)
{
    training_open();
    pretend_gpu();
}

TestSuite(gpu_world, .init = open_gpu, .fini = training_close);

enum { STEPS = 3 };

/* Three steps, the last of which has eight samples in eight shards. */
#define PICTURES                                                                                         \
    "--model mlp --data @/pictures --optimizer adamw --lr 0.01 --clip 0.5 --global_batch 16 --epochs 1 " \
    "--quiet "                                                                                           \
    "--device cuda --hash_steps --metrics @/metrics --summary @/summary.json "
#define TOKENS                                                                                               \
    "--model gpt2:tiny --data @/tokens --optimizer adamw --lr 0.003 --clip 0.5 --global_batch 8 --length 5 " \
    "--limit_steps 1 --epochs 1 --quiet --device cuda --hash_steps --metrics @/metrics --summary "           \
    "@/summary.json "
#define WORLD "--determinism world "

static void make_pictures(void)
{
    make_data("pictures", "40", "--test_samples=10");
}

static char *hashes_of(int workers, const char *line)
{
    train(workers, line);
    char *got = step_hashes();
    cr_assert_neq(got[0], '\0', "%s", line);
    return got;
}

/* From step `from` of `expected` on, as many as there are. */
static void expect_equal(int workers, const char *line, const char *expected, int from)
{
    char *got = hashes_of(workers, line);
    cr_expect(strncmp(got, expected + from * (HASH + 1), strlen(got)) == 0, "%d workers, %s:\n%s\n%s",
              workers, line, got, expected + from * (HASH + 1));
    free(got);
}

Test(gpu_world, equal_after_every_step_for_1_2_4_and_8_workers)
{
    make_pictures();
    char *one = hashes_of(1, PICTURES WORLD);
    cr_assert_eq(strlen(one), STEPS * (HASH + 1), "%s", one);
    expect_equal(2, PICTURES WORLD, one, 0);
    expect_equal(4, PICTURES WORLD "--zero1", one, 0);
    expect_equal(8, PICTURES WORLD, one, 0);
    free(one);
}

Test(gpu_world, equal_for_gpt2)
{
    make_data("tokens", "400", "--format=tokens --test_samples=6");
    char *one = hashes_of(1, TOKENS WORLD);
    expect_equal(2, TOKENS WORLD "--zero1", one, 0);
    free(one);
}

Test(gpu_world, equal_where_the_loss_is_scaled)
{
    make_pictures();
    char *one = hashes_of(1, PICTURES WORLD "--limit_steps 2 --precision fp16 --accumulate 2");
    expect_equal(2, PICTURES WORLD "--limit_steps 2 --precision fp16 --accumulate 2 --zero1", one, 0);
    free(one);
}

/* The fake NCCL adds in rank order, whichever the call. A norm of other leaves may end in other digits, so nothing is clipped. */
Test(gpu_world, shares_change_no_bit_of_averages)
{
    static const char line[] = "--model mlp --data @/pictures --optimizer sgd --momentum 0.9 --lr 0.05 "
                               "--global_batch 15 --epochs 1 --quiet "
                               "--device cuda --hash_steps --metrics @/metrics ";
    char shares[512];
    make_pictures();
    snprintf(shares, sizeof(shares), "%s --zero1 --check_every 1", line);
    char *plain = hashes_of(3, line);
    expect_equal(3, shares, plain, 0);
    free(plain);
}

static struct summary after(int workers, const char *line)
{
    train(workers, line);
    return summary();
}

/* Whoever has saved it, and whoever goes on: with shares or without, of any number of workers; and the CPU, up to rounding. */
Test(gpu_world, a_checkpoint_goes_on_with_other_shares)
{
    make_pictures();
    char *whole = hashes_of(1, PICTURES WORLD "--precision bf16");
    train(4, PICTURES WORLD "--precision bf16 --zero1 --limit_steps 1 --checkpoint @/ckpt");
    expect_equal(2, PICTURES WORLD "--precision bf16 --limit_steps 1 --checkpoint @/ckpt --resume", whole, 1);
    expect_equal(2, PICTURES WORLD "--precision bf16 --zero1 --checkpoint @/ckpt --resume", whole, 2);
    free(whole);
}

Test(gpu_world, the_cpu_goes_on_where_shares_were_saved)
{
    make_pictures();
    struct summary whole = after(2, PICTURES WORLD "--zero1");
    train(2, PICTURES WORLD "--zero1 --limit_steps 2 --checkpoint @/ckpt");
    struct summary here = after(1, PICTURES WORLD "--zero1 --checkpoint @/ckpt --resume --device cpu");
    cr_expect_float_eq(here.loss, whole.loss, 1e-4 * whole.loss, "%g, %g", here.loss, whole.loss);
    train(1, PICTURES WORLD "--limit_steps 2 --checkpoint @/cpu --device cpu");
    here = after(4, PICTURES WORLD "--zero1 --checkpoint @/cpu --resume");
    cr_expect_float_eq(here.loss, whole.loss, 1e-4 * whole.loss, "%g, %g", here.loss, whole.loss);
}
