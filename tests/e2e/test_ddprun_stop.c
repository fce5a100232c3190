/* test_ddprun_stop.c -- the user stops a job; and nothing is left, whatever dies. */
#include "job.h"
#include "run.h"
#include "procstat.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* --- signals ---------------------------------------------------------------------------------------------------- */

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
    cr_expect_not_null(strstr(r.err, "stopping the workers"), "%s", r.err);
    run_free(&r);
}

/* It needs its code again for the end. */
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
    cr_expect_not_null(strstr(r.err, "stopping the workers"), "%s", r.err);
    run_free(&r);
}

Test(ddprun_stop, the_second_signal_kills_those_who_do_not_listen)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "ignore:2", "ignore:15",
                                      "say:ready", "forever");
    until_ready(p, 2);
    run_signal(p, SIGINT);
    cr_expect(run_until_error(p, "stopping the workers", PATIENCE_MS));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 130);
    run_free(&r);
}

Test(ddprun_stop, after_the_grace_time_sigkill_comes_by_itself)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", "--grace=300ms", WORKER, "ignore:15", "say:ready", "forever");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    run_free(&r);
}

Test(ddprun_stop, a_stopped_worker_is_woken_to_hear_it)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "say:ready", "only:1",
                                      "raise:19", "all", "forever");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    run_free(&r);
}

static int code_of_a_graceful_end(const char *policy)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", policy, WORKER, "catch:15", "say:ready", "pause", "exit:0");
    until_ready(p, 2);
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    const int code = r.exit_code;
    run_free(&r);
    return code;
}

/* A batch system that sends SIGTERM before its time limit takes 143 for a failure. */
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
    run_free(&r);
}

/* Who stops it and who ends the job may be two, and a stop takes a moment: neither order may leave it standing. */
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
    run_free(&r);
}

Test(ddprun_stop, an_agent_that_is_about_to_stop_is_woken_to_hear_it)
{
    stop_and_end(SIGSTOP);
}

Test(ddprun_stop, an_agent_that_is_stopped_while_it_ends_the_job_goes_on)
{
    stop_and_end(SIGTERM);
}

/* Its message has been read by then: only that it ends the job makes the guardian wake it. */
Test(ddprun_stop, nor_is_it_left_standing_when_the_user_has_chosen_the_signal)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--signals_to_handle=SIGUSR1", "--grace=300ms",
                                      WORKER, "ignore:10", "ignore:15", "say:ready", "forever");
    until_ready(p, 2);
    const pid_t agent = the_agent(p);
    run_signal(p, SIGUSR1);
    cr_expect(run_until_error(p, "stopping the workers", PATIENCE_MS));
    kill(agent, SIGSTOP);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + SIGUSR1);
    run_free(&r);
}

/* ddprun whose stdout is a pipe that nobody reads; stderr comes to us. */
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

/* Whoever reads our output may be stopped, or be waiting for us; the user's word counts more than the rest of it. */
Test(ddprun_stop, after_the_users_stop_nobody_waits_for_a_reader_that_does_not_read)
{
    int reader;
    struct run_process *p = start_unread(&reader, "yes", "");
    cr_assert(job_until_full(reader));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    cr_expect_not_null(strstr(r.err, "before all output was written"), "%s", r.err);
    run_free(&r);
    close(reader);
}

/* --- nothing is left -------------------------------------------------------------------------------------------- */

Test(ddprun_stop, daemons_are_gone_when_the_job_has_ended)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r =
        JOB("--nproc_per_node=2", "--grace=0.2", WORKER, w.hold, "child", "daemon", "say:ready");
    EXPECT(r, 0);
    cr_expect(job_witness_alone(&w));
    run_free(&r);
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
    run_free(&r);
    job_witness_close(&w);
}

Test(ddprun_stop, a_chain_that_forks_for_ever_is_caught)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0", WORKER, w.hold, "chain", "sleep:50");
    EXPECT(r, 0);
    cr_expect(job_witness_alone(&w));
    run_free(&r);
    job_witness_close(&w);
}

/* Start a job with every kind of descendant, kill one process with SIGKILL, see that all are gone. */
static void kill_and_look(pid_t (*victim)(struct run_process *), struct run_result *r)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = JOB_START("--nproc_per_node=4", WORKER, w.hold, "ignore:15", "child", "daemon",
                                      "say:ready", "forever");
    until_ready(p, 4);
    kill(victim(p), SIGKILL);
    cr_expect(job_witness_alone(&w), "somebody is left");
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
    run_free(&r);
}

Test(ddprun_stop, nothing_is_left_after_kill_9_of_the_agent)
{
    struct run_result r;
    kill_and_look(the_agent, &r);
    EXPECT(r, 137);
    cr_expect_not_null(strstr(r.err, "SIGKILL"), "%s", r.err);
    run_free(&r);
}

/* Has a process these words in its command line? The agent has the workers' words, too. */
static bool is_anybody_called(const char *words)
{
    struct run_result r = run_command((const char *const[]){ "pgrep", "-f", words, NULL }, NULL);
    const bool is = r.exit_code == 0;
    run_free(&r);
    return is;
}

/* At any moment of the start, too. */
Test(ddprun_stop, nothing_is_left_when_the_guardian_is_killed_during_the_start)
{
    for (int i = 0; i < 20; i++) {
        struct job_witness w;
        job_witness_open(&w);
        struct run_process *p = JOB_START("--nproc_per_node=8", WORKER, w.hold, "daemon", "forever");
        usleep((useconds_t)(1000 * i));
        kill(run_pid(p), SIGKILL);
        struct run_result r = run_wait(p);
        run_free(&r);
        /* Not the witness: a worker that comes after the look has not opened anything yet. */
        for (struct patience left = { 0 }; is_anybody_called(w.path);)
            cr_assert(patience_left(&left), "round %d: somebody is left", i);
        job_witness_close(&w);
    }
}

/* Somebody holds our stdout and does not read: the job is over, and one signal is enough to go. */
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
    run_free(&r);
    close(reader);
}
