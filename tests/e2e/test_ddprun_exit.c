/* test_ddprun_exit.c -- how a job ends: exit codes, who is to blame, what cannot be started. */
#include "run.h"
#include "job.h"
#include "procstat.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAYS(r, words)   cr_expect(strstr((r).err, words) != NULL, "'%s' is not in:\n%s", words, (r).err)
#define SILENT(r, words) cr_expect(strstr((r).err, words) == NULL, "'%s' is in:\n%s", words, (r).err)

TestSuite(ddprun_exit, .timeout = 120);

Test(ddprun_exit, all_workers_end_with_0_and_nothing_is_said)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "");
    cr_expect_str_eq(r.err, "");
    run_free(&r);
}

Test(ddprun_exit, the_code_of_a_failed_worker_is_passed_on)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER, "only:1", "exit:7", "all", "forever");
    EXPECT(r, 7);
    SAYS(r, "rank 1");
    SAYS(r, "exit 7");
    run_free(&r);
}

/* Rank 1 fails when it is told to stop because of rank 2. */
Test(ddprun_exit, the_first_of_two_failures_decides)
{
    struct run_result r = JOB("--nproc_per_node=4", WORKER, "only:2", "exit:9", "only:1", "catch:15", "pause",
                              "exit:7", "all", "forever");
    EXPECT(r, 9);
    SAYS(r, "rank 2");
    run_free(&r);
}

Test(ddprun_exit, a_signal_is_128_and_its_number_and_has_a_name)
{
    struct run_result r = JOB("--nproc_per_node=2", WORKER, "only:1", "raise:11", "all", "forever");
    EXPECT(r, 139);
    SAYS(r, "SIGSEGV");
    run_free(&r);
    r = JOB("--nproc_per_node=2", WORKER, "only:0", "raise:9", "all", "forever");
    EXPECT(r, 137);
    SAYS(r, "SIGKILL");
    run_free(&r);
}

/* Rank 1 is killed by SIGKILL, then rank 0 by SIGUSR1, and the agent finds both at once. */
static struct run_result two_seen_together(const char *policy)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", policy, WORKER, "say:ready", "forever");
    cr_assert(run_until_output(p, "[0] ready\n", PATIENCE_MS) &&
              run_until_output(p, "[1] ready\n", PATIENCE_MS));
    pid_t agent = procstat_child(run_pid(p), 0), first = procstat_child(agent, 1),
          second = procstat_child(agent, 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    kill(first, SIGKILL);
    cr_assert(job_until_state(first, 'Z'));
    kill(second, SIGUSR1);
    cr_assert(job_until_state(second, 'Z'));
    kill(agent, SIGCONT);
    return run_wait(p);
}

/* The elder is not the first for that. */
Test(ddprun_exit, the_first_to_fail_is_found_also_when_two_are_seen_together)
{
    struct run_result r = two_seen_together("--exit_code=first");
    EXPECT(r, 137);
    SAYS(r, "rank 1 (local rank 1");
    run_free(&r);
}

/* It was dead before anybody could be told to stop. */
Test(ddprun_exit, the_second_of_two_that_are_seen_together_has_failed_by_itself)
{
    struct run_result r = two_seen_together("--exit_code=max");
    EXPECT(r, 128 + SIGUSR1);
    SAYS(r, "rank 1 (local rank 1");
    run_free(&r);
}

Test(ddprun_exit, without_descriptors_it_is_ddprun_that_failed)
{
    char script[512];
    snprintf(script, sizeof(script), "ulimit -n 4; exec %s --standalone /bin/true", bin("ddprun"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", script, NULL }, NULL);
    EXPECT(r, 125);
    SAYS(r, "Too many open files");
    run_free(&r);
}

Test(ddprun_exit, the_report_has_the_last_words_of_the_failed_worker)
{
    struct run_result r =
        JOB("--nproc_per_node=2", WORKER, "only:1", "err:cannot open the data", "exit:3", "all", "forever");
    EXPECT(r, 3);
    cr_expect_geq(job_count(r.err, "[1] cannot open the data"), 1, "%s", r.err);
    const char *report = strstr(r.err, "exit 3");
    cr_assert_not_null(report, "%s", r.err);
    cr_expect_not_null(strstr(report, "cannot open the data"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_exit, what_we_stopped_is_a_consequence)
{
    struct run_result r = JOB("--nproc_per_node=3", WORKER, "only:2", "exit:5", "all", "forever");
    EXPECT(r, 5);
    SAYS(r, "onsequence");
    run_free(&r);
}

Test(ddprun_exit, a_worker_that_ignores_sigterm_is_killed_after_the_grace_time)
{
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0.3", WORKER, "only:1", "ignore:15", "say:deaf",
                              "forever", "only:0", "sleep:500", "exit:4");
    EXPECT(r, 4);
    cr_expect_not(r.timed_out);
    run_free(&r);
}

Test(ddprun_exit, a_program_that_does_not_exist_is_127)
{
    struct run_result r = JOB("--nproc_per_node=4", "no-such-program");
    EXPECT(r, 127);
    SAYS(r, "no-such-program");
    SAYS(r, "PATH");
    run_free(&r);
    r = JOB("./no/such/program");
    EXPECT(r, 127);
    SAYS(r, "./no/such/program");
    run_free(&r);
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    fputs(text, f);
    fclose(f);
    chmod(path, mode);
}

/* Ends with 127 although no other node ever comes, and although the time to wait for one is ten minutes. */
static void expect_missing_on_node(const char *rank, const char *nnodes)
{
    const char *argv[] = {
        bin("ddprun"), nnodes, "--master_addr=127.0.0.1", free_port_option("--master_port="), rank,
        "./not/there", NULL
    };
    struct run_result r = run_command(argv, NULL);
    cr_expect_not(r.timed_out);
    EXPECT(r, 127);
    SAYS(r, "ddprun: error: ./not/there: no such file; check the path");
    run_free(&r);
}

Test(ddprun_exit, a_missing_program_does_not_wait_for_other_nodes)
{
    expect_missing_on_node("--node_rank=0", "--nnodes=2");
    expect_missing_on_node("--node_rank=1", "--nnodes=2");
}

/* Such a job begins without this node: it must not meet it at all. */
Test(ddprun_exit, a_missing_program_does_not_join_an_elastic_job)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=1:2",
                           free_port_option("--rdzv_endpoint=127.0.0.1:"),
                           "--max-restarts=3",
                           "-v",
                           "./not/there",
                           NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 127);
    SAYS(r, "ddprun: error: ./not/there: no such file");
    SILENT(r, "joined");
    run_free(&r);
}

/* The python3 of this PATH leaves a trace. --env decides, not the launcher's own PATH. */
Test(ddprun_exit, a_missing_script_is_found_before_python_starts)
{
    char *dir = job_dir(), python[256], script[256], path[300];
    snprintf(python, sizeof(python), "%s/python3", dir);
    snprintf(script, sizeof(script), "%s/light.py", dir);
    snprintf(path, sizeof(path), "--env=PATH=%s", dir);
    write_file(python, "#!/bin/sh\necho python has started\n", 0755);
    write_file(script, "", 0644);
    const struct run_options here = { .cwd = dir };
    struct run_result r = job_run((const char *const[]){ path, "ligth.py", NULL }, &here);
    EXPECT(r, 127);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "could not be started: ligth.py: no such file\n");
    SAYS(r, "did you mean light.py?\n");
    run_free(&r);
    r = job_run((const char *const[]){ path, "light.py", NULL }, &here);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "python has started\n");
    run_free(&r);
    r = job_run((const char *const[]){ path, "-m", "ligth.py", NULL }, &here); /* a module: Python finds it */
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "python has started\n");
    run_free(&r);
    r = job_run((const char *const[]){ path, "--run_path", "ligth.py", NULL }, &here);
    EXPECT(r, 127);
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_directory_is_126)
{
    struct run_result r = JOB("/tmp");
    EXPECT(r, 126);
    SAYS(r, "directory");
    run_free(&r);
}

Test(ddprun_exit, a_file_without_x_permission_is_126_and_the_cure_is_named)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/program", dir);
    write_file(path, "#!/bin/sh\n", 0644);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    SAYS(r, "chmod +x");
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_missing_interpreter_is_named)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/script", dir);
    write_file(path, "#!/no/such/interpreter\n", 0755);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    SAYS(r, "/no/such/interpreter");
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_script_without_interpreter_line_is_not_run_by_a_shell)
{
    char *dir = job_dir(), path[256];
    snprintf(path, sizeof(path), "%s/script", dir);
    write_file(path, "echo never\n", 0755);
    struct run_result r = JOB(path);
    EXPECT(r, 126);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "#!");
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_program_is_found_along_PATH_past_files_that_cannot_run)
{
    char *dir = job_dir(), path[512], search[1024];
    snprintf(path, sizeof(path), "%s/a", dir);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/a/tool", dir);
    write_file(path, "not executable", 0644);
    snprintf(path, sizeof(path), "%s/tool", dir);
    write_file(path, "#!/bin/sh\necho found\n", 0755);
    snprintf(search, sizeof(search), "PATH=/no/such/dir:%s/a:%s", dir, dir);
    const struct run_options options = { .env = (const char *const[]){ search, NULL } };
    struct run_result r = job_run((const char *const[]){ "tool", NULL }, &options);
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "found\n");
    run_free(&r);
    job_dir_remove(dir);
}

Test(ddprun_exit, a_wrong_option_is_2_and_starts_nothing)
{
    struct run_result r = JOB("--nproc_per_node=-1", WORKER, "say:never");
    EXPECT(r, 2);
    cr_expect_str_eq(r.out, "");
    SAYS(r, "--help");
    run_free(&r);
}

Test(ddprun_exit, a_missing_program_is_2_and_says_once_where_the_help_is)
{
    const char *const argv[] = { bin("ddprun"), "--nproc_per_node=2", NULL };
    struct run_result r = run_command(argv, NULL);
    EXPECT(r, 2);
    SAYS(r, "no program given. Usage: ddprun [options] PROGRAM [args...]\nTry 'ddprun --help'.\n");
    run_free(&r);
}

Test(ddprun_exit, what_is_quoted_in_an_error_cannot_command_the_terminal)
{
    struct run_result r = JOB("--grace=\033[2J\nddprun: \302\233x", WORKER);
    EXPECT(r, 2);
    SAYS(r, "--grace=?[2J?ddprun: ??x is not valid");
    run_free(&r);
}

Test(ddprun_exit, version_and_help_are_on_stdout)
{
    struct run_result r = JOB("--version");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "ddprun 0.1.0\n");
    run_free(&r);
    r = JOB("--help");
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.out, "--nproc_per_node"));
    run_free(&r);
}

Test(ddprun_exit, quiet_keeps_the_failure_and_verbose_tells_of_success)
{
    struct run_result r = JOB("--quiet", "--nproc_per_node=2", WORKER, "only:1", "exit:6", "all", "forever");
    EXPECT(r, 6);
    SAYS(r, "exit 6");
    run_free(&r);
    r = JOB("--verbose", "--nproc_per_node=2", WORKER);
    EXPECT(r, 0);
    SAYS(r, ", store at 127.0.0.1:");
    SAYS(r, "rank 1 started");
    SAYS(r, "rank 1: exit 0");
    run_free(&r);
}
