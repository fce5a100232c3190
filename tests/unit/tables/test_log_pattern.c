/* test_log_pattern.c -- names of log files. A pattern comes from the user, so it must not lead out of the directory,
 * or give two workers one file. */
#include "tables/text.h"

#include <criterion/criterion.h>

static const struct log_names names = { .host = "n7",
                                        .time = "20240229T235959Z",
                                        .job = "gpt",
                                        .stream = "stderr",
                                        .rank = 11,
                                        .local_rank = 3,
                                        .node_rank = 1,
                                        .attempt = 0 };

static void expect_name(const char *pattern, int attempt, const char *expected)
{
    struct log_names n = names;
    struct buf out = { 0 };
    n.attempt = attempt;
    cr_assert(log_pattern_name(pattern, &n, &out));
    cr_assert(buf_append(&out, "", 1));
    cr_expect_str_eq((const char *)out.data, expected);
    buf_free(&out);
}

Test(log_pattern, every_token_has_its_value)
{
    expect_name("logs/%j/%h-%r-%l-%n-%t-%a.%s", 0, "logs/gpt/n7-11-3-1-20240229T235959Z-0.stderr");
    expect_name("100%%", 0, "100%");
    expect_name("plain", 0, "plain");
    expect_name("%%r%r", 0, "%r11");
}

Test(log_pattern, attempts_never_share_a_name)
{
    expect_name("%r.log", 2, "11.log.attempt_2");
    expect_name("%a/%r.log", 2, "2/11.log");
    expect_name("%%a.log", 1, "%a.log.attempt_1");
    expect_name("%%%a.log", 1, "%1.log");
}

Test(log_pattern, what_is_no_file_name_is_refused)
{
    static const char *const wrong[] = { "", "dir/", "%", "a%", "%q", "%R", "%%%" };
    char big[LOG_PATTERN_MAX + 2];
    struct ddp_err err;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect_eq(log_pattern_check(wrong[i], &err), DDP_ERR_ARG, "'%s'", wrong[i]);
    memset(big, 'x', sizeof(big));
    big[LOG_PATTERN_MAX + 1] = '\0';
    cr_expect_eq(log_pattern_check(big, &err), DDP_ERR_ARG);
    big[LOG_PATTERN_MAX] = '\0';
    cr_expect_eq(log_pattern_check(big, &err), DDP_OK);
    cr_expect_eq(log_pattern_check("%h%r%l%n%t%j%a%s%%", &err), DDP_OK);
}
