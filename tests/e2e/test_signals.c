/* test_signals.c -- sends each signal of launcher/tables/signals.h to the guardian, to the agent and to a worker.
 * Schedulers and users send signals to any of these processes, and no worker may outlive its job. */
#include "job.h"
#include "run.h"
#include "procstat.h"

#include "tables/signals.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(signals_e2e, .timeout = 120);

/* The receiver of a signal. */
enum target { GUARDIAN, AGENT, TARGETS };

static void until_said(struct run_process *p, int workers, const char *what)
{
    char text[64];
    for (int i = 0; i < workers; i++) {
        snprintf(text, sizeof(text), "[%d] %s\n", i, what);
        cr_assert(run_until_output(p, text, PATIENCE_MS), "rank %d does not say '%s': %s", i, what,
                  run_output(p));
    }
}

static pid_t the_agent(struct run_process *p)
{
    pid_t agent = procstat_child(run_pid(p), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    return agent;
}

static pid_t the_worker(struct run_process *p, int n)
{
    pid_t worker = procstat_child(the_agent(p), n);
    cr_assert_neq(worker, 0);
    return worker;
}

static void send_to(struct run_process *p, enum target target, int sig)
{
    kill(target == GUARDIAN ? run_pid(p) : the_agent(p), sig);
}

/* End a job after the test has shown that the job continues. */
static void end(struct run_process *p)
{
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

/* --- to the guardian and to the agent ---------------------------------------------------------------------------- */

/* One signal to the guardian or to the agent. */
struct cell {
    enum target target;
    int sig;
};

static struct criterion_test_params cells_of(enum signal_act act, enum signal_act or_act)
{
    static struct cell list[TARGETS * SIGNAL_ROWS];
    size_t n = 0;
    for (int i = 0; i < SIGNAL_ROWS; i++)
        for (int t = 0; t < TARGETS && (signal_rows[i].act == act || signal_rows[i].act == or_act); t++)
            list[n++] = (struct cell){ .target = (enum target)t, .sig = signal_rows[i].number };
    return cr_make_param_array(struct cell, list, n);
}

static struct criterion_test_params cells(enum signal_act act)
{
    return cells_of(act, act);
}

ParameterizedTestParameters(signals_e2e, a_stop_is_graceful_and_names_who_sent_it)
{
    return cells(SIGNAL_STOP);
}

ParameterizedTest(struct cell *c, signals_e2e, a_stop_is_graceful_and_names_who_sent_it)
{
    char catch[16], sender[64];
    snprintf(catch, sizeof(catch), "catch:%d", c->sig);
    snprintf(sender, sizeof(sender), "(pid %d, uid %u): stopping", (int)getpid(), getuid());
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, catch, "say:ready", "pause", "exit:5");
    until_said(p, 2, "ready");
    send_to(p, c->target, c->sig);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + c->sig);
    cr_expect_not_null(strstr(r.out, "[0] caught"), "the worker did not get it: %s", r.out);
    cr_expect_not_null(strstr(r.err, sender), "%s is not in: %s", sender, r.err);
}

ParameterizedTestParameters(signals_e2e, the_status_names_each_worker_and_the_job_goes_on)
{
    return cells(SIGNAL_STATUS);
}

ParameterizedTest(struct cell *c, signals_e2e, the_status_names_each_worker_and_the_job_goes_on)
{
    char line[64];
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, "say:ready", "only:1", "exit:0", "all", "forever");
    until_said(p, 2, "ready");
    pid_t worker = the_worker(p, 0);
    snprintf(line, sizeof(line), "rank 0 (pid %d)", (int)worker);
    send_to(p, c->target, c->sig);
    cr_expect(run_until_error(p, line, PATIENCE_MS));
    cr_expect(run_until_error(p, "rank 1", PATIENCE_MS));
    end(p);
}

ParameterizedTestParameters(signals_e2e, every_worker_gets_what_is_theirs)
{
    return cells(SIGNAL_PASS);
}

/* The children of the workers do not get the signal: a child would print "child" and die. */
ParameterizedTest(struct cell *c, signals_e2e, every_worker_gets_what_is_theirs)
{
    char catch[16], caught[16];
    snprintf(catch, sizeof(catch), "catch:%d", c->sig);
    snprintf(caught, sizeof(caught), "caught %d", c->sig);
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "child", catch, "say:ready", "forever");
    until_said(p, 2, "ready");
    send_to(p, c->target, c->sig);
    until_said(p, 2, caught);
    cr_expect(run_until_error(p, "to 2 workers", PATIENCE_MS));
    cr_expect(job_until_state(procstat_child(the_worker(p, 0), 0), 'S'), "the worker's child has died");
    end(p);
}

ParameterizedTestParameters(signals_e2e, some_change_nothing)
{
    return cells_of(SIGNAL_NONE, SIGNAL_CHILD);
}

ParameterizedTest(struct cell *c, signals_e2e, some_change_nothing)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "catch:10", "say:ready", "forever");
    until_said(p, 2, "ready");
    send_to(p, c->target, c->sig);
    send_to(p, c->target, SIGUSR1); /* arrives after the tested signal */
    until_said(p, 2, "caught 10");
    cr_expect(job_until_state(the_agent(p), 'S'));
    end(p);
}

ParameterizedTestParameters(signals_e2e, the_job_rests_and_goes_on)
{
    return cells(SIGNAL_REST);
}

ParameterizedTest(struct cell *c, signals_e2e, the_job_rests_and_goes_on)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, "ignore:20", "catch:18", "child", "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t worker = the_worker(p, 1), child = procstat_child(worker, 0);
    send_to(p, c->target, c->sig);
    cr_expect(job_until_state(worker, 'T'));
    cr_expect(job_until_state(child, 'T'));
    cr_expect(job_until_state(run_pid(p), c->target == GUARDIAN ? 'T' : 'S'));
    send_to(p, c->target, SIGCONT);
    until_said(p, 2, "caught 18");
    cr_expect(job_until_state(child, 'S'));
    cr_expect(job_until_state(run_pid(p), 'S'));
    end(p);
}

/* `kill %1` in a shell sends SIGTERM, then SIGCONT. */
Test(signals_e2e, a_job_that_rests_can_be_stopped)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "say:ready", "forever");
    until_said(p, 2, "ready");
    run_signal(p, SIGTSTP);
    cr_assert(job_until_state(the_worker(p, 0), 'T'));
    cr_assert(job_until_state(run_pid(p), 'T'));
    run_signal(p, SIGTERM);
    run_signal(p, SIGCONT);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

/* --- to a worker ------------------------------------------------------------------------------------------------- */

ParameterizedTestParameters(signals_e2e, a_worker_that_dies_of_it_has_failed)
{
    static int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGXFSZ };
    return cr_make_param_array(int, signals, sizeof(signals) / sizeof(signals[0]));
}

ParameterizedTest(int *sig, signals_e2e, a_worker_that_dies_of_it_has_failed)
{
    char first[64];
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t worker = the_worker(p, 1);
    snprintf(first, sizeof(first), "(local rank 1), pid %d", (int)worker);
    kill(worker, *sig);
    struct run_result r = run_wait(p);
    EXPECT(r, 128 + *sig);
    SAYS(r, first);
}

Test(signals_e2e, a_worker_that_is_stopped_is_named_and_goes_on)
{
    char note[64];
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, "catch:18", "catch:28", "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t worker = the_worker(p, 1);
    kill(worker, SIGCHLD);
    kill(worker, SIGWINCH);
    cr_assert(run_until_output(p, "[1] caught 28", PATIENCE_MS));
    kill(worker, SIGTSTP);
    snprintf(note, sizeof(note), "kill -CONT %d", (int)worker);
    cr_expect(run_until_error(p, "by SIGTSTP", PATIENCE_MS));
    cr_expect(run_until_error(p, note, PATIENCE_MS));
    kill(worker, SIGCONT);
    cr_expect(run_until_output(p, "[1] caught 18", PATIENCE_MS));
    cr_expect_null(strstr(run_output(p), "[0] caught"));
    end(p);
}

/* --- repetition -------------------------------------------------------------------------------------------------- */

/* pkill, scancel and systemd send a signal to both the guardian and the agent. */
Test(signals_e2e, one_request_to_both_processes_is_one_request)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", "--grace=60", WORKER, "catch:15", "say:ready", "forever");
    until_said(p, 2, "ready");
    send_to(p, AGENT, SIGTERM);
    send_to(p, GUARDIAN, SIGTERM);
    until_said(p, 2, "caught 15");
    usleep(300000);
    cr_expect_not(run_until_error(p, "again", 1), "the copy was taken for a second request");
    send_to(p, GUARDIAN, SIGTERM);
    cr_expect(run_until_error(p, "again: killing", PATIENCE_MS));
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
}

Test(signals_e2e, a_second_hangup_is_not_a_second_request)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=1", "--prefix", "--grace=60", WORKER, "catch:1", "say:ready", "forever");
    until_said(p, 1, "ready");
    run_signal(p, SIGHUP);
    until_said(p, 1, "caught 01");
    run_signal(p, SIGHUP);
    usleep(200000);
    cr_expect_not(run_until_error(p, "again", 1));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 129);
    SAYS(r, "SIGTERM from ");
}

/* --- user's choices ---------------------------------------------------------------------------------------------- */

Test(signals_e2e, what_is_ignored_stays_ignored)
{
    char script[1024];
    snprintf(script, sizeof(script),
             "trap '' HUP USR1; exec '%s' --standalone --prefix '%s' state say:ready forever", bin("ddprun"),
             bin("tests/prog/worker"));
    struct run_process *p = run_start((const char *const[]){ "sh", "-c", script, NULL }, NULL);
    until_said(p, 1, "ready");
    run_signal(p, SIGHUP);
    run_signal(p, SIGUSR1);
    kill(the_agent(p), SIGHUP);
    cr_expect_not_null(strstr(run_output(p), "ignored=2"), "%s", run_output(p));
    end(p);
}

Test(signals_e2e, a_list_makes_other_signals_stop_the_job)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--signals-to-handle=SIGTERM,SIGUSR1,SIGQUIT",
                                      WORKER, "catch:10", "say:ready", "pause");
    until_said(p, 2, "ready");
    run_signal(p, SIGUSR1);
    struct run_result r = run_wait(p);
    EXPECT(r, 138);
    PRINTS(r, "[1] caught 10");
}

Test(signals_e2e, a_name_that_is_not_known_is_refused)
{
    struct run_result r = JOB("--signals-to-handle=SIGTERM,SIGFOO", WORKER);
    EXPECT(r, 2);
    SAYS(r, "'SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1' or 'SIGUSR2'");
}

Test(signals_e2e, events_and_report_carry_the_sender)
{
    char pid[64], report[64];
    struct run_process *p =
        JOB_START("--nproc_per_node=1", "--json", WORKER, "catch:12", "say:ready", "forever");
    cr_assert(run_until_output(p, "\"ready\"", PATIENCE_MS));
    run_signal(p, SIGUSR2);
    cr_expect(run_until_output(p, "\"event\":\"signal_passed\"", PATIENCE_MS));
    run_signal(p, SIGTERM);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    snprintf(pid, sizeof(pid), "\"sender_pid\":%d,\"sender_name\":\"test_signals", (int)getpid());
    snprintf(report, sizeof(report), "\"stop_sender_pid\":%d,", (int)getpid());
    PRINTS(r, pid);
    PRINTS(r, report);
}

/* --- stopped guardian and agent ---------------------------------------------------------------------------------- */

Test(signals_e2e, a_stopped_agent_wakes_when_its_guardian_is_killed)
{
    struct job_witness w;
    job_witness_open(&w);
    struct run_process *p = JOB_START("--nproc_per_node=2", WORKER, w.hold, "daemon", "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t agent = the_agent(p);
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    kill(run_pid(p), SIGKILL);
    cr_expect(job_witness_alone(&w), "a process is left");
    run_wait(p);
    job_witness_close(&w);
}

/* A stopped guardian cannot act before SIGCONT, but the workers die without its help. */
Test(signals_e2e, a_stopped_guardian_cleans_up_when_it_goes_on)
{
    struct job_witness workers, all;
    job_witness_open(&workers);
    job_witness_open(&all);
    struct run_process *p =
        JOB_START("--nproc_per_node=2", WORKER, all.hold, "daemon", workers.hold, "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t agent = the_agent(p);
    run_signal(p, SIGSTOP);
    cr_assert(job_until_state(run_pid(p), 'T'));
    kill(agent, SIGKILL);
    cr_expect(job_witness_alone(&workers), "a worker is left");
    run_signal(p, SIGCONT);
    cr_expect(job_witness_alone(&all), "a daemon is left");
    struct run_result r = run_wait(p);
    EXPECT(r, 137);
    job_witness_close(&workers);
    job_witness_close(&all);
}

/* When a virtual machine is moved, all processes pause. No node may be reported because of this pause. */
Test(signals_e2e, a_launcher_that_stood_still_blames_nobody)
{
    struct run_process *p = JOB_START("--nproc_per_node=2", "--grace=300ms", WORKER, "say:ready", "forever");
    until_said(p, 2, "ready");
    pid_t agent = the_agent(p), worker = the_worker(p, 0);
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    kill(agent, SIGTERM); /* both the signal and the end of the grace period wait until the agent continues */
    usleep(500000);
    kill(agent, SIGCONT);
    struct run_result r = run_wait(p);
    EXPECT(r, 143);
    SAYS(r, "consequence (SIGTERM)");
    cr_expect(kill(worker, 0) != 0 && errno == ESRCH);
}

/* --- a terminal -------------------------------------------------------------------------------------------------- */

/* A new terminal, whose session has only ddprun. */
struct terminal {
    int fd;
    pid_t pid;
    char seen[65536];
    size_t len;
};

static void terminal_start(struct terminal *t, const char *const argv[])
{
    const struct winsize size = { .ws_row = 24, .ws_col = 80 };
    t->pid = forkpty(&t->fd, NULL, NULL, &size);
    if (t->pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    setenv("NO_COLOR", "1", 1);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* Read until `text` appears, or the terminal ends. */
static bool terminal_until(struct terminal *t, const char *text)
{
    while (strstr(t->seen, text) == NULL) {
        ssize_t n = read(t->fd, t->seen + t->len, sizeof(t->seen) - 1 - t->len);
        if (n <= 0)
            return false;
        t->len += (size_t)n;
    }
    return true;
}

static int terminal_end(struct terminal *t)
{
    int status = 0;
    terminal_until(t, "never said");
    waitpid(t->pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void terminal_job(struct terminal *t)
{
    terminal_start(t, (const char *const[]){ bin("ddprun"), "--standalone", "--nproc_per_node=2",
                                             "--grace=60", bin("tests/prog/worker"), "catch:28", "say:ready",
                                             "forever", NULL });
    cr_assert(terminal_until(t, "[0] ready") && terminal_until(t, "[1] ready"), "%s", t->seen);
}

Test(signals_e2e, the_keys_of_a_terminal_do_what_they_always_do)
{
    static struct terminal t;
    terminal_job(&t);
    ioctl(t.fd, TIOCSWINSZ, &(struct winsize){ .ws_row = 30, .ws_col = 90 });
    cr_expect(terminal_until(&t, "[0] caught 28") && terminal_until(&t, "[1] caught 28"), "%s", t.seen);
    cr_assert_eq(write(t.fd, "\034", 1), 1); /* Ctrl-\ */
    cr_expect(terminal_until(&t, "SIGQUIT from the terminal: "), "%s", t.seen);
    cr_expect(terminal_until(&t, "rank 1 (pid "), "%s", t.seen);
    cr_assert_eq(write(t.fd, "\032", 1), 1); /* Ctrl-Z */
    cr_expect(job_until_state(t.pid, 'T'));
    kill(t.pid, SIGCONT);
    cr_expect(job_until_state(t.pid, 'S'));
    cr_assert_eq(write(t.fd, "\003", 1), 1); /* Ctrl-C */
    cr_expect(terminal_until(&t, "SIGINT from the terminal: stopping"), "%s", t.seen);
    cr_expect_eq(terminal_end(&t), 130, "%s", t.seen);
    close(t.fd);
}

Test(signals_e2e, rank_0_of_several_hosts_reads_the_terminal)
{
    static struct terminal t;
    terminal_start(&t, (const char *const[]){ bin("ddprun"), "--hosts=localhost:2", "sh", "-c",
                                              "echo ready; [ $RANK = 1 ] || { cat; echo over; }", NULL });
    cr_assert(terminal_until(&t, "[localhost:0] ready") && terminal_until(&t, "[localhost:1] ready"), "%s",
              t.seen);
    cr_assert_eq(write(t.fd, "typed\n", 6), 6);
    cr_expect(terminal_until(&t, "[localhost:0] typed"), "%s", t.seen);
    cr_assert_eq(write(t.fd, "\004", 1), 1); /* Ctrl-D */
    cr_expect(terminal_until(&t, "[localhost:0] over"), "%s", t.seen);
    cr_expect_eq(terminal_end(&t), 0, "%s", t.seen);
    close(t.fd);
}

Test(signals_e2e, a_closed_terminal_ends_the_job)
{
    static struct terminal t;
    int status = 0;
    terminal_job(&t);
    close(t.fd);
    waitpid(t.pid, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 129, "status %x", status);
}
