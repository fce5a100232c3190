/* A log directory on a file system that stops answering: the job goes on, and its user can end it. */
#include "hung_disk.h"
#include "job.h"
#include "patience.h"
#include "rude.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], log_dir[80];

static void set_up(void)
{
    rude_own_mounts();
    snprintf(dir, sizeof(dir), "/tmp/hung-disk-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    hung_disk_mount(dir);
    snprintf(log_dir, sizeof(log_dir), "--log_dir=%s", dir);
}

static void tear_down(void)
{
    umount2(dir, MNT_DETACH);
    rmdir(dir);
}

TestSuite(hung_disk, .init = set_up, .fini = tear_down, .timeout = 120);

static struct run_process *start(void)
{
    const char *argv[] = {
        bin("ddprun"), "--standalone", log_dir,
        "--tee=3",     "--no_python",  "--",
        "/bin/sh",     "-c",           "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.02; done",
        NULL
    };
    struct run_process *process = run_start(argv, NULL);
    cr_assert_not_null(process);
    return process;
}

static void until(bool condition, struct run_process *process, const char *what)
{
    if (condition)
        return;
    run_signal(process, SIGKILL);
    hung_disk_end();
    struct run_result r = run_wait(process);
    cr_assert(false, "%s has not come:\n%s", what, r.err);
}

static void until_hung(struct run_process *process)
{
    hung_disk_hang();
    for (struct patience p = { 0 }; hung_disk_requests() == 0;)
        until(patience_left(&p), process, "a request");
}

static bool has_ended(struct run_process *process)
{
    siginfo_t end = { 0 };
    return waitid(P_PID, (id_t)run_pid(process), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid != 0;
}

/* The agent that is left behind holds the pipes, so the file system ends before the output is read to its end. */
static struct run_result finish(struct run_process *process)
{
    for (struct patience p = { 0 }; !has_ended(process);)
        until(patience_left(&p), process, "the guardian's end");
    hung_disk_end();
    return run_wait(process);
}

static void expect_named(const struct run_result *r)
{
    char words[200];
    cr_expect_eq(r->exit_code, 124, "exit %d, signal %d\n%s", r->exit_code, r->signal, r->err);
    snprintf(words, sizeof(words), "error: %s", dir);
    cr_expect_not_null(strstr(r->err, words), "%s is not named:\n%s", dir, r->err);
    cr_expect_not_null(strstr(r->err, ": the file system does not answer; the agent process (pid "), "%s",
                       r->err);
}

Test(hung_disk, the_console_lives_and_two_ctrl_c_end_the_job)
{
    char next[32];
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    until(run_until_error(process, ": the file system has not answered for ", PATIENCE_MS), process,
          "the report of the hang");
    const char *last = strrchr(run_output(process), 'k');
    snprintf(next, sizeof(next), "tick %d\n", last != NULL ? atoi(last + 1) + 20 : 100);
    until(run_until_output(process, next, PATIENCE_MS), process, "output behind the hang");
    run_signal(process, SIGINT);
    until(run_until_error(process, "once more kills them at once", PATIENCE_MS), process, "the first answer");
    run_signal(process, SIGINT);
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_not_null(strstr(r.err, "stopped by SIGINT"), "the report is printed:\n%s", r.err);
    run_free(&r);
}

Test(hung_disk, one_request_is_enough_when_the_workers_end_in_time)
{
    struct run_process *process = start();
    until(run_until_output(process, "tick 3\n", PATIENCE_MS), process, "output");
    until_hung(process);
    run_signal(process, SIGTERM);
    struct run_result r = finish(process);
    expect_named(&r);
    run_free(&r);
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_is_reported)
{
    hung_disk_hang();
    struct run_process *process = start();
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_not_null(strstr(r.err, "cannot make the log directory"), "%s", r.err);
    run_free(&r);
}

Test(hung_disk, a_log_directory_that_hangs_from_the_start_does_not_outlast_two_ctrl_c)
{
    hung_disk_hang();
    struct run_process *process = start();
    until_hung(process);
    for (struct patience p = { 0 }; !has_ended(process); run_signal(process, SIGINT))
        until(patience_left(&p), process, "the guardian's end");
    struct run_result r = finish(process);
    expect_named(&r);
    cr_expect_null(strstr(r.err, "cannot make the log directory"), "it is not waited for:\n%s", r.err);
    run_free(&r);
}
