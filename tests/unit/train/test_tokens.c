/* Tests of files of tokens in the format of llm.c. A complete file is read. Any other file is rejected with an error
 * that has the name of the file, the offset and the value. */
#include "base/buf.h"
#include "run.h"
#include "train/dataset.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ddp_err err;
static uint8_t file[TOKENS_HEADER + 2 * 100];

TestSuite(tokens, .init = test_dir_open, .fini = test_dir_close);

static void put_bytes(const char *name, size_t len)
{
    FILE *f = fopen(test_path(name), "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(file, 1, len, f), len);
    fclose(f);
}

/* Write a file of `n` tokens: `first`, `first` + 1 ... */
static void put(const char *name, int first, int n)
{
    tokens_make_header(file, (uint32_t)n);
    for (int i = 0; i < n; i++)
        write_le(file + TOKENS_HEADER + 2 * i, (uint16_t)(first + i), 2);
    put_bytes(name, TOKENS_HEADER + 2 * (size_t)n);
}

static struct dataset_request request(size_t length, size_t vocabulary)
{
    return (struct dataset_request){ .input = MODEL_TOKENS, .length = length, .vocabulary = vocabulary };
}

static void load(struct dataset *set, const char *where, enum dataset_part part, size_t length)
{
    const struct dataset_request w = request(length, 65536);
    cr_assert_eq(dataset_load(set, where, part, &w, &err), DDP_OK, "%s", err.msg);
}

static void expect_refused(const char *says)
{
    struct dataset set;
    const struct dataset_request w = request(8, 65536);
    cr_expect_neq(dataset_load(&set, test_dir, DATASET_TRAIN, &w, &err), DDP_OK, "%s", says);
    cr_expect(strstr(err.msg, says), "'%s' lacks '%s'", err.msg, says);
    cr_expect(strstr(err.msg, test_dir), "'%s' lacks the path", err.msg);
}

static void expect_sample(const struct dataset *set, size_t index, int first)
{
    int32_t token[8], target[8];
    cr_assert_eq(dataset_read(set, index, NULL, token, target, &err), DDP_OK, "%s", err.msg);
    for (int i = 0; i < (int)set->length; i++)
        cr_expect(token[i] == first + i && target[i] == first + i + 1, "sample %zu: %d, %d", index, token[i],
                  target[i]);
}

/* Two samples of 8 tokens need 17 tokens, because the second sample also needs the token that follows. Of 20 tokens, 3
 * are left over. */
Test(tokens, samples_follow_each_other_and_do_not_reach_into_the_next_file)
{
    struct dataset set;
    put("b_train_2.bin", 5000, 17);
    put("a_train_1.bin", 0, 20);
    put("b_train_3.bin", 60000, 9);
    put("b_val_0.bin", 300, 17);
    load(&set, test_dir, DATASET_TRAIN, 8);
    cr_expect(set.n == 5 && set.length == 8 && set.classes == 65536 && dataset_row_bytes(&set) == 32);
    const int first[] = { 0, 8, 5000, 5008, 60000 };
    for (size_t i = 0; i < 5; i++)
        expect_sample(&set, i, first[i]);
    dataset_free(&set);
    load(&set, test_dir, DATASET_TEST, 8);
    cr_expect_eq(set.n, 2);
    expect_sample(&set, 1, 308);
    dataset_free(&set);
}

Test(tokens, a_pattern_chooses_among_the_files)
{
    struct dataset set;
    put("one_train.bin", 0, 9);
    put("two_train.bin", 100, 9);
    put("two_val.bin", 200, 9);
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/two_*", test_dir);
    load(&set, pattern, DATASET_TRAIN, 8);
    cr_expect_eq(set.n, 1);
    expect_sample(&set, 0, 100);
    dataset_free(&set);
}

/* As a pattern, the name "a[1]" would match only the other directory, "a1". */
Test(tokens, a_directory_with_brackets_in_its_name_is_no_pattern)
{
    struct dataset set;
    cr_assert_eq(mkdir(test_path("a[1]"), 0700), 0);
    cr_assert_eq(mkdir(test_path("a1"), 0700), 0);
    put("a[1]/train.bin", 0, 9);
    put("a1/train.bin", 100, 9);
    load(&set, test_path("a[1]"), DATASET_TRAIN, 8);
    cr_expect_eq(set.n, 1);
    expect_sample(&set, 0, 0);
    dataset_free(&set);
}

/* The sample is longer than one read. */
Test(tokens, a_long_sample_comes_whole)
{
    enum { LONG = 5000 };
    static uint8_t large[TOKENS_HEADER + 2 * (LONG + 1)];
    static int32_t token[LONG], target[LONG];
    struct dataset set;
    tokens_make_header(large, LONG + 1);
    for (int i = 0; i <= LONG; i++)
        write_le(large + TOKENS_HEADER + 2 * i, (uint16_t)(i * 7), 2);
    FILE *f = fopen(test_path("train.bin"), "wb");
    cr_assert_eq(fwrite(large, 1, sizeof(large), f), sizeof(large));
    fclose(f);
    load(&set, test_dir, DATASET_TRAIN, LONG);
    cr_assert_eq(dataset_read(&set, 0, NULL, token, target, &err), DDP_OK);
    for (int i = 0; i < LONG; i++)
        cr_assert(token[i] == (uint16_t)(i * 7) && target[i] == (uint16_t)(i * 7 + 7), "%d", i);
    dataset_free(&set);
}

Test(tokens, cut_at_every_byte_it_is_refused_where_it_ends)
{
    put("train.bin", 0, 20);
    const size_t len = TOKENS_HEADER + 40;
    for (size_t cut = 0; cut < len; cut += cut >= 16 && cut < 1000 ? 50 : 1) {
        char says[64];
        put_bytes("train.bin", cut);
        snprintf(says, sizeof(says), "offset %zu: the file ends", cut);
        expect_refused(says);
    }
    put_bytes("train.bin", len + 1);
    expect_refused("offset 1064: according to the header, the data ends here, but the file is longer");
}

static void change(size_t at, const char *hex4)
{
    unsigned b[4];
    put("train.bin", 0, 20);
    sscanf(hex4, "%2x%2x%2x%2x", &b[0], &b[1], &b[2], &b[3]);
    for (int i = 0; i < 4; i++)
        file[at + (size_t)i] = (uint8_t)b[i];
    put_bytes("train.bin", TOKENS_HEADER + 40);
}

Test(tokens, numbers_of_the_header_that_are_wrong_are_named)
{
    change(0, "3c68746d");
    expect_refused("offset 0: magic number 0x6d74683c: expected 0x0134d888");
    change(0, "a1d93401");
    expect_refused("offset 0: magic number 20240801 (32-bit tokens");
    change(4, "07000000");
    expect_refused("offset 4: version 7: expected 1");
    change(8, "00000000");
    expect_refused("offset 8: 0 tokens: expected at least 1");
    change(8, "ffffffff");
    expect_refused("offset 8: -1 tokens: expected at least 1");
    change(8, "ffffff7f");
    expect_refused("offset 1064: the file ends here, but its header requires 4294968318 bytes");
    put("train.bin", 0, 8);
    expect_refused("offset 8: 8 tokens are too few for a sample, which needs 8 + 1 tokens");
}

/* A wrong token is detected when the token is read, and not when the files are opened. The error names the file that
 * has the token. */
Test(tokens, a_token_outside_the_vocabulary_is_refused_at_its_offset)
{
    struct dataset set;
    int32_t token[8], target[8];
    const struct dataset_request w = request(8, 512);
    put("a_train.bin", 0, 17);
    put("b_train.bin", 500, 17);
    cr_assert_eq(dataset_load(&set, test_dir, DATASET_TRAIN, &w, &err), DDP_OK, "%s", err.msg);
    cr_expect_eq(dataset_read(&set, 2, NULL, token, target, &err), DDP_OK);
    cr_expect_eq(dataset_read(&set, 3, NULL, token, target, &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg, "/b_train.bin: offset 1048: token 512: expected a number from 0 to 511"), "%s",
              err.msg);
    dataset_free(&set);
}

Test(tokens, a_file_that_becomes_shorter_is_noticed)
{
    struct dataset set;
    int32_t token[8], target[8];
    put("train.bin", 0, 17);
    load(&set, test_dir, DATASET_TRAIN, 8);
    cr_assert_eq(truncate(test_path("train.bin"), TOKENS_HEADER + 20), 0);
    cr_expect_eq(dataset_read(&set, 0, NULL, token, target, &err), DDP_OK);
    cr_expect_eq(dataset_read(&set, 1, NULL, token, target, &err), DDP_ERR_CORRUPT);
    cr_expect(strstr(err.msg,
                     "train.bin: offset 1044: the file ends here, because another process has shortened "
                     "it; copy this file again, or choose another file"),
              "%s", err.msg);
    dataset_free(&set);
}

/* Load a set that cannot be loaded. Expect that the error begins with `path`, and has the reason `error`. */
static void expect_reason(const char *where, enum model_input input, const char *path, int error)
{
    struct dataset set;
    struct dataset_request w = request(8, 65536);
    w.input = input;
    cr_expect_eq(dataset_load(&set, where, DATASET_TRAIN, &w, &err), DDP_ERR_IO, "%s", where);
    cr_expect(strncmp(err.msg, path, strlen(path)) == 0 && strstr(err.msg, strerror(error)) != NULL, "%s: %s",
              where, err.msg);
}

/* glob returns the same result for an unreadable directory and for an empty directory. */
Test(tokens, a_directory_that_cannot_be_read_is_the_reason)
{
    const uid_t uid = geteuid();
    char in[300], locked[256];
    snprintf(locked, sizeof(locked), "%s", test_path("locked"));
    put("train.bin", 0, 17);
    expect_reason(test_path("none/*.bin"), MODEL_TOKENS, test_path("none: "), ENOENT);
    expect_reason(test_path("train.bin/*.bin"), MODEL_TOKENS, test_path("train.bin: "), ENOTDIR);
    cr_assert_eq(mkdir(locked, 0), 0);
    cr_assert_eq(chmod(test_dir, 0755), 0);
    if (uid == 0 && seteuid(65534) != 0)
        cr_skip_test("skipped, because this user may read every directory");
    snprintf(in, sizeof(in), "%s: ", locked);
    expect_reason(locked, MODEL_TOKENS, in, EACCES);
    snprintf(in, sizeof(in), "%s/*.bin", locked);
    expect_reason(in, MODEL_TOKENS, locked, EACCES);
    expect_reason(locked, MODEL_PICTURES, locked, EACCES);
    cr_assert_eq(seteuid(uid), 0);
}

Test(tokens, what_is_no_file_is_refused)
{
    struct dataset set;
    const struct dataset_request w = request(8, 65536);
    cr_expect_eq(dataset_load(&set, test_path("none"), DATASET_TRAIN, &w, &err), DDP_ERR_IO);
    cr_expect(strstr(err.msg, "/none: ") && strstr(err.msg, strerror(ENOENT)), "%s", err.msg);
    expect_refused("no file of tokens has \"train\" in its name");
    cr_assert_eq(mkfifo(test_path("train.bin"), 0600), 0);
    expect_refused("train.bin: not a plain file");
    unlink(test_path("train.bin"));
    cr_assert_eq(mkdir(test_path("train.bin"), 0700), 0);
    expect_refused("train.bin: not a plain file");
}
