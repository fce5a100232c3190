/* test_stdin.c -- ddprun's stdin, for the workers that --stdin names. */
#include "job.h"
#include "run.h"
#include "procstat.h"

#include <criterion/criterion.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

TestSuite(stdin_e2e, .timeout = 120);

/* "... | ddprun -q --standalone OPTIONS", by a shell in which $DDPRUN stands for the command up to there. */
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
    run_free(&r);
}

/* --- everything, to everybody ------------------------------------------------------------------------------------ */

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

/* A pipe that comes in drops, so that the relay sleeps in between. */
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
    cr_expect_not_null(strstr(r.err, "--stdin names local rank 2"), "%s", r.err);
    run_free(&r);
    r = shell("$D --stdin=some cat");
    EXPECT(r, 2);
    cr_expect_not_null(strstr(r.err, "'all', 'none', or ranks"), "%s", r.err);
    run_free(&r);
}

/* --- readers of all kinds ---------------------------------------------------------------------------------------- */

/* Rank 1 closes its stdin, rank 2 reads a little and ends, leaving a child behind that holds the pipe. */
Test(stdin_e2e, who_does_not_want_more_does_not_stop_the_others)
{
    expect_output("head -c 8000000 /dev/zero | $D --nproc_per_node=4 --stdin=all --grace=0.2 sh -c '"
                  "case $RANK in"
                  " 1) exec <&-; sleep 1;;"
                  " 2) head -c 10 >/dev/null; sleep 60 & ;;"
                  " *) wc -c;; esac'",
                  "8000000\n8000000\n");
}

/* The slowest sets the pace, and what waits for it waits in the pipe, not in our memory. */
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
    run_free(&r);
}

/* Rank 0 alone: it has the very descriptor, so the next attempt reads on behind what the one before has read. */
Test(stdin_e2e, an_attempt_reads_on_where_the_last_one_stopped)
{
    struct run_result r = shell(
        "printf 'a\\nb\\n' | $D --max_restarts=1 --restart_backoff=0 sh -c 'read x; echo $x; [ $x = b ]'");
    EXPECT(r, 0);
    cr_expect_str_eq(r.out, "a\nb\n");
    run_free(&r);
}

/* --- a terminal -------------------------------------------------------------------------------------------------- */

/* A session of its own whose leader, a shell so to say, starts ddprun in the background and brings it to the front
 * when it gets SIGUSR1. */
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
