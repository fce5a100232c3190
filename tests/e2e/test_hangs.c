/* Tests of jobs that hang after their start. Every node must report the rank, the line and the reason within 15 s after
 * --hang_timeout. Stacks are from a stand-in for py-spy, and also from py-spy if it is installed. Most jobs do not
 * import PyTorch, because the import takes longer than the rest of a test. These jobs import a stand-in with the same
 * frames, from site-packages/ in tests/data/hangs. */
#include "job.h"
#include "run.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(hangs, .timeout = 600);

enum { LONG_MS = 240000, NODES = 2 };

static void check(bool ok, const char *what, const char *text)
{
    cr_assert(ok, "%s: %s", what, text);
}

/* --- with a stand-in for py-spy -------------------------------------------------------------------------------- */

/* Make a directory with a Python and the stand-in for py-spy. */
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

/* Start one of `nnodes` nodes with two workers each. The rank that hangs is rank 3, or rank 1 if there is only one
 * node. */
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

/* Expect that the node's report.json names `code` as the hang. If `code` is "", expect no hang. */
static void expect_hang(int node, const char *code)
{
    char name[40];
    snprintf(name, sizeof(name), "node%d/latest/report.json", node);
    char *text = job_file(test_dir, name);
    cJSON *report = cJSON_Parse(text);
    const char *found =
        cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetObjectItem(report, "hang"), "code"));
    cr_expect_str_eq(found != NULL ? found : "", code, "node %d: %s", node, text);
    cJSON_Delete(report);
    free(text);
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
        expect_hang(i, "RANK_SLEEPS");
    }
    expect_file("events0", "\"event\":\"finding\".*RANK_SLEEPS");
    expect_file("events1", "\"event\":\"finding\".*RANK_SLEEPS");
}

/* All stacks are equal. No rank has a flight record before the agent requests the record through the rank's FIFO. */
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

/* Run the helper that reads flight records. It reads the records of ranks 0 and 1 in `test_dir`, from files that are at
 * most `age_ms` old. */
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
    cr_expect(strstr(r.err, "\n  try      'ddpctl stacks --rank 1'") != NULL, "%s", r.err);
    cr_expect(strstr(r.err, "\n               all_reduce  ") != NULL &&
                  strstr(r.err, "\n             > load_batch  data.py:41\n") != NULL,
              "%s", r.err);
    expect_file("node0/latest/report.json", "\"function\":[[:space:]]*\"load_batch\"");
}

/* The report at the end of the job has no second hint. */
Test(hangs, the_hint_follows_the_finding_while_the_job_runs, .init = make_dir, .fini = test_dir_close)
{
    static const char *const env[] = { "CULPRIT=1", "STEPS=0", "RECORDS=0", NULL };
    struct run_result r =
        job_run((const char *const[]){ "--nproc_per_node=2", "--hang_timeout=2s", "--on_hang=stop",
                                       "--grace=1s", "--no_python", test_path("python3"), "-u",
                                       "tests/data/hangs/fake_worker.py", NULL },
                &(struct run_options){ .terminal = true, .env = env, .timeout_ms = LONG_MS });
    const char *hint = strstr(r.out, "(ddprun explain RANK_SLEEPS)");
    cr_expect_eq(r.exit_code, 125, "%s", r.out);
    cr_expect(hint != NULL && strstr(hint, " exit ") != NULL, "%s", r.out);
    cr_expect_eq(job_count_text(r.out, "(ddprun explain "), 1, "%s", r.out);
}

/* Expect one restart after the first attempt has hung. With HEALS=1, the second attempt ends with code 0. Otherwise the
 * second attempt hangs, too, and the report names `code` for this hang. The report lists all failed attempts. */
static void expect_restart(const char *heals, int exit_code, const char *code)
{
    setenv("HEALS", heals, 1);
    struct run_result r = run_wait(start_node(1, 0, free_port(), "--on_hang=restart"));
    EXPECT(r, exit_code);
    SAYS(r, "[RANK_SLEEPS]");
    char *text = job_file(test_dir, "node0/latest/report.json");
    cJSON *report = cJSON_Parse(text);
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(report, "exit_code")), exit_code, "%s", text);
    const cJSON *failed = cJSON_GetObjectItem(report, "failed_attempts");
    const char *failed_code =
        cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetArrayItem(failed, 0), "code"));
    cr_expect_eq(cJSON_GetArraySize(failed), exit_code == 0 ? 1 : 2, "%s", text);
    cr_expect_str_eq(failed_code != NULL ? failed_code : "", "RANK_SLEEPS", "%s", text);
    SAYS(r, "attempt 0 failed: rank 1 (");
    expect_hang(0, code);
    cr_expect_eq(access(test_path("node0/latest/attempt_1"), F_OK), 0, "no restart: %s", r.err);
    cr_expect_neq(access(test_path("node0/latest/attempt_2"), F_OK), 0, "two restarts: %s", r.err);
    cJSON_Delete(report);
    free(text);
}

Test(hangs, restart_starts_the_workers_again, .init = make_dir, .fini = test_dir_close)
{
    expect_restart("1", 0, "");
}

Test(hangs, restart_ends_the_job_after_the_last_restart, .init = make_dir, .fini = test_dir_close)
{
    expect_restart("0", 125, "RANK_SLEEPS");
}

static struct run_result ask_why(const char *addr)
{
    const char *argv[] = { bin("ddpctl"), addr, "why", NULL };
    return run_command(argv, NULL);
}

/* Wait until the diagnosis contains `code`, or does not contain it. */
static void until_why(const char *addr, const char *code, bool contains)
{
    struct run_result r = ask_why(addr);
    for (struct patience left = { 0 }; (strstr(r.out, code) != NULL) != contains && patience_left(&left);)
        r = ask_why(addr);
    cr_expect_eq(strstr(r.out, code) != NULL, contains, "%s: %s%s", code, r.out, r.err);
}

static pid_t printed_pid(struct run_process *job, const char *before)
{
    const char *at = strstr(run_output(job), before);
    return at != NULL ? (pid_t)atoi(at + strlen(before)) : 0;
}

/* Rank 0 prints lines all the time. Without --progress these lines would count as progress. */
Test(hangs, only_lines_that_match_are_progress, .init = make_dir, .fini = test_dir_close)
{
    char addr[40];
    const int port = free_port();
    setenv("PRINTS", "1", 1);
    struct run_process *node = start_node(1, 0, port, "--progress=^epoch [0-9]+");
    cr_expect(run_until_error(node, "[RANK_SLEEPS]", LONG_MS));
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
    until_why(addr, "RANK_SLEEPS", true);
    const pid_t rank0 = printed_pid(node, "] printer ");
    cr_assert_gt(rank0, 0, "%s", run_output(node));
    kill(rank0, SIGUSR1);
    cr_expect(run_until_output(node, "epoch 1", LONG_MS));
    until_why(addr, "RANK_SLEEPS", false);
    run_signal(node, SIGTERM);
    struct run_result r = run_wait(node);
    cr_expect_not(r.timed_out);
}

/* Some steps after the start of the job, the fake driver begins to report the process of this test on GPU 1 of node 0.
 * Node 1 has no GPU. */
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
    expect_file("node0/latest/report.json", "\"code\":[[:space:]]*\"GPU_BUSY\"");
}

Test(hangs, a_rank_stopped_by_a_signal_is_told_to_the_other_node_at_once, .init = make_dir,
     .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--hang_timeout=off");
    cr_assert(run_until_output(nodes[1], "] pid ", LONG_MS));
    kill(printed_pid(nodes[1], "] pid "), SIGSTOP);
    cr_expect(run_until_error(nodes[0], "rank 3: stopped", LONG_MS));
    cr_expect(run_until_error(nodes[1], "[RANK_STOPPED]", LONG_MS));
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        struct run_result r = run_wait(nodes[i]);
        cr_expect(strstr(r.err, "[RANK_STOPPED]\n") != NULL, "node %d: %s", i, r.err);
        cr_expect(strstr(r.err, "\n  hang     rank 3: stopped (") != NULL, "node %d: %s", i, r.err);
        expect_hang(i, "RANK_STOPPED");
    }
}

/* The output of the program goes through a pipe, so the script has two children. */
Test(hangs, the_program_of_a_shell_script_is_named_and_seen_to_stop, .init = make_dir, .fini = test_dir_close)
{
    char command[160], port[40];
    const char *env[] = { "CULPRIT=1", "STEPS=0", "RECORDS=0", NULL };
    snprintf(command, sizeof(command), "%s/python3 -u tests/data/hangs/fake_worker.py | cat", test_dir);
    snprintf(port, sizeof(port), "--master_port=%d", free_port());
    const char *argv[] = { bin("ddprun"),
                           port,
                           "--nproc_per_node=2",
                           "--hang_timeout=2s",
                           "--grace=1s",
                           "--no_python",
                           "sh",
                           "-c",
                           command,
                           NULL };
    struct run_process *job = run_start(argv, &(struct run_options){ .env = env, .timeout_ms = LONG_MS });
    cr_expect(run_until_error(job, CULPRIT, LONG_MS));
    cr_expect(run_until_error(job, "[RANK_SLEEPS]", LONG_MS));
    const pid_t program = printed_pid(job, "] pid ");
    cr_assert_gt(program, 0, "%s", run_output(job));
    kill(program, SIGSTOP);
    snprintf(command, sizeof(command), "kill -CONT %d  [RANK_STOPPED]", (int)program);
    cr_expect(run_until_error(job, command, LONG_MS));
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    cr_expect_not(r.timed_out, "%s", r.err);
}

/* This test is the debugger. The kernel reports a stop by a debugger only to the debugger, and not to the agent of the
 * rank. So the store must detect the stop in the heartbeats, and report the stop on both nodes. */
Test(hangs, a_rank_stopped_by_a_debugger_is_told_to_both_nodes, .init = make_dir, .fini = test_dir_close)
{
    struct run_process *nodes[NODES];
    const int port = free_port();
    for (int i = 0; i < NODES; i++)
        nodes[i] = start_node(NODES, i, port, "--hang_timeout=off");
    cr_assert(run_until_output(nodes[1], "] pid ", LONG_MS));
    const pid_t rank3 = printed_pid(nodes[1], "] pid ");
    const bool traces = ptrace(PTRACE_SEIZE, rank3, NULL, NULL) == 0 &&
                        ptrace(PTRACE_INTERRUPT, rank3, NULL, NULL) == 0 &&
                        waitpid(rank3, NULL, __WALL) == rank3;
    for (int i = 0; i < NODES && traces; i++)
        cr_expect(run_until_error(nodes[i], "rank 3: stopped", LONG_MS), "node %d", i);
    if (traces)
        ptrace(PTRACE_DETACH, rank3, NULL, NULL);
    run_signal(nodes[0], SIGTERM);
    for (int i = 0; i < NODES; i++) {
        struct run_result r = run_wait(nodes[i]);
        cr_expect(!traces || strstr(r.err, "[RANK_STOPPED]") != NULL, "node %d: %s", i, r.err);
    }
    if (!traces)
        cr_skip_test("skipped, because this test may not trace a process");
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

/* Start four ranks of `worker`. Each step of rank 1 takes five times as long as a step of the other ranks. Expect a
 * report that names rank 1 and `place`, the position of rank 1 in its program while the other ranks wait. If `place` is
 * "", any position is right. Another rank may be slow, too. */
static void expect_slow(const char *const worker[4], const char *place, const struct run_options *options)
{
    const int timeout_ms = options->timeout_ms;
    const char *argv[] = { bin("ddprun"),
                           "--standalone",
                           "--nproc_per_node=4",
                           "--profile_ranks",
                           "--grace=1s",
                           "--env=SLOWER=400",
                           worker[0],
                           worker[1],
                           worker[2],
                           worker[3],
                           NULL };
    struct run_process *job = run_start(argv, options);
    const bool told = run_until_error(job, "rank 1 ", timeout_ms) &&
                      run_until_error(job, place, timeout_ms) &&
                      run_until_error(job, "[RANK_SLOW]", timeout_ms);
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    cr_expect(told, "%s%s", r.out, r.err);
}

Test(hangs, a_slow_rank_is_named_by_the_steps_of_libddp)
{
    const char *const worker[4] = { bin("tests/prog/still_worker"), "slow", "1", NULL };
    expect_slow(worker, "", &(struct run_options){ .timeout_ms = LONG_MS });
}

/* --- scenes ------------------------------------------------------------------------------------------------------ */

/* A job and the report that is expected from it. `way` is what rank 1 does; in some rows all ranks do it. If `code` is
 * NULL, no report is expected. The row "spawn" accepts two different findings, because the timing decides which finding
 * is reported. */
struct scene {
    const char *way, *words, *code, *ranks;
};

static const struct scene plain_scenes[] = {
    { "loop", "spin (worker.py:", "[RANK_LOOPS]", "--nproc_per_node=2" },
    { "busy_zombie", "is in spin_beside_child (worker.py:", "[RANK_LOOPS]", "--nproc_per_node=2" },
    { "zombie", "is in sleep_beside_child (worker.py:", "[RANK_SLEEPS]", "--nproc_per_node=2" },
    { "lock", "is in take_lock (worker.py:", "[RANK_IN_LOCK]", "--nproc_per_node=2" },
    { "fifo", "/data.fifo,", "[RANK_BLOCKED]", "--nproc_per_node=2" },
    { "file", "/cache.lock,", "[RANK_BLOCKED]", "--nproc_per_node=2" },
    { "socket", " to 127.0.0.1:", "[RANK_BLOCKED]", "--nproc_per_node=2" },
    { "connect", " attempt to 127.0.0.1:", "[RANK_BLOCKED]", "--nproc_per_node=2" },
    { "pipe", " of pipe:[", "[RANK_BLOCKED]", "--nproc_per_node=2" },
    { "child", "is in wait_for_child (worker.py:", "[RANK_CHILD_ENDED]", "--nproc_per_node=2" },
    { "loader", " fill (worker.py:", "[RANK_WAITS_FOR_CHILD]", "--nproc_per_node=2" },
    { "program", " (sleep), ", "[RANK_WAITS_FOR_CHILD]", "--nproc_per_node=2" },
    { "slow", "", NULL, "--nproc_per_node=2" },
    { "calls", "calls_in_turn (worker.py:", "[RANK_LOOPS]", "--nproc_per_node=2" },
    { "part", "part/0'", "[RANK_NEEDS_KEY]", "--nproc_per_node=3" },
};

static const struct scene torch_scenes[] = {
    { "sleep", "is in load_batch (worker.py:", "[RANK_SLEEPS]", "--nproc_per_node=2" },
    { "spawn", "process_group", "(mp.spawn)", "--nproc_per_node=2" },
    { "traceback", "ValueError: batch 7 is empty;", "[RANK_TRACEBACK]", "--nproc_per_node=2" },
    { "other", "broadcast (worker.py:", "[COLLECTIVES_DIFFER]", "--nproc_per_node=3" },
    { "key", "epoch/3', which no", "[RANK_NEEDS_KEY]", "--nproc_per_node=3" },
    { "all_wait", "all 3 ranks", "[ALL_RANKS_WAIT]", "--nproc_per_node=3" },
};

enum {
    PLAIN_SCENES = sizeof(plain_scenes) / sizeof(*plain_scenes),
    KEY_SCENE = PLAIN_SCENES - 1, /* index of the row "part" */
    TORCH_SCENES = sizeof(torch_scenes) / sizeof(*torch_scenes),
    TOGETHER = 3,
    SCENE_MS = 560000, /* importing PyTorch takes minutes on a busy machine */
};

static struct run_process *start_scene(const struct scene *scene, const char *where, const char *timeout,
                                       const char *const *env)
{
    char fifo[80], pids[64];
    snprintf(fifo, sizeof(fifo), "%s/data.fifo", test_dir);
    snprintf(pids, sizeof(pids), "%s", test_dir);
    const char *argv[] = { bin("ddprun"), where,        scene->ranks,
                           timeout,       "--grace=1s", "tests/data/hangs/worker.py",
                           scene->way,    fifo,         pids,
                           NULL };
    return run_start(argv, &(struct run_options){ .env = env, .timeout_ms = SCENE_MS });
}

static struct run_process *start_plain(const struct scene *scene, const char *path, const char *where,
                                       const char *timeout)
{
    char option[40];
    const char *env[] = { "PYTHON_EXEC=/usr/bin/python3", "PYTHONPATH=tests/data/hangs/site-packages",
                          "PYTHONDONTWRITEBYTECODE=1", path, NULL };
    snprintf(option, sizeof(option), "--hang_timeout=%s", timeout);
    return start_scene(scene, where, option, env);
}

static struct run_process *start_torch(const struct scene *scene, const char *path)
{
    const char *env[] = { torch_env()[0], torch_env()[1], path, NULL };
    return start_scene(scene, "--standalone", "--hang_timeout=4s", env);
}

static void expect_end(struct run_process *job)
{
    struct run_result r = run_wait(job);
    cr_expect_eq(r.exit_code, 0, "%s", r.err);
    SILENT(r, "[RANK_");
    SILENT(r, "[COLLECTIVES_DIFFER]");
    SILENT(r, "[ALL_RANKS_WAIT]");
}

Test(hangs, a_slow_rank_is_named_by_the_stacks_of_pytorch, .init = test_dir_open, .fini = test_dir_close)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    const char *env[] = { torch_env()[0], torch_env()[1], py_spy_path(), NULL };
    const char *const worker[4] = { "tests/data/hangs/worker.py", "straggler", "", test_dir };
    expect_slow(worker, "load (worker.py:", &(struct run_options){ .env = env, .timeout_ms = SCENE_MS });
}

static void expect_scene(const struct scene *scene, struct run_process *job)
{
    if (scene->code == NULL) {
        expect_end(job);
        return;
    }
    const bool told = run_until_error(job, scene->code, SCENE_MS);
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    cr_expect(told && strstr(r.err, scene->words) != NULL, "%s: '%s' and %s are not in: %s", scene->way,
              scene->words, scene->code, r.err);
}

/* Return true if the scene is part of this run. In the scenes of RANK_LOOPS, a rank uses a whole processor until ddprun
 * reports the loop. So with a sanitizer, only the other scenes run. */
static bool is_tried(const struct scene *scene)
{
    return !bin_is_sanitized() || strcmp(scene->code != NULL ? scene->code : "", "[RANK_LOOPS]") != 0;
}

static void skip_without_python(void)
{
    if (access("/usr/bin/python3", X_OK) != 0)
        cr_skip_test("skipped, because there is no /usr/bin/python3");
}

/* All jobs run at the same time, because a job mostly waits for the next sample of its stacks. The test waits for the
 * reports in the order of the list, and ends each job after its report. Jobs that use the processor are first in the
 * list, so that they end early. An exception is `calls`, which needs the most samples, so it is near the end. The job
 * `unwatched` has no --hang_timeout. For this job, `ddpctl why` reports the wait for a key after 10 s. */
Test(hangs, every_class_that_needs_no_pytorch, .init = test_dir_open, .fini = test_dir_close)
{
    static const struct scene *const key = &plain_scenes[KEY_SCENE];
    struct run_process *jobs[PLAIN_SCENES], *unwatched;
    char addr[2][40], master[2][40];
    skip_without_python();
    const char *path = py_spy_path();
    for (int i = 0; i < 2; i++) {
        const int port = free_port();
        snprintf(addr[i], sizeof(addr[i]), "--addr=127.0.0.1:%d", port);
        snprintf(master[i], sizeof(master[i]), "--master_port=%d", port);
    }
    for (int i = 0; i < PLAIN_SCENES; i++)
        if (is_tried(&plain_scenes[i]))
            jobs[i] = start_plain(&plain_scenes[i], path, i == KEY_SCENE ? master[0] : "--standalone", "1s");
    unwatched = start_plain(key, path, master[1], "off");
    for (int i = 0; i < KEY_SCENE; i++)
        if (is_tried(&plain_scenes[i]))
            expect_scene(&plain_scenes[i], jobs[i]);
    cr_expect(run_until_error(jobs[KEY_SCENE], "rank 0 should", SCENE_MS));
    until_why(addr[0], "rank 0 should", true);
    expect_scene(key, jobs[KEY_SCENE]);
    until_why(addr[1], "KEY_NOT_SET", true);
    until_why(addr[1], "'part/0'", true);
    run_signal(unwatched, SIGTERM);
    struct run_result r = run_wait(unwatched);
    SILENT(r, "[RANK_NEEDS_KEY]");
}

static bool py_spy_is_installed(void)
{
    return access("/usr/bin/py-spy", X_OK) == 0 || access("/bin/py-spy", X_OK) == 0 ||
           access(bin("py-spy"), X_OK) == 0;
}

static void skip_if_py_spy_is_installed(void)
{
    if (py_spy_is_installed())
        cr_skip_test("skipped, because py-spy is installed here");
}

/* Rank 1 of three sleeps in another system call than ranks 0 and 2. */
Test(hangs, without_py_spy_a_rank_in_another_state_is_told, .init = test_dir_open, .fini = test_dir_close)
{
    static const struct scene scene = { "sleep", " rank 1 (", "[RANK_STATE_DIFFERS]", "--nproc_per_node=3" };
    skip_without_python();
    skip_if_py_spy_is_installed();
    expect_scene(&scene, start_plain(&scene, "PATH=/usr/bin:/bin", "--standalone", "1s"));
}

/* Skip the test if rank 1 cannot mount a FUSE file system in a new mount namespace. */
static void skip_without_fuse(void)
{
    const char *argv[] = { "unshare", "--mount", "true", NULL };
    const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0)
        cr_skip_test("skipped, because /dev/fuse cannot be opened");
    close(fuse);
    if (geteuid() != 0 || run_command(argv, NULL).exit_code != 0)
        cr_skip_test("skipped, because a mount namespace needs root");
}

static struct run_result ask_stacks(const char *addr)
{
    const char *argv[] = { bin("ddpctl"), addr, "stacks", NULL };
    return run_command(argv, NULL);
}

/* The rank that reads the file is in state D. Its agent must still be able to read this state and to answer requests.
 * If py-spy is not installed in the usual folders, a second job runs without py-spy. */
Test(hangs, a_file_that_its_file_system_does_not_read_is_named, .init = test_dir_open, .fini = test_dir_close)
{
    static const struct scene scene = { "disk", "/disk/data, without progress", "[RANK_BLOCKED]",
                                        "--nproc_per_node=2" };
    static const struct scene without = { "disk", "/disk/data, while", "[RANK_STATE_DIFFERS]",
                                          "--nproc_per_node=3" };
    char addr[40], master[40];
    const int port = free_port();
    skip_without_python();
    skip_without_fuse();
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
    snprintf(master, sizeof(master), "--master_port=%d", port);
    struct run_process *job = start_plain(&scene, py_spy_path(), master, "1s"), *second = NULL;
    if (!py_spy_is_installed())
        second = start_plain(&without, "PATH=/usr/bin:/bin", "--standalone", "1s");
    cr_expect(run_until_error(job, scene.code, SCENE_MS));
    struct run_result r = ask_stacks(addr);
    for (struct patience left = { 0 }; r.exit_code != 0 && patience_left(&left);)
        r = ask_stacks(addr); /* the store rejects a request while it takes a sample for its own search */
    cr_expect(r.exit_code == 0 && strstr(r.out, "uninterruptible in read") != NULL, "%s%s", r.out, r.err);
    cr_expect(strstr(r.out, "/disk/data") != NULL && strstr(r.out, "> read_disk  worker.py:") != NULL, "%s",
              r.out);
    expect_scene(&scene, job);
    if (second != NULL)
        expect_scene(&without, second);
}

/* The state "running" may be progress, so the diagnosis only explains why it names no rank. */
Test(hangs, without_py_spy_why_explains_that_stacks_are_missing, .init = test_dir_open,
     .fini = test_dir_close)
{
    static const struct scene scene = { "loop", "", NULL, "--nproc_per_node=2" };
    char addr[40], master[40];
    const int port = free_port();
    skip_without_python();
    skip_if_py_spy_is_installed();
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", port);
    snprintf(master, sizeof(master), "--master_port=%d", port);
    struct run_process *job = start_plain(&scene, "PATH=/usr/bin:/bin", master, "1s");
    cr_expect(run_until_output(job, "step 7", SCENE_MS));
    until_why(addr, "STACKS_UNREADABLE", true);
    run_signal(job, SIGTERM);
    struct run_result r = run_wait(job);
    SILENT(r, "[RANK_");
}

Test(hangs, every_class_in_a_job_of_pytorch, .init = test_dir_open, .fini = test_dir_close,
     .timeout = 3 * 600)
{
    struct run_process *jobs[TOGETHER];
    torch_skip_without_libuv();
    torch_skip_sanitized();
    const char *path = py_spy_path();
    for (int first = 0; first < TORCH_SCENES; first += TOGETHER) {
        for (int i = 0; i < TOGETHER; i++)
            jobs[i] = start_torch(&torch_scenes[first + i], path);
        for (int i = 0; i < TOGETHER; i++)
            expect_scene(&torch_scenes[first + i], jobs[i]);
    }
}
