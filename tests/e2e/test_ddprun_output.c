/* Tests that the workers' output arrives whole and in the right place. Several workers write at the same time in
 * pieces of a line, because only then could ddprun mix two lines. */
#include "job.h"
#include "procstat.h"
#include "run.h"
#include "record/rank_set.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

TestSuite(ddprun_output, .timeout = 120);

Test(ddprun_output, lines_of_several_workers_carry_their_rank)
{
    struct run_result r = JOB("--nproc_per_node=3", WORKER, "say:hello");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[2] hello"), 1, "%s", r.out);
}

Test(ddprun_output, a_single_worker_has_no_prefix_unless_asked_for)
{
    struct run_result r = JOB("--nproc_per_node=1", WORKER, "say:hello", "err:oh");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "hello\n");
    cr_expect_str_eq(r.err, "oh\n");
    r = JOB("--nproc_per_node=1", "--prefix", WORKER, "say:hello", "err:oh");
    cr_expect_str_eq(r.out, "[0] hello\n");
    cr_expect_str_eq(r.err, "[0] oh\n");
}

/* Start a job of `nnodes` nodes with one worker each, and return true if the worker's stdout is ddprun's stdout. */
static bool worker_has_own_stdout(int nnodes)
{
    struct run_process *nodes[2];
    char all[40], node[40], port[40], path[64], link[64] = "";
    snprintf(all, sizeof(all), "--nnodes=%d", nnodes);
    snprintf(port, sizeof(port), "--master_port=%d", free_port());
    for (int i = 0; i < nnodes; i++) {
        snprintf(node, sizeof(node), "--node_rank=%d", i);
        const char *argv[] = { bin("ddprun"),
                               all,
                               node,
                               port,
                               "--master_addr=127.0.0.1",
                               "--grace=1s",
                               "--no_python",
                               "sh",
                               "-c",
                               "echo \"$(readlink /proc/$$/fd/1) is stdout\"; exec sleep 1000",
                               NULL };
        nodes[i] = run_start(argv, NULL);
    }
    cr_assert(run_until_output(nodes[0], " is stdout", 60000));
    snprintf(path, sizeof(path), "/proc/%d/fd/1", (int)run_pid(nodes[0]));
    cr_assert(readlink(path, link, sizeof(link) - 1) > 0);
    const bool same = strncmp(run_output(nodes[0]), link, strlen(link)) == 0;
    for (int i = 0; i < nnodes; i++)
        run_signal(nodes[i], SIGTERM);
    for (int i = 0; i < nnodes; i++)
        (void)run_wait(nodes[i]);
    return same;
}

/* In a job of several nodes, ddprun also reads the output of a node's only worker. The search for hangs needs the lines
 * of this worker as signs of progress. */
Test(ddprun_output, stdout_of_a_single_worker_passes_through_ddprun_in_a_job_of_several_nodes)
{
    cr_expect(worker_has_own_stdout(1));
    cr_expect(!worker_has_own_stdout(2));
}

Test(ddprun_output, no_prefix_can_be_asked_for)
{
    struct run_result r = JOB("--nproc_per_node=2", "--no-prefix", WORKER, "say:hello");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "hello\nhello\n");
}

Test(ddprun_output, stdout_and_stderr_stay_apart)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "say:out", "err:err");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] out"), 1, "%s", r.out);
    cr_expect_null(strstr(r.out, "err"));
    cr_expect_eq(job_count(r.err, "[1] err"), 1, "%s", r.err);
    cr_expect_null(strstr(r.err, "out"));
}

Test(ddprun_output, a_last_line_without_newline_is_kept)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "part:almost");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] almost"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[1] almost"), 1, "%s", r.out);
}

Test(ddprun_output, a_single_worker_is_passed_through_byte_by_byte)
{
    struct run_result r = JOB("--nproc_per_node=1", WORKER, "bar", "part:prompt> ");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "  1%\r 50%\r100%\nprompt> ");
}

Test(ddprun_output, the_report_of_a_single_worker_claims_nothing_about_unread_output)
{
    struct run_result r = JOB("--nproc_per_node=1", WORKER, "say:hello", "exit:3");
    EXPECT(r, 3);
    cr_expect_str_eq(r.out, "hello\n");
    cr_expect_null(strstr(r.err, "wrote nothing\n"), "%s", r.err);
    r = JOB("--nproc_per_node=1", WORKER, "exit:3");
    cr_expect_null(strstr(r.err, "wrote nothing\n"), "%s", r.err);
    r = JOB("--nproc_per_node=2", WORKER, "exit:3");
    cr_expect_not_null(strstr(r.err, "wrote nothing\n"), "%s", r.err);
}

Test(ddprun_output, a_progress_bar_ends_as_one_line)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "bar");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] 100%"), 1, "%s", r.out);
    cr_expect_null(strchr(r.out, '\r'));
}

Test(ddprun_output, a_bar_that_goes_on_is_shown_meanwhile)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, "only:0", "part:42%\r", "forever", "all", "forever");
    cr_expect(run_until_output(p, "[0] 42%\n", PATIENCE_MS), "%s", run_output(p));
    run_signal(p, 15);
    run_wait(p);
}

Test(ddprun_output, the_words_before_a_crash_arrive)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "spam:5000", "part:last lines",
                              "raise:9", "all", "forever");
    EXPECT(r, 137);
    cr_expect_eq(job_count(r.out, "[1] line 4999"), 1);
    cr_expect_eq(job_count(r.out, "[1] last lines"), 1);
}

/* Each of 16 workers writes 2,000 lines, each line in three pieces. ddprun must print every line whole. A later test
 * prints the same lines on terminals. */
Test(ddprun_output, no_line_is_torn)
{
    struct run_result r = JOB("--nproc_per_node=16", bin("tests/prog/torn_writer"), "2000");
    EXPECT(r, 0);
    struct lines_seen seen = lines_seen(r.out, false);
    cr_expect_eq(seen.torn, 0, "%d lines are torn or out of order, first: %s", seen.torn, seen.first);
    cr_expect_eq(seen.whole, 32000, "only %d lines", seen.whole);
}

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
}

Test(ddprun_output, a_line_of_4_mib_is_one_line)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "long:4194304", "say:after");
    EXPECT(r, 0);
    const char *line = strstr(r.out, "[1] zzz");
    cr_assert_not_null(line);
    cr_expect_geq(strcspn(line, "\n"), 4194304);
    cr_expect_eq(job_count(r.out, "[1] after"), 1);
}

/* In `ddprun yes | head`, the workers get SIGPIPE when head exits, as if they had written to head's pipe directly. */
Test(ddprun_output, when_nobody_reads_any_more_the_workers_are_told)
{
    char command[1024];
    snprintf(command, sizeof(command), "'%s' --standalone --quiet --nproc_per_node=2 yes | head -n 2",
             bin("ddprun"));
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_not(r.timed_out);
}

/* Start ddprun with a pipe as its stdout, and close the reading end of this pipe. Rank 0 writes its pid to a file in
 * `dir`. */
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

/* Open the write end of rank 0's stdout in this process too, so that the pipe stays open when rank 0 has exited. */
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

/* No process reads ddprun's stdout, but ddprun detects this only when it writes the last output. ddprun then closes the
 * last open pipe from a worker, and must still exit with 0. */
Test(ddprun_output, a_reader_whose_absence_shows_last_does_no_harm)
{
    char *dir = job_dir();
    signal(SIGPIPE, SIG_IGN);
    gate_shut();
    struct run_process *p = start_with_no_reader(dir);
    const int held = hold_stdout(dir);
    gate_open();
    cr_expect(
        run_until_error(p, " done (1 of 1)", PATIENCE_MS)); /* ddprun waits for the rest of the output */
    const ssize_t ignored = write(held, "late\n", 5);
    (void)ignored;
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
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
}

Test(ddprun_output, ranks_that_are_filtered_out_are_not_shown)
{
    struct run_result r = JOB("--nproc_per_node=3", "--local-ranks-filter=0,2", WORKER, "say:seen", "err:oh");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[0] seen"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "[2] seen"), 1, "%s", r.out);
    cr_expect_null(strstr(r.out, "[1]"), "%s", r.out);
    SILENT(r, "[1]");
}

Test(ddprun_output, ranks_that_are_filtered_out_are_in_the_report)
{
    struct run_result r = JOB("--nproc_per_node=2", "--local-ranks-filter=0", "--prefix", WORKER, "only:1",
                              "err:hidden cause", "exit:3");
    EXPECT(r, 3);
    cr_expect_eq(job_count(r.err, "[1] hidden cause"), 0, "%s", r.err);
    SAYS(r, "hidden cause");
}

/* Return how many workers have printed the line. ddprun folds equal lines of several ranks into one line. On a slow
 * machine ddprun may need several such lines, so add the numbers of ranks of all these lines. */
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
}

Test(ddprun_output, pieces_of_a_daemon_that_lives_on_outside_do_not_hold_up_the_end)
{
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0.2", WORKER, "daemon", "say:done");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] done"), 1, "%s", r.out);
}

/* ddprun prints a newline before its own message if a worker's line is unfinished. Without a message, ddprun prints no
 * newline. */
Test(ddprun_output, what_ddprun_says_does_not_begin_within_a_workers_line)
{
    struct run_result r =
        JOB("--max_restarts=1", "--restart_backoff=10ms", "sh", "-c", "printf half >&2; exit 3");
    cr_expect_eq(r.exit_code, 3);
    cr_expect_eq(strncmp(r.err, "half\nddprun: attempt 0 failed", 28), 0, "%s", r.err);
    SAYS(r, "\nhalf\nddprun: rank 0 on ");
    r = JOB("sh", "-c", "printf half >&2");
    cr_expect_eq(r.exit_code, 0);
    cr_expect_str_eq(r.err, "half");
}

/* Tests of the output on a pseudo-terminal. */

/* If the expectation fails, print only the last 4,000 bytes of the output, because Criterion hangs on messages of
 * megabytes. */
#define EXPECT_CODE(r, code)                                                                        \
    cr_expect_eq((r).exit_code, code, "exit %d, signal %d, output:\n%s", (r).exit_code, (r).signal, \
                 (r).out + (strlen((r).out) > 4000 ? strlen((r).out) - 4000 : 0))

TestSuite(ddprun_terminal, .timeout = 120);

static const char *const xterm[] = { "TERM=xterm", NULL };

/* Run ddprun on a terminal. SHOWN adds the option --quiet. */
static struct run_result shown(const char *const args[])
{
    const struct run_options options = { .terminal = true, .env = xterm, .timeout_ms = 60000 };
    return job_run(args, &options);
}

/* stdout is a terminal on which a worker has drawn a progress bar, and stderr is a file. ddprun prints a message to the
 * file, so it must not erase the bar on the terminal. At the end of the job, ddprun must erase the bar. */
Test(ddprun_terminal, a_message_in_a_file_erases_no_bar, .init = test_dir_open, .fini = test_dir_close)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "exec '%s' --standalone --nproc_per_node=2 sh -c 'printf \"50%%%%\\r\"; exec sleep 1000' 2>%s",
             bin("ddprun"), test_path("err"));
    struct run_process *p = run_start((const char *const[]){ "sh", "-c", command, NULL },
                                      &(struct run_options){ .terminal = true, .env = xterm });
    cr_assert(run_until_output(p, "50%", PATIENCE_MS));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    char *text = job_file(test_dir, "err");
    EXPECT_CODE(r, 128 + SIGTERM);
    cr_assert(text != NULL && strstr(text, "ddprun: ") != NULL);
    cr_expect_null(strchr(text, '\033'), "%s", text);
    const char *bar = strrchr(r.out, '%');
    cr_expect_str_eq(bar + 1, "\r\033[K");
    free(text);
}

#define SHOWN(...) shown((const char *const[]){ "--quiet", __VA_ARGS__, NULL })

Test(ddprun_terminal, the_report_names_the_explanation_of_its_code_once)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "exit:7");
    EXPECT_CODE(r, 7);
    const char *at = strstr(r.out, "(ddprun explain WORKER_FAILED)");
    cr_expect(at != NULL && strstr(at + 1, "(ddprun explain") == NULL, "%s", r.out);
}

Test(ddprun_terminal, prefixes_have_the_colour_of_their_rank)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "say:hello", "err:oh");
    EXPECT_CODE(r, 0);
    cr_expect_eq(job_count(r.out, "\033[36m[0]\033[0m hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m hello"), 1, "%s", r.out);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m oh"), 1, "%s", r.out);
}

Test(ddprun_terminal, a_worker_can_neither_harm_it_nor_forge_our_lines)
{
    struct run_result r = SHOWN("--nproc_per_node=2", WORKER, "only:1", "say:\033[2J\033]0;title\007\233x",
                                "say:text\rddprun: rank 0 failed", "say:\033[31mred");
    EXPECT_CODE(r, 0);
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m \\x1b[2J\\x1b]0;title\\x07\\x9bx"), 1, "%s", r.out);
    PRINTS(r, "\033[32m[1]\033[0m ddprun: rank 0 failed\n");
    cr_expect_eq(job_count(r.out, "\033[32m[1]\033[0m \033[31mred\033[0m"), 1, "%s", r.out);
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
    job_dir_remove(dir);
}

Test(ddprun_terminal, a_single_worker_without_prefix_has_it_for_itself)
{
    struct run_result r = SHOWN("--nproc_per_node=1", WORKER, "say:\033[2J", "part:prompt> ");
    EXPECT_CODE(r, 0);
    cr_expect_str_eq(r.out, "\033[2J\nprompt> ");
}

Test(ddprun_terminal, one_without_cursor_gets_neither_colours_nor_escapes)
{
    const struct run_options options = { .terminal = true,
                                         .env = (const char *const[]){ "TERM=dumb", NULL } };
    const char *args[] = { "--quiet", "--nproc_per_node=2", WORKER, "only:0", "say:\033c", NULL };
    struct run_result r = job_run(args, &options);
    EXPECT_CODE(r, 0);
    cr_expect_str_eq(r.out, "[0] \\x1bc\n");
}

/* Expect 32,000 whole lines on a terminal, with prefix and colour, each written in three pieces. */
static void expect_whole(const char *workers, const char *lines)
{
    struct run_result r = SHOWN("--nproc_per_node", workers, bin("tests/prog/torn_writer"), lines);
    EXPECT_CODE(r, 0);
    struct lines_seen seen = lines_seen(r.out, true);
    cr_expect_eq(seen.torn, 0, "%d lines are torn or out of order, first: %s", seen.torn, seen.first);
    cr_expect_eq(seen.whole, 32000, "only %d lines", seen.whole);
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
}

Test(ddprun_terminal, what_nobody_else_prints_is_not_lost_by_folding)
{
    struct run_result r =
        SHOWN("--nproc_per_node=3", "--fold", WORKER, "only:2", "say:mine", "bar", "say:\033[2J");
    EXPECT_CODE(r, 0);
    PRINTS(r, "\033[33m[2]\033[0m mine\n");
    PRINTS(r, "\033[33m[2]\033[0m 100%\n\033[33m[2]\033[0m \\x1b[2J\n");
}

/* Tests of log files: the tree of directories, --tee, --redirects and --json. */

TestSuite(ddprun_logs, .timeout = 120);

/* Return the directory of the job below `test_dir`. Skip the link `latest`, which is not a directory. */
static const char *job_root(void)
{
    static char root[512];
    struct stat st;
    int found = 0;
    DIR *d = opendir(test_dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        snprintf(root, sizeof(root), "%s/%s", test_dir, e->d_name);
        found++;
    }
    if (d != NULL)
        closedir(d);
    cr_assert_eq(found, 1, "%d directories of jobs in %s", found, test_dir);
    return root;
}

static void expect_file(const char *name, const char *text)
{
    char *found = job_file(job_root(), name);
    cr_assert_not_null(found, "there is no %s in %s", name, job_root());
    cr_expect_str_eq(found, text, "%s holds '%s'", name, found);
    free(found);
}

Test(ddprun_logs, log_dir_keeps_each_stream_in_a_file_and_shows_it, .init = test_dir_open,
     .fini = test_dir_close)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", test_dir);
    struct run_result r =
        JOB("--rdzv_id=myjob", "--nproc_per_node=2", option, WORKER, "say:out", "bar", "err:err");
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.out, "[1] out"), 1, "%s", r.out);
    cr_expect_not_null(strstr(job_root(), "/myjob_"), "%s", job_root());
    expect_file("attempt_0/0/stdout.log", "out\n  1%\r 50%\r100%\n");
    expect_file("attempt_0/1/stdout.log", "out\n  1%\r 50%\r100%\n");
    expect_file("attempt_0/1/stderr.log", "err\n");
    char *report = job_file(job_root(), "report.json");
    cJSON *json = cJSON_Parse(report);
    cr_expect(cJSON_IsObject(json), "%s", report);
    cJSON_Delete(json);
    free(report);
}

Test(ddprun_logs, redirects_go_to_the_file_alone_and_the_report_still_has_the_last_words,
     .init = test_dir_open, .fini = test_dir_close)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", test_dir);
    struct run_result r = JOB("--nproc_per_node=2", option, "--redirects=3", WORKER, "say:out",
                              "err:hidden cause", "only:1", "exit:2");
    EXPECT(r, 2);
    cr_expect_str_eq(r.out, "");
    cr_expect_eq(job_count(r.err, "[1] hidden cause"), 0, "%s", r.err);
    SAYS(r, "hidden cause");
    expect_file("attempt_0/1/stderr.log", "hidden cause\n");
}

Test(ddprun_logs, tee_and_redirects_may_differ_by_rank, .init = test_dir_open, .fini = test_dir_close)
{
    char option[300];
    snprintf(option, sizeof(option), "--log_dir=%s", test_dir);
    struct run_result r =
        JOB("--nproc_per_node=2", option, "--redirects=0:1", "--tee=1:1", WORKER, "say:out");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "[1] out\n");
    expect_file("attempt_0/0/stdout.log", "out\n");
    expect_file("attempt_0/1/stdout.log", "out\n");
}

Test(ddprun_logs, without_a_log_dir_a_temporary_one_is_made_and_named, .init = test_dir_open,
     .fini = test_dir_close)
{
    char tmp[300];
    snprintf(tmp, sizeof(tmp), "TMPDIR=%s", test_dir);
    const struct run_options options = { .env = (const char *const[]){ tmp, NULL } };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", "--tee=3", WORKER, "say:out", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.err, job_root()), "%s", r.err);
    expect_file("attempt_0/0/stdout.log", "out\n");
}

Test(ddprun_logs, a_log_dir_that_cannot_be_made_is_an_error_before_anything_starts)
{
    struct run_result r = JOB("--nproc_per_node=2", "--log_dir=/proc/nowhere", WORKER, "say:never");
    EXPECT(r, 125);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "/proc/nowhere");
}

Test(ddprun_logs, a_full_disk_is_told_once_and_the_job_goes_on)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "'%s' --standalone --quiet --nproc_per_node=2 '%s' say:lost err:kept > /dev/full", bin("ddprun"),
             bin("tests/prog/worker"));
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 0);
    cr_expect_eq(job_count(r.err, "[1] kept"), 1, "%s", r.err);
    SAYS(r, "warning: stdout: ");
    SAYS(r, "No space left on device");
}

/* Expect that each line of `text` is a JSON object. Return the number of lines whose "event" is `event` and which
 * contain `part`. */
static int count_events(const char *text, const char *event, const char *part)
{
    int n = 0;
    char *copy = strdup(text), *save = NULL;
    for (char *line = strtok_r(copy, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        cJSON *json = cJSON_Parse(line);
        cr_expect(cJSON_IsObject(json), "not JSON: %s", line);
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(json, "event");
        n += cJSON_IsString(name) && strcmp(name->valuestring, event) == 0 && strstr(line, part) != NULL;
        cJSON_Delete(json);
    }
    free(copy);
    return n;
}

Test(ddprun_logs, json_tells_everything_as_events_on_stdout)
{
    struct run_result r = JOB("--json", "--nproc_per_node=2", WORKER, "only:1", "say:hello \"you\"", "err:oh",
                              "exit:3", "all", "forever");
    EXPECT(r, 3);
    cr_expect_str_eq(r.err, "");
    cr_expect_eq(count_events(r.out, "started", ""), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "worker_started", ""), 2, "%s", r.out);
    cr_expect_eq(count_events(r.out, "output", "hello \\\"you\\\""), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "output", "oh"), 1, "%s", r.out);
    cr_expect_eq(count_events(r.out, "worker_ended", ""), 2, "%s", r.out);
    cr_expect_eq(count_events(r.out, "finished", ""), 1, "%s", r.out);
}

/* Tests of --stdin: ddprun passes its stdin to the workers that this option names. */

TestSuite(stdin_e2e, .timeout = 120);

/* Run a shell script such as "seq 3 | $D OPTIONS PROGRAM", in which $D is `ddprun -q --standalone`. */
static struct run_result shell(const char *script)
{
    char command[4096];
    snprintf(command, sizeof(command), "D='%s -q --standalone --no_prefix'; %s", bin("ddprun"), script);
    return run_command((const char *const[]){ "bash", "-c", command, NULL },
                       &(struct run_options){ .timeout_ms = 100000 });
}

static void expect_output(const char *script, const char *expected)
{
    struct run_result r = shell(script);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, expected, "%s", r.err);
}

#define DATA "head -c 33554433 /dev/urandom >$T/data; want=$(sha256sum <$T/data)"

static void expect_same_sums(const char *start, const char *sums)
{
    char script[2048], *dir = job_dir();
    snprintf(script, sizeof(script), "T='%s'; " DATA "; %s sha256sum | grep -cFx \"$want\"", dir, start);
    expect_output(script, sums);
    job_dir_remove(dir);
}

Test(stdin_e2e, a_pipe_arrives_whole_at_every_rank)
{
    expect_same_sums("cat $T/data | $D --nproc_per_node=8 --stdin=all", "8\n");
}

Test(stdin_e2e, a_file_arrives_whole_at_every_rank)
{
    expect_same_sums("<$T/data $D --nproc_per_node=4 --stdin=all", "4\n");
}

/* The input is a slow pipe, so that the relay sleeps between two reads. */
Test(stdin_e2e, a_slow_writer_is_waited_for)
{
    expect_output(
        "for i in 1 2 3; do echo $i; sleep 0.1; done | $D --nproc_per_node=2 --stdin=0-1 cat | sort",
        "1\n1\n2\n2\n3\n3\n");
}

Test(stdin_e2e, only_those_who_are_named_get_it)
{
    expect_output("echo x | $D --nproc_per_node=4 --stdin=1,3 sh -c 'echo $RANK:$(cat)' | sort",
                  "0:\n1:x\n2:\n3:x\n");
    expect_output("echo x | $D --nproc_per_node=2 --stdin=1 sh -c 'echo $RANK:$(cat)' | sort", "0:\n1:x\n");
    expect_output("echo x | $D --nproc_per_node=2 --stdin=none sh -c 'echo $RANK:$(cat)' | sort", "0:\n1:\n");
    expect_output("echo x | $D --nproc_per_node=2 sh -c 'echo $RANK:$(cat)' | sort", "0:x\n1:\n");
}

Test(stdin_e2e, what_is_no_rank_is_refused)
{
    struct run_result r = shell("$D --nproc_per_node=2 --stdin=0-2 cat");
    EXPECT(r, 2);
    SAYS(r, "local rank 2");
    r = shell("$D --stdin=some cat");
    EXPECT(r, 2);
    SAYS(r, "--stdin=some");
    SAYS(r, "'all', 'none'");
}

/* Rank 1 closes its stdin. Rank 2 reads a little and exits, but its child still holds the pipe. */
Test(stdin_e2e, who_does_not_want_more_does_not_stop_the_others)
{
    expect_output("head -c 8000000 /dev/zero | $D --nproc_per_node=4 --stdin=all --grace=0.2 sh -c '"
                  "case $RANK in"
                  " 1) exec <&-; sleep 1;;"
                  " 2) head -c 10 >/dev/null; sleep 60 & ;;"
                  " *) wc -c;; esac'",
                  "8000000\n8000000\n");
}

/* The slowest reader sets the pace. Input that this reader has not read waits in the pipe and not in ddprun's
 * memory. */
Test(stdin_e2e, a_reader_that_does_not_read_costs_no_memory)
{
    char command[1024];
    snprintf(command, sizeof(command),
             "yes | exec '%s' --standalone --nproc_per_node=2 --stdin=all '%s' say:ready forever",
             bin("ddprun"), bin("tests/prog/worker"));
    struct run_process *p = run_start((const char *const[]){ "bash", "-c", command, NULL }, NULL);
    cr_assert(run_until_output(p, "[0] ready", PATIENCE_MS) && run_until_output(p, "[1] ready", PATIENCE_MS));
    usleep(300000);
    pid_t guardian = procstat_child(run_pid(p), 1), agent = guardian != 0 ? procstat_child(guardian, 0) : 0;
    if (agent != 0 && !procstat_is_sanitized(agent))
        cr_expect_lt(procstat_rss_kib(agent), 16 * 1024);
    kill(guardian, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

/* Only rank 0 reads, so rank 0 inherits ddprun's stdin. The next attempt continues where the previous attempt stopped
 * reading. */
Test(stdin_e2e, an_attempt_reads_on_where_the_last_one_stopped)
{
    struct run_result r = shell(
        "printf 'a\\nb\\n' | $D --max_restarts=1 --restart_backoff=0 sh -c 'read x; echo $x; [ $x = b ]'");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "a\nb\n");
}

/* Start a new session whose leader acts as a shell. The leader starts ddprun in the background. After SIGUSR1, the
 * leader moves ddprun to the foreground. */
static pid_t start_in_background(int *terminal)
{
    sigset_t front;
    const char *ddprun = bin("ddprun"), *worker = bin("tests/prog/worker");
    sigemptyset(&front);
    sigaddset(&front, SIGUSR1);
    pid_t leader = forkpty(terminal, NULL, NULL, NULL);
    if (leader != 0)
        return leader;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_BLOCK, &front, NULL);
    signal(SIGTTOU, SIG_IGN);
    setenv("NO_COLOR", "1", 1);
    pid_t job = fork();
    if (job == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigprocmask(SIG_UNBLOCK, &front, NULL);
        setpgid(0, 0);
        execl(ddprun, "ddprun", "--standalone", "--prefix", worker, "say:ready", "stdin", NULL);
        _exit(127);
    }
    setpgid(job, job);
    int sig, status = 0;
    sigwait(&front, &sig);
    tcsetpgrp(STDIN_FILENO, job);
    waitpid(job, &status, WUNTRACED);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static bool read_until(int fd, char *seen, size_t size, const char *text)
{
    for (size_t len = strlen(seen); strstr(seen, text) == NULL;) {
        ssize_t n = read(fd, seen + len, size - 1 - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        seen[len] = '\0';
    }
    return true;
}

Test(stdin_e2e, a_job_in_the_background_leaves_the_terminal_to_the_shell)
{
    static char seen[65536];
    int fd, status = 0;
    pid_t leader = start_in_background(&fd);
    cr_assert(read_until(fd, seen, sizeof(seen), "[0] ready"), "%s", seen);
    pid_t job = procstat_child(leader, 0);
    cr_assert_eq(write(fd, "typed\n", 6), 6);
    usleep(500000);
    cr_expect(job_until_state(job, 'S'), "it was stopped");
    kill(leader, SIGUSR1);
    cr_expect(read_until(fd, seen, sizeof(seen), "[0] typed"), "%s", seen);
    waitpid(leader, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x: %s", status, seen);
    close(fd);
}
