/* test_grow.c -- elastic jobs that nodes come late to: several ddprun on one machine, each a node. */
#include "job.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 3, ARGS_MAX = 32, LONG_MS = 30000 };

static struct run_process *node[NODES];
static struct run_result end[NODES];
static char endpoint[64], *dir;

/* A port that was free a moment ago. */
static void set_up(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", ntohs(at.sin_port));
    close(fd);
    dir = job_dir();
}

static void tear_down(void)
{
    for (int i = 0; i < NODES; i++)
        if (end[i].out != NULL)
            run_free(&end[i]);
    job_dir_remove(dir);
}

TestSuite(grow, .init = set_up, .fini = tear_down, .timeout = 150);

static void start(int i, const char *id, const char *const args[])
{
    const char *argv[ARGS_MAX] = { bin("ddprun"),         "--nnodes=2:3", id,
                                   "--rdzv_backend=c10d", endpoint,       "--rdzv_conf=last_call_timeout=1",
                                   "--grace=5s" };
    int n = 7;
    for (int k = 0; args[k] != NULL; k++)
        argv[n++] = args[k];
    argv[n] = NULL;
    node[i] = run_start(argv, &(struct run_options){ .timeout_ms = 120000 });
    cr_assert_not_null(node[i]);
}

/* Waits until one of the first two nodes has printed `words`: which of them has rank 0 is not known, and a
   short job may be over when the wrong one was asked for long. */
static void await_words(const char *words)
{
    enum { LOOK_MS = 50 };
    for (int waited = 0; waited < LONG_MS; waited += LOOK_MS)
        if (run_until_output(node[waited / LOOK_MS % (NODES - 1)], words, LOOK_MS))
            return;
    cr_assert_fail("no node says '%s'", words);
}

/* Two nodes, and when they have printed `words` the third. */
#define LATE(words, ...) late(words, (const char *const[]){ __VA_ARGS__, NULL })
static void late(const char *words, const char *const args[])
{
    for (int i = 0; i < NODES - 1; i++)
        start(i, "--rdzv_id=one", args);
    await_words(words);
    start(NODES - 1, "--rdzv_id=one", args);
    for (int i = 0; i < NODES; i++)
        end[i] = run_wait(node[i]);
}

static void expect_codes(int code0, int code1, int code2)
{
    const int codes[NODES] = { code0, code1, code2 };
    for (int i = 0; i < NODES; i++)
        EXPECT(end[i], codes[i]);
}

static void says(int i, const char *words)
{
    cr_expect_not_null(strstr(end[i].err, words), "'%s' is not in what node %d says:\n%s", words, i,
                       end[i].err);
}

#define SH "--no_python", "--", "/bin/sh", "-c"

Test(grow, now_starts_the_workers_again_with_a_late_node)
{
    LATE("world 2", "--grow=now", SH, "echo world $WORLD_SIZE; [ $WORLD_SIZE = 3 ] || exec sleep 30");
    expect_codes(0, 0, 0);
    for (int i = 0; i < NODES; i++)
        cr_expect_not_null(strstr(end[i].out, "world 3"), "node %d: %s%s", i, end[i].out, end[i].err);
    says(0, "1 more node can be taken in; the workers start again");
    says(2, "this node waits to be taken in when it begins anew");
}

Test(grow, never_leaves_a_late_node_waiting)
{
    LATE("world 2", "--grow=never", SH, "echo world $WORLD_SIZE; sleep 3");
    cr_expect_eq(end[0].exit_code, 0, "%s", end[0].err);
    cr_expect_eq(end[1].exit_code, 0, "%s", end[1].err);
    cr_expect_null(strstr(end[2].out, "world"), "%s", end[2].out);
    says(2, "the job ended without this node");
    says(0, "came when the job was running with 2 nodes: it waits as a spare");
}

static void make_data(void)
{
    const char *argv[] = { bin("make-data"), "--out", dir, "--samples", "1200", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    run_free(&r);
}

/* By default: the ranks agree behind a checkpoint, and go on from it. */
Test(grow, agreed_takes_a_late_node_in_behind_a_checkpoint)
{
    char summary[256];
    if (getenv("DDP_BUILD") != NULL && bin_is_sanitized()) /* as `make tsan` does */
        cr_skip_test("skipped, because so many steps take minutes under ThreadSanitizer");
    make_data();
    snprintf(summary, sizeof(summary), "%s/summary.json", dir);
    LATE("epoch 1/", bin("train"), "--data", dir, "--global_batch=60", "--epochs=200", "--checkpoint", dir,
         "--resume", "--grow", "--summary", summary);
    expect_codes(0, 0, 0);
    char *text = job_file(dir, "summary.json");
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "\"world_size\":\t3"), "%s\n%s", text, end[0].err);
    cr_expect_null(strstr(text, "\"resumed_epochs\":\t0,"), "%s", text);
    says(0, "1 more node can be taken in; the workers start again");
    free(text);
}

/* Whoever is on the endpoint's machine joins the store that is there, but not another's job. */
Test(grow, two_jobs_at_one_endpoint_are_told_both_names)
{
    start(0, "--rdzv_id=one", (const char *const[]){ "--timeout=10s", SH, "exit 0", NULL });
    usleep(500 * 1000);
    start(1, "--rdzv_id=two", (const char *const[]){ "--timeout=10s", SH, "exit 0", NULL });
    end[1] = run_wait(node[1]);
    EXPECT(end[1], 125);
    says(1, "JOB_DIFFERS");
    says(1, "'one'");
    says(1, "'two'");
    run_signal(node[0], SIGTERM);
    end[0] = run_wait(node[0]);
}
