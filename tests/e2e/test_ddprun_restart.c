/* Tests of jobs with several attempts of real processes. tests/sim/test_restart_sim.c tests the rules. */
#include "job.h"
#include "run.h"
#include "training.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(ddprun_restart, .timeout = 120);

static const char *attempt_worker(void)
{
    return bin("tests/prog/attempt_worker");
}

/* Copy to `out` the text between the n-th `label` (from 0) and the next comma or newline. If `text` has no such label,
 * set `out` to "". */
static void after(const char *text, const char *label, int n, char out[64])
{
    out[0] = '\0';
    for (; n >= 0 && (text = strstr(text, label)) != NULL; n--)
        text += strlen(label);
    if (text != NULL)
        snprintf(out, 64, "%.*s", (int)strcspn(text, ",\n"), text);
}

Test(ddprun_restart, the_next_attempt_meets_in_an_empty_store_on_the_same_port)
{
    char first[64], last[64];
    struct run_result r = JOB("--nproc_per_node=2", "--max-restarts=3", "--restart-backoff=10ms",
                              attempt_worker(), "keys", "2");
    EXPECT(r, 0);
    PRINTS(r, "attempt 0 of 3");
    PRINTS(r, "attempt 1 of 3");
    PRINTS(r, "attempt 2 of 3");
    cr_expect(strstr(r.out, "key is left") == NULL, "%s", r.out);
    after(r.out, "port ", 0, first);
    after(r.out, "port ", 5, last);
    cr_expect(first[0] != '\0' && strcmp(first, last) == 0, "'%s' and '%s' in:\n%s", first, last, r.out);
    cr_expect(has_parts(r.err, "attempt 0|rank 1: exit 9; |attempt 1 |(restart 1 of 3)|in 0.01 s"), "%s",
              r.err);
    cr_expect(has_parts(r.err, "attempt 1|rank 1: exit 9; |attempt 2 |(restart 2 of 3)|in 0.02 s"), "%s",
              r.err);
}

/* A script that removes itself is missing in the next attempt. */
Test(ddprun_restart, a_program_that_vanishes_is_127)
{
    char *dir = job_dir(), path[300];
    snprintf(path, sizeof(path), "%s/once", dir);
    FILE *file = fopen(path, "w");
    cr_assert(file != NULL && fputs("#!/bin/sh\nrm $0\nexit 1\n", file) >= 0 && fclose(file) == 0 &&
              chmod(path, 0755) == 0);
    struct run_result r = JOB("--max_restarts=1", "--restart_backoff=0", path);
    EXPECT(r, 127);
    SAYS(r, path);
    job_dir_remove(dir);
}

Test(ddprun_restart, logs_of_old_attempts_stay)
{
    char *dir = job_dir(), option[300];
    snprintf(option, sizeof(option), "--log-dir=%s", dir);
    struct run_result r = JOB("--nproc_per_node=2", "--max-restarts=1", "--restart-backoff=0", "--rdzv-id=j",
                              option, attempt_worker(), "keys", "1");
    EXPECT(r, 0);
    PRINTS(r, "/attempt_0/0/error.json");
    PRINTS(r, "/attempt_1/1/error.json");
    const char *argv[] = { "sh", "-c", "cat \"$0\"/*/attempt_0/1/stdout.log \"$0\"/*/attempt_1/1/stdout.log",
                           dir, NULL };
    struct run_result logs = run_command(argv, NULL);
    PRINTS(logs, "attempt 0 of 1");
    PRINTS(logs, "attempt 1 of 1");
    job_dir_remove(dir);
}

Test(ddprun_restart, every_output_counts_attempts_from_0)
{
    char *dir = job_dir(), logs[300], events[300], script[600], timeline[600];
    snprintf(logs, sizeof(logs), "--log-dir=%s", dir);
    snprintf(events, sizeof(events), "--events=%s/events", dir);
    snprintf(
        script, sizeof(script),
        "test $TORCHELASTIC_RESTART_COUNT = 1 || exit 7; exec %s --addr $MASTER_ADDR:$MASTER_PORT status",
        bin("ddpctl"));
    struct run_result r =
        JOB("--max-restarts=1", "--restart-backoff=0", "-v", logs, events, "sh", "-c", script);
    EXPECT(r, 0);
    cr_expect(has_parts(r.err, "attempt 0 failed|rank 0: exit 7; |attempt 1 |(restart 1 of 1)"), "%s", r.err);
    cr_expect(has_parts(r.err, "attempt 0 begins|: 1 node, 1 rank\n|attempt 1 begins|: 1 node, 1 rank\n"),
              "%s", r.err);
    SILENT(r, "attempt 2");
    SILENT(r, "round");
    cr_expect(has_parts(r.out, "attempt 1, |size 1\n"), "%s", r.out);
    cr_expect(strstr(r.out, "round") == NULL, "%s", r.out);
    snprintf(
        timeline, sizeof(timeline),
        "cd %s && test -d latest/attempt_1 && test ! -e latest/attempt_2 && %s timeline events -o t.html && "
        "grep -o 'attempt [0-9]*' t.html | sort -u",
        dir, bin("ddpctl"));
    const char *argv[] = { "sh", "-c", timeline, NULL };
    struct run_result drawn = run_command(argv, NULL);
    EXPECT(drawn, 0);
    PRINTS(drawn, "attempt 0\nattempt 1\n");
    cr_expect_null(strstr(drawn.out, "attempt 2"), "%s", drawn.out);
    job_dir_remove(dir);
}

/* Python runs this module before the program. Both ranks wait for each other at their end, after the traceback. So
 * they end at almost the same time on a busy machine, too, and ddprun stops neither of them. */
static const char ends_together[] =
    "import atexit, os, time\n"
    "ended = os.path.dirname(__file__) + '/ended'\n"
    "def wait():\n"
    "    open(ended + os.environ['RANK'], 'w').close()\n"
    "    while not (os.path.exists(ended + '0') and os.path.exists(ended + '1')):\n"
    "        time.sleep(0.001)\n"
    "    os._exit(1)\n"
    "if 'RANK' in os.environ:\n"
    "    atexit.register(wait)\n";

static void write_text(const char *dir, const char *name, const char *text, char path[300])
{
    snprintf(path, 300, "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/* Run a program of Python on two ranks. `start` is the text of a module that Python runs before the program, or "". */
static struct run_result python_job(const char *name, const char *text, const char *start)
{
    char *dir = job_dir(), path[300], module[300], env[320];
    write_text(dir, "sitecustomize.py", start, module);
    write_text(dir, name, text, path);
    snprintf(env, sizeof(env), "--env=PYTHONPATH=%s", dir);
    struct run_result r =
        JOB("--nproc_per_node=2", "--max-restarts=1", "--restart-backoff=0", env, "python3", path);
    job_dir_remove(dir);
    return r;
}

Test(ddprun_restart, an_import_error_of_all_ranks_is_not_tried_again)
{
    struct run_result r = python_job("import.py", "import no_such_module_anywhere\n", ends_together);
    EXPECT(r, 1);
    SAYS(r, "import error");
    SILENT(r, "starting attempt");
    r = python_job("syntax.py", "a b\n", ends_together);
    EXPECT(r, 1);
    SAYS(r, "import error");
    SILENT(r, "starting attempt");
}

Test(ddprun_restart, an_import_error_of_one_rank_is_tried_again)
{
    struct run_result r =
        python_job("one.py",
                   "import os, time\n"
                   "time.sleep(1000 * (os.environ['RANK'] == '1'))\n"
                   "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': import no_such_module_anywhere\n"
                   "os.kill(os.getpid(), 10)\n",
                   "");
    cr_expect(has_parts(r.err, "attempt 0|rank 0: exit 1; |attempt 1 |(restart 1 of 1)"), "%s", r.err);
}

Test(ddprun_restart, what_the_old_attempt_has_left_is_gone_before_the_next)
{
    char *dir = job_dir(), file[300];
    snprintf(file, sizeof(file), "%s/pid", dir);
    struct run_result r = JOB("--nproc_per_node=1", "--max-restarts=1", "--restart-backoff=0",
                              "--grace=100ms", attempt_worker(), "leftover", file);
    EXPECT(r, 0);
    PRINTS(r, "the daemon is gone");
    job_dir_remove(dir);
}

Test(ddprun_restart, restarts_end_and_the_report_lists_the_attempts)
{
    struct run_result r = JOB("--nproc_per_node=2", "--max-restarts=2", "--restart-backoff=1ms", WORKER,
                              "only:1", "exit:7", "all", "forever");
    EXPECT(r, 7);
    SAYS(r, "attempt 0: rank 1: exit 7");
    SAYS(r, "attempt 1: rank 1: exit 7");
    cr_expect(has_parts(r.err, "none: |--max_restarts=2"), "%s", r.err);
}

Test(ddprun_restart, what_cannot_change_is_not_tried_again)
{
    struct run_result r = JOB("--max-restarts=3", "/proc/nonexistent/program");
    EXPECT(r, 127);
    SAYS(r, "none: the program");
    SILENT(r, "starting attempt");
    r = JOB("--max-restarts=3", WORKER, "exit:2");
    EXPECT(r, 2);
    SAYS(r, "usage error");
    SILENT(r, "starting attempt");
}

Test(ddprun_restart, ctrl_c_during_the_wait_ends_the_job)
{
    struct run_process *p =
        JOB_START("--nproc_per_node=2", "--max-restarts=3", "--restart-backoff=1h",
                  "--restart-backoff-max=1h", WORKER, "only:1", "exit:7", "all", "forever");
    cr_assert(run_until_error(p, "starting attempt 1 (restart 1 of 3) in 3600 s", PATIENCE_MS));
    run_signal(p, SIGINT);
    struct run_result r = run_wait(p);
    EXPECT(r, 7);
    SAYS(r, "none: the user");
}

/* The node that leaves does not count as a lost host. So both nodes exit with the code of the failed worker. */
Test(ddprun_restart, a_node_that_leaves_during_the_wait_ends_the_job_of_both)
{
    const char *port = free_port_option("--master_port="), *ranks[] = { "--node_rank=0", "--node_rank=1" };
    struct run_process *nodes[2];
    signal(SIGINT, SIG_DFL); /* a shell may have started this test in the background, with SIGINT ignored */
    for (int i = 0; i < 2; i++) {
        const char *argv[] = { bin("ddprun"),
                               "--nnodes=2",
                               ranks[i],
                               "--master_addr=127.0.0.1",
                               port,
                               "--insecure",
                               "--max-restarts=3",
                               "--restart-backoff=1h",
                               "--restart-backoff-max=1h",
                               bin("tests/prog/worker"),
                               "only:1",
                               "exit:7",
                               "all",
                               "forever",
                               NULL };
        nodes[i] = run_start(argv, &(struct run_options){ .timeout_ms = 2 * PATIENCE_MS });
        cr_assert_not_null(nodes[i]);
    }
    for (int i = 0; i < 2; i++)
        cr_assert(run_until_error(nodes[i], "starting attempt 1 (restart 1 of 3) in 3600 s", PATIENCE_MS));
    run_signal(nodes[1], SIGINT);
    for (int i = 0; i < 2; i++) {
        struct run_result r = run_wait(nodes[i]);
        EXPECT(r, 7);
    }
}

Test(ddprun_restart, a_job_that_stands_still_is_ended)
{
    struct run_result r = JOB("--nproc_per_node=2", "--max-restarts=9", "--restart-backoff=1ms",
                              "--max-no-progress=2", attempt_worker(), "progress", "42");
    EXPECT(r, 9);
    SAYS(r, "restart 2 of 9");
    SILENT(r, "restart 3 of 9");
    cr_expect(has_parts(r.err, "step 42|--max_no_progress"), "%s", r.err);
}

/* If the job has only one rank, the worker does not connect to the store at the start. It connects when it reports its
 * progress. */
Test(ddprun_restart, a_single_worker_tells_its_progress_too)
{
    struct run_result r = JOB("--nproc_per_node=1", "--max-restarts=9", "--restart-backoff=1ms",
                              "--max-no-progress=1", attempt_worker(), "progress", "7");
    EXPECT(r, 9);
    SAYS(r, "beyond step 7");
}

Test(ddprun_restart, events_tell_of_each_attempt)
{
    struct run_result r =
        JOB("--nproc_per_node=1", "--max-restarts=1", "--restart-backoff=1ms", "--json", WORKER, "exit:7");
    EXPECT(r, 7);
    PRINTS(r, "\"event\":\"restart\"");
    PRINTS(r, "\"failed_attempt\":0,\"rank\":0,\"ending\":\"exit "
              "7\",\"exit_code\":7,\"next_attempt\":1,\"max_restarts\":1");
    PRINTS(r, "\"failed_attempts\":[{\"attempt\":0,");
    PRINTS(r, "{\"attempt\":1,");
    PRINTS(r, "\"not_restarted\":\"the restart of --max_restarts=1");
}

Test(ddprun_restart, who_leaves_with_0_while_others_wait_is_named)
{
    struct run_result r = JOB("--nproc_per_node=3", attempt_worker(), "leave");
    EXPECT(r, 75);
    SAYS(r, "ddprun: rank 0 (");
    SAYS(r, "barrier 'epoch-3'  [RANK_EXITED_EARLY]\nddprun:   try ");
    SAYS(r, "barrier 'epoch-3' [RANK_EXITED_EARLY]\n  worker ");
    SAYS(r, ", because another");
    SAYS(r, "of rank 0 ("); /* the headline names rank 0, not the rank that waited */
}

/* Rank 1 fails and releases the other ranks, which end before rank 1 does. */
Test(ddprun_restart, a_victim_that_ends_first_is_not_the_cause)
{
    struct run_result r = JOB("--nproc_per_node=3", attempt_worker(), "give_up");
    EXPECT(r, 7);
    SAYS(r, "rank 1");
    PRINTS(r, "full disk");
}

/* The output of rank 0 says that its peer is gone, so rank 0 is a victim. No other worker fails, so the job reports
 * this victim as the first failure. */
Test(ddprun_restart, who_says_that_its_peer_is_gone_is_a_victim)
{
    struct run_result r = JOB("--nproc_per_node=2", "--grace=0", "sh", "-c",
                              "test $RANK = 1 && exec sleep 600; echo 'gloo/transport/tcp/pair.cc:561] "
                              "Connection closed by peer [127.0.0.1]:400' >&2; exit 1");
    EXPECT(r, 1);
    SAYS(r, "rank 0 on ");
    SAYS(r, "first: exit 1, because");
}

Test(ddprun_restart, the_exit_code_may_be_that_of_rank_0)
{
    struct run_process *p = JOB_START("-v", "--nproc_per_node=2", "--exit-code=rank0", WORKER, "only:1",
                                      "catch:10", "say:ready", "pause", "exit:3");
    cr_assert(run_until_output(p, "[1] ready", PATIENCE_MS));
    cr_assert(run_until_error(p, "rank 0: exit 0", PATIENCE_MS));
    run_signal(p, SIGUSR1);
    struct run_result r = run_wait(p);
    EXPECT(r, 0);
    SAYS(r, "rank 1");
    SAYS(r, "exit 3");
}

/* Tests of elastic jobs with late nodes. Several ddprun processes on one machine are the nodes. */

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

/* Start two nodes. start_late starts the third node, and expects the message that this node is late. */
static void start_two(const char *const args[])
{
    for (int i = 0; i < NODES - 1; i++)
        start(i, "--rdzv_id=one", args);
}

static void start_late(const char *const args[])
{
    start(NODES - 1, "--rdzv_id=one", args);
    cr_assert(run_until_error(node[NODES - 1], "next restart", PATIENCE_MS));
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
    const char *const args[] = { "--grow=now", "--verbose", SH,
                                 "echo world $WORLD_SIZE; [ $WORLD_SIZE = 3 ] || " AT_GATE, NULL };
    start_two(args);
    for (int i = 0; i < NODES - 1; i++)
        cr_assert(run_until_output(node[i], "world 2", PATIENCE_MS), "%s", run_output(node[i]));
    start_late(args);
    finish();
    expect_codes(0, 0, 0);
    for (int i = 0; i < NODES; i++)
        cr_expect_not_null(strstr(end[i].out, "world 3"), "node %d: %s%s", i, end[i].out, end[i].err);
    cr_expect(has_parts(end[0].err, "1 more node|can join; "), "%s", end[0].err);
    says(2, "next restart");
    for (int i = 0; i < NODES; i++) /* each node announces the job once, in its first round */
        cr_expect(strstr(end[i].err, "contained by") != NULL &&
                      strstr(strstr(end[i].err, "contained by") + 1, "contained by") == NULL,
                  "node %d: %s", i, end[i].err);
}

Test(grow, never_leaves_a_late_node_waiting)
{
    const char *const args[] = { "--grow=never", SH, "echo world $WORLD_SIZE; " AT_GATE, NULL };
    start_two(args);
    for (int i = 0; i < NODES - 1; i++)
        cr_assert(run_until_output(node[i], "world 2", PATIENCE_MS), "%s", run_output(node[i]));
    start_late(args);
    cr_expect(run_until_error(node[0], "ran with 2 nodes", PATIENCE_MS));
    gate_open();
    finish();
    cr_expect_eq(end[0].exit_code, 0, "%s", end[0].err);
    cr_expect_eq(end[1].exit_code, 0, "%s", end[1].err);
    cr_expect_null(strstr(end[2].out, "world"), "%s", end[2].out);
    says(2, "ended without");
}

static void make_job_data(void)
{
    const char *argv[] = { bin("make-data"), "--out", dir, "--samples", "1200", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
}

/* By default, the ranks agree to accept the late node after a checkpoint. The next round continues from this
 * checkpoint. */
Test(grow, agreed_takes_a_late_node_in_behind_a_checkpoint)
{
    struct pace pace;
    char summary[256];
    if (getenv("DDP_BUILD") != NULL && bin_is_sanitized()) /* true under `make tsan` */
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
    cr_expect(run_until_error(node[0], "can join; ", PATIENCE_MS));
    pace_go(&pace);
    finish();
    expect_codes(0, 0, 0);
    char *text = job_file(dir, "summary.json");
    cr_assert_not_null(text);
    cr_expect_not_null(strstr(text, "\"world_size\":\t3"), "%s\n%s", text, end[0].err);
    cr_expect_null(strstr(text, "\"resumed_epochs\":\t0,"), "%s", text);
    free(text);
}

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
    says(0, "1 more node");
    says(0, "stopped by SIGTERM");
}

/* The store at the endpoint serves job "one", so a node of job "two" is rejected. */
Test(grow, two_jobs_at_one_endpoint_are_told_both_names)
{
    start(0, "--rdzv_id=one", (const char *const[]){ "--timeout=60s", SH, "exit 0", NULL });
    cr_assert(run_until_error(node[0], "1 of 2 nodes has", PATIENCE_MS));
    start(1, "--rdzv_id=two", (const char *const[]){ "--timeout=60s", SH, "exit 0", NULL });
    end[1] = run_wait(node[1]);
    EXPECT(end[1], 125);
    says(1, "JOB_DIFFERS");
    says(1, "'one'");
    says(1, "'two'");
    run_signal(node[0], SIGTERM);
    end[0] = run_wait(node[0]);
}
