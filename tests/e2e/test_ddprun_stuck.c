/* test_ddprun_stuck.c -- a worker that not even SIGKILL ends.
 *
 * A frozen cgroup of version 1 is the one way to state D that a test can take back: the worker hangs in the kernel with
 * SIGKILL pending until it is thawed. It needs root and the freezer hierarchy. */
#include "job.h"
#include "run.h"
#include "procstat.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(ddprun_stuck, .timeout = 120);

static char freezer[] = "/sys/fs/cgroup/freezer/ddprun-test-XXXXXX";

static bool write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", freezer, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

static void make_freezer(void)
{
    if (mkdtemp(freezer) == NULL || !write_text("freezer.state", "THAWED"))
        cr_skip_test("skipped, because there is no freezer cgroup of version 1 that we may write");
}

/* Let them die, or the group stays. */
static void remove_freezer(void)
{
    write_text("freezer.state", "THAWED");
    for (int i = 0; i < 500 && rmdir(freezer) != 0; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
}

static bool freeze(pid_t pid)
{
    char text[32];
    snprintf(text, sizeof(text), "%d", (int)pid);
    return write_text("tasks", text) && write_text("freezer.state", "FROZEN") && job_until_state(pid, 'D');
}

Test(ddprun_stuck, what_cannot_be_killed_is_named_and_left, .fini = remove_freezer)
{
    make_freezer();
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=200ms", "--max-restarts=3",
                                      "--restart-backoff=0", WORKER, "say:up", "forever");
    cr_assert(run_until_output(p, "[1] up", PATIENCE_MS));
    pid_t agent = procstat_child(run_pid(p), 0), worker = procstat_child(agent, 1);
    cr_assert_gt(worker, 0);
    if (!freeze(worker)) {
        run_signal(p, SIGTERM);
        struct run_result r = run_wait(p);
        run_free(&r);
        cr_skip_test("skipped, because a frozen process is not in state D here");
    }
    kill(procstat_child(agent, 0), SIGKILL); /* the failure; rank 1 must be stopped then, and cannot be */
    struct run_result r = run_wait(p);
    char words[64];
    snprintf(words, sizeof(words), "pid %d (rank 1, worker) cannot be killed: state D", (int)worker);
    cr_expect_eq(r.exit_code, 124, "exit %d\n%s", r.exit_code, r.err);
    cr_expect(strstr(r.err, words) != NULL, "'%s' is not in:\n%s", words, r.err);
    cr_expect(strstr(r.err, "none: a process of the failed attempt cannot be killed") != NULL, "%s", r.err);
    cr_expect(strstr(r.err, "rank 0") != NULL, "the cause is named as well:\n%s", r.err);
    run_free(&r);
}
