/* Tests of train --device cuda on the fake GPU: the losses, the model and the checkpoints must equal those of the
 * CPU. The fake computes with the CPU, so these tests need no GPU. */
#include "ranks.h"
#include "training.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(train_gpu, .init = test_dir_open, .fini = test_dir_close);

enum { MOST = 16 };

#define GPT2                                                                                                \
    "--model gpt2:tiny --data @/tokens --optimizer adamw --lr 0.003 --global_batch 4 --length 12 --epochs " \
    "1 "                                                                                                    \
    "--clip 0.5 --metrics @/metrics --summary @/summary.json --quiet "
#define MLP                                                                                                \
    "--model mlp --data @/pictures --optimizer sgd --momentum 0.9 --lr 0.05 --global_batch 12 --epochs 1 " \
    "--metrics @/metrics --summary @/summary.json --quiet "
#define RESNET                                                                                          \
    "--model resnet20 --data @/pictures --optimizer sgd --momentum 0.9 --lr 0.001 --sync_bn --metrics " \
    "@/metrics --summary @/summary.json "
#define RESNET_IN_BF16 RESNET "--global_batch 1 --precision bf16 "

static void make_tokens(void)
{
    make_data("tokens", "400", "--format=tokens --test_samples=30");
}

/* Read the losses and norms from the lines of steps. Return the number of steps. */
static int losses(double loss[MOST], double norm[MOST])
{
    size_t len;
    char *text = read_file("metrics", &len), *save = NULL;
    int n = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL && n < MOST;
         line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        if (cJSON_HasObjectItem(json, "loss")) {
            cr_expect_eq((int)json_number(json, "step"), n + 1, "%s", line);
            loss[n] = json_number(json, "loss");
            norm[n++] = json_number(json, "grad_norm");
        }
        cJSON_Delete(json);
    }
    free(text);
    return n;
}

/* Run `line` on the CPU, then with `workers` workers on GPUs. */
static void compare(int workers, const char *line, double tolerance)
{
    double on_cpu[MOST], on_gpu[MOST], norm_cpu[MOST], norm_gpu[MOST];
    char words[600];
    snprintf(words, sizeof(words), "%s --device cpu", line);
    train(1, words);
    const int steps = losses(on_cpu, norm_cpu);
    const double accuracy = summary().accuracy;
    snprintf(words, sizeof(words), "%s --device cuda", line);
    pretend_gpu();
    train(workers, words);
    cr_assert_eq(losses(on_gpu, norm_gpu), steps);
    cr_assert_gt(steps, 1);
    for (int i = 0; i < steps; i++) {
        cr_expect_float_eq(on_gpu[i], on_cpu[i], tolerance * on_cpu[i], "step %d: %g, cpu %g", i + 1,
                           on_gpu[i], on_cpu[i]);
        cr_expect_float_eq(norm_gpu[i], norm_cpu[i], 10 * tolerance * norm_cpu[i], "step %d: norm %g, cpu %g",
                           i + 1, norm_gpu[i], norm_cpu[i]);
    }
    cr_expect_float_eq(summary().accuracy, accuracy, 0.02);
}

Test(train_gpu, gpt2_has_the_losses_of_the_cpu)
{
    training_skip_same_code();
    make_tokens();
    compare(1, GPT2 "--limit_steps 3 --accumulate 2", 1e-4);
}

Test(train_gpu, two_workers_have_them_through_nccl)
{
    make_tokens();
    compare(2, GPT2 "--limit_steps 3 --check_every 2", 1e-4);
}

Test(train_gpu, in_bf16_they_are_close)
{
    training_skip_same_threads(); /* test two_workers_have_them_through_nccl has the same threads */
    make_tokens();
    compare(1, GPT2 "--limit_steps 2 --precision bf16", 2e-3);
}

Test(train_gpu, in_fp16_the_loss_is_scaled)
{
    make_data("pictures", "60", "--test_samples=20");
    compare(2, MLP "--precision fp16 --accumulate 3", 5e-3);
}

/* A run on a GPU can continue on the CPU, because its checkpoint does not record the device. */
Test(train_gpu, a_checkpoint_goes_on_where_it_is_taken)
{
    training_skip_same_code();
    make_tokens();
    pretend_gpu();
    train(1, GPT2 "--device cuda --limit_steps 3");
    struct summary whole = summary();
    train(1, GPT2 "--device cuda --limit_steps 2 --checkpoint @/saved");
    train(1, GPT2 "--device cuda --limit_steps 1 --checkpoint @/saved --resume");
    cr_expect_str_eq(summary().hash, whole.hash);
    train(1, GPT2 "--device cuda --limit_steps 2 --checkpoint @/there");
    train(1, GPT2 "--device cpu --limit_steps 1 --checkpoint @/there --resume");
    cr_expect_float_eq(summary().loss, whole.loss, 1e-4 * whole.loss);
}

Test(train_gpu, two_workers_go_on_in_bf16)
{
    training_skip_same_threads();
    make_data("pictures", "60", "--test_samples=20");
    pretend_gpu();
    train(2, MLP "--device cuda --precision bf16 --limit_steps 3");
    struct summary whole = summary();
    train(2, MLP "--device cuda --precision bf16 --limit_steps 2 --checkpoint @/saved");
    train(2, MLP "--device cuda --precision bf16 --limit_steps 1 --checkpoint @/saved --resume");
    cr_expect_str_eq(summary().hash, whole.hash);
}

/* Each worker has one visible device, as with --virtual_local_rank. Here all workers have the same fake device. */
Test(train_gpu, a_device_of_each_workers_own_is_taken)
{
    static const char *const own[] = { "env", "LOCAL_RANK=0", "DDPRUN_OWN_GPU=1", "DDP_SHARE_GPU=1", NULL };
    make_data("pictures", "60", "--test_samples=20");
    pretend_gpu();
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    training_prefix = own;
    struct run_result r = run_line(2, "--data @/pictures --global_batch 12 --limit_steps 1 --device auto");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.out, ", on GPUs") != NULL, "%s", r.out);
}

/* Return the peak rate from which `train` has computed the first step's utilisation ("mfu"), in tokens/s. Return 0 if
 * the step has no utilisation. */
static double peak_of(const char *line)
{
    size_t len;
    train(1, line);
    char *text = read_file("metrics", &len);
    cJSON *step = cJSON_Parse(text); /* parses only the first line of `text` */
    const double peak =
        cJSON_HasObjectItem(step, "mfu") ? json_number(step, "tokens_s") / json_number(step, "mfu") : 0;
    cJSON_Delete(step);
    free(text);
    return peak;
}

Test(train_gpu, a_known_device_has_its_mfu)
{
    training_skip_same_code();
    make_tokens();
    pretend_gpu();
    cr_expect_eq(peak_of(GPT2 "--device cuda --limit_steps 1"), 0);
    setenv("FAKE_CUDA_NAME", "NVIDIA H200", 1);
    const double known = peak_of(GPT2 "--device cuda --limit_steps 1");
    const double said = peak_of(GPT2 "--device cuda --limit_steps 1 --peak_tflops 6.69");
    cr_expect_float_eq(known / said, 10, 1e-6, "%g, %g", known, said);
}

/* The summary has the duration of the training without the tests. The sum of the durations of all steps must not be
 * longer. This sum would be longer if the first step of the second epoch included the test of the first epoch. */
Test(train_gpu, a_step_does_not_count_the_test_before_it)
{
    training_skip_same_code();
    size_t len;
    char *save = NULL;
    double steps_s = 0;
    make_data("pictures", "24", "--test_samples=20");
    pretend_gpu();
    train(1, MLP "--device cuda --epochs 2");
    char *text = read_file("metrics", &len);
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        if (cJSON_HasObjectItem(json, "loss"))
            steps_s += 12 / json_number(json, "samples_s");
        cJSON_Delete(json);
    }
    free(text);
    text = read_file("summary.json", &len);
    cJSON *json = cJSON_Parse(text);
    cr_expect_gt(steps_s, 0);
    cr_expect_leq(steps_s, json_number(json, "train_s") + 1e-4);
    cJSON_Delete(json);
    free(text);
}

/* The second step has only one image. So the second worker has no image in this step. --accumulate divides a step into
 * two parts, and the second part has no image, either. The model is small, because the fake GPU is slow. */
Test(train_gpu, resnet20_is_normalized_over_all_workers)
{
    training_skip_same_threads();
    make_data("pictures", "5", "--test_samples=2");
    compare(2, RESNET "--global_batch 4 --accumulate 2 --epochs 1 --quiet", 1e-4);
}

static double test_loss(const char *line)
{
    double loss = NAN;
    struct run_result r = run_line(1, line);
    const char *words = strstr(r.out, "test loss ");
    cr_assert_eq(r.exit_code, 0, "%s%s", r.out, r.err);
    cr_assert_not_null(words, "%s", r.out);
    sscanf(words, "test loss %lf", &loss);
    return loss;
}

/* The checkpoint contains the running mean and variance, which are on the device. */
Test(train_gpu, resnet20_goes_on_from_a_checkpoint_and_is_tested)
{
    training_skip_same_code();
    make_data("pictures", "2", "--test_samples=1");
    pretend_gpu();
    train(1, RESNET_IN_BF16 "--epochs 1 --device cuda");
    struct summary whole = summary();
    train(1, RESNET_IN_BF16 "--epochs 1 --device cuda --limit_steps 1 --checkpoint @/saved");
    const double gpu = test_loss(RESNET_IN_BF16 "--eval --checkpoint @/saved --device cuda");
    const double cpu = test_loss(RESNET_IN_BF16 "--eval --checkpoint @/saved --device cpu");
    cr_expect_float_eq(gpu, cpu, 1e-2 * cpu, "%g, cpu %g", gpu, cpu);
    train(1, RESNET_IN_BF16 "--epochs 1 --device cuda --checkpoint @/saved --resume");
    cr_expect_str_eq(summary().hash, whole.hash);
}

Test(train_gpu, what_is_missing_is_said)
{
    make_tokens();
    pretend_gpu();
    setenv("DDP_TRAIN_KERNELS", test_dir, 1);
    train_fails(1, GPT2 "--device cuda", 1,
                "train_kernels.f32.fatbin: cannot open: No such file or directory; `make`");
    setenv("DDP_TRAIN_KERNELS", bin("tests/fake"), 1);
    setenv("FAKE_CUDA_DEVICES", "1", 1);
    train_fails(2, GPT2 "--device cuda", 2, "GPU 1: ");
    train(2, GPT2 "--device auto --limit_steps 1");
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    train_fails(1, GPT2 "--device cuda", 1, "train: error: GPU: ");
    train(1, GPT2 "--device auto --limit_steps 1");
    setenv("DDP_CUDA_DRIVER_LIBRARY", "/nowhere/libcuda.so", 1);
    train_fails(1, GPT2 "--device cuda", 1, "DDP_CUDA_DRIVER_LIBRARY=/nowhere/libcuda.so");
}

/* Tests of train --device cuda with --determinism world, on the fake GPU. Runs with any number of workers, with and
 * without --zero1, must compute the same bits. Each run can continue from the checkpoint of any other run. */

static void open_gpu(void)
{
    test_dir_open();
    pretend_gpu();
}

TestSuite(gpu_world, .init = open_gpu, .fini = test_dir_close);

enum { STEPS = 3 };

/* With these options `train` does three steps. The last step has eight samples, one for each of the eight shards. */
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

static void expect_equal(int workers, const char *line, const char *expected)
{
    char *got = hashes_of(workers, line);
    cr_expect(strncmp(got, expected, strlen(got)) == 0, "%d workers, %s:\n%s\n%s", workers, line, got,
              expected);
    free(got);
}

Test(gpu_world, equal_after_every_step_for_1_2_4_and_8_workers)
{
    training_skip_same_code();
    make_pictures();
    char *one = hashes_of(1, PICTURES WORLD);
    cr_assert_eq(strlen(one), STEPS * (HASH + 1), "%s", one);
    expect_equal(2, PICTURES WORLD, one);
    expect_equal(4, PICTURES WORLD "--zero1", one);
    expect_equal(8, PICTURES WORLD, one);
    free(one);
}

Test(gpu_world, equal_for_gpt2)
{
    make_data("tokens", "400", "--format=tokens --test_samples=6");
    char *one = hashes_of(1, TOKENS WORLD);
    expect_equal(2, TOKENS WORLD "--zero1", one);
    free(one);
}

Test(gpu_world, equal_where_the_loss_is_scaled)
{
    training_skip_same_threads();
    make_pictures();
    char *one = hashes_of(1, PICTURES WORLD "--limit_steps 2 --precision fp16 --accumulate 2");
    expect_equal(2, PICTURES WORLD "--limit_steps 2 --precision fp16 --accumulate 2 --zero1", one);
    free(one);
}

/* The fake NCCL always adds in rank order, so the averages have the same bits. But with --zero1 the norm is summed in
 * other pieces, so the last digits of the norm may differ. So this test must not clip the gradients. */
Test(gpu_world, shares_change_no_bit_of_averages)
{
    training_skip_same_code();
    static const char line[] = "--model mlp --data @/pictures --optimizer sgd --momentum 0.9 --lr 0.05 "
                               "--global_batch 15 --epochs 1 --quiet "
                               "--device cuda --hash_steps --metrics @/metrics ";
    char shares[512];
    make_pictures();
    snprintf(shares, sizeof(shares), "%s --zero1 --check_every 1", line);
    char *plain = hashes_of(3, line);
    expect_equal(3, shares, plain);
    free(plain);
}

static struct summary after(int workers, const char *line)
{
    train(workers, line);
    return summary();
}

/* Save a checkpoint with --zero1 and resume without --zero1. Then save without --zero1 and resume with --zero1. The
 * number of workers changes, too. */
Test(gpu_world, a_checkpoint_goes_on_with_other_shares)
{
    training_skip_same_threads();
    make_pictures();
    char *whole = hashes_of(1, PICTURES WORLD "--precision bf16");
    train(4, PICTURES WORLD "--precision bf16 --zero1 --limit_steps 1 --checkpoint @/ckpt");
    expect_equal(2, PICTURES WORLD "--precision bf16 --limit_steps 1 --checkpoint @/ckpt --resume", whole);
    expect_equal(2, PICTURES WORLD "--precision bf16 --zero1 --checkpoint @/ckpt --resume", whole);
    char *all = step_hashes();
    cr_expect_str_eq(all, whole);
    free(all);
    free(whole);
}

Test(gpu_world, the_cpu_goes_on_where_shares_were_saved)
{
    training_skip_same_code();
    make_pictures();
    struct summary whole = after(2, PICTURES WORLD "--zero1");
    train(2, PICTURES WORLD "--zero1 --limit_steps 2 --checkpoint @/ckpt");
    struct summary here = after(1, PICTURES WORLD "--zero1 --checkpoint @/ckpt --resume --device cpu");
    cr_expect_float_eq(here.loss, whole.loss, 1e-4 * whole.loss, "%g, %g", here.loss, whole.loss);
    train(1, PICTURES WORLD "--limit_steps 2 --checkpoint @/cpu --device cpu");
    here = after(4, PICTURES WORLD "--zero1 --checkpoint @/cpu --resume");
    cr_expect_float_eq(here.loss, whole.loss, 1e-4 * whole.loss, "%g, %g", here.loss, whole.loss);
}
