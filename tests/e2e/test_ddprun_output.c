/* test_ddprun_output.c -- what the workers print arrives, whole and in the right place. */
#include "job.h"
#include "run.h"
#include "tables/rank_set.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(ddprun_output, .timeout = 120);

Test(ddprun_output, lines_of_several_workers_carry_their_rank)
{
    struct run_result r = JOB("--nproc_per_node=3", WORKER, "say:hello");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[2] hello"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_output, a_single_worker_has_no_prefix_unless_asked_for)
{
    struct run_result r = JOB("--nproc_per_node=1", WORKER, "say:hello", "err:oh");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "hello\n");
    cr_expect_str_eq(r.err, "oh\n");
    run_free(&r);
    r = JOB("--nproc_per_node=1", "--prefix", WORKER, "say:hello", "err:oh");
    cr_expect_str_eq(r.out, "[0] hello\n");
    cr_expect_str_eq(r.err, "[0] oh\n");
    run_free(&r);
}

Test(ddprun_output, no_prefix_can_be_asked_for)
{
    struct run_result r = JOB("--nproc_per_node=2", "--no-prefix", WORKER, "say:hello");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "hello\nhello\n");
    run_free(&r);
}

Test(ddprun_output, stdout_and_stderr_stay_apart)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "say:out", "err:err");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] out"), 1, "%s", r.out);
    cr_expect_null(strstr(r.out, "err"));
    cr_expect_eq(job_count(r.err, "[1] err"), 1, "%s", r.err);
    cr_expect_null(strstr(r.err, "out"));
    run_free(&r);
}

Test(ddprun_output, a_last_line_without_newline_is_kept)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "part:almost");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] almost"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] almost"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_output, a_single_worker_is_passed_through_byte_by_byte)
{
    struct run_result r = JOB("--nproc_per_node=1", WORKER, "bar", "part:prompt> ");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "  1%\r 50%\r100%\nprompt> ");
    run_free(&r);
}

Test(ddprun_output, a_progress_bar_ends_as_one_line)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "bar");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] 100%"), 1, "%s", r.out);
    cr_expect_null(strchr(r.out, '\r'));
    run_free(&r);
}

Test(ddprun_output, a_bar_that_goes_on_is_shown_meanwhile)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, "only:0", "part:42%\r", "forever", "all", "forever");
    cr_expect(run_until_output(p, "[0] 42%\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, 15);
    struct run_result r = run_wait(p);
    run_free(&r);
}

Test(ddprun_output, the_words_before_a_crash_arrive)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "spam:5000", "part:last words",
                              "raise:9", "all", "forever");
    EXPECT(r, 137);
    cr_expect_eq(job_count(r.out, "[1] line 4999"), 1);
    cr_expect_eq(job_count(r.out, "[1] last words"), 1);
    run_free(&r);
}

/* Every line of 16 x 2,000, written in three pieces each, comes out whole. On terminals: test_ddprun_terminal.c. */
Test(ddprun_output, no_line_is_torn)
{
    struct run_result r = JOB("--nproc_per_node=16", bin("tests/prog/torn_writer"), "2000");
    EXPECT(r, 0);
    struct lines_seen seen = lines_seen(r.out, false);
    cr_expect_eq(seen.torn, 0, "%d lines are torn or out of order", seen.torn);
    cr_expect_eq(seen.whole, 32000, "only %d lines", seen.whole);
    run_free(&r);
}

/* Somebody who does not read holds the workers up, loses nothing, and the launcher stays small. */
Test(ddprun_output, a_slow_reader_gets_everything)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "spam:400000", "say:end");
    usleep(300000);
    cr_expect(run_until_output(p, "[0] end\n", PATIENCE_MS));
    cr_expect(run_until_output(p, "[1] end\n", PATIENCE_MS));
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] line 399999"), 1);
    cr_expect_eq(job_count(r.out, "[1] line 399999"), 1);
    run_free(&r);
}

Test(ddprun_output, a_line_of_4_mib_is_one_line)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "long:4194304", "say:after");
    EXPECT(r, 0);
    const char *line = strstr(r.out, "[1] zzz");
    cr_assert_not_null(line);
    cr_expect_geq(strcspn(line, "\n"), 4194304);
    cr_expect_eq(job_count(r.out, "[1] after"), 1);
    run_free(&r);
}

/* `ddprun yes | head`: the workers get SIGPIPE as if they had written there themselves. */
Test(ddprun_output, when_nobody_reads_any_more_the_workers_are_told)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --quiet --nproc_per_node=2 yes | head -n 2",
             bin("ddprun"));
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_not(r.timed_out);
    run_free(&r);
}

/* ddprun whose stdout nobody reads. Its rank 0 leaves its pid in `dir`. */
static struct run_process *start_with_no_reader(const char *dir)
{
    char command[1024];
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    snprintf(
        command, sizeof(command),
        "exec '%s' --standalone --verbose --nproc_per_node=2 sh -c '[ $RANK = 1 ] || { echo $$ >%s/new; mv "
        "%s/new %s/pid; }; " AT_GATE "' >/dev/fd/%d",
        bin("ddprun"), dir, dir, dir, ends[1]);
    fcntl(ends[1], F_SETFD, 0);
    struct run_process *p = run_start((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    close(ends[0]);
    close(ends[1]);
    return p;
}

/* The end of rank 0's stdout with which it writes, which then lives on outside the job. */
static int hold_stdout(const char *dir)
{
    char path[64];
    char *pid = NULL;
    for (struct patience p = { 0 }; (pid = job_file(dir, "pid")) == NULL && patience_left(&p);)
        continue;
    cr_assert_not_null(pid);
    snprintf(path, sizeof(path), "/proc/%d/fd/1", atoi(pid));
    free(pid);
    return open(path, O_WRONLY | O_CLOEXEC);
}

/* That its reader has gone shows when the last pipe is all that is waited for: to close it is the end of all. */
Test(ddprun_output, a_reader_whose_absence_shows_last_does_no_harm)
{
    char *dir = job_dir();
    signal(SIGPIPE, SIG_IGN);
    gate_shut();
    struct run_process *p = start_with_no_reader(dir);
    const int held = hold_stdout(dir);
    gate_open();
    cr_expect(
        run_until_error(p, " is done (1 of 1)", PATIENCE_MS)); /* the rest of the output is waited for */
    const ssize_t ignored = write(held, "late\n", 5);
    (void)ignored;
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    run_free(&r);
    close(held);
    job_dir_remove(dir);
    gate_gone();
}

Test(ddprun_output, rank_0_reads_stdin_the_others_nothing)
{
    const struct run_options options = { .stdin_text = "typed" };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", WORKER, "stdin", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] typed"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] "), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_output, a_prefix_tells_what_its_template_asks_for)
{
    struct run_result r =
        JOB("--nproc_per_node=2", "--rdzv_id=j", "--timestamps",
            "--log-line-prefix-template=${job}:${local_rank} $stream $attempt| ", WORKER, "say:hi");
    EXPECT(r, 0);
    const char *line = strstr(r.out, " j:1 stdout 0| hi\n");
    int year, month, day, hour, minute, second, us, used = 0;
    cr_assert_not_null(line, "%s", r.out);
    cr_assert_geq(line - r.out, 27);
    sscanf(line - 27, "%4d-%2d-%2dT%2d:%2d:%2d.%6dZ%n", &year, &month, &day, &hour, &minute, &second, &us,
           &used);
    cr_expect_eq(used, 27, "%s", r.out);
    run_free(&r);
}

Test(ddprun_output, ranks_that_are_filtered_out_are_not_shown)
{
    struct run_result r = JOB("--nproc_per_node=3", "--local-ranks-filter=0,2", WORKER, "say:seen", "err:oh");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] seen"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[2] seen"), 1, "%s", r.out);
    cr_expect_null(strstr(r.out, "[1]"), "%s", r.out);
    cr_expect_null(strstr(r.err, "[1]"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_output, ranks_that_are_filtered_out_are_in_the_report)
{
    struct run_result r = JOB("--nproc_per_node=2", "--local-ranks-filter=0", "--prefix", WORKER, "only:1",
                              "err:hidden cause", "exit:3");
    EXPECT(r, 3);
    cr_expect_eq(job_count(r.err, "[1] hidden cause"), 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "hidden cause"), "%s", r.err);
    run_free(&r);
}

/* How many workers have the line, which may stand there several times when the machine is slow. */
static int ranks_of(const char *out, const char *text)
{
    int n = 0;
    for (const char *at = out; (at = strstr(at, text)) != NULL; at++) {
        struct rank_set ranks = { 0 };
        char set[64] = "";
        const char *line = at;
        while (line > out && line[-1] != '\n')
            line--;
        sscanf(line, "[%63[0-9,-]] ", set);
        cr_assert_eq(rank_set_parse(&ranks, set, 64, NULL), DDP_OK, "%s", line);
        for (int rank = 0; rank < 64; rank++)
            n += rank_set_has(&ranks, rank);
        rank_set_free(&ranks);
    }
    return n;
}

Test(ddprun_output, lines_of_many_are_folded_and_none_is_lost)
{
    struct run_result r =
        JOB("--nproc_per_node=16", "--fold", WORKER, "say:warning", "err:careful", "only:7", "say:mine");
    EXPECT(r, 0);
    cr_expect_eq(ranks_of(r.out, "warning"), 16, "%s", r.out);
    cr_expect_eq(ranks_of(r.err, "careful"), 16, "%s", r.err);
    cr_expect_eq(job_count(r.out, "[7] mine"), 1, "%s", r.out);
    run_free(&r);
}

Test(ddprun_output, pieces_of_a_daemon_that_lives_on_outside_do_not_hold_up_the_end)
{
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0.2", WORKER, "daemon", "say:done");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] done"), 1, "%s", r.out);
    run_free(&r);
}

/* A single worker's bytes pass as they are, but the line to search for is a line. */
Test(ddprun_output, what_ddprun_says_does_not_begin_within_a_workers_line)
{
    struct run_result r =
        JOB("--max_restarts=1", "--restart_backoff=10ms", "sh", "-c", "printf half >&2; exit 3");
    cr_expect_eq(r.exit_code, 3);
    cr_expect_eq(strncmp(r.err, "half\nddprun: attempt 0 failed", 28), 0, "%s", r.err);
    cr_expect_not_null(strstr(r.err, "\nhalf\nddprun: rank 0 on "), "%s", r.err);
    run_free(&r);
    r = JOB("sh", "-c", "printf half >&2");
    cr_expect_eq(r.exit_code, 0);
    cr_expect_str_eq(r.err, "half");
    run_free(&r);
}
