/* Tests of make-data: `train` must be able to read every format that make-data writes. A golden file has the help,
 * errors and output of make-data. */
#include "run.h"
#include "train/dataset.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct ddp_err err;

TestSuite(make_formats, .init = test_dir_open, .fini = test_dir_close, .timeout = 120);

/* Run make-data with the arguments in `line`, which are separated by spaces. '@' stands for the test's directory. */
static struct run_result make_data(const char *line)
{
    static char text[512];
    const char *argv[24] = { bin("make-data"), NULL };
    char *save = NULL;
    size_t used = 0;
    int argc = 1;
    for (const char *c = line; *c != '\0'; c++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s",
                                 *c == '@' ? test_dir : (char[]){ *c, '\0' });
    for (char *word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    return run_command(argv, NULL);
}

static void make(const char *line)
{
    struct run_result r = make_data(line);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
}

static void make_fails(const char *line, const char *says)
{
    struct run_result r = make_data(line);
    cr_expect_eq(r.exit_code, 2, "%s: %s", line, r.err);
    cr_expect(strstr(r.err, says), "'%s' lacks '%s'", r.err, says);
}

static bool are_equal(const char *a, const char *b)
{
    char command[512];
    snprintf(command, sizeof(command), "diff -rq %s/%s %s/%s >/dev/null", test_dir, a, test_dir, b);
    return system(command) == 0;
}

static void load(struct dataset *set, const char *name, enum dataset_part part, enum model_input input)
{
    char where[128];
    const struct dataset_request request = { .input = input, .length = 16, .vocabulary = 128 };
    snprintf(where, sizeof(where), "%s/%s", test_dir, name);
    cr_assert_eq(dataset_load(set, where, part, &request, &err), DDP_OK, "%s", err.msg);
}

Test(make_formats, equal_seeds_give_equal_files_and_others_do_not)
{
    make("--samples 20 --test_samples 5 --out @/a");
    make("--samples 20 --test_samples 5 --out @/b");
    make("--samples 20 --test_samples 5 --out @/c --seed 2");
    cr_expect(are_equal("a", "b"));
    cr_expect_not(are_equal("a", "c"));
    make("--format tokens --samples 5000 --files 3 --out @/d");
    make("--format tokens --samples 5000 --files 3 --out @/e");
    make("--format tokens --samples 5000 --files 3 --out @/f --seed 2");
    cr_expect(are_equal("d", "e"));
    cr_expect_not(are_equal("d", "f"));
}

Test(make_formats, digits_have_each_class_equally_often)
{
    static float pixels[PICTURE_PIXELS];
    struct dataset set;
    int32_t label, of[10] = { 0 };
    make("--samples 103 --test_samples 30 --out @/d --gzip");
    load(&set, "d", DATASET_TRAIN, MODEL_PICTURES);
    cr_expect_eq(set.n, 103);
    dataset_free(&set);
    load(&set, "d", DATASET_TEST, MODEL_PICTURES);
    cr_expect_eq(set.n, 30);
    for (size_t i = 0; i < 30; i++) {
        cr_assert_eq(dataset_read(&set, i, NULL, pixels, &label, &err), DDP_OK);
        of[label]++;
    }
    for (int i = 0; i < 10; i++)
        cr_expect_eq(of[i], 3);
    dataset_free(&set);
}

Test(make_formats, a_text_goes_on_from_file_to_file)
{
    struct dataset one, many;
    int32_t a[16], b[16], target[16];
    make("--format tokens --samples 3200 --test_samples 100 --out @/one");
    make("--format tokens --samples 3200 --test_samples 100 --files 4 --out @/many");
    load(&one, "one", DATASET_TRAIN, MODEL_TOKENS);
    load(&many, "many", DATASET_TRAIN, MODEL_TOKENS);
    cr_expect(one.n == 199 && many.n == 4 * 49, "%zu and %zu", one.n, many.n);
    for (size_t i = 0; i < 49; i++) {
        cr_assert_eq(dataset_read(&one, i + 50, NULL, a, target, &err), DDP_OK);
        cr_assert_eq(dataset_read(&many, i + 49, NULL, b, target, &err), DDP_OK, "%s", err.msg);
        cr_assert_eq(memcmp(a, b, sizeof(a)), 0);
        for (int k = 0; k < 16; k++)
            cr_assert(strchr("abcdefghijklmnopqrstuvwxyz. \n", a[k]) && a[k] != 0, "%d", a[k]);
    }
    dataset_free(&one);
    dataset_free(&many);
}

#define EARLIER_SET                                                                                        \
    ": this file is from an earlier set, but 'train' would read it with the new set; remove the files of " \
    "the earlier set\n"

Test(make_formats, what_cannot_be_made_is_refused)
{
    make_fails("--samples 5",
               "make-data: error: --out: missing; add --out DIR, the directory for the files\n");
    make_fails("--format mp3 --out @/a", "--format=mp3: expected 'idx' or 'tokens'\n");
    make_fails(
        "--format tokens --gzip --out @/a",
        "--gzip: files of tokens cannot be compressed, because train reads single samples from them; remove "
        "--gzip\n");
    make_fails("--format cifar10 --out @/a", "--format=cifar10: expected 'idx' or 'tokens'\n");
    make_fails("--samples 1000001 --out @/a",
               "--samples=1000001: expected at most 1000000 samples with --format idx\n");
    make_fails("--format tokens --samples 3 --files 4 --out @/a",
               "--files=4: expected at most 3, the number of tokens\n");
    make("--format tokens --samples 100 --files 2 --out @/b");
    make_fails("--format tokens --samples 100 --out @/b", "/b/text_train_000001.bin" EARLIER_SET);
    make_fails("--files 4 --out @/c",
               "--files=4: only tokens can be divided into files; remove --files or use --format tokens\n");
    make("--samples 100 --out @/d");
    make_fails("--samples 200 --gzip --out @/d", "/d/train-images-idx3-ubyte" EARLIER_SET);
    fclose(fopen(test_path("d/test_batch.bin"), "w"));
    make_fails("--samples 100 --out @/d",
               "/d: 'train' would read the files of CIFAR-10 in this directory instead of the new set; use "
               "another --out directory\n");
}

Test(make_formats, the_help_and_the_summary_are_worded_like_this)
{
    char summary[256];
    struct run_result r = make_data("--samples 20 --test_samples 5 --out @/a");
    snprintf(summary, sizeof(summary), "%s/a: 20 samples for training, 5 for the test (seed 1)\n", test_dir);
    cr_expect_str_eq(r.out, summary);
    r = make_data("--help");
    cr_expect_eq(r.exit_code, 0);
    cr_expect_str_eq(r.out,
                     "Usage: make-data --out DIR [options]\n"
                     "Create a synthetic data set for train.\n"
                     "\n"
                     "  --out DIR               directory for the files; created if it does not exist\n"
                     "  --format NAME           idx: digits of 28x28 pixels in Fashion-MNIST's format;\n"
                     "                          tokens: text of an invented language in llm.c's format\n"
                     "                          (default: idx)\n"
                     "  --samples N             number of samples for training (default: 30000\n"
                     "                          pictures or 1000000 tokens)\n"
                     "  --test_samples N        number of samples for the test (default: 2000 pictures\n"
                     "                          or 50000 tokens)\n"
                     "  --files N               number of training files (only with --format tokens)\n"
                     "                          (default: 1)\n"
                     "  --seed S                seed of the random numbers; equal seeds give equal\n"
                     "                          files (default: 1)\n"
                     "  --gzip                  write compressed files, .gz (only with --format idx)\n"
                     "  -h, --help              print this list\n"
                     "  --version               print the version\n");
}

/* A thread that reads ahead detects the damage. The step that needs the token reports the damage. */
Test(make_formats, a_damaged_token_ends_the_run_and_is_named)
{
    char path[256], data[128];
    make("--format tokens --samples 2000 --test_samples 200 --out @/d");
    snprintf(data, sizeof(data), "%s/d", test_dir);
    snprintf(path, sizeof(path), "%s/text_train_000000.bin", data);
    FILE *f = fopen(path, "r+b");
    cr_assert_not_null(f);
    fseek(f, TOKENS_HEADER + 2 * 700, SEEK_SET);
    cr_assert_eq(fwrite("\xff\xff", 1, 2, f), 2);
    fclose(f);
    const char *argv[] = { bin("train"), "--model",  "gpt2:tiny", "--data",   data, "--batch",
                           "4",          "--epochs", "1",         "--length", "32", "--loader_threads",
                           "2",          NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 1, "%s", r.err);
    cr_expect(strstr(r.err, "train: error: rank 0: loader: sample 21: /"), "%s", r.err);
    cr_expect(strstr(r.err, "/text_train_000000.bin: offset 2424: token 65535: "), "%s", r.err);
}

Test(make_formats, what_cannot_be_varied_is_refused)
{
    char data[128];
    make("--samples 100 --test_samples 100 --out @/d");
    snprintf(data, sizeof(data), "%s/d", test_dir);
    const char *argv[] = { bin("train"), "--data", data, "--augment", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 2, "%s", r.err);
    cr_expect(strstr(r.err, "--augment: needs CIFAR-10"), "%s", r.err);
}

/* Tests of the loader in a plain program, which `make tsan` runs under ThreadSanitizer. */

TestSuite(loader_threads, .timeout = 120);

Test(loader_threads, make_what_one_would_have_made)
{
    const char *argv[] = { bin("tests/prog/loader_threads"), NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_str_eq(r.out, "same\n");
}
