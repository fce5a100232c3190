/* Jobs that hang after their start: the rank, the line and the reason, on every node, within 15 s of --hang_timeout. Stacks come from
 * a stand-in for py-spy, and from py-spy itself where it and PyTorch are installed. */
#include "job.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(hangs, .timeout = 600);

enum { LONG_MS = 240000, NODES = 2 };

static void check(bool ok, const char *what, const char *text)
{
    cr_assert(ok, "%s: %s", what, text);
}

/* --- with a stand-in for py-spy -------------------------------------------------------------------------------- */

/* Make a directory with a Python and, beside it, the replacement for py-spy. ddprun looks there first. */
static void make_dir(void)
{
    char path[64], cwd[512], target[600];
    test_dir_open();
    snprintf(path, sizeof(path), "%s/python3", test_dir);
    check(symlink("/usr/bin/python3", path) == 0, "symlink", path);
    check(getcwd(cwd, sizeof(cwd)) != NULL, "getcwd", test_dir);
    snprintf(target, sizeof(target), "%s/tests/data/hangs/fake_py_spy.py", cwd);
    snprintf(path, sizeof(path), "%s/py-spy", test_dir);
    check(symlink(target, path) == 0, "symlink", path);
}

/* Start one of `nnodes` nodes with two workers each. The culprit is rank 3, or rank 1 of one node. */
static struct run_process *start_node(int nnodes, int node, int port, const char *option)
{
    char text[6][80];
    const char *env[] = { nnodes == 1 ? "CULPRIT=1" : "CULPRIT=3",
                          strcmp(option, "--profile_ranks") == 0 ? "STEPS=1" : "STEPS=0",
                          strcmp(option, "--flight_recorder") == 0 ? "RECORDS=1" : "RECORDS=0", NULL };
    snprintf(text[0], sizeof(text[0]), "--nnodes=%d", nnodes);
    snprintf(text[1], sizeof(text[1]), "--node_rank=%d", node);
    snprintf(text[2], sizeof(text[2]), "--master_port=%d", port);
    snprintf(text[3], sizeof(text[3]), "--log_dir=%s/node%d", test_dir, node);
    snprintf(text[4], sizeof(text[4]), "--events=%s/events%d", test_dir, node);
    snprintf(text[5], sizeof(text[5]), "%s/python3", test_dir);
    const char *argv[] = { bin("ddprun"),
                           text[0],
                           text[1],
                           text[2],
                           text[3],
                           text[4],
                           "--nproc_per_node=2",
                           "--master_addr=127.0.0.1",
                           "--hang_timeout=2s",
                           "--grace=1s",
                           "--max_restarts=1",
                           option,
                           "--no_python",
                           text[5],
                           "-u",
                           "tests/data/hangs/fake_worker.py",
                           NULL };
    return run_start(argv, &(struct run_options){ .env = env, .timeout_ms = LONG_MS });
}

static void expect_file(const char *pattern, const char *words)
{
    char command[256];
    snprintf(command, sizeof(command), "grep -q -e '%s' %s/%s", words, test_dir, pattern);
    const char *argv[] = { "sh", "-c", command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect_eq(r.exit_code, 0, "'%s' is not in %s", words, pattern);
}

#define CULPRIT " load_batch (data.py:41) and sleeps"

Test(hangs, every_node_why_events_and_report_name_rank_and_line, .init = make_dir, .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    char addr[40];
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--on_hang=report");
    for (int i = 0; i < NODES; i++) {
        cr_expect(run_until_error(nodes[i], CULPRIT, LONG_MS), "node %d", i);
        cr_expect(run_until_error(nodes[i], "all_reduce (train.py:88)  [RANK_SLEEPS]", LONG_MS));
    }
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
    const char *argv[] = { bin("ddpctl"), addr, "why", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect(strstr(r.out, CULPRIT) != NULL, "%s%s", r.out, r.err);
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        r = run_wait(nodes[i]);
        cr_expect(strstr(r.err, "\n  hang     rank 3 (") != NULL, "node %d: %s", i, r.err);
    }
    expect_file("node?/*/report.json", "\"code\":[[:space:]]*\"RANK_SLEEPS\"");
    expect_file("events?", "RANK_SLEEPS");
}

/* All stacks are equal. No rank has a record before the agent writes into its FIFO. */
Test(hangs, flight_records_are_requested_and_name_the_rank_if_stacks_do_not, .init = make_dir,
     .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--flight_recorder");
    for (int i = 0; i < NODES; i++)
        cr_expect(run_until_error(nodes[i], "all_reduce #8 (Float x 4), in", LONG_MS), "node %d", i);
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        struct run_result r = run_wait(nodes[i]);
        cr_expect(strstr(r.err, "  [RANK_BEHIND]") != NULL && strstr(r.err, "error    rank 3 (") != NULL,
                  "node %d: %s", i, r.err);
    }
}

/* Run the helper for two ranks of `test_dir`, with the records that are at most `age_ms` old. */
static struct run_result read_calls(const char *age_ms)
{
    const char *argv[] = { bin("ddprun"), "--flight_calls", test_dir, "0", "2", age_ms, "", NULL };
    return run_command(argv, NULL);
}

Test(hangs, records_that_are_too_old_or_no_files_are_not_read, .init = make_dir, .fini = test_dir_close)
{
    const char *argv[] = { "sh", "-c",
                           "cp tests/data/flight/gloo_rank_0 $0/flight_torch_0 && touch -d -1hour "
                           "$0/flight_torch_0 && mkfifo $0/flight_torch_1 $0/flight_pipe_0.pipe",
                           test_dir, NULL };
    struct run_result r = run_command(argv, NULL);
    check(r.exit_code == 0, "sh", r.err);
    r = read_calls("3000000");
    cr_expect(r.exit_code == 0 && r.out[0] == '\0', "%s%s", r.out, r.err);
    r = read_calls("4000000");
    cr_expect(strncmp(r.out, "[{\"rank\":0,", 11) == 0 && strstr(r.out, "\"name\":\"all_reduce\"") != NULL,
              "%s%s", r.out, r.err);
}

Test(hangs, stop_ends_the_job_without_a_restart, .init = make_dir, .fini = test_dir_close)
{
    struct run_process *node = start_node(1, 0, free_port(), "--on_hang=stop");
    struct run_result r = run_wait(node);
    cr_expect_eq(r.exit_code, 125, "%s", r.err);
    cr_expect(strstr(r.err, "\nddprun: rank 1 (") != NULL && strstr(r.err, "none: the job") != NULL, "%s",
              r.err);
}

/* The process on GPU 1 is this test. It begins to use the GPU after the start of the job. Node 1 has no GPU. */
Test(hangs, a_process_on_a_gpu_is_named_with_the_hang_on_every_node, .init = make_dir, .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    char users[80], pid[20], words[80];
    snprintf(users, sizeof(users), "%s/users", test_dir);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    snprintf(words, sizeof(words), "by pid %d (user ", (int)getpid());
    setenv("LD_LIBRARY_PATH", bin("tests/fake/nvml"), 1);
    setenv("FAKE_NVML", users, 1);
    setenv("FOREIGN", pid, 1);
    for (int i = 0; i < NODES; i++) {
        nodes[i] = start_node(NODES, i, port, "--on_hang=report");
        setenv("CUDA_VISIBLE_DEVICES", "", 1);
    }
    for (int i = 0; i < NODES; i++) {
        cr_expect(run_until_error(nodes[i], "[GPU_BUSY]", LONG_MS), "node %d", i);
        cr_expect(run_until_error(nodes[i], "all_reduce (train.py:88)  [RANK_SLEEPS]", LONG_MS));
    }
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        struct run_result r = run_wait(nodes[i]);
        const char *at = strstr(r.err, "GPU 1 of ");
        cr_expect(at != NULL && strstr(at, " (rank 1) ") != NULL && strstr(at, words) != NULL, "node %d: %s",
                  i, r.err);
        cr_expect(strstr(r.err, "GPU 0 of ") == NULL, "node %d: only ranks 0 and 2 use GPU 0: %s", i, r.err);
        cr_expect(i != 0 || strstr(r.err, "\n  gpu      GPU 1 of ") != NULL, "node %d: %s", i, r.err);
    }
    expect_file("node?/*/report.json", "\"code\":[[:space:]]*\"GPU_BUSY\"");
}

Test(hangs, a_rank_stopped_by_a_signal_is_told_to_the_other_node_at_once, .init = make_dir,
     .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--hang_timeout=off");
    cr_assert(run_until_output(nodes[1], "] pid ", LONG_MS));
    kill((pid_t)atoi(strstr(run_output(nodes[1]), "] pid ") + 6), SIGSTOP);
    cr_expect(run_until_error(nodes[0], "rank 3: stopped (state T)", LONG_MS));
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        struct run_result r = run_wait(nodes[i]);
        cr_expect_eq(strstr(r.err, "[RANK_STOPPED]") != NULL, i == 0, "node %d, whose agent has seen it: %s",
                     i, r.err);
    }
}

/* The workers print steps, so the job does not hang. */
Test(hangs, a_slow_rank_is_told_to_every_node_and_shown_by_top, .init = make_dir, .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    char addr[40];
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--profile_ranks");
    for (int i = 0; i < NODES; i++)
        cr_expect(run_until_error(nodes[i], " load_batch (data.py:41)  [RANK_SLOW]", LONG_MS), "node %d", i);
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
    const char *argv[] = { bin("ddpctl"), addr, "top", NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect(strstr(r.out, "100 %") != NULL && strstr(r.out, "0 %  load_batch (data.py:41)") != NULL, "%s%s",
              r.out, r.err);
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        r = run_wait(nodes[i]);
        cr_expect_not(r.timed_out);
    }
    expect_file("events?", "RANK_SLOW");
}

/* --- slow ranks ------------------------------------------------------------------------------------------------ */

/* Expect that rank 1, whose steps take five times as long, is named. On a busy machine another rank may be slow, too, so other
 * findings do no harm. `place` is where rank 1 is while the others wait; "" = unknown. */
static void expect_slow(struct run_process *job, const char *place, int timeout_ms)
{
    const bool told = run_until_error(job, "rank 1 ", timeout_ms) &&
                      run_until_error(job, place, timeout_ms) &&
                      run_until_error(job, "[RANK_SLOW]", timeout_ms);
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    cr_expect(told, "%s%s", r.out, r.err);
}

Test(hangs, a_slow_rank_is_named_by_the_steps_of_libddp)
{
    const char *argv[] = { bin("ddprun"),
                           "--standalone",
                           "--nproc_per_node=4",
                           "--profile_ranks",
                           "--grace=1s",
                           "--env=SLOWER=400",
                           bin("tests/prog/still_worker"),
                           "slow",
                           "1",
                           NULL };
    expect_slow(run_start(argv, &(struct run_options){ .timeout_ms = LONG_MS }), "", LONG_MS);
}

/* --- with PyTorch ---------------------------------------------------------------------------------------------- */

/* Each row has the state of rank 1, or of all ranks. */
static const struct scene {
    const char *way, *words, *code, *ranks;
} scenes[] = {
    { "sleep", "is in load_batch (worker.py:", "RANK_SLEEPS", "--nproc_per_node=2" },
    { "loop", "spin (worker.py:", "RANK_LOOPS", "--nproc_per_node=2" },
    { "lock", "is in take_lock (worker.py:", "RANK_IN_LOCK", "--nproc_per_node=2" },
    { "fifo", "/sleep.fifo,", "RANK_BLOCKED", "--nproc_per_node=2" },
    { "child", "is in wait_for_child (worker.py:", "RANK_CHILD_ENDED", "--nproc_per_node=2" },
    { "traceback", "ValueError: batch 7 is empty;", "RANK_TRACEBACK", "--nproc_per_node=2" },
    { "other", "broadcast (worker.py:", "COLLECTIVES_DIFFER", "--nproc_per_node=3" },
    { "key", "epoch/3', which no", "RANK_NEEDS_KEY", "--nproc_per_node=3" },
    { "all_wait", "all 3 ranks", "ALL_RANKS_WAIT", "--nproc_per_node=3" },
};

enum {
    SCENES = sizeof(scenes) / sizeof(*scenes),
    TOGETHER = 3,
    SCENE_MS = 560000, /* importing PyTorch takes minutes on a busy machine */
};

static struct run_process *start_scene(const struct scene *scene, const char *path)
{
    const char *env[] = { torch_env()[0], torch_env()[1], path, NULL };
    char fifo[80], pids[64];
    snprintf(fifo, sizeof(fifo), "%s/sleep.fifo", test_dir);
    snprintf(pids, sizeof(pids), "%s", test_dir);
    const char *argv[] = { bin("ddprun"), "--standalone",
                           scene->ranks,  "--hang_timeout=4s",
                           "--grace=1s",  "tests/data/hangs/worker.py",
                           scene->way,    fifo,
                           pids,          NULL };
    return run_start(argv, &(struct run_options){ .env = env, .timeout_ms = SCENE_MS });
}

Test(hangs, a_slow_rank_is_named_by_the_stacks_of_pytorch, .init = test_dir_open, .fini = test_dir_close)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    const char *env[] = { torch_env()[0], torch_env()[1], py_spy_path(), NULL };
    const char *argv[] = { bin("ddprun"),
                           "--standalone",
                           "--nproc_per_node=4",
                           "--profile_ranks",
                           "--grace=1s",
                           "--env=SLOWER=400",
                           "tests/data/hangs/worker.py",
                           "straggler",
                           "",
                           test_dir,
                           NULL };
    expect_slow(run_start(argv, &(struct run_options){ .env = env, .timeout_ms = SCENE_MS }),
                "load (worker.py:", SCENE_MS);
}

static void expect_scene(const struct scene *scene, struct run_process *job)
{
    char code[40];
    snprintf(code, sizeof(code), "[%s]", scene->code);
    const bool told = run_until_error(job, code, SCENE_MS);
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    cr_expect(told && strstr(r.err, scene->words) != NULL, "%s: '%s' and %s are not in: %s", scene->way,
              scene->words, code, r.err);
}

Test(hangs, every_class_in_a_job_of_pytorch, .init = test_dir_open, .fini = test_dir_close,
     .timeout = 3 * 600)
{
    struct run_process *jobs[TOGETHER];
    torch_skip_without_libuv();
    torch_skip_sanitized();
    const char *path = py_spy_path();
    for (int first = 0; first < SCENES; first += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++)
            jobs[i] = start_scene(&scenes[first + i], path);
        for (int i = 0; i < TOGETHER; i++)
            expect_scene(&scenes[first + i], jobs[i]);
    }
}
