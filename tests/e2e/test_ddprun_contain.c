/* test_ddprun_contain.c -- tests the layers that contain a job: which layer ddprun chooses, what remains after the job,
 * and which processes the layer affects. tests/survivors tests all combinations of workers and faults. */
#include "base/exit_codes.h"
#include "base/timed_call.h"
#include "contain/cgroup.h"
#include "contain/procfs.h"
#include "contain/job_record.h"
#include "job.h"
#include "node/guardian.h"
#include "output/disk_watch.h"
#include "run.h"
#include "procstat.h"
#include "store_peers.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(ddprun_contain, .timeout = 120);

/* A separate directory for records, so that other tests do not find the jobs of this test. */
static char *runtime_dir, *runtime_env;

static void set_up(void)
{
    bin_seek_no_leaks(); /* LeakSanitizer fails if a process is killed during a leak check */
    runtime_dir = job_dir();
    cr_assert_gt(asprintf(&runtime_env, "XDG_RUNTIME_DIR=%s", runtime_dir), 0);
}

static void tear_down(void)
{
    free(runtime_env);
    job_dir_remove(runtime_dir);
}

#define HERE ((const struct run_options){ .env = (const char *const[]){ runtime_env, NULL } })

#define RUN(...)   job_run((const char *const[]){ __VA_ARGS__, NULL }, &HERE)
#define START(...) job_start((const char *const[]){ __VA_ARGS__, NULL }, &HERE)

static void expect_words(const char *text, const char *words)
{
    cr_expect_not_null(strstr(text, words), "\"%s\" is not in: %s", words, text);
}

static void skip_without(const char *layer)
{
    struct run_result r = RUN(layer, "--dry_run", "true");
    if (r.exit_code != 0)
        cr_skip_test("skipped, because %s", r.err);
}

static int records(void)
{
    char path[256];
    int n = 0;
    snprintf(path, sizeof(path), "%s/ddprun", runtime_dir);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;)
        n += e->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* --- choice of the layer ---------------------------------------------------------------------------------------- */

Test(ddprun_contain, a_dry_run_names_the_layer_and_makes_nothing, .init = set_up, .fini = tear_down)
{
    struct run_result r = RUN("--dry_run", "true");
    expect_words(r.out, "contained by: ");
    cr_expect_eq(access(runtime_dir, F_OK), 0);
    cr_expect_eq(records(), 0);
}

Test(ddprun_contain, what_was_asked_for_is_used, .init = set_up, .fini = tear_down)
{
    struct run_result r = RUN("-v", "--contain=plain", "true");
    cr_expect_eq(r.exit_code, 0);
    expect_words(r.err, "contained by: plain");
}

Test(ddprun_contain, the_record_is_gone_at_the_end, .init = set_up, .fini = tear_down)
{
    struct run_process *p = START("--contain=plain", "--prefix", WORKER, "say:ready", "forever");
    cr_assert(run_until_output(p, "ready", PATIENCE_MS));
    cr_expect_eq(records(), 1);
    run_signal(p, SIGTERM);
    run_wait(p);
    cr_expect_eq(records(), 0);
}

Test(ddprun_contain, a_job_whose_record_cannot_be_written_runs_and_names_the_reason, .init = set_up,
     .fini = tear_down)
{
    if (bin_is_sanitized())
        cr_skip_test("skipped, because a sanitizer writes files before it starts the program");
    struct run_result r =
        run_command((const char *const[]){ "bash", "-c", "ulimit -f 0; exec \"$@\"", "bash", bin("ddprun"),
                                           "-v", "--contain=plain", "true", NULL },
                    NULL);
    cr_expect_eq(r.exit_code, 0, "exit %d: %s", r.exit_code, r.err);
    expect_words(r.err, "contained by: plain");
    expect_words(r.err, strerror(EFBIG));
    expect_words(r.err, "XDG_RUNTIME_DIR");
    cr_expect_eq(records(), 0);
}

Test(ddprun_contain, a_layer_that_is_not_there_is_refused_with_the_reason, .init = set_up, .fini = tear_down)
{
    if (geteuid() != 0)
        cr_skip_test("skipped, because only root can change its user");
    if (!bin_is_open_to_nobody())
        cr_skip_test("skipped, because uid 65534 cannot reach %s", bin("ddprun"));
    struct run_result r =
        run_command((const char *const[]){ "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                           bin("ddprun"), "--contain=cgroup", "true", NULL },
                    NULL);
    cr_expect_eq(r.exit_code, 125, "exit %d: %s", r.exit_code, r.err);
    expect_words(r.err, "--contain=cgroup: ");
    expect_words(r.err, "Delegate=yes");
}

/* The files look like those of a job that was killed before it had a record. A new file stays, because another job may
 * be about to use the file. */
Test(ddprun_contain, litter_of_killed_jobs_is_taken_away, .init = set_up, .fini = tear_down)
{
    static const struct litter {
        const char *name;
        mode_t type;
        bool is_old, is_read, stays;
    } rows[] = {
        { "0123abcd.timer", S_IFIFO, true, false, false }, { "4567abcd.timer", S_IFIFO, true, true, true },
        { "89ababcd.timer", S_IFIFO, false, false, true }, { ".0123abcd.x", S_IFREG, true, false, false },
        { ".4567abcd.x", S_IFREG, false, false, true },
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    const struct timespec long_ago[2] = { { 0 } };
    char dir[256], path[ROWS][300];
    int reader = -1;
    snprintf(dir, sizeof(dir), "%s/ddprun", runtime_dir);
    cr_assert_eq(mkdir(dir, 0700), 0);
    for (int i = 0; i < ROWS; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", dir, rows[i].name);
        cr_assert_eq(mknod(path[i], rows[i].type | 0600, 0), 0);
        cr_assert(!rows[i].is_old || utimensat(AT_FDCWD, path[i], long_ago, 0) == 0);
        if (rows[i].is_read)
            reader = open(path[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    struct run_result r = RUN("true");
    cr_expect_eq(r.exit_code, 0);
    for (int i = 0; i < ROWS; i++)
        cr_expect_eq(access(path[i], F_OK) == 0, rows[i].stays, "%s", rows[i].name);
    close(reader);
}

/* --- control group ---------------------------------------------------------------------------------------------- */

Test(ddprun_contain, an_attempt_has_a_control_group_until_it_ends, .init = set_up, .fini = tear_down)
{
    char group[512] = "";
    skip_without("--contain=cgroup");
    struct run_result r = RUN("-v", "--contain=cgroup", "cat", "/proc/self/cgroup");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    expect_words(r.out, "/ddprun-");
    const char *words = strstr(r.err, "contained by: cgroup, ");
    cr_assert_not_null(words, "%s", r.err);
    cr_assert_eq(sscanf(words, "contained by: cgroup, %500s", group), 1);
    cr_expect_neq(access(group, F_OK), 0, "%s is left", group);
}

static void find_own_group(char own[CGROUP_PATH_MAX])
{
    char why[CGROUP_WHY_MAX];
    struct buf groups = { 0 }, mounts = { 0 };
    skip_without("--contain=cgroup");
    cr_assert(procfs_read("/proc/self/cgroup", &groups) && procfs_read("/proc/self/mountinfo", &mounts));
    cr_assert(cgroup_find((const char *)groups.data, (const char *)mounts.data, own, why), "%s", why);
    buf_free(&groups);
    buf_free(&mounts);
}

/* A group is also empty before its first worker starts. So a start of ddprun must remove an empty group only if the
 * owner of the group has ended. A ddprun of another test may also remove the group. */
Test(ddprun_contain, an_empty_group_goes_with_its_owner_and_not_before, .init = set_up, .fini = tear_down)
{
    char own[CGROUP_PATH_MAX], group[CGROUP_PATH_MAX + 64], other[CGROUP_PATH_MAX + 64];
    find_own_group(own);
    snprintf(group, sizeof(group), "%s/ddprun-test-%08x", own, (unsigned)getpid());
    snprintf(other, sizeof(other), "%s/other-test-%08x", own, (unsigned)getpid());
    const int fd = cgroup_make(group, false);
    cr_assert_geq(fd, 0);
    cr_assert_eq(mkdir(other, 0755), 0);
    RUN("--contain=cgroup", "true");
    cr_expect_eq(access(group, F_OK), 0, "it was taken from its owner");
    close(fd);
    RUN("--contain=cgroup", "true");
    cr_expect_neq(access(group, F_OK), 0, "it is left");
    cr_expect_eq(access(other, F_OK), 0, "it is not a group of ddprun");
    cgroup_remove(group, PATIENCE_MS);
    rmdir(other);
}

/* After a control group was killed, some kernels kill each new process whose parent is in this group. The new process
 * may be in any control group. */
Test(ddprun_contain, workers_live_where_a_group_was_killed_before, .init = set_up, .fini = tear_down)
{
    char own[CGROUP_PATH_MAX], group[CGROUP_PATH_MAX + 64], script[3 * CGROUP_PATH_MAX];
    char inside[64];
    find_own_group(own);
    snprintf(group, sizeof(group), "%s/ddprun-test-%d", own, (int)getpid());
    int fd = cgroup_make(group, false);
    cr_assert_geq(fd, 0);
    close(fd);
    cr_assert(cgroup_kill(group));
    snprintf(script, sizeof(script),
             "echo $$ >'%s/cgroup.procs'; exec '%s' --contain=cgroup cat /proc/self/cgroup", group,
             bin("ddprun"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", script, NULL }, &HERE);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    snprintf(inside, sizeof(inside), "/ddprun-test-%d/ddprun-", (int)getpid());
    expect_words(r.out, inside);
    cr_expect(cgroup_remove(group, PATIENCE_MS), "%s is left", group);
}

/* --- guardian and agent killed at once -------------------------------------------------------------------------- */

static void until_ready(struct run_process *p)
{
    cr_assert(run_until_output(p, "ready", PATIENCE_MS), "%s", run_output(p));
}

/* Wait until the last thread of the process has ended, because the process counts as alive until then. */
static void wait_for_end(int pidfd)
{
    cr_expect_eq(poll(&(struct pollfd){ .fd = pidfd, .events = POLLIN }, pidfd >= 0, PATIENCE_MS),
                 pidfd >= 0);
    close(pidfd);
}

/* Start a job with an error file and a daemon that ignores signals. Then kill the guardian and the agent. */
static void orphan_a_job(const char *layer, const char *hold)
{
    struct run_process *p = START(layer, WORKER, hold, "daemon", "record:{}", "say:ready", "forever");
    until_ready(p);
    pid_t agent = procstat_child(run_pid(p), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    /* Stop the guardian, so that it cannot react to the agent's death before the guardian is killed. */
    run_signal(p, SIGSTOP);
    cr_assert(job_until_state(run_pid(p), 'T'));
    const int pidfd = pidfd_open(agent, 0);
    kill(agent, SIGKILL);
    kill(run_pid(p), SIGKILL);
    run_wait(p);
    wait_for_end(pidfd);
}

static void next_start_cleans_up(const char *layer)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *other = START(layer, WORKER, "say:ready", "sleep:100", "forever");
    until_ready(other);
    orphan_a_job(layer, w.hold);
    cr_expect(job_witness_sees_some(&w), "nothing was left, so this test tests nothing");
    struct run_result r = RUN(layer, "true");
    expect_words(r.err, "ended before");
    cr_expect(job_witness_alone(&w), "a process is left");
    cr_expect_eq(records(), 1, "the record of the other job only");
    run_signal(other, SIGTERM);
    r = run_wait(other);
    cr_expect_eq(r.exit_code, 143, "the other job was touched: %d, %s", r.exit_code, r.err);
    job_witness_close(&w);
}

Test(ddprun_contain, the_next_start_finds_what_both_have_left_and_touches_no_other_job, .init = set_up,
     .fini = tear_down)
{
    next_start_cleans_up("--contain=plain");
}

Test(ddprun_contain, the_next_start_removes_the_group_of_a_dead_job, .init = set_up, .fini = tear_down)
{
    skip_without("--contain=cgroup");
    next_start_cleans_up("--contain=cgroup");
}

/* The directory for records is now read-only, so the record of the dead job stays. */
Test(ddprun_contain, a_record_that_cannot_be_removed_delays_no_start, .init = set_up, .fini = tear_down)
{
    struct job_witness w;
    rude_own_mounts();
    job_witness_open(&w);
    orphan_a_job("--contain=plain", w.hold);
    cr_assert_eq(mount(runtime_dir, runtime_dir, NULL, MS_BIND, NULL), 0);
    cr_assert_eq(mount(NULL, runtime_dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    struct run_result r = RUN("--contain=plain", "true");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect(job_witness_alone(&w), "a process is left");
    cr_expect_gt(records(), 0, "the record was removed, so this test tests nothing");
    umount2(runtime_dir, MNT_DETACH);
    job_witness_close(&w);
}

/* If the directory for records was temporary, a killed job leaves its group but no record. */
Test(ddprun_contain, the_next_start_removes_an_empty_group_without_a_record, .init = set_up,
     .fini = tear_down)
{
    char own[CGROUP_PATH_MAX], group[CGROUP_PATH_MAX + 100], name[100], files[300];
    find_own_group(own);
    struct run_process *p = START("--contain=cgroup", "sh", "-c",
                                  "sed -n s,^0::.*/,group=,p /proc/self/cgroup; echo ready; exec sleep 1000");
    until_ready(p);
    cr_assert_eq(sscanf(strstr(run_output(p), "group="), "group=%90s", name), 1);
    snprintf(group, sizeof(group), "%s/%s", own, name);
    cr_assert_eq(access(group, F_OK), 0);
    const pid_t agent = procstat_child(run_pid(p), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    run_signal(p, SIGSTOP);
    cr_assert(job_until_state(run_pid(p), 'T'));
    kill(agent, SIGKILL);
    kill(run_pid(p), SIGKILL);
    run_wait(p);
    for (struct patience left = { 0 }; cgroup_count(group) > 0 && patience_left(&left);)
        continue;
    snprintf(files, sizeof(files), "%s/ddprun", runtime_dir);
    job_dir_remove(strdup(files));
    RUN("--contain=cgroup", "true"); /* this start or another test removes the group */
    cr_expect_neq(access(group, F_OK), 0, "%s is left", group);
    cgroup_remove(group, PATIENCE_MS);
}

/* --- an agent whose threads end one after the other -------------------------------------------------------------- */

#define DYING_COOKIE "5d1c7f0e9b3a48266ab2745628734b15"

/* Keep the process alive with this second thread, until the test closes the pipe. */
static void *outlast(void *end)
{
    char byte;
    while (read(*(const int *)end, &byte, 1) > 0)
        continue;
    _exit(0);
}

/* Write a record as an agent does, then end the first thread. */
_Noreturn static void be_dying_agent(int ends[2])
{
    static int end;
    struct ddp_err err;
    pthread_t thread;
    close(ends[1]);
    end = ends[0];
    setenv("XDG_RUNTIME_DIR", runtime_dir, 1);
    if (record_write("dying", DYING_COOKIE, "", getppid(), getpid(), &err) != DDP_OK ||
        pthread_create(&thread, NULL, outlast, &end) != 0)
        _exit(1);
    pthread_exit(NULL);
}

/* Start an agent whose guardian has ended. Return the end of the pipe that keeps the agent alive. */
static int start_dying_agent(pid_t *agent)
{
    int ends[2], told[2];
    cr_assert(pipe2(ends, O_CLOEXEC) == 0 && pipe2(told, O_CLOEXEC) == 0);
    const pid_t guardian = fork();
    if (guardian == 0) {
        *agent = fork();
        if (*agent == 0)
            be_dying_agent(ends);
        const bool ok = write(told[1], agent, sizeof(*agent)) == (ssize_t)sizeof(*agent);
        _exit(ok && job_until_state(*agent, 'Z') ? 0 : 1);
    }
    int status;
    cr_assert_eq(read(told[0], agent, sizeof(*agent)), (ssize_t)sizeof(*agent));
    cr_assert(waitpid(guardian, &status, 0) == guardian && status == 0);
    close(ends[0]);
    close(told[0]);
    close(told[1]);
    return ends[1];
}

/* The job counts as alive until the last thread of its agent has ended. This thread may have just cloned a worker that
 * has no cookie yet, and the search for leftovers would miss this worker. */
Test(ddprun_contain, a_job_is_dead_when_the_last_thread_of_its_agent_is, .init = set_up, .fini = tear_down)
{
    pid_t agent;
    const int hold = start_dying_agent(&agent);
    const struct run_options marked = { .env = (const char *const[]){ "DDPRUN_COOKIE=" DYING_COOKIE, NULL } };
    struct run_process *worker = run_start((const char *const[]){ "sleep", "60", NULL }, &marked);
    struct run_result r = RUN("--contain=plain", "true");
    SILENT(r, "ended before");
    cr_expect_eq(records(), 1, "the record was taken away");
    const int pidfd = pidfd_open(agent, 0);
    close(hold);
    wait_for_end(pidfd);
    r = RUN("--contain=plain", "true");
    expect_words(r.err, "job 'dying':");
    cr_expect_eq(records(), 0);
    r = run_wait(worker);
    cr_expect_eq(r.signal, SIGKILL);
}

/* A record is only a file, so pids in it are never a reason to kill. */
Test(ddprun_contain, records_that_are_none_do_no_harm, .init = set_up, .fini = tear_down)
{
    char path[256];
    struct run_result r = RUN("--contain=plain", "true");
    snprintf(path, sizeof(path), "%s/ddprun/6ab2745628734b15bf11998535d9b413", runtime_dir);
    FILE *f = fopen(path, "we");
    cr_assert_not_null(f);
    fprintf(f, "ddprun-record 1\nboot x\npid_namespace 1\nguardian 1 1\nagent %d 1\ncookie \n",
            (int)getpid());
    fclose(f);
    r = RUN("--contain=plain", "true");
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
}

/* --- records of other PID namespaces ----------------------------------------------------------------------------- */

#define ELSEWHERE_COOKIE "77f0e1d2c3b4a59687786950413223f4"

static void skip_unless_all_is_seen(void)
{
    struct stat st;
    if (stat("/proc/self/ns/pid", &st) != 0 || st.st_ino != 0xEFFFFFFC || geteuid() != 0)
        cr_skip_test("skipped, because only root in the first PID namespace sees and makes the others");
}

/* Write the record of a job in the new PID namespace. In the first PID namespace, the pids in this record belong to
 * other processes. */
static void write_elsewhere(void)
{
    struct ddp_err err;
    if (record_write("elsewhere", ELSEWHERE_COOKIE, "", 1, getpid(), &err) != DDP_OK)
        _exit(1);
}

/* Start a PID namespace with a single process. This process writes the record, and ends when the pipe is closed. Return
 * the pid of its parent, which waits outside of the namespace. */
static pid_t start_elsewhere(int ends[2])
{
    char byte;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    setenv("XDG_RUNTIME_DIR", runtime_dir, 1);
    const pid_t outside = fork();
    if (outside == 0) {
        int status = 1;
        close(ends[1]);
        const pid_t first = unshare(CLONE_NEWPID | CLONE_NEWNS) == 0 ? fork() : -1;
        if (first == 0) {
            if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
                mount("proc", "/proc", "proc", 0, NULL) != 0)
                _exit(1);
            write_elsewhere();
            while (read(ends[0], &byte, 1) > 0)
                continue;
            _exit(0);
        }
        waitpid(first, &status, 0);
        _exit(status != 0);
    }
    close(ends[0]);
    return outside;
}

Test(ddprun_contain, a_record_of_a_pid_namespace_stays_as_long_as_that, .init = set_up, .fini = tear_down)
{
    int ends[2], status;
    skip_unless_all_is_seen();
    const pid_t outside = start_elsewhere(ends);
    for (struct patience p = { 0 }; records() == 0 && patience_left(&p);)
        continue;
    struct run_result r = RUN("--contain=plain", "true");
    cr_expect_eq(records(), 1, "the record of a running job was taken away");
    close(ends[1]);
    cr_assert_eq(waitpid(outside, &status, 0), outside);
    cr_assert_eq(status, 0);
    /* Another test may start a namespace with the same number as the namespace that has ended. Until the new namespace
     * ends, ddprun keeps the record, so start ddprun again. */
    for (struct patience p = { 0 }; records() > 0 && patience_left(&p);) {
        r = RUN("--contain=plain", "true");
        cr_expect_null(strstr(r.err, "ended before"), "no process was left to be killed: %s", r.err);
    }
    cr_expect_eq(records(), 0, "the record of a dead job is left");
}

/* --- PID namespace ---------------------------------------------------------------------------------------------- */

Test(ddprun_contain, in_a_pid_namespace_nothing_is_left_whoever_is_killed, .init = set_up, .fini = tear_down)
{
    struct job_witness w;
    skip_without("--contain=pidns");
    job_witness_open(&w);
    orphan_a_job("--contain=pidns", w.hold);
    cr_expect(job_witness_alone(&w), "a process is left");
    job_witness_close(&w);
    cr_expect_gt(records(), 1, "there is a record, and beside it what the worker wrote");
    struct run_result r = RUN("--contain=pidns", "true");
    cr_expect_null(strstr(r.err, "ended before"), "no process was left to be killed: %s", r.err);
    cr_expect_eq(records(), 0, "files of the dead job are left");
}

Test(ddprun_contain, a_pid_namespace_shows_the_hosts_pids_to_the_user, .init = set_up, .fini = tear_down)
{
    int told = 0, seen = 0;
    skip_without("--contain=pidns");
    struct run_process *p =
        START("-v", "--contain=pidns", "--prefix", "sh", "-c", "echo \"own $$ \"; echo ready; sleep 60");
    until_ready(p);
    cr_assert(run_until_error(p, "started, pid", PATIENCE_MS));
    cr_assert_eq(sscanf(run_output(p), "[0] own %d", &seen), 1, "%s", run_output(p));
    pid_t worker = procstat_child(procstat_child(run_pid(p), 0), 0);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    const char *words = strstr(r.err, "started, pid ");
    cr_assert_not_null(words, "%s", r.err);
    cr_assert_eq(sscanf(words, "started, pid %d", &told), 1);
    cr_expect_eq(told, worker);
    cr_expect_neq(told, seen, "the worker sees the host's pids");
}

static int leave_hanging_disk(void *arg, int lifeline)
{
    (void)arg, (void)lifeline;
    disk_begin(DISK_FILES, "/server/logs");
    return EXIT_CODE_OK;
}

static int leave_stuck_process(void *arg, int lifeline)
{
    (void)arg, (void)lifeline;
    return EXIT_CODE_UNKILLABLE;
}

static void hang(void *user)
{
    (void)user;
    for (;;)
        pause();
}

static void hang_free(void *user)
{
    (void)user;
}

static int leave_hanging_call(void *arg, int lifeline)
{
    (void)arg, (void)lifeline;
    cr_expect_not(timed_call_run(hang, hang_free, NULL, 1));
    return EXIT_CODE_OK;
}

/* Run an agent that returns from `body`, but does not exit. Expect that the guardian waits only for a limited time.
 * Nothing on this machine hangs in the kernel, so the guardian can kill this agent. The guardian is a child that exits
 * by _exit(2), because exit(3) cannot start the thread of LeakSanitizer after the PID namespace has ended. */
static void expect_guardian_leaves(enum contain_kind kind, guardian_body body)
{
    const struct contain_options options = { .kind = kind, .job = "j", .dry_run = true, .quiet = true };
    struct contain *contain;
    struct ddp_err err;
    int status = -1;
    if (contain_open(&options, &contain, &err) != DDP_OK)
        cr_skip_test("skipped, because %s", err.msg);
    const pid_t guardian = fork();
    if (guardian == 0) {
        const pid_t self = getpid();
        const int exit_code = guardian_run(body, NULL, 0, contain);
        while (getpid() != self)
            pause();
        _exit(exit_code);
    }
    cr_assert_eq(waitpid(guardian, &status, 0), guardian);
    contain_close(contain);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_CODE_UNKILLABLE, "status %d", status);
}

Test(ddprun_contain, a_hanging_disk_does_not_hold_the_guardian_of_a_pid_namespace)
{
    expect_guardian_leaves(CONTAIN_PIDNS, leave_hanging_disk);
}

Test(ddprun_contain, a_stuck_process_does_not_hold_the_guardian_of_a_pid_namespace)
{
    expect_guardian_leaves(CONTAIN_PIDNS, leave_stuck_process);
}

Test(ddprun_contain, a_hanging_driver_does_not_hold_the_guardian)
{
    expect_guardian_leaves(CONTAIN_PLAIN, leave_hanging_call);
}

/* Run ddprun with a limit on namespaces. Set the limit in a new user namespace, so that the limits of the machine stay
 * unchanged. For max_user_namespaces, drop all capabilities, because a privileged ddprun needs no user namespace. */
static struct run_result run_with_limit(const char *limit, const char *option)
{
    char script[1024];
    snprintf(script, sizeof(script),
             "echo 0 >/proc/sys/user/%s || exit 99; exec %s '%s' --standalone %s sh -c 'echo works'", limit,
             strcmp(limit, "max_user_namespaces") == 0 ? "setpriv --bounding-set=-all --inh-caps=-all" : "",
             bin("ddprun"), option);
    struct run_result r =
        run_command((const char *const[]){ "unshare", "-Ur", "sh", "-c", script, NULL }, &HERE);
    if (r.exit_code == 99 || strstr(r.err, "unshare: ") != NULL)
        cr_skip_test("skipped, because no limit can be set in a user namespace here: %s", r.err);
    return r;
}

static void expect_remedy(const char *limit, const char *step)
{
    char remedy[200];
    struct run_result r = run_with_limit(limit, "--contain=pidns");
    snprintf(remedy, sizeof(remedy), "'sysctl user.%s=10000'\n", limit);
    cr_expect_eq(r.exit_code, 125, "exit %d: %s", r.exit_code, r.err);
    expect_words(r.err, step);
    expect_words(r.err, remedy);
    cr_expect_str_eq(r.out, "");
}

Test(ddprun_contain, a_limit_of_namespaces_is_named_with_its_remedy, .init = set_up, .fini = tear_down)
{
    expect_remedy("max_pid_namespaces", "PID namespace");
    expect_remedy("max_mnt_namespaces", "mount namespace");
}

Test(ddprun_contain, a_limit_of_user_namespaces_is_named_with_its_remedy, .init = set_up, .fini = tear_down)
{
    if (bin_is_sanitized())
        cr_skip_test(
            "skipped, because ThreadSanitizer has a thread, and a process with threads cannot make a "
            "user namespace");
    expect_remedy("max_user_namespaces", "user namespace");
}

Test(ddprun_contain, a_limit_of_namespaces_is_no_obstacle_to_other_layers, .init = set_up, .fini = tear_down)
{
    struct run_result r = run_with_limit("max_pid_namespaces", "--contain=auto");
    cr_expect_eq(r.exit_code, 0, "exit %d: %s", r.exit_code, r.err);
    expect_words(r.out, "works\n");
}
