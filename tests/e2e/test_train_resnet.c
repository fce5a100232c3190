/* `train` with resnet20 on coloured digits: the same whatever the number of workers. Few and small batches, as a picture takes
 * milliseconds. */
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 2, ROOM = 8 };

static char dir[] = "/tmp/ddp-e2e-resnet-XXXXXX";

/* Words between spaces; '@' stands for the test's directory. */
static void run_words(const char *line)
{
    char text[1024];
    const char *argv[48] = { NULL };
    char *save = NULL;
    size_t used = 0;
    int argc = 0;
    for (const char *c = line; *c != '\0'; c++)
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s", *c == '@' ? dir : (char[]){ *c, '\0' });
    for (char *word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s: exit %d\n%s%s", line, r.exit_code, r.out, r.err);
    run_free(&r);
}

static void make_dir(void)
{
    char line[512];
    cr_assert_not_null(mkdtemp(dir));
    snprintf(line, sizeof(line), "%s --format cifar10 --samples 22 --test_samples 20 --out @/data",
             bin("make-data"));
    run_words(line);
}

static void remove_dir(void)
{
    run_words("rm -r @");
}

TestSuite(train_resnet, .init = make_dir, .fini = remove_dir, .timeout = 240);

/* Of all tests: few samples, and a batch for 1, 2 and 3 workers. */
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
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
}

/* Yours: cJSON_Delete. */
static cJSON *summary(void)
{
    char text[8192];
    read_text("summary", text, sizeof(text));
    return cJSON_Parse(text);
}

/* The summary is yours: cJSON_Delete. */
static cJSON *train(int workers, const char *options, double loss[ROOM])
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
    cr_assert_eq(n, STEPS);
    return summary();
}

static const char *word(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
}

static double number(const cJSON *json, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItem(json, key));
}

/* Normalised over a shard, so bit by bit; running numbers are those of the first shard wherever it is computed, so the test has
 * the same result. Pictures are moved and mirrored by sample, whoever reads them. The second batch is a short one. */
Test(train_resnet, parameters_and_accuracy_are_the_same_for_1_and_2_workers_with_threads_and_without)
{
    double loss[2][ROOM];
    cJSON *one = train(1, "--augment", loss[0]), *two = train(2, "--augment --loader_threads 2", loss[1]);
    cr_expect_str_eq(word(one, "param_hash"), word(two, "param_hash"));
    cr_expect_eq(number(one, "test_accuracy"), number(two, "test_accuracy"));
    for (int i = 0; i < STEPS; i++)
        cr_expect_float_eq(loss[0][i], loss[1][i], 1e-6);
    cJSON *plain = train(1, "", loss[1]);
    cr_expect_str_neq(word(one, "param_hash"), word(plain, "param_hash"), "--augment changes nothing");
    cJSON_Delete(one);
    cJSON_Delete(two);
    cJSON_Delete(plain);
}

/* Normalised over the whole batch, up to rounding: 12 pictures as 12, 6 + 6, 4 + 4 + 4, then 10 as 10, 5 + 5, 4 + 3 + 3. */
Test(train_resnet, with_sync_bn_ranks_have_the_losses_of_one_large_batch)
{
    double one[ROOM], many[ROOM], alone[ROOM];
    cJSON_Delete(train(1, "--sync_bn --lr 0.001", one));
    for (int workers = 2; workers <= 3; workers++) {
        cJSON_Delete(train(workers, "--sync_bn --lr 0.001", many));
        for (int i = 0; i < STEPS; i++)
            cr_expect_float_eq(many[i], one[i], 1e-4, "step %d, %d workers: %.7g, one has %.7g", i, workers,
                               many[i], one[i]);
    }
    cJSON_Delete(train(3, "--lr 0.001", alone));
    cr_expect_gt(fabs(alone[0] - one[0]), 1e-3, "it makes no difference: %g and %g", alone[0], one[0]);
}

/* Running numbers and momentum are in the checkpoint, and a sample is moved and mirrored as it would have been. */
Test(train_resnet, stopped_in_the_middle_of_an_epoch_it_goes_on_to_the_same_end)
{
    double loss[ROOM];
    cJSON *whole = train(1, "--augment", loss);
    start(1, "--augment --checkpoint @/saved --limit_steps 1");
    start(2, "--augment --checkpoint @/saved --resume");
    cJSON *resumed = summary();
    cr_expect_str_eq(word(whole, "param_hash"), word(resumed, "param_hash"));
    cr_expect_eq(number(whole, "test_accuracy"), number(resumed, "test_accuracy"));
    cr_expect_float_eq(number(whole, "test_loss"), number(resumed, "test_loss"), 1e-6);
    cJSON_Delete(whole);
    cJSON_Delete(resumed);
}
