/* test_why.c -- jobs that do not go on, and what `ddpctl why` and the time-out say; which finding fits what is told in
 * tests/unit/test_diagnose_job.c. */
#include "job.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

TestSuite(why, .timeout = 90);

enum { ENOUGH_MS = 40000, TRY_MS = 300 };

static struct run_process *job;
static char port_option[40], addr[40];

/* A port that was free a moment ago. */
static void choose_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(port_option, sizeof(port_option), "--master_port=%d", ntohs(at.sin_port));
    snprintf(addr, sizeof(addr), "127.0.0.1:%d", ntohs(at.sin_port));
    close(fd);
}

/* A job of three ranks whose program does what `actions` say. */
#define START(...) start((const char *const[]){ __VA_ARGS__, NULL })
static void start(const char *const actions[])
{
    const char *argv[16] = { bin("ddprun"), "--nnodes=1", "--node_rank=0",      "--master_addr=127.0.0.1",
                             port_option,   "--grace=2s", "--nproc_per_node=3", bin("tests/prog/member") };
    int n = 8;
    choose_port();
    for (int i = 0; actions[i] != NULL; i++)
        argv[n++] = actions[i];
    job = run_start(argv, NULL);
    cr_assert_not_null(job);
}

static void tear_down(void)
{
    struct run_result r;
    run_signal(job, SIGTERM);
    run_signal(job, SIGTERM);
    r = run_wait(job);
    run_free(&r);
}

/* Asked until the answer has both texts. */
static void expect_why_at(const char *code, const char *words, int line)
{
    const char *argv[] = { bin("ddpctl"), "--addr", addr, "why", NULL };
    struct run_result r = { 0 };
    for (int waited_ms = 0; waited_ms < ENOUGH_MS; waited_ms += TRY_MS) {
        r = run_command(argv, NULL);
        if (strstr(r.out, code) != NULL && strstr(r.out, words) != NULL) {
            run_free(&r);
            return;
        }
        if (waited_ms + TRY_MS < ENOUGH_MS)
            run_free(&r);
        nanosleep(&(struct timespec){ .tv_nsec = TRY_MS * 1000000l }, NULL);
    }
    cr_assert_fail("line %d: no %s with '%s' in:\n%s%s", line, code, words, r.out, r.err);
}
#define expect_why(code, words) expect_why_at(code, words, __LINE__)

Test(why, a_rank_that_is_stopped, .fini = tear_down)
{
    START("only:2", "stop", "all", "barrier:step-7");
    expect_why("[RANK_STOPPED]", "rank 2: is stopped (state T)");
    expect_why("[BARRIER_WAITS]", "barrier 'step-7': 2 of 3 ranks wait");
}

Test(why, a_rank_that_computes_on, .fini = tear_down)
{
    START("only:2", "spin", "all", "barrier:step-7");
    expect_why("[RANK_BURNS_CPU]", "rank 2: computes");
}

Test(why, a_rank_that_has_gone_another_way, .fini = tear_down)
{
    START("only:2", "barrier:epoch-end", "all", "barrier:step-7");
    expect_why("[UNEVEN_INPUTS]",
               "rank 2 waits in barrier 'epoch-end', while 2 ranks wait in barrier 'step-7'");
    expect_why("[RANK_WAITS_ELSEWHERE]", "rank 2: connected");
}

/* Through a pipe there is a block for each second, and it ends with its reader. */
Test(why, it_can_be_watched_without_a_terminal, .fini = tear_down)
{
    START("barrier:a", "forever");
    const char *argv[] = { bin("ddpctl"), "--addr", addr, "status", "--watch", NULL };
    struct run_process *watch = run_start(argv, NULL);
    cr_expect(run_until_output(watch, "round     1, running", ENOUGH_MS));
    cr_expect(run_until_output(watch, "\n\njob ", ENOUGH_MS), "there is no second block");
    run_signal(watch, SIGINT);
    struct run_result r = run_wait(watch);
    cr_expect_eq(r.signal, SIGINT);
    cr_expect_null(strchr(r.out, '\033'));
    run_free(&r);
}

Test(why, a_node_that_never_comes_is_named_when_the_time_is_up)
{
    choose_port();
    const char *argv[] = { bin("ddprun"), "--nnodes=2",  "--node_rank=0",      "--master_addr=127.0.0.1",
                           port_option,   "--timeout=2", "--nproc_per_node=1", "/bin/true",
                           NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 125);
    cr_expect_not_null(strstr(r.err, "given up: 1 of 2 nodes is here after 2.0 s (--timeout is 2 s)"), "%s",
                       r.err);
    cr_expect_not_null(strstr(r.err, "[NODE_NEVER_CAME]"), "%s", r.err);
    run_free(&r);
}
