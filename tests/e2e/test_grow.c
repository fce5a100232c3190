/* test_grow.c -- elastic jobs that nodes come late to: several ddprun on one machine, each a node. */
#include "run.h"
#include "job.h"
#include "training.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 3, ARGS_MAX = 32 };

static struct run_process *node[NODES];
static struct run_result end[NODES];
static char endpoint[64], *dir;

static void set_up(void)
{
    snprintf(endpoint, sizeof(endpoint), "%s", free_port_option("--rdzv_endpoint=127.0.0.1:"));
    dir = job_dir();
    gate_shut();
}

static void tear_down(void)
{
    for (int i = 0; i < NODES; i++)
        if (end[i].out != NULL)
            run_free(&end[i]);
    gate_gone();
    job_dir_remove(dir);
}

TestSuite(grow, .init = set_up, .fini = tear_down, .timeout = 240);

static void start(int i, const char *id, const char *const args[])
{
    const char *argv[ARGS_MAX] = { bin("ddprun"),         "--nnodes=2:3", id,
                                   "--rdzv_backend=c10d", endpoint,       "--rdzv_conf=last_call_timeout=1",
                                   "--grace=5s" };
    int n = 7;
    for (int k = 0; args[k] != NULL; k++)
        argv[n++] = args[k];
    argv[n] = NULL;
    node[i] = run_start(argv, &(struct run_options){ .timeout_ms = 2 * PATIENCE_MS });
    cr_assert_not_null(node[i]);
}

/* Two nodes; then the third, while the first two wait for something, and it is told that it has come late. */
static void start_two(const char *const args[])
{
    for (int i = 0; i < NODES - 1; i++)
        start(i, "--rdzv_id=one", args);
}

static void start_late(const char *const args[])
{
    start(NODES - 1, "--rdzv_id=one", args);
    cr_assert(
        run_until_error(node[NODES - 1], "this node waits to be taken in when it begins anew", PATIENCE_MS));
}

static void finish(void)
{
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
    const char *const args[] = { "--grow=now", SH, "echo world $WORLD_SIZE; [ $WORLD_SIZE = 3 ] || " AT_GATE,
                                 NULL };
    start_two(args);
    for (int i = 0; i < NODES - 1; i++)
        cr_assert(run_until_output(node[i], "world 2", PATIENCE_MS), "%s", run_output(node[i]));
    start_late(args);
    finish();
    expect_codes(0, 0, 0);
    for (int i = 0; i < NODES; i++)
        cr_expect_not_null(strstr(end[i].out, "world 3"), "node %d: %s%s", i, end[i].out, end[i].err);
    says(0, "1 more node can be taken in; the workers start again");
    says(2, "this node waits to be taken in when it begins anew");
}

Test(grow, never_leaves_a_late_node_waiting)
{
    const char *const args[] = { "--grow=never", SH, "echo world $WORLD_SIZE; " AT_GATE, NULL };
    start_two(args);
    for (int i = 0; i < NODES - 1; i++)
        cr_assert(run_until_output(node[i], "world 2", PATIENCE_MS), "%s", run_output(node[i]));
    start_late(args);
    cr_expect(run_until_error(node[0], "came when the job was running with 2 nodes: it waits as a spare",
                              PATIENCE_MS));
    gate_open();
    finish();
    cr_expect_eq(end[0].exit_code, 0, "%s", end[0].err);
    cr_expect_eq(end[1].exit_code, 0, "%s", end[1].err);
    cr_expect_null(strstr(end[2].out, "world"), "%s", end[2].out);
    says(2, "the job ended without this node");
}

static void make_job_data(void)
{
    const char *argv[] = { bin("make-data"), "--out", dir, "--samples", "1200", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    run_free(&r);
}

/* By default: the ranks agree behind a checkpoint, and go on from it. */
Test(grow, agreed_takes_a_late_node_in_behind_a_checkpoint)
{
    struct pace pace;
    char summary[256];
    if (getenv("DDP_BUILD") != NULL && bin_is_sanitized()) /* as `make tsan` does */
        cr_skip_test("skipped, because so many steps take minutes under ThreadSanitizer");
    make_job_data();
    snprintf(summary, sizeof(summary), "%s/summary.json", dir);
    pace_open(&pace, dir);
    const char *const args[] = {
        bin("train"), "--data", dir,         "--global_batch=60", "--epochs=8", "--checkpoint", dir,
        "--resume",   "--grow", "--metrics", pace.path,           "--summary",  summary,        NULL
    };
    start_two(args);
    cr_assert(pace_until(&pace, "\"epoch\":2,"));
    start_late(args);
    cr_assert(pace_until(&pace, "\"epoch\":3,"));
    cr_expect(run_until_error(node[0], "1 more node can be taken in; the workers start again", PATIENCE_MS));
    pace_go(&pace);
    finish();
    expect_codes(0, 0, 0);
    char *text = job_file(dir, "summary.json");
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "\"world_size\":\t3"), "%s\n%s", text, end[0].err);
    cr_expect_null(strstr(text, "\"resumed_epochs\":\t0,"), "%s", text);
    free(text);
}

/* It waits for another node as long as it is allowed to, but not without a word. */
Test(grow, too_few_nodes_that_are_left_say_for_what_they_wait)
{
    for (int i = 0; i < 2; i++)
        start(i, "--rdzv_id=one", (const char *const[]){ SH, "echo ready; exec sleep 60", NULL });
    for (int i = 0; i < 2; i++)
        cr_assert(run_until_output(node[i], "ready", PATIENCE_MS), "node %d: %s", i, run_output(node[i]));
    run_signal(node[1], SIGTERM);
    end[1] = run_wait(node[1]);
    cr_expect(run_until_error(node[0], "[TOO_FEW_LEFT]", PATIENCE_MS));
    run_signal(node[0], SIGTERM);
    end[0] = run_wait(node[0]);
    says(0, "only 1 of at least 2 nodes is left: the job waits for 1 more node to join");
    says(0, "was stopped by SIGTERM");
}

/* Whoever is on the endpoint's machine joins the store that is there, but not another's job. */
Test(grow, two_jobs_at_one_endpoint_are_told_both_names)
{
    start(0, "--rdzv_id=one", (const char *const[]){ "--timeout=60s", SH, "exit 0", NULL });
    cr_assert(run_until_error(node[0], "1 of 2 nodes is here", PATIENCE_MS));
    start(1, "--rdzv_id=two", (const char *const[]){ "--timeout=60s", SH, "exit 0", NULL });
    end[1] = run_wait(node[1]);
    EXPECT(end[1], 125);
    says(1, "JOB_DIFFERS");
    says(1, "'one'");
    says(1, "'two'");
    run_signal(node[0], SIGTERM);
    end[0] = run_wait(node[0]);
}
