/* The user stops a job. No process may remain, whichever process of ddprun dies. */
#include "job.h"
#include "procstat.h"
#include "run.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

TestSuite(ddprun_stop, .timeout = 120);

static void until_ready(struct run_process *p, int workers)
{
    char text[32];
    for (int i = 0; i < workers; i++) {
        snprintf(text, sizeof(text), "[%d] ready\n", i);
        cr_assert(run_until_output(p, text, PATIENCE_MS), "rank %d does not come: %s", i, run_output(p));
    }
}

static pid_t the_agent(struct run_process *p)
{
    pid_t agent = procstat_child(run_pid(p), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    return agent;
}

ParameterizedTestParameters(ddprun_stop, one_signal_stops_gracefully)
{
    static int signals[] = { SIGINT, SIGTERM, SIGHUP };
    return cr_make_param_array(int, signals, sizeof(signals) / sizeof(signals[0]));
}

ParameterizedTest(int *sig, ddprun_stop, one_signal_stops_gracefully)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "say:ready", "forever");
    until_ready(p, 2);
    run_signal(p, *sig);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + *sig);
    SAYS(r, "stopping");
}

/* While the guardian waits, it gives back its memory, even the pages of its code. The guardian must still handle a
 * later signal. */
Test(ddprun_stop, a_guardian_that_has_waited_gives_memory_back_and_still_hears)
{
    enum { LOOK_MS = 50, LOOKS = 400 };
    if (bin_is_sanitized())
        cr_skip_test("skipped, because most of its memory is the sanitizer's");
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "say:ready", "forever");
    until_ready(p, 2);
    const long before = procstat_rss_kib(run_pid(p));
    for (int i = 0; i < LOOKS && procstat_rss_kib(run_pid(p)) > before * 3 / 4; i++)
        usleep(LOOK_MS * 1000);
    cr_expect_leq(procstat_rss_kib(run_pid(p)), before * 3 / 4, "it still has %ld KiB of %ld",
                  procstat_rss_kib(run_pid(p)), before);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + SIGTERM);
    SAYS(r, "stopping");
}

Test(ddprun_stop, the_second_signal_kills_those_who_do_not_listen)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "ignore:2", "ignore:15",
                                      "say:ready", "forever");
    until_ready(p, 2);
    run_signal(p, SIGINT);
    cr_expect(run_until_error(p, "stopping", PATIENCE_MS));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
}

Test(ddprun_stop, after_the_grace_time_sigkill_comes_by_itself)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", "--grace=300ms", WORKER, "ignore:15", "say:ready", "forever");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

Test(ddprun_stop, a_stopped_worker_is_woken_to_hear_it)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "say:ready", "only:1",
                                      "raise:19", "all", "forever");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

/* A start script may have children, such as a `tee` for its output, before it executes ddprun. These children must
 * outlive the job. In this test, the child has its own session, so that it is not in the process group that run_command
 * kills at the end. */
Test(ddprun_stop, children_from_before_the_exec_outlive_the_job)
{
    struct job_witness witness;
    char script[1024];
    job_witness_open(&witness);
    snprintf(script, sizeof(script),
             "exec 3>%s; setsid sh -c 'echo $$ >%s/pid; exec sleep 1000' >/dev/null 2>&1 & exec 3>&-; "
             "until [ -s %s/pid ]; do sleep 0.02; done; exec %s --standalone --nproc_per_node=1 true",
             witness.path, witness.dir, witness.dir, bin("ddprun"));
    struct run_result r = run_command((const char *const[]){ "sh", "-c", script, NULL }, NULL);
    EXPECT(r, 0);
    SILENT(r, "cannot kill");
    cr_expect(job_witness_sees_some(&witness));
    char *pid = job_file(witness.dir, "pid");
    cr_assert_not_null(pid, "%s", r.err);
    kill((pid_t)atoi(pid), SIGKILL);
    free(pid);
    job_witness_close(&witness);
}

static int code_of_a_graceful_end(const char *policy)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", policy, WORKER, "catch:15", "say:ready", "pause", "exit:0");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    const int code = r.exit_code;
    return code;
}

/* Some batch systems send SIGTERM before they end a job, and count its exit code 143 as a failure. */
Test(ddprun_stop, workers_that_save_and_end_well_make_a_success_by_policy)
{
    cr_expect_eq(code_of_a_graceful_end("--exit_code=workers"), 0);
    cr_expect_eq(code_of_a_graceful_end("--exit_code=first"), 143);
}

Test(ddprun_stop, a_stopped_agent_is_woken_to_hear_it)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "say:ready", "forever");
    until_ready(p, 2);
    pid_t agent = the_agent(p);
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

/* Stop the agent (SIGSTOP) and end the job, as two users may do at the same time. `first` is the signal that is sent
 * first. The agent must not stay stopped in either order. */
static void stop_and_end(int first)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "say:ready", "forever");
    until_ready(p, 2);
    const pid_t agent = the_agent(p);
    if (first == SIGSTOP)
        kill(agent, SIGSTOP);
    run_signal(p, SIGTERM);
    if (first == SIGTERM)
        kill(agent, SIGSTOP);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

Test(ddprun_stop, an_agent_that_is_about_to_stop_is_woken_to_hear_it)
{
    stop_and_end(SIGSTOP);
}

Test(ddprun_stop, an_agent_that_is_stopped_while_it_ends_the_job_goes_on)
{
    stop_and_end(SIGTERM);
}

/* Stop the agent with SIGSTOP after the agent has begun to end the job. The guardian must resume the agent with
 * SIGCONT, so that the job can end. */
Test(ddprun_stop, nor_is_it_left_standing_when_the_user_has_chosen_the_signal)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--signals_to_handle=SIGUSR1", "--grace=300ms",
                                      WORKER, "ignore:10", "ignore:15", "say:ready", "forever");
    until_ready(p, 2);
    const pid_t agent = the_agent(p);
    run_signal(p, SIGUSR1);
    cr_expect(run_until_error(p, "stopping", PATIENCE_MS));
    kill(agent, SIGSTOP);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + SIGUSR1);
}

/* Start ddprun with a pipe as stdout, which no process reads. The test reads only the stderr of ddprun. */
static struct run_process *start_unread(int *reader, const char *program, const char *arguments)
{
    char command[1024];
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    snprintf(command, sizeof(command), "exec '%s' -q --standalone --nproc_per_node=2 '%s' %s >/dev/fd/%d",
             bin("ddprun"), program, arguments, ends[1]);
    fcntl(ends[1], F_SETFD, 0);
    struct run_process *p = run_start((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    close(ends[1]);
    *reader = ends[0];
    return p;
}

/* The reader of ddprun's output does not read: it may be stopped, or wait for ddprun. The user's signal must end
 * ddprun, even if the rest of the output is lost. */
Test(ddprun_stop, after_the_users_stop_nobody_waits_for_a_reader_that_does_not_read)
{
    int reader;
    struct run_process *p = start_unread(&reader, "yes", "");
    cr_assert(job_until_full(reader));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    SAYS(r, "the reader");
    close(reader);
}

Test(ddprun_stop, daemons_are_gone_when_the_job_has_ended)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r =
        JOB("--nproc_per_node=2", "--grace=0.2", WORKER, w.hold, "child", "daemon", "say:ready");
    EXPECT(r, 0);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

Test(ddprun_stop, daemons_are_gone_when_a_worker_has_failed)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0.2", WORKER, w.hold, "daemon", "only:1",
                              "exit:9", "all", "forever");
    EXPECT(r, 9);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

Test(ddprun_stop, a_chain_that_forks_for_ever_is_caught)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0", WORKER, w.hold, "chain", "sleep:50");
    EXPECT(r, 0);
    cr_expect(job_witness_alone(&w));
    job_witness_close(&w);
}

/* Start a job with every kind of descendant, kill one process with SIGKILL, and expect that all processes end. */
static void kill_and_look(pid_t (*victim)(struct run_process *), struct run_result *r)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = JOB_START("--nproc_per_node=4", WORKER, w.hold, "ignore:15", "child", "daemon",
                                      "say:ready", "forever");
    until_ready(p, 4);
    kill(victim(p), SIGKILL);
    cr_expect(job_witness_alone(&w), "a process is left");
    *r = run_wait(p);
    job_witness_close(&w);
}

static pid_t the_guardian(struct run_process *p)
{
    return run_pid(p);
}

Test(ddprun_stop, nothing_is_left_after_kill_9_of_the_guardian)
{
    struct run_result r;
    kill_and_look(the_guardian, &r);
    cr_expect_eq(r.signal, SIGKILL);
}

Test(ddprun_stop, nothing_is_left_after_kill_9_of_the_agent)
{
    struct run_result r;
    kill_and_look(the_agent, &r);
    EXPECT(r, 137);
    SAYS(r, "SIGKILL");
}

/* Return true if a process has these words in its command line. The command line of the agent contains the words of its
 * workers, too. So the result is true until the agent and its workers have ended. */
static bool is_anybody_called(const char *words)
{
    struct run_result r = run_command((const char *const[]){ "pgrep", "-f", words, NULL }, NULL);
    const bool is = r.exit_code == 0;
    return is;
}

Test(ddprun_stop, nothing_is_left_when_the_guardian_is_killed_during_the_start)
{
    for (int i = 0; i < 20; i++) {
        struct job_witness w;
        job_witness_open(&w);
        struct run_process *p = JOB_START("--nproc_per_node=8", WORKER, w.hold, "daemon", "forever");
        usleep((useconds_t)(1000 * i));
        kill(run_pid(p), SIGKILL);
        run_wait(p);
        /* Do not use job_witness_alone: when it checks, a late worker may not have opened the file yet. */
        for (struct patience left = { 0 }; is_anybody_called(w.path);)
            cr_assert(patience_left(&left), "round %d: a process is left", i);
        job_witness_close(&w);
    }
}

/* The job is over, but the process that holds ddprun's stdout does not read. One signal must end ddprun. */
Test(ddprun_stop, output_that_nobody_reads_does_not_hold_us_for_ever)
{
    int reader;
    struct run_process *p = start_unread(&reader, bin("tests/prog/worker"), "long:1000000 err:done");
    cr_expect(run_until_error(p, "[0] done", PATIENCE_MS));
    cr_expect(run_until_error(p, "[1] done", PATIENCE_MS));
    cr_expect(job_until_full(reader));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_expect_not(r.timed_out);
    cr_expect(r.exit_code == 0 || r.exit_code == 143, "exit %d", r.exit_code);
    close(reader);
}

/* Tests of a worker that hangs in the kernel (state D), so that not even SIGKILL ends it. The tests must be able to end
 * this state. Only a frozen cgroup of version 1 allows this: when the cgroup is thawed, the worker dies. The tests need
 * root and the freezer hierarchy. */

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

/* Thaw the group, so that its processes can die. A group with processes cannot be removed. */
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
        run_wait(p);
        cr_skip_test("skipped, because a frozen process is not in state D here");
    }
    /* rank 0 fails; rank 1 must then be stopped, but no signal can end it */
    kill(procstat_child(agent, 0), SIGKILL);
    struct run_result r = run_wait(p);
    char words[64];
    snprintf(words, sizeof(words), "pid %d (rank 1, worker)", (int)worker);
    cr_expect_eq(r.exit_code, 124, "exit %d\n%s", r.exit_code, r.err);
    cr_expect(strstr(r.err, words) != NULL, "'%s' is not in:\n%s", words, r.err);
    SAYS(r, "state D");
    SAYS(r, "none: a process");
    cr_expect(strstr(r.err, "rank 0") != NULL, "the cause is named as well:\n%s", r.err);
}

/* Rank 1 stops outside of a collective, and the other rank waits for rank 1 in a collective. Long before any timeout,
 * ddprun must name rank 1. The records must contain the last collective of each rank. */

static char *dir;

static void make(void)
{
    dir = job_dir();
}

static void done(void)
{
    job_dir_remove(dir);
}

TestSuite(ddprun_still, .init = make, .fini = done, .timeout = 180);

/* Start a job of two still_workers with logs in `dir`. Rank 1 does what `how` specifies. */
static struct run_process *start(const char *how)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--node_timeout=1s", "--grace=1s", "--log_dir",
                                      dir, bin("tests/prog/still_worker"), how, "1");
    cr_assert_not_null(p);
    return p;
}

/* Read the address of the store from rank 0. */
static const char *store_of(struct run_process *p)
{
    static char address[64];
    cr_assert(run_until_output(p, "[1] rank 1 has made 3 steps", PATIENCE_MS), "%s", run_output(p));
    cr_assert(run_until_output(p, "[0] rank 0 has made 3 steps", PATIENCE_MS), "%s", run_output(p));
    const char *at = strstr(run_output(p), "store ");
    cr_assert(at != NULL && sscanf(at, "store %63s", address) == 1, "%s", run_output(p));
    return address;
}

/* Ask the store until its answer contains all of `parts`. */
static void expect_why(const char *store, const char *const parts[])
{
    const char *const ask[] = { bin("ddpctl"), "--addr", store, "why", NULL };
    bool all = false;
    struct run_result r = { 0 };
    for (struct patience p = { 0 }; !all && patience_left(&p);) {
        r = run_command(ask, NULL);
        all = true;
        for (const char *const *part = parts; *part != NULL; part++)
            all = all && strstr(r.out, *part) != NULL;
    }
    cr_expect(all, "%s%s", r.out, r.err);
}

/* Return the record of `rank`; the caller frees it. */
static char *record_of(int rank)
{
    char name[64];
    snprintf(name, sizeof(name), "latest/attempt_0/flight_%d.json", rank);
    return job_file(dir, name);
}

static void expect_record(int rank, const char *const parts[])
{
    char *text = record_of(rank);
    cr_assert_not_null(text, "rank %d left no record", rank);
    for (; *parts != NULL; parts++)
        cr_expect_not_null(strstr(text, *parts), "'%s' is not in: %s", *parts, text);
    free(text);
}

static void expect_compared(const char *words)
{
    char paths[2][256];
    for (int rank = 0; rank < 2; rank++)
        snprintf(paths[rank], sizeof(paths[rank]), "%s/latest/attempt_0/flight_%d.json", dir, rank);
    const char *const ask[] = { bin("ddpctl"), "flight", paths[0], paths[1], NULL };
    struct run_result r = run_command(ask, NULL);
    cr_expect_eq(r.exit_code, 0);
    cr_expect_not_null(strstr(r.out, words), "%s%s", r.out, r.err);
}

#define PARTS(...) ((const char *const[]){ __VA_ARGS__, NULL })

Test(ddprun_still, a_rank_that_is_stopped_is_named_while_the_other_waits)
{
    struct run_process *p = start("stop");
    const char *store = store_of(p);
    expect_why(store, PARTS("[RANK_STALLED]", "rank 1 (", "(last step: 3); 1 other",
                            "in all_reduce #5; it is", "(state T)"));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    SAYS(r, "ddpctl flight ");
    expect_record(0, PARTS("\"state\":\"started\"", "\"collective_seq_id\":5"));
    expect_record(1, PARTS("by ddprun", "\"last_completed_collective\":4"));
    expect_compared("behind    rank 1; rank 0 reached all_reduce #5 (f32 x 16, sum)\n");
}

Test(ddprun_still, a_rank_that_loops_is_named_and_says_on_request_what_it_did)
{
    char *text = NULL;
    struct run_process *p = start("loop");
    const char *store = store_of(p);
    expect_why(store, PARTS("[RANK_STALLED]", "rank 1 (", "it computes ("));
    run_signal(p, SIGUSR1);
    for (struct patience w = { 0 }; (text == NULL) && patience_left(&w);)
        text = record_of(1);
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "\"why\":\"SIGUSR1\""), "%s", text);
    free(text);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    cr_expect_eq(r.exit_code, 143, "%s", r.err);
}

/* The last completed collective of rank 0 is not checked, because ddprun may have stopped rank 0 before the collective
 * returned. */
Test(ddprun_still, a_rank_that_is_killed_has_left_its_record)
{
    struct run_result r = run_wait(start("die"));
    cr_expect_eq(r.exit_code, 137, "%s", r.err);
    expect_record(0, PARTS("\"format\":\"ddp-flight\"", "cpu:all_reduce"));
    expect_record(1, PARTS("killed by SIGKILL", "\"last_completed_collective\":4"));
}

Test(ddprun_still, a_job_that_goes_well_leaves_no_record)
{
    struct run_result r = run_wait(start("go"));
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    cr_expect_null(record_of(0));
    cr_expect_null(record_of(1));
}
