/* test_ddprun_terminal.c -- what stands on a terminal (a pseudo-terminal here): prefixes and colours, whole
 * lines, nothing that would harm it, and folded lines. */
#include "job.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the end, which says why: Criterion hangs where it is told megabytes. */
#define EXPECT_CODE(r, code)                                                                        \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, output:\n%s", (r).exit_code, (r).signal, \
                 (r).out + (strlen((r).out) > 4000 ? strlen((r).out) - 4000 : 0))

TestSuite(ddprun_terminal, .timeout = 120);

static const char *const xterm[] = { "TERM=xterm", NULL };

/* On a terminal, without our own sentences. */
static struct run_result shown(const char *const args[])
{
    const struct run_options options = { .terminal = true, .env = xterm, .timeout_ms = 60000 };
    return job_run(args, &options);
}

#define SHOWN(...) shown((const char *const[]){ "--quiet", __VA_ARGS__, NULL })

Test(ddprun_terminal, prefixes_have_the_colour_of_their_rank)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "say:hello", "err:oh");
    EXPECT_CODE(r, 0);
    cr_expect_eq(job_count(r.out, "\033[36m[0]\033[0m hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m oh"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_terminal, a_worker_can_neither_harm_it_nor_forge_our_lines)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "only:1", "say:\033[2J\033]0;title\007\233x",
                                "say:text\rddprun: rank 0 failed", "say:\033[31mred");
    EXPECT_CODE(r, 0);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m \\x1b[2J\\x1b]0;title\\x07\\x9bx"), 1, "%s", r.out);
    cr_expect_not_null(strstr(r.out, "\033[32m[1]\033[0m ddprun: rank 0 failed\n"), "%s", r.out);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m \033[31mred\033[0m"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_terminal, files_keep_the_bytes_that_are_not_shown)
{
    char option[300];
    char *dir = job_dir();
    snprintf(option, sizeof(option), "--log_dir=%s", dir);
    struct run_result r =
        SHOWN("--nproc_per_node=2", option, "--rdzv_id=j", WORKER, "say:\033[2J\007", "bar");
    EXPECT_CODE(r, 0);
    cr_expect_eq(job_count(r.out, "\033[36m[0]\033[0m \\x1b[2J\\x07"), 1, "%s", r.out);
    char command[400];
    snprintf(command, sizeof(command), "cat '%s'/j_*/attempt_0/0/stdout.log", dir);
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result file = run_command(argv, NULL);
    cr_expect_str_eq(file.out, "\033[2J\007\n  1%\r 50%\r100%\n");
    run_free(&file);
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_terminal, a_single_worker_without_prefix_has_it_for_itself)
{
    struct run_result r = SHOWN("--nproc_per_node=1", WORKER, "say:\033[2J", "part:prompt> ");
    EXPECT_CODE(r, 0);
    cr_expect_str_eq(r.out, "\033[2J\nprompt> ");
    run_free(&r);
}

Test(ddprun_terminal, one_without_cursor_gets_neither_colours_nor_escapes)
{
    const struct run_options options = { .terminal = true,
                                         .env = (const char *const[]){ "TERM=dumb", NULL } };
    const char *args[] = { "--quiet", "--nproc_per_node=2", WORKER, "only:0", "say:\033c", NULL };
    struct run_result r = job_run(args, &options);
    EXPECT_CODE(r, 0);
    cr_expect_str_eq(r.out, "[0] \\x1bc\n");
    run_free(&r);
}

/* 32,000 lines in three pieces each, prefixed and coloured, on a terminal. */
static void expect_whole(const char *workers, const char *lines)
{
    struct run_result r = SHOWN("--nproc_per_node", workers, bin("tests/prog/torn_writer"), lines);
    EXPECT_CODE(r, 0);
    struct lines_seen seen = lines_seen(r.out, true);
    cr_expect_eq(seen.torn, 0, "%d lines are torn or out of order", seen.torn);
    cr_expect_eq(seen.whole, 32000, "only %d lines", seen.whole);
    run_free(&r);
}

Test(ddprun_terminal, no_line_of_16_workers_is_torn)
{
    expect_whole("16", "2000");
}

Test(ddprun_terminal, no_line_of_64_workers_is_torn)
{
    expect_whole("64", "500");
}

Test(ddprun_terminal, no_line_of_256_workers_is_torn)
{
    expect_whole("256", "125");
}

Test(ddprun_terminal, a_line_of_4_mib_and_one_without_newline_stay_whole)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "long:4194304", "part:last");
    EXPECT_CODE(r, 0);
    const char *line = strstr(r.out, "\033[32m[1]\033[0m zzz");
    cr_assert_not_null(line);
    cr_expect_geq(strcspn(line, "\n"), 4194304);
    cr_expect_eq(job_count(r.out, "\033[36m[0]\033[0m last"), 1);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m last"), 1);
    run_free(&r);
}

Test(ddprun_terminal, what_nobody_else_prints_is_not_lost_by_folding)
{
    struct run_result r =
        SHOWN("--nproc_per_node=3", "--fold", WORKER, "only:2", "say:mine", "bar", "say:\033[2J");
    EXPECT_CODE(r, 0);
    cr_expect_not_null(strstr(r.out, "\033[33m[2]\033[0m mine\n"), "%s", r.out);
    cr_expect_not_null(strstr(r.out, "\033[33m[2]\033[0m 100%\n\033[33m[2]\033[0m \\x1b[2J\n"), "%s", r.out);
    run_free(&r);
}
