/* Tests of the programs train and make-data as a user runs them: alone and under ddprun. The losses are compared
 * with PyTorch's and between world sizes, because a wrong gradient may still reduce the loss. */
#include "core/flush_subnormals.h"
#include "core/comm_thread.h"
#include "run.h"
#include "training.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARAMS = 199210 }; /* number of parameters of the mlp */

TestSuite(train, .init = test_dir_open, .fini = test_dir_close, .timeout = 240);
TestSuite(make_data, .init = test_dir_open, .fini = test_dir_close, .timeout = 120);

Test(train, one_worker_learns_the_set_in_two_epochs)
{
    training_skip_same_code();
    make_data("data", "6000", NULL);
    struct run_result r = run_line(1, "--data @/data --epochs 2 --summary @/summary.json");
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.out, "epoch 1/2: loss ") && strstr(r.out, "epoch 2/2: loss ") &&
                  strstr(r.out, "of 1000"),
              "%s", r.out);
    cr_expect_str_empty(r.err);
    struct summary s = summary();
    cr_expect(s.world_size == 1 && s.epochs == 2 && s.steps == 120 && s.samples_per_s > 0);
    cr_expect_geq(s.accuracy, 0.95);
    cr_expect_eq(strlen(s.hash), 16);
}

Test(train, four_workers_learn_the_set_in_two_epochs)
{
    training_skip_same_code();
    make_data("data", "6000", NULL);
    train(4, "--data @/data --epochs 2 --summary @/summary.json");
    struct summary s = summary();
    cr_expect(s.world_size == 4 && s.steps == 30);
    cr_expect_geq(s.accuracy, 0.95);
}

Test(train, the_tutorials_own_model_learns_it_too)
{
    training_skip_same_code();
    make_data("data", "20000", NULL);
    train(1, "--data @/data --model seqnet --epochs 2 --summary @/summary.json");
    cr_expect_geq(summary().accuracy, 0.95);
}

/* Return the norm of a - b, divided by the norm of a, for one step. */
static double relative_distance(const float *a, const float *b)
{
    double distance = 0, norm = 0;
    for (int i = 0; i < PARAMS; i++) {
        distance += pow((double)a[i] - b[i], 2);
        norm += pow(a[i], 2);
    }
    return sqrt(distance / norm);
}

Test(train, every_steps_gradient_is_the_same_for_1_2_and_4_workers)
{
    enum { STEPS = 12 };
    training_skip_same_threads();
    size_t len, other_len;
    make_data("data", "1010", NULL); /* the last batch of an epoch has 10 samples: not a multiple of 4 */
    train(1, "--data @/data --global_batch 100 --limit_steps 12 --dump_gradients @/g");
    float *one = (float *)read_file("g", &len);
    cr_assert_eq(len, sizeof(float) * STEPS * PARAMS);
    for (int workers = 2; workers <= 4; workers *= 2) {
        train(workers, "--data @/data --global_batch 100 --limit_steps 12 --dump_gradients @/g");
        float *many = (float *)read_file("g", &other_len);
        cr_assert_eq(len, other_len);
        for (int step = 0; step < STEPS; step++)
            cr_expect_leq(relative_distance(one + step * PARAMS, many + step * PARAMS), 1e-6,
                          "step %d, %d workers", step, workers);
        free(many);
    }
    free(one);
}

/* Read the loss of each step from the metrics; return the number of steps. */
static int loss_curve(double *loss, int room)
{
    size_t len;
    char *save = NULL, *text = read_file("metrics.jsonl", &len);
    int n = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        cr_assert_not_null(json, "%s", line);
        if (cJSON_HasObjectItem(json, "loss") && n < room)
            loss[n++] = json_number(json, "loss");
        cJSON_Delete(json);
    }
    free(text);
    return n;
}

/* tests/e2e/torch_losses.py prints the losses that PyTorch 1.13 computes from the same seed and data. The losses are
 * equal only if the order of the samples, the first parameters, the gradients and Adam all agree. From the fourth step
 * on the tolerance is larger, because Adam turns rounding errors into differences. The eleventh batch is shorter than
 * the other batches. */
Test(train, the_first_losses_are_pytorchs)
{
    enum { STEPS = 11 };
    const struct {
        const char *line;
        double torch[STEPS];
    } runs[] = {
        { "--data @/data --limit_steps 11 --model mlp --metrics @/metrics.jsonl",
          { 2.318658, 2.232375, 2.017029, 1.672929, 1.267806, 0.6230829, 0.5663365, 0.2653101, 0.2679987,
            0.1334851, 0.09236009 } },
        { "--data @/data --limit_steps 11 --model seqnet --metrics @/metrics.jsonl",
          { 5.693961, 8.146438, 10.18588, 18.33118, 15.49835, 14.0951, 18.03526, 13.45493, 18.11824, 20.07457,
            18.10356 } },
    };
    make_data("data", "1050", NULL);
    for (int i = 0; i < 2; i++) {
        double loss[STEPS];
        train(1, runs[i].line);
        cr_assert_eq(loss_curve(loss, STEPS), STEPS);
        for (int step = 0; step < STEPS; step++)
            cr_expect_float_eq(loss[step], runs[i].torch[step],
                               runs[i].torch[step] * (step < 3 ? 1e-5 : 2e-2),
                               "step %d: %.7g, PyTorch has %.7g", step, loss[step], runs[i].torch[step]);
    }
}

Test(train, loss_curve_and_parameters_are_the_same_for_1_2_and_4_workers)
{
    training_skip_same_threads(); /* test killed_and_resumed_it_ends_where_it_would_have_ended has the same threads */
    double one[40], many[40];
    make_data("data", "2000", NULL);
    train(1,
          "--data @/data --global_batch 100 --epochs 2 --metrics @/metrics.jsonl --summary @/summary.json");
    struct summary first = summary();
    cr_assert_eq(loss_curve(one, 40), 40);
    for (int workers = 2; workers <= 4; workers *= 2) {
        train(
            workers,
            "--data @/data --global_batch 100 --epochs 2 --metrics @/metrics.jsonl --summary @/summary.json");
        cr_assert_eq(loss_curve(many, 40), 40);
        for (int step = 0; step < 40; step++)
            cr_expect_float_eq(one[step], many[step], 1e-4, "step %d, %d workers", step, workers);
        cr_expect_str_eq(summary().hash, first.hash, "%d workers", workers);
    }
}

/* This machine acts as two hosts with two workers each, and as three hosts. */
Test(train, the_parameters_are_the_same_on_several_hosts_as_on_one)
{
    training_skip_same_code();
    static const char line[] = "--data @/data --global_batch 100 --epochs 2 --summary @/summary.json";
    static const char *const layouts[] = { "$((RANK / 2))", "$((RANK % 2))", "$((RANK / 2 * RANK))" };
    char one[32], script[128];

    make_data("data", "2000", NULL);
    train(4, line);
    strcpy(one, summary().hash);
    for (int i = 0; i < 3; i++) {
        snprintf(script, sizeof(script), "DDP_TEST_HOST=h%s exec \"$0\" \"$@\"", layouts[i]);
        training_prefix = (const char *const[]){ "sh", "-c", script, NULL };
        train(4, line);
        cr_expect_str_eq(summary().hash, one, "%s", layouts[i]);
        cr_expect_eq(summary().world_size, 4);
    }
}

Test(train, a_repeated_run_gives_the_same_parameters_and_another_seed_does_not)
{
    training_skip_same_threads();
    char first[32];
    make_data("data", "1000", NULL);
    train(2, "--data @/data --epochs 1 --summary @/summary.json");
    strcpy(first, summary().hash);
    train(2, "--data @/data --epochs 1 --summary @/summary.json");
    cr_expect_str_eq(summary().hash, first);
    train(2, "--data @/data --epochs 1 --seed 1 --summary @/summary.json");
    cr_expect_str_neq(summary().hash, first);
}

/* An epoch has five steps, so --limit_steps ends the run after the first epoch. --eval_every alone would request the
 * first test only after the fifth epoch. */
Test(train, a_run_that_is_limited_is_tested_at_its_end)
{
    training_skip_same_threads();
    size_t len;
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 10 --eval_every 5 --limit_steps 5 --summary @/summary.json");
    char *text = read_file("summary.json", &len);
    cJSON *json = cJSON_Parse(text);
    cr_expect_eq(json_number(json, "test_samples"), 1000);
    cJSON_Delete(json);
    free(text);
}

/* A rename onto a device would replace the device by a plain file, for the whole machine. So all names here are links
 * in the test's directory. */
Test(train, a_summary_goes_into_a_pipe_or_behind_a_link_and_replaces_neither)
{
    training_skip_same_threads();
    struct stat after;
    make_data("data", "500", NULL);
    cr_assert_eq(symlink("/proc/self/fd/1", test_path("stdout")), 0);
    cr_assert_eq(symlink("/dev/full", test_path("full")), 0);
    struct run_result r = run_line(1, "--data @/data --epochs 1 --quiet --summary @/stdout");
    cr_expect_not_null(strstr(r.out, "param_hash"), "%s", r.out);
    train_fails(1, "--data @/data --epochs 1 --summary @/full", 1, "/full: cannot write: No space left");
    cr_assert_eq(mkfifo(test_path("fifo"), 0600), 0);
    int fd = open(test_path("fifo"), O_RDONLY | O_NONBLOCK);
    train(1, "--data @/data --epochs 1 --summary @/fifo");
    close(fd);
    cr_expect(lstat(test_path("fifo"), &after) == 0 && S_ISFIFO(after.st_mode), "the pipe was replaced");
    cr_assert_eq(symlink("target", test_path("link")), 0);
    FILE *f = fopen(test_path("target"), "w");
    fclose(f);
    train(1, "--data @/data --epochs 1 --summary @/link");
    cr_expect(lstat(test_path("link"), &after) == 0 && S_ISLNK(after.st_mode), "the link was replaced");
    cr_expect(stat(test_path("target"), &after) == 0 && after.st_size > 0, "the link was not followed");
}

/* Return the n-th line of a file of JSON lines. The caller frees the line (cJSON_Delete). */
static cJSON *json_line(const char *name, int n)
{
    size_t len;
    char *save = NULL, *text = read_file(name, &len), *line = strtok_r(text, "\n", &save);
    while (n-- > 1 && line != NULL)
        line = strtok_r(NULL, "\n", &save);
    cr_assert_not_null(line);
    cJSON *json = cJSON_Parse(line);
    cr_assert_not_null(json, "%s", line);
    free(text);
    return json;
}

Test(train, metrics_tell_rate_norm_and_where_the_time_went)
{
    training_skip_same_threads();
    static const char *const phases[] = { "data", "fwd", "bwd", "exposed", "opt" };
    make_data("data", "500", NULL);
    train(2, "--data @/data --batch 50 --epochs 2 --warmup 4 --schedule linear --lr 0.004 --peak_tflops 1 "
             "--metrics @/m");
    cJSON *second = json_line("m", 2), *last = json_line("m", 11);
    cr_expect_float_eq(json_number(second, "lr"), 0.002, 1e-9);
    cr_expect_float_eq(json_number(last, "lr"), 0.004 / 6, 1e-9);
    cr_expect(json_number(second, "grad_norm") > 0 && json_number(second, "mfu") > 0 &&
              json_number(second, "samples_s") > 0);
    cr_expect_not(cJSON_HasObjectItem(second, "tokens_s") || cJSON_HasObjectItem(second, "param_hash"));
    for (int i = 0; i < 5; i++)
        cr_expect_geq(json_number(cJSON_GetObjectItem(second, "ms"), phases[i]), 0);
    cJSON_Delete(second);
    cJSON_Delete(last);
}

Test(train, a_profile_shows_every_phase_of_every_rank)
{
    size_t len;
    int seen[2] = { 0, 0 }, steps = 0;
    make_data("data", "500", NULL);
    train(2, "--data @/data --limit_steps 3 --quiet --profile @/trace.json");
    char *text = read_file("trace.json", &len);
    cJSON *json = cJSON_Parse(text), *piece;
    cr_assert_not_null(json, "%s", text);
    cJSON_ArrayForEach(piece, json)
    {
        const cJSON *name = cJSON_GetObjectItem(piece, "name");
        if (name == NULL || strcmp(name->valuestring, "backward") != 0)
            continue;
        seen[(int)json_number(piece, "pid") % 2]++;
        steps = (int)json_number(cJSON_GetObjectItem(piece, "args"), "step");
    }
    cr_expect(seen[0] == seen[1] && seen[0] >= 3 && steps == 3, "%d %d %d", seen[0], seen[1], steps);
    cJSON_Delete(json);
    free(text);
}

Test(train, wrong_words_are_a_usage_error)
{
    train_fails(1, "--epoch 3", 2, "--epoch: ");
    make_data("data", "500", NULL);
    train_fails(3, "--data @/data --global_batch 100", 2, "--global_batch 100: ");
}

Test(train, missing_cut_and_foreign_data_are_refused_by_name)
{
    training_skip_same_threads();
    train_fails(1, "--data @/none", 1, "/make-data --out");
    make_data("data", "500", NULL);
    cr_assert_eq(truncate(test_path("data/t10k-images-idx3-ubyte"), 5000), 0);
    train_fails(2, "--data @/data", 1, "/data/t10k-images-idx3-ubyte: offset 5000: ");
    make_data("data", "500", NULL);
    change_file("data/train-labels-idx1-ubyte", 77, 10);
    train_fails(1, "--data @/data", 1, "/data/train-labels-idx1-ubyte: offset 77: label 10");
    change_file("data/train-labels-idx1-ubyte", 0, 'P');
    train_fails(1, "--data @/data", 1, "/data/train-labels-idx1-ubyte: offset 0: magic number 0x50000801");
}

/* Only rank 0 opens the file, so only rank 0 fails. The other ranks must be released, and must not be reported as the
 * cause. */
Test(train, when_one_rank_fails_all_end_and_it_is_named)
{
    make_data("data", "500", NULL);
    struct run_result r = run_line(3, "--data @/data --metrics @/none/metrics.jsonl");
    cr_expect_not(r.timed_out);
    cr_expect_eq(r.exit_code, 1);
    cr_expect(strstr(r.err, "ddprun: rank 0 ") && strstr(r.err, "first: exit 1"), "%s", r.err);
    cr_expect(strstr(r.err, "none/metrics.jsonl: cannot open: No such file or directory"), "%s", r.err);
}

/* Run three workers with the words of `line`. Only rank 1 also gets the words of `more`. */
static void expect_difference_told(const char *line, const char *more, const char *says)
{
    static char script[1024];
    static const char *const prefix[] = { "sh", "-c", script, NULL };
    snprintf(script, sizeof(script), "test $RANK = 1 && set -- \"$@\" %s; exec \"$0\" \"$@\"", more);
    training_prefix = prefix;
    train_fails(3, line, 2, says);
    training_prefix = &prefix[3];
}

/* All ranks call the same collectives, so only the comparison of their options detects a difference. */
Test(train, workers_that_were_told_different_things_are_told_what)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    make_data("other", "499", NULL);
    const char *line = "--data @/data --limit_steps 2 --batch 20";
    expect_difference_told(line, "--model seqnet", "--model differs: |mlp |rank 0|seqnet |rank 1");
    expect_difference_told(line, "--batch 10", "--batch differs: |20 |rank 0|10 |rank 1");
    char other[512];
    snprintf(other, sizeof(other), "--data %s", test_path("other"));
    expect_difference_told(line, other, "--data differs: rank 0 has 500");
    train(3, "--data @/data --limit_steps 2 --batch 20 --quiet");
}

/* The path of --summary is checked before the first epoch, although the file is written after the last epoch. */
Test(train, what_is_written_at_the_end_is_looked_at_in_the_beginning)
{
    make_data("data", "500", NULL);
    struct run_result r = run_line(1, "--data @/data --epochs 1 --summary @/none/summary.json");
    cr_expect_eq(r.exit_code, 1);
    cr_expect(has_parts(r.err, "--summary |/none/summary.json: cannot open: No such file or directory"), "%s",
              r.err);
    cr_expect_str_empty(r.out);
    r = run_line(1, "--data @/data --epochs 1 --summary=");
    cr_expect_eq(r.exit_code, 2);
    cr_expect(strstr(r.err, "--summary=: "), "%s", r.err);
    cr_expect_str_empty(r.out);
}

Test(train, a_learning_rate_that_explodes_is_reported)
{
    make_data("data", "500", NULL);
    train_fails(1, "--data @/data --lr 1e30", 2, "loss is");
}

/* Run a program whose stdout is a full disk (/dev/full). */
static void expect_full(const char *program, const char *options)
{
    char script[512];
    snprintf(script, sizeof(script), "cd %s; exec %s %s >/dev/full", test_dir, bin(program), options);
    const char *argv[] = { "sh", "-c", script, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 1, "%s %s: %d", program, options, r.exit_code);
    cr_expect(strstr(r.err, "standard output: ") && strstr(r.err, "No space left on device"), "%s", r.err);
}

Test(train, a_full_stdout_is_an_error_with_its_reason)
{
    training_skip_same_threads();
    make_data("data", "500", NULL);
    train(1, "--data @/data --epochs 1 --checkpoint @/ckpt");
    expect_full("train", "--data data --device cpu --checkpoint ckpt --eval");
    expect_full("train", "--help");
    expect_full("train", "--version");
    expect_full("make-data", "--out small --samples 10");
    expect_full("make-data", "--help");
    expect_full("make-data", "--version");
}

static void expect_equal_files(const char *a, const char *b, bool equal)
{
    size_t len_a, len_b;
    char *bytes_a = read_file(a, &len_a), *bytes_b = read_file(b, &len_b);
    cr_expect_eq(len_a == len_b && memcmp(bytes_a, bytes_b, len_a) == 0, equal, "%s and %s", a, b);
    free(bytes_a);
    free(bytes_b);
}

Test(make_data, equal_seeds_give_equal_files_and_others_do_not)
{
    training_skip_same_threads();
    make_data("a", "300", NULL);
    make_data("b", "300", NULL);
    make_data("c", "300", "--seed=2");
    expect_equal_files("a/train-images-idx3-ubyte", "b/train-images-idx3-ubyte", true);
    expect_equal_files("a/train-labels-idx1-ubyte", "b/train-labels-idx1-ubyte", true);
    expect_equal_files("a/t10k-images-idx3-ubyte", "b/t10k-images-idx3-ubyte", true);
    expect_equal_files("a/t10k-labels-idx1-ubyte", "b/t10k-labels-idx1-ubyte", true);
    expect_equal_files("a/train-images-idx3-ubyte", "c/train-images-idx3-ubyte", false);
}

Test(make_data, packed_and_plain_files_train_the_same)
{
    training_skip_same_threads();
    char plain[32];
    make_data("a", "500", NULL);
    make_data("b", "500", "--gzip");
    cr_expect_eq(access(test_path("b/train-images-idx3-ubyte.gz"), R_OK), 0);
    train(1, "--data @/a --epochs 1 --quiet --summary @/summary.json");
    strcpy(plain, summary().hash);
    train(1, "--data @/b --epochs 1 --quiet --summary @/summary.json");
    cr_expect_str_eq(summary().hash, plain);
}

Test(make_data, without_a_place_to_write_it_says_so)
{
    const char *none[] = { bin("make-data"), NULL };
    const char *file[] = { bin("make-data"), "--out", "/proc/no", NULL };
    struct run_result r = run_command(none, NULL);
    cr_expect(r.exit_code == 2 && strstr(r.err, "make-data: error: --out: "), "%s", r.err);
    r = run_command(file, NULL);
    cr_expect(r.exit_code == 1 && strstr(r.err, "make-data: error: --out /proc/no: ") &&
                  strstr(r.err, "parent directory"),
              "%s", r.err);
}

/* Tests of gpt2:tiny: trained on tokens from make-data with any number of workers, or from an exported model (a file in
 * llm.c's format). */

TestSuite(train_gpt2, .init = test_dir_open, .fini = test_dir_close);

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
    training_skip_same_threads();
    make_tokens();
    train(1, RECIPE "--limit_steps 5");
    struct summary one = summary();
    cr_expect_leq(one.loss, log(256));
    for (int workers = 2; workers <= 4; workers *= 2) {
        train(workers, RECIPE "--limit_steps 5");
        cr_expect_str_eq(summary().hash, one.hash, "%d workers", workers);
    }
}

/* With a learning rate of 1e-30 no parameter changes, so the hash is the same as for the exported model. */
Test(train_gpt2, an_exported_model_is_begun_with_by_all_workers)
{
    make_tokens();
    train(1, RECIPE "--limit_steps 3 --export @/model.bin");
    struct summary exported = summary();
    train(2, RECIPE "--limit_steps 1 --lr 1e-30 --init_from @/model.bin");
    cr_expect_str_eq(summary().hash, exported.hash);
    change_file("model.bin", 16, 3);
    train_fails(2, RECIPE "--init_from @/model.bin", 1, "model.bin: offset 16: ");
}

/* Each option with a file reports a path that cannot be opened in the same form. */
Test(train_gpt2, every_option_with_a_file_reports_it_in_one_form)
{
    static const struct {
        const char *option, *path;
        int exit_code; /* 2 if a directory is found when the options are checked */
    } rows[] = { { "--summary", "/tokens", 2 }, { "--metrics", "/tokens", 1 },
                 { "--profile", "/tokens", 1 }, { "--dump_gradients", "/tokens", 1 },
                 { "--export", "/tokens", 2 },  { "--checkpoint", "/tokens/text_train_000000.bin", 1 },
                 { "--summary", "/none/x", 1 }, { "--metrics", "/none/x", 1 },
                 { "--profile", "/none/x", 1 }, { "--dump_gradients", "/none/x", 1 },
                 { "--export", "/none/x", 1 },  { "--init_from", "/none/x", 1 },
                 { "--data", "/none/x", 1 } };
    make_tokens();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char line[1024], says[1024];
        snprintf(line, sizeof(line), RECIPE "--limit_steps 1 %s @%s", rows[i].option, rows[i].path);
        snprintf(says, sizeof(says), "error: rank 0: %s %s%s: cannot open: |; ", rows[i].option, test_dir,
                 rows[i].path);
        train_fails(1, line, rows[i].exit_code, says);
    }
}

Test(train_gpt2, what_fits_not_is_refused_before_it_is_trained)
{
    make_tokens();
    train_fails(1, RECIPE "--export @/nowhere/model.bin", 1, "--export |/nowhere/model.bin: cannot open: ");
    train_fails(1, "--model mlp --export @/model.bin", 2, "--export: ");
    train_fails(1, RECIPE "--length 65", 2, "of 65 tokens: ");
}

/* With --determinism world the parameters are equal bit by bit after every step, for every number of workers and hosts,
 * also after a resume. */

/* Each epoch has three steps with 96, 96 and 8 samples. Without --accumulate, the last step has one sample in each of
 * the eight shards. */
#define RUN                                                                                          \
    "--data @/data --global_batch 96 --epochs 2 --determinism world --quiet --hash_steps --metrics " \
    "@/metrics "
enum { STEPS = 6 };

TestSuite(world, .init = test_dir_open, .fini = test_dir_close, .timeout = 240);

/* Commands that divide the ranks between two hosts. With `halves`, each host has one half of the ranks. With `turns`,
 * each host has every second rank. */
static const char *const halves[] = { "sh", "-c",
                                      "DDP_TEST_HOST=h$((RANK * 2 / WORLD_SIZE)) exec \"$0\" \"$@\"", NULL };
static const char *const turns[] = { "sh", "-c", "DDP_TEST_HOST=h$((RANK % 2)) exec \"$0\" \"$@\"", NULL };
static const char *const none[] = { NULL };

/* Run `line` with `workers` workers on `hosts`. Expect the same hashes of the parameters as in `expected`. */
static void expect_equal(int workers, const char *const *hosts, const char *line, const char *expected)
{
    training_prefix = hosts;
    train(workers, line);
    char *got = step_hashes();
    cr_expect(got[0] != '\0' && strncmp(got, expected, strlen(got)) == 0, "%d workers, %s:\n%s\n%s", workers,
              line, got, expected);
    free(got);
}

/* Return the hashes of the parameters after each step of a run with one worker. */
static char *alone(const char *line)
{
    train(1, line);
    char *one = step_hashes();
    cr_assert_eq(strlen(one), STEPS * (HASH + 1), "%s", one);
    return one;
}

Test(world, equal_after_every_step_for_1_2_4_and_8_workers)
{
    training_skip_same_code();
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    for (int workers = 2; workers <= 8; workers *= 2)
        expect_equal(workers, none, RUN, one);
    expect_equal(2, none, RUN "--zero1", one);
    free(one);
}

Test(world, equal_on_several_hosts)
{
    training_skip_same_threads();
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    expect_equal(2, halves, RUN, one);
    expect_equal(4, turns, RUN, one);
    expect_equal(8, halves, RUN, one);
    free(one);
}

/* Eight workers stop after the fourth step, in the middle of the second epoch. Two workers on two hosts continue, and
 * later one worker alone. All runs write to the same file of metrics. */
Test(world, who_goes_on_in_the_middle_of_an_epoch_gets_the_same)
{
    training_skip_same_threads();
    make_data("data", "200", NULL);
    char *one = alone(RUN);
    train(8, RUN "--limit_steps 4 --checkpoint @/ckpt");
    expect_equal(2, halves, RUN "--limit_steps 1 --checkpoint @/ckpt --resume", one);
    expect_equal(1, none, RUN "--checkpoint @/ckpt --resume", one);
    char *all = step_hashes();
    cr_expect_str_eq(all, one);
    free(all);
    free(one);
}

/* The two models have layers for normalization, attention and convolution. The images of resnet20 are augmented. */
Test(world, equal_for_every_kind_of_model)
{
    static const char gpt2[] =
        "--data @/tokens --model gpt2:tiny --global_batch 8 --limit_steps 3 --determinism world "
        "--quiet --hash_steps --metrics @/metrics";
    static const char resnet[] = "--data @/cifar --model resnet20 --augment --global_batch 8 --limit_steps 2 "
                                 "--determinism world --quiet --hash_steps --metrics @/metrics";
    training_skip_same_code();
    make_data("tokens", "5000", "--format=tokens --test_samples=200");
    make_cifar(test_path("cifar"), 16, 5);
    train(1, gpt2);
    char *one = step_hashes();
    cr_assert_eq(strlen(one), 3 * (HASH + 1), "%s", one);
    expect_equal(8, none, gpt2, one);
    free(one);
    train(1, resnet);
    one = step_hashes();
    cr_assert_eq(strlen(one), 2 * (HASH + 1), "%s", one);
    expect_equal(4, halves, resnet, one);
    free(one);
}

Test(world, equal_with_16_bits_shares_of_the_state_and_parts_of_a_batch)
{
    training_skip_same_threads();
    static const char line[] = RUN
        "--precision fp16 --optimizer adamw --clip 0.5 --accumulate 2 --schedule cosine --warmup 2 --lr 1e-3";
    char shared[512];
    make_data("data", "200", NULL);
    char *one = alone(line);
    snprintf(shared, sizeof(shared), "%s --zero1", line);
    expect_equal(4, none, line, one);
    expect_equal(8, halves, shared, one);
    free(one);
}

Test(world, what_cannot_be_equal_is_refused)
{
    make_data("data", "200", NULL);
    train_fails(3, "--data @/data --global_batch 96 --determinism world", 2, "1, 2, 4 or 8");
    train_fails(1, "--data @/data --global_batch 100 --determinism world", 2, "8 equal parts");
}

/* `train` with resnet20 on images of noise gives the same results for any number of workers. The batches are few and
 * small, because an image takes milliseconds. */

enum { RESNET_STEPS = 2, ROOM = 8 };

/* Run a command line. Spaces separate its words, and '@' is the test's directory. */
static void run_words(const char *line)
{
    char text[1024];
    const char *argv[48] = { NULL };
    char *save = NULL;
    size_t used = 0;
    int argc = 0;
    for (const char *c = line; *c != '\0'; c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
                                 *c == '@' ? test_dir : (char[]){ *c, '\0' });
    for (char *word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = 200000 });
    cr_assert_eq(r.exit_code, 0, "%s: exit %d\n%s%s", line, r.exit_code, r.out, r.err);
}

static void make_dir(void)
{
    char data[512];
    test_dir_open();
    snprintf(data, sizeof(data), "%s/data", test_dir);
    make_cifar(data, 22, 20);
}

TestSuite(train_resnet, .init = make_dir, .fini = test_dir_close, .timeout = 240);

/* Start a run with the options of all tests: few samples, and a batch that 1, 2 and 3 workers can share. */
static void start(int workers, const char *options)
{
    char line[1024], program[512];
    snprintf(program, sizeof(program), "%s", bin("train"));
    snprintf(
        line, sizeof(line),
        "%s --nproc_per_node=%d %s --model resnet20 --data @/data --optimizer sgd --momentum 0.9 --epochs 1 "
        "--global_batch 12 --metrics @/metrics --summary @/summary %s",
        bin("ddprun"), workers, program, options);
    run_words(line);
}

static void read_text(const char *name, char *text, size_t room)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", test_dir, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
}

/* Read the summary of the run. The caller frees the summary with cJSON_Delete. */
static cJSON *resnet_summary(void)
{
    char text[8192];
    read_text("summary", text, sizeof(text));
    return cJSON_Parse(text);
}

/* Train, and return the summary of the run. The caller frees the summary with cJSON_Delete. */
static cJSON *resnet_train(int workers, const char *options, double loss[ROOM])
{
    char text[8192], *save = NULL;
    int n = 0;
    start(workers, options);
    read_text("metrics", text, sizeof(text));
    for (char *row = strtok_r(text, "\n", &save); row != NULL; row = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(row), *value = cJSON_GetObjectItem(json, "loss");
        if (cJSON_GetObjectItem(json, "lr") != NULL && cJSON_IsNumber(value) && n < ROOM)
            loss[n++] = value->valuedouble;
        cJSON_Delete(json);
    }
    cr_assert_eq(n, RESNET_STEPS);
    return resnet_summary();
}

static const char *word(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
}

static double number(const cJSON *json, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(json, key));
}

/* Each shard is normalized separately, so the parameters are equal bit by bit. The running means and variances are
 * those of the first shard, so the accuracy on the test set is equal, too. The augmentation depends on the sample, not
 * on the worker. The second batch is short. */
Test(train_resnet, parameters_and_accuracy_are_the_same_for_1_and_2_workers_with_threads_and_without)
{
    training_skip_same_threads();
    double loss[2][ROOM];
    cJSON *one = resnet_train(1, "--augment", loss[0]),
          *two = resnet_train(2, "--augment --loader_threads 2", loss[1]);
    cr_expect_str_eq(word(one, "param_hash"), word(two, "param_hash"));
    cr_expect_eq(number(one, "test_accuracy"), number(two, "test_accuracy"));
    for (int i = 0; i < RESNET_STEPS; i++)
        cr_expect_float_eq(loss[0][i], loss[1][i], 1e-6);
    cJSON *plain = resnet_train(1, "", loss[1]);
    cr_expect_str_neq(word(one, "param_hash"), word(plain, "param_hash"), "--augment changes nothing");
    cJSON_Delete(one);
    cJSON_Delete(two);
    cJSON_Delete(plain);
}

/* Each value is normalized over the whole batch. So one, two and three ranks have the same losses, except for rounding.
 * Each of two ranks takes 6 images of a batch, and each of three ranks takes 4 images. Of the last batch, two ranks
 * take 5 + 5 images, and three ranks take 4 + 3 + 3. */
Test(train_resnet, with_sync_bn_ranks_have_the_losses_of_one_large_batch)
{
    training_skip_same_threads();
    double one[ROOM], many[ROOM], alone[ROOM];
    cJSON_Delete(resnet_train(1, "--sync_bn --lr 0.001", one));
    for (int workers = 2; workers <= 3; workers++) {
        cJSON_Delete(resnet_train(workers, "--sync_bn --lr 0.001", many));
        for (int i = 0; i < RESNET_STEPS; i++)
            cr_expect_float_eq(many[i], one[i], 1e-4, "step %d, %d workers: %.7g, one has %.7g", i, workers,
                               many[i], one[i]);
    }
    cJSON_Delete(resnet_train(3, "--lr 0.001", alone));
    cr_expect_gt(fabs(alone[0] - one[0]), 1e-3, "it makes no difference: %g and %g", alone[0], one[0]);
}

/* The checkpoint contains the running means and variances, and the momentum. After the resume, --augment changes each
 * sample in the same way as without the resume. */
Test(train_resnet, stopped_in_the_middle_of_an_epoch_it_goes_on_to_the_same_end)
{
    double loss[ROOM];
    training_skip_same_threads();
    cJSON *whole = resnet_train(1, "--augment", loss);
    start(1, "--augment --checkpoint @/saved --limit_steps 1");
    start(2, "--augment --checkpoint @/saved --resume");
    cJSON *resumed = resnet_summary();
    cr_expect_str_eq(word(whole, "param_hash"), word(resumed, "param_hash"));
    cr_expect_eq(number(whole, "test_accuracy"), number(resumed, "test_accuracy"));
    cr_expect_float_eq(number(whole, "test_loss"), number(resumed, "test_loss"), 1e-6);
    cJSON_Delete(whole);
    cJSON_Delete(resumed);
}

/* All threads of the process flush subnormals: the threads of train, of the loader, and the threads that OpenBLAS
 * starts before main. The test acts as a debugger: it stops each thread and reads its control word. */

TestSuite(train_subnormals, .init = test_dir_open, .fini = test_dir_close, .timeout = 240);

/* Read the control word of a thread, which then continues. Return false if the kernel refuses to trace the thread. */
static bool control_word(pid_t thread, uint64_t *word)
{
    int status;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return false;
    cr_assert_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    cr_assert_eq(waitpid(thread, &status, __WALL), thread);
#if defined(__x86_64__)
    struct user_fpregs_struct registers;
    struct iovec room = { &registers, sizeof(registers) };
#elif defined(__aarch64__)
    struct user_fpsimd_struct registers;
    struct iovec room = { &registers, sizeof(registers) };
#else
    char registers[4096];
    struct iovec room = { registers, sizeof(registers) };
#endif
    const long got = ptrace(PTRACE_GETREGSET, thread, (void *)NT_PRFPREG, &room);
    ptrace(PTRACE_DETACH, thread, NULL, NULL);
    cr_assert_eq(got, 0);
#if defined(__x86_64__)
    *word = registers.mxcsr;
#elif defined(__aarch64__)
    *word = registers.fpcr;
#else
    *word = 0;
#endif
    return true;
}

/* Return how many threads the process has. Set *keeping to the number of threads that keep subnormals, or to -1 if a
 * thread cannot be traced. */
static int check_threads(pid_t pid, int *keeping)
{
    char path[64];
    int threads = 0;
    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    *keeping = 0;
    for (struct dirent *entry; *keeping >= 0 && (entry = readdir(dir)) != NULL;) {
        uint64_t word;
        if (entry->d_name[0] == '.')
            continue;
        threads++;
        if (!control_word((pid_t)atoi(entry->d_name), &word))
            *keeping = -1;
        else
            *keeping += (word & FLUSH_SUBNORMALS_BITS) != FLUSH_SUBNORMALS_BITS;
    }
    closedir(dir);
    return threads;
}

/* Expect that all threads flush subnormals. With these options OpenBLAS has `blas` threads besides main, and the loader
 * has two threads. */
static void expect_all_flush(const char *blas_threads, const char *option, int blas)
{
    const char *argv[] = { bin("train"), "--data", test_path("data"),
                           "--epochs",   "100000", "--loader_threads",
                           "2",          option,   "2",
                           NULL };
    const char *env[] = { "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS", blas_threads, NULL };
    int keeping;
    bin_seek_no_leaks();
    if (FLUSH_SUBNORMALS_BITS == 0)
        cr_skip_test("skipped, because this processor cannot flush subnormals");
    make_data("data", "1000", NULL);
    struct run_process *process = run_start(argv, &(struct run_options){ .env = env });
    cr_assert_not_null(process);
    cr_expect(run_until_output(process, "epoch 1/", PATIENCE_MS));
    const int threads = check_threads(run_pid(process), &keeping);
    run_signal(process, SIGKILL);
    struct run_result r = run_wait(process);
    cr_expect_eq(r.signal, SIGKILL, "%s", r.err);
    if (keeping < 0)
        cr_skip_test("skipped, because this system lets no process trace its children");
    cr_expect_geq(threads, 3 + blas, "%d threads, expected main, 2 of the loader and %d of OpenBLAS", threads,
                  blas);
    cr_expect_eq(keeping, 0, "%d of %d threads keep subnormals", keeping, threads);
}

/* With --keep_last, train itself starts no thread. OpenBLAS starts its thread only if it may use two processors. */
Test(train_subnormals, threads_that_openblas_starts_before_main_flush_them)
{
    if (cores_allowed() < 2)
        cr_skip_test("skipped, because OpenBLAS starts no thread on one processor");
    expect_all_flush("OPENBLAS_NUM_THREADS=2", "--keep_last", 1);
}

Test(train_subnormals, threads_that_train_asks_for_flush_them)
{
    expect_all_flush("OPENBLAS_NUM_THREADS=1", "--threads", 1);
}
