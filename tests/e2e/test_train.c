/* The programs train and make-data as a user runs them: alone and under ddprun. */
#include "run.h"
#include "training.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PARAMS = 199210 }; /* of the mlp */

TestSuite(train, .init = training_open, .fini = training_close, .timeout = 240);
TestSuite(make_data, .init = training_open, .fini = training_close, .timeout = 120);

/* --- learning -------------------------------------------------------------------------------------------- */

Test(train, one_worker_learns_the_set_in_two_epochs)
{
    make_data("data", "6000", NULL);
    struct run_result r = run_line(1, "--data @/data --epochs 2 --summary @/summary.json");
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(strstr(r.out, "epoch 1/2: loss ") && strstr(r.out, "epoch 2/2: loss ") &&
                  strstr(r.out, "of 1000"),
              "%s", r.out);
    cr_expect_str_empty(r.err);
    run_free(&r);
    struct summary s = summary();
    cr_expect(s.world_size == 1 && s.epochs == 2 && s.steps == 120 && s.samples_per_s > 0);
    cr_expect_geq(s.accuracy, 0.95);
    cr_expect_eq(strlen(s.hash), 16);
}

Test(train, four_workers_learn_the_set_in_two_epochs)
{
    make_data("data", "6000", NULL);
    train(4, "--data @/data --epochs 2 --summary @/summary.json");
    struct summary s = summary();
    cr_expect(s.world_size == 4 && s.steps == 30);
    cr_expect_geq(s.accuracy, 0.95);
}

Test(train, the_tutorials_own_model_learns_it_too)
{
    make_data("data", "20000", NULL);
    train(1, "--data @/data --model seqnet --epochs 2 --summary @/summary.json");
    cr_expect_geq(summary().accuracy, 0.95);
}

/* --- the number of workers makes no difference ------------------------------------------------------------ */

/* ||a - b|| / ||a|| of one step. */
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
    size_t len, other_len;
    make_data("data", "1010", NULL); /* the last batch of an epoch is small and odd */
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

/* Loss of each step from the metrics; returns how many. */
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

/* The losses that PyTorch 1.13 computes from the same seed and data: tests/e2e/torch_losses.py prints them.
 * Shuffle, first parameters, gradients and Adam must all agree. From the fourth step on Adam has made
 * differences out of rounding; the eleventh batch is a short one. */
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

/* This machine plays two hosts of two workers, and three. */
Test(train, the_parameters_are_the_same_on_several_hosts_as_on_one)
{
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
    char first[32];
    make_data("data", "1000", NULL);
    train(2, "--data @/data --epochs 1 --summary @/summary.json");
    strcpy(first, summary().hash);
    train(2, "--data @/data --epochs 1 --summary @/summary.json");
    cr_expect_str_eq(summary().hash, first);
    train(2, "--data @/data --epochs 1 --seed 1 --summary @/summary.json");
    cr_expect_str_neq(summary().hash, first);
}

/* --- files ------------------------------------------------------------------------------------------------ */

/* A rename onto a device would put a plain file in its place, for the whole machine. (So all names here are links
 * of our own: should this ever fail, only they are lost.) */
Test(train, a_summary_goes_into_a_pipe_or_behind_a_link_and_replaces_neither)
{
    struct stat after;
    make_data("data", "500", NULL);
    cr_assert_eq(symlink("/proc/self/fd/1", in_dir("stdout")), 0);
    cr_assert_eq(symlink("/dev/full", in_dir("full")), 0);
    struct run_result r = run_line(1, "--data @/data --epochs 1 --quiet --summary @/stdout");
    cr_expect_not_null(strstr(r.out, "param_hash"), "%s", r.out);
    run_free(&r);
    train_fails(1, "--data @/data --epochs 1 --summary @/full", 1, "/full: write: No space left");
    cr_assert_eq(mkfifo(in_dir("fifo"), 0600), 0);
    int fd = open(in_dir("fifo"), O_RDONLY | O_NONBLOCK);
    train(1, "--data @/data --epochs 1 --summary @/fifo");
    close(fd);
    cr_expect(lstat(in_dir("fifo"), &after) == 0 && S_ISFIFO(after.st_mode), "the pipe was replaced");
    cr_assert_eq(symlink("target", in_dir("link")), 0);
    FILE *f = fopen(in_dir("target"), "w");
    fclose(f);
    train(1, "--data @/data --epochs 1 --summary @/link");
    cr_expect(lstat(in_dir("link"), &after) == 0 && S_ISLNK(after.st_mode), "the link was replaced");
    cr_expect(stat(in_dir("target"), &after) == 0 && after.st_size > 0, "the link was not followed");
}

/* --- what a step was -------------------------------------------------------------------------------------- */

/* The n-th line of a file of JSON lines; delete it. */
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

/* --- what is refused -------------------------------------------------------------------------------------- */

Test(train, wrong_words_are_a_usage_error)
{
    train_fails(1, "--epoch 3", 2, "train: there is no option '--epoch'");
    make_data("data", "500", NULL);
    train_fails(3, "--data @/data --global_batch 100", 2,
                "--global_batch 100 cannot be shared evenly by 3 workers");
}

Test(train, missing_cut_and_foreign_data_are_refused_by_name)
{
    train_fails(1, "--data @/none", 1, "make-data --out");
    make_data("data", "500", NULL);
    cr_assert_eq(truncate(in_dir("data/t10k-images-idx3-ubyte"), 5000), 0);
    train_fails(2, "--data @/data", 1, "/data/t10k-images-idx3-ubyte: offset 5000: the file ends here");
    make_data("data", "500", NULL);
    change_file("data/train-labels-idx1-ubyte", 77, 10);
    train_fails(1, "--data @/data", 1, "/data/train-labels-idx1-ubyte: offset 77: label 10");
    change_file("data/train-labels-idx1-ubyte", 0, 'P');
    train_fails(1, "--data @/data", 1, "/data/train-labels-idx1-ubyte: offset 0: magic 0x50000801");
}

/* Only rank 0 opens the file, so only rank 0 fails; the others must be freed and must not take the blame. */
Test(train, when_one_rank_fails_all_end_and_it_is_named)
{
    make_data("data", "500", NULL);
    struct run_result r = run_line(3, "--data @/data --metrics @/none/metrics.jsonl");
    cr_expect_not(r.timed_out);
    cr_expect_eq(r.exit_code, 1);
    cr_expect(strstr(r.err, "ddprun: rank 0 ") && strstr(r.err, "failed first: exit 1"), "%s", r.err);
    cr_expect(strstr(r.err, "none/metrics.jsonl: open: No such file"), "%s", r.err);
    run_free(&r);
}

/* The words of `line` for all of three workers, those of `more` for rank 1 alone. */
static void expect_difference_told(const char *line, const char *more, const char *says)
{
    static char script[1024];
    static const char *const prefix[] = { "sh", "-c", script, NULL };
    snprintf(script, sizeof(script), "test $RANK = 1 && set -- \"$@\" %s; exec \"$0\" \"$@\"", more);
    training_prefix = prefix;
    train_fails(3, line, 2, says);
    training_prefix = &prefix[3];
}

/* Nothing else would tell: these go through the same collectives. */
Test(train, workers_that_were_told_different_things_are_told_what)
{
    make_data("data", "500", NULL);
    make_data("other", "499", NULL);
    const char *line = "--data @/data --limit_steps 2 --batch 20";
    expect_difference_told(line, "--model seqnet",
                           "--model differs: on rank 0 it is mlp, on rank 1 it is seqnet");
    expect_difference_told(line, "--batch 10", "--batch differs: on rank 0 it is 20, on rank 1 it is 10");
    char other[512];
    snprintf(other, sizeof(other), "--data %s", in_dir("other"));
    expect_difference_told(line, other, "--data differs: rank 0 has 500 samples for training");
    train(3, "--data @/data --limit_steps 2 --batch 20 --quiet");
}

/* Better before the first epoch than after the last. */
Test(train, what_is_written_at_the_end_is_looked_at_in_the_beginning)
{
    make_data("data", "500", NULL);
    struct run_result r = run_line(1, "--data @/data --epochs 1 --summary @/none/summary.json");
    cr_expect_eq(r.exit_code, 1);
    cr_expect(strstr(r.err, "--summary: ") && strstr(r.err, "/none: cannot write there: No such file"), "%s",
              r.err);
    cr_expect_str_empty(r.out);
    run_free(&r);
}

Test(train, a_learning_rate_that_explodes_is_reported)
{
    make_data("data", "500", NULL);
    train_fails(1, "--data @/data --lr 1e30", 2, "the loss is");
}

/* --- make-data -------------------------------------------------------------------------------------------- */

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
    char plain[32];
    make_data("a", "500", NULL);
    make_data("b", "500", "--gzip");
    cr_expect_eq(access(in_dir("b/train-images-idx3-ubyte.gz"), R_OK), 0);
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
    cr_expect(r.exit_code == 2 && strstr(r.err, "make-data: --out DIR is needed"), "%s", r.err);
    run_free(&r);
    r = run_command(file, NULL);
    cr_expect(r.exit_code == 1 && strstr(r.err, "make-data: /proc/no: "), "%s", r.err);
    run_free(&r);
}
