/* Tests of unmodified PyTorch programs (tests/interop/programs) under ddprun, on one node and on two nodes. A row lists
 * the lines that every rank of a program must print. */
#include "run.h"
#include "scene.h"
#include "job.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(torch_programs, .timeout = 880);

enum { NODES_MAX = 2, WORLD = 2, LONG_MS = 600000 };

struct row {
    const char *program;
    const char *lines[10]; /* printed once by every rank, after "rank R of 2: " */
    const char *others[8]; /* lines that only torch 1.13 prints */
};

static const struct row rows[] = {
    { "collectives.py",
      { "tensors", "rarer", "objects", "messages", "groups", "monitored" },
      { "rank 0: Gloo lacks all_to_all (RuntimeError)", "rank 1: Gloo lacks all_to_all (RuntimeError)",
        "rank 0: Gloo lacks reduce_scatter (RuntimeError)",
        "rank 1: Gloo lacks reduce_scatter (RuntimeError)",
        "rank 0: Gloo lacks all_gather_into_tensor (RuntimeError)",
        "rank 1: Gloo lacks all_gather_into_tensor (RuntimeError)", "missing in monitored: 1" } },
    { "train.py",
      { "plain", "unused", "no_sync", "static_graph", "comm_hook", "sync_batch_norm", "sampler",
        "sharded_optimizer", "checkpoint" },
      { "rank 0: SyncBatchNorm on a CPU is refused", "rank 1: SyncBatchNorm on a CPU is refused" } },
    { "control.py", { "environment", "synchronized", "sampler", "timers" }, { NULL } },
    { "meet.py", { "tcp", "store_of_the_job", "store_of_its_own", "remote_calls" }, { NULL } },
};

/* One ddprun for each node, and the result of each ddprun. */
struct nodes {
    struct run_process *process[NODES_MAX];
    struct run_result end[NODES_MAX];
    int count;
};

/* Start a node. `argument` is the file in which the program keeps its state, or NULL. A job with such a file may be
 * restarted once. */
static struct run_process *start_node(const char *program, const char *argument, int node, int count,
                                      int port)
{
    char nnodes[24], nproc[32], node_rank[24], master_port[32], path[128];
    snprintf(nnodes, sizeof(nnodes), "--nnodes=%d", count);
    snprintf(nproc, sizeof(nproc), "--nproc_per_node=%d", WORLD / count);
    snprintf(node_rank, sizeof(node_rank), "--node_rank=%d", node);
    snprintf(master_port, sizeof(master_port), "--master_port=%d", port);
    snprintf(path, sizeof(path), "tests/interop/programs/%s", program);
    const char *argv[] = { bin("ddprun"), nnodes,
                           nproc,         node_rank,
                           master_port,   "--master_addr=127.0.0.1",
                           "--no_prefix", argument != NULL ? "--max_restarts=1" : "--max_restarts=0",
                           path,          argument,
                           NULL };
    const char *env[] = { torch_env()[0], torch_env()[1], "TORCHELASTIC_ENABLE_FILE_TIMER=1", NULL };
    return run_start(argv, &(struct run_options){ .env = env, .timeout_ms = LONG_MS });
}

static struct nodes run_nodes(const char *program, const char *argument, int count)
{
    struct nodes n = { .count = count };
    const int port = free_port();
    for (int i = 0; i < count; i++)
        n.process[i] = start_node(program, argument, i, count, port);
    for (int i = 0; i < count; i++)
        n.end[i] = run_wait(n.process[i]);
    return n;
}

/* Return how often `line` occurs in `text`, with or without the prefix "[default0]:". torchrun prints this prefix with
 * the options -r and -t, and torch 1.13 needs these options. */
static int lines_of(const char *text, const char *line)
{
    char prefixed[192];
    int times = job_count(text, line);
    for (int rank = 0; rank < WORLD; rank++) {
        snprintf(prefixed, sizeof(prefixed), "[default%d]:%s", rank, line);
        times += job_count(text, prefixed);
    }
    return times;
}

static void expect_line(const struct nodes *n, const char *line)
{
    int times = 0;
    for (int i = 0; i < n->count; i++)
        times += lines_of(n->end[i].out, line);
    cr_expect_eq(times, 1, "'%s' came %d times; %d node(s), the first says:\n%s%s", line, times, n->count,
                 n->end[0].out, n->end[0].err);
}

static void expect_codes(const struct nodes *n, int code)
{
    for (int i = 0; i < n->count; i++)
        cr_expect_eq(n->end[i].exit_code, code, "node %d of %d: exit %d, signal %d:\n%s%s", i, n->count,
                     n->end[i].exit_code, n->end[i].signal, n->end[i].out, n->end[i].err);
}

static void expect_row(const struct nodes *n, const struct row *row)
{
    char line[80];
    expect_codes(n, 0);
    for (int i = 0; row->lines[i] != NULL; i++)
        for (int rank = 0; rank < WORLD; rank++) {
            snprintf(line, sizeof(line), "rank %d of %d: %s", rank, WORLD, row->lines[i]);
            expect_line(n, line);
        }
}

/* Run a job that fails once and continues where it was, with the same store on the same port. The real torchrun loses
 * about half of these restarts with torch 2.x, because the second attempt finds keys of the first attempt. */
static void restart_once(int count)
{
    char *dir = job_dir(), path[300];
    snprintf(path, sizeof(path), "%s/state.pt", dir);
    struct nodes n = run_nodes("elastic.py", path, count);
    expect_codes(&n, 0);
    expect_line(&n, "rank 0: attempt 0 begins at step 0");
    expect_line(&n, "rank 1: attempt 1 begins at step 3");
    expect_line(&n, "rank 0: 6 steps, sum 18");
    expect_line(&n, "rank 1: 6 steps, sum 18");
    cr_expect_not_null(strstr(n.end[count - 1].err, "no step 3 today"), "%s", n.end[count - 1].err);
    job_dir_remove(dir);
}

Test(torch_programs, start_again_every_time_on_one_node, .timeout = 3600)
{
    torch_skip_without();
    torch_skip_sanitized();
    for (int i = torch_number("DDP_RESTARTS", 1); i > 0; i--)
        restart_once(1);
}

Test(torch_programs, start_again_on_two_nodes)
{
    torch_skip_without();
    torch_skip_sanitized();
    restart_once(2);
}

/* Run the real torchrun on one node. Enable the timers that the program control.py uses, as start_node does. */
static struct run_result run_torchrun(const char *program)
{
    char port[32], path[128];
    const char *env[] = { torch_env()[0], torch_env()[1], "TORCHELASTIC_ENABLE_FILE_TIMER=1", NULL };
    const char *argv[] = { torch_python(),
                           "-m",
                           "torch.distributed.run",
                           "--nproc_per_node=2",
                           "--monitor_interval=0.2",
                           port,
                           "-r",
                           "1",
                           "-t",
                           "1",
                           path,
                           NULL };
    snprintf(port, sizeof(port), "--master_port=%d", free_port());
    snprintf(path, sizeof(path), "tests/interop/programs/%s", program);
    return run_command(argv, &(struct run_options){ .env = env, .timeout_ms = LONG_MS });
}

static void expect_same(const char *program, const struct nodes *n)
{
    char line[160];
    struct run_result torchrun = run_torchrun(program);
    cr_expect_eq(torchrun.exit_code, 0, "torchrun %s: %s", program, torchrun.err);
    const char *next = n->end[0].out;
    for (const char *at = next; (next = strchr(at, '\n')) != NULL; at = next + 1) {
        snprintf(line, sizeof(line), "%.*s", (int)(next - at), at);
        cr_expect_eq(lines_of(torchrun.out, line), 1, "%s: '%s' is not what torchrun shows:\n%s", program,
                     line, torchrun.out);
    }
}

/* Expect the lines `others`, too, and no line that the row does not list. Call this function only with torch 1.13.
 * `make interop` checks that torchrun prints the same lines. */
static void expect_no_more(const struct nodes *n, const struct row *row)
{
    int lines = 0, printed = 0;
    for (; row->others[lines] != NULL; lines++)
        expect_line(n, row->others[lines]);
    for (int i = 0; row->lines[i] != NULL; i++)
        lines += WORLD;
    for (const char *at = n->end[0].out; (at = strchr(at, '\n')) != NULL; at++)
        printed++;
    cr_expect_eq(printed, lines, "%s", n->end[0].out);
}

/* Return true if the test runs torchrun, too. torchrun fails if PyTorch was built without libuv. With torch 1.x only
 * `make interop`, which sets DDP_RESTARTS, runs torchrun. The reason is time: each process of torchrun imports
 * PyTorch. */
static bool torchrun_runs(void)
{
    return !torch_refuses_stores() && (getenv("DDP_RESTARTS") != NULL || !torch_is_old());
}

/* Run the program of a row on one node. If the test runs torchrun, too, expect the same output of the program under
 * torchrun. */
static void try_as_under_torchrun(const struct row *row)
{
    torch_skip_without();
    torch_skip_sanitized();
    struct nodes n = run_nodes(row->program, NULL, 1);
    expect_row(&n, row);
    if (torch_is_old())
        expect_no_more(&n, row);
    if (torchrun_runs())
        expect_same(row->program, &n);
}

Test(torch_programs, collectives_print_what_they_print_under_torchrun)
{
    try_as_under_torchrun(&rows[0]);
}

Test(torch_programs, training_prints_what_it_prints_under_torchrun)
{
    try_as_under_torchrun(&rows[1]);
}

Test(torch_programs, controls_print_what_they_print_under_torchrun)
{
    try_as_under_torchrun(&rows[2]);
}

Test(torch_programs, meetings_print_what_they_print_under_torchrun)
{
    try_as_under_torchrun(&rows[3]);
}

Test(torch_programs, may_start_processes_with_a_group_of_their_own)
{
    torch_skip_without();
    torch_skip_sanitized();
    struct nodes n = run_nodes("spawns.py", NULL, 1);
    expect_codes(&n, 0);
    expect_line(&n, "rank 0, child 1: sum 3");
    expect_line(&n, "rank 1, child 0: sum 3");
    expect_line(&n, "rank 1: children are done");
}

/* fails.py uses @record, so its message is in the error file and in the report. elastic.py is not among these tests,
 * because the real torchrun with torch 2.x loses half of its restarts. */
Test(torch_programs, fail_with_what_torchrun_says)
{
    torch_skip_without();
    torch_skip_sanitized();
    char *dir = job_dir(), log_dir[300];
    snprintf(log_dir, sizeof(log_dir), "--log_dir=%s", dir);
    struct run_result r = job_run(
        (const char *const[]){ "--nproc_per_node=2", log_dir, "tests/interop/programs/fails.py", NULL },
        &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
    EXPECT(r, 1);
    SAYS(r, "rank 1");
    SAYS(r, "ValueError: the data of rank 1 are broken");
    job_dir_remove(dir);
    if (!torchrun_runs())
        return;
    r = run_torchrun("fails.py");
    EXPECT(r, 1);
    SAYS(r, "the data of rank 1 are broken");
}

/* --- two hosts ------------------------------------------------------------------------------------------ */

/* Find the program's absolute path, because the processes of a host begin in "/". */
static void find_program(const char *program, char path[PATH_MAX])
{
    char name[128];
    snprintf(name, sizeof(name), "tests/interop/programs/%s", program);
    cr_assert_not_null(realpath(name, path), "%s", name);
}

static struct run_process *start_torchrun_on(const struct host *host, const char *program, int index)
{
    char node_rank[24], path[PATH_MAX];
    find_program(program, path);
    snprintf(node_rank, sizeof(node_rank), "--node_rank=%d", index);
    const char *argv[] = { torch_python(),
                           "-m",
                           "torch.distributed.run",
                           "--nnodes=2",
                           "--nproc_per_node=1",
                           "--master_addr=10.9.0.1",
                           "--monitor_interval=0.2",
                           node_rank,
                           "-r",
                           "1",
                           "-t",
                           "1",
                           path,
                           NULL };
    return host_start(host, argv, &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
}

/* Expect that the store has rejected no connection, and let the ranks end. */
static void expect_all_passed(struct play *play)
{
    after_no_rejects(play);
    gate_open();
}

/* Play `scene`. If `program` is not NULL, each rank runs `program`. Then the rank waits for gate_open(). The job has a
 * secret, so the store admits connections from other hosts only after an agent has confirmed these connections. */
static void play_on_hosts(struct scene scene, const char *program, const char *arguments)
{
    char stay[PATH_MAX], path[PATH_MAX] = "", line[2 * PATH_MAX + 256];
    find_program("stay.py", stay);
    if (program != NULL)
        find_program(program, path);
    snprintf(line, sizeof(line), "%s -u %s %s %s", torch_python(), stay, path, arguments);
    scene.program = line;
    scene.start_ms = LONG_MS;
    scene.until = scene.until != NULL ? scene.until : " stays\n";
    scene.never = ": rejected: ";
    scene.after = scene.after != NULL ? scene.after : expect_all_passed;
    gate_shut();
    scene_play(&scene);
    gate_gone();
}

#define ONE_RANK_EACH "--nproc_per_node=1 --node_timeout=60s"

/* Run a row. The hosts have separate networks, names and addresses, so that nothing works by accident over loopback. */
static void try_on_two_hosts(const struct row *row)
{
    char prints[2][512] = { "", "" };
    struct scene scene = { .name = row->program, .options = ONE_RANK_EACH };
    torch_skip_without();
    torch_skip_sanitized();
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; row->lines[i] != NULL; i++) {
            const size_t len = strlen(prints[rank]);
            snprintf(prints[rank] + len, sizeof(prints[rank]) - len, "rank %d of 2: %s\n|", rank,
                     row->lines[i]);
        }
        scene.node[rank].prints = prints[rank];
    }
    play_on_hosts(scene, row->program, "");
}

Test(torch_programs, run_on_two_hosts)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        try_on_two_hosts(&rows[i]);
}

/* Skip a test that takes long, except in `make interop`. */
static void skip_unless_interop(void)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    if (getenv("DDP_RESTARTS") == NULL)
        cr_skip_test("skipped, because it takes long (make interop runs it)");
}

/* Run `program` with one rank on each of two hosts and expect that rank N prints `prints[N]`. */
static void try_long_program(const char *program, const char *const prints[2])
{
    skip_unless_interop();
    play_on_hosts((struct scene){ .name = program,
                                  .options = ONE_RANK_EACH,
                                  .node = { { .prints = prints[0] }, { .prints = prints[1] } } },
                  program, "");
}

Test(torch_programs, start_processes_on_two_hosts)
{
    try_long_program("spawns.py",
                     (const char *[]){ "rank 0: children are done", "rank 1: children are done" });
}

Test(torch_programs, two_hundred_clients_of_two_hosts_connect_at_once)
{
    try_long_program("crowd.py", (const char *[]){ "rank 0 of 2: clients", "rank 1 of 2: clients" });
}

/* Expect that no connection was rejected because its confirmation was missing. Other rejections are correct: like
 * PyTorch's store, the store rejects an ADD to a value that is not a number. Then let the ranks end. */
static void expect_all_confirmed(struct play *play)
{
    const char *argv[] = { bin("ddpctl"), "--addr", "10.9.0.1:29500", "--json", "rejects", NULL };
    struct run_result r = host_run(&play->net->host[0], argv);
    cr_expect(r.exit_code == 0 && strstr(r.out, "confirmed") == NULL, "%s%s", r.out, r.err);
    gate_open();
}

/* Node 1 runs the same random operations on two stores: the job's store on node 0, and PyTorch's own store. The results
 * must be equal. */
Test(torch_programs, no_operation_differs_from_the_genuine_store_on_another_host)
{
    char stay[PATH_MAX], differential[PATH_MAX], program[2 * PATH_MAX + 256];
    skip_unless_interop();
    find_program("stay.py", stay);
    find_program("../differential", differential);
    snprintf(program, sizeof(program), "%s -u %s %s job --operations=1000 --seed=%d", torch_python(), stay,
             differential, torch_number("DDP_SEED", 1));
    play_on_hosts((struct scene){ .name = "differential",
                                  .options = ONE_RANK_EACH,
                                  .after = expect_all_confirmed,
                                  .node = { { 0 }, { .program = program, .prints = "no difference" } } },
                  NULL, "");
}

static void restart_on_hosts(const char *how, const char *says)
{
    char arguments[300];
    skip_unless_interop();
    char *dir = job_dir();
    snprintf(arguments, sizeof(arguments), "%s/state.pt %s", dir, how);
    play_on_hosts(
        (struct scene){ .name = "elastic.py",
                        .options = ONE_RANK_EACH " --max_restarts=1",
                        .node = { { .prints = "rank 0: attempt 0 begins at step 0|rank 0: 6 steps, sum 18" },
                                  { .prints = "rank 1: attempt 1 begins at step 3|rank 1: 6 steps, sum 18",
                                    .ends = says } } },
        "elastic.py", arguments);
    job_dir_remove(dir);
}

Test(torch_programs, start_again_on_two_hosts)
{
    restart_on_hosts("", "no step 3 today");
}

Test(torch_programs, start_again_on_two_hosts_after_a_kill)
{
    restart_on_hosts("kill", "SIGKILL");
}

/* Add the last node to a job that waits for this node. Kill the node when the job waits for the node's end. */
static void add_and_remove_a_node(struct play *play)
{
    const int last = play->scene->victim;
    scene_start(play, last, NULL);
    for (int i = 0; i <= last; i++)
        cr_assert(run_until_output(play->node[i], " waits at step 6\n", LONG_MS), "node %d", i);
    fault_kill_launcher(play);
    for (int i = 0; i < last; i++)
        cr_assert(run_until_output(play->node[i], " stays\n", LONG_MS), "node %d", i);
}

/* Train with `least` nodes, then with one more node, then with `least` nodes. */
static void resize(int least)
{
    char arguments[300], options[256];
    struct scene scene = { .name = "resize.py",
                           .hosts = least + 1,
                           .elastic = true,
                           .options = options,
                           .until = " waits at step 3\n",
                           .victim = least,
                           .fault = add_and_remove_a_node };
    skip_unless_interop();
    char *dir = job_dir();
    snprintf(arguments, sizeof(arguments), "%s/state.pt %d %d %d", dir, least, least + 1, least);
    snprintf(options, sizeof(options),
             ONE_RANK_EACH
             " --nnodes=%d:%d --rdzv_backend=c10d --rdzv_id=el --rdzv_endpoint=10.9.0.1:29500 --grow=now "
             "--rdzv_conf=last_call_timeout=1",
             least, least + 1);
    for (int i = 0; i < least; i++)
        scene.node[i].prints = " 9 steps, as alone";
    scene.node[least] = (struct scene_node){ .by_hand = true, .exit = KILLED };
    play_on_hosts(scene, "resize.py", arguments);
    job_dir_remove(dir);
}

Test(torch_programs, train_on_while_a_node_joins_and_leaves)
{
    resize(1);
}

Test(torch_programs, train_on_while_a_third_node_joins_and_leaves)
{
    resize(2);
}

/* Check the expected lines: torchrun itself must print these lines on two hosts, too. */
Test(torch_programs, run_on_two_hosts_under_torchrun)
{
    torch_skip_without();
    torch_skip_sanitized();
    if (getenv("DDP_RESTARTS") == NULL)
        cr_skip_test("skipped, because it says nothing of ddprun by itself (make interop runs it)");
    if (torch_refuses_stores())
        cr_skip_test("skipped, because torchrun itself cannot run a PyTorch without libuv");
    struct hosts *net = hosts_open(2);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nodes n = { .count = 2 };
        for (int h = 0; h < 2; h++)
            n.process[h] = start_torchrun_on(&net->host[h], rows[i].program, h);
        for (int h = 0; h < 2; h++)
            n.end[h] = run_wait(n.process[h]);
        expect_row(&n, &rows[i]);
    }
    hosts_close(net);
}

/* --- a PyTorch without libuv ---------------------------------------------------------------------------- */

Test(torch_programs, meet_at_rank_0_where_pytorch_has_no_libuv)
{
    torch_skip_without();
    torch_skip_sanitized();
    if (!torch_refuses_stores())
        cr_skip_test("skipped, because this PyTorch can use the launcher's store (make interop-nolibuv has "
                     "one that cannot)");
    struct nodes n = run_nodes("collectives.py", NULL, 1);
    expect_codes(&n, 0);
    cr_expect_not_null(strstr(n.end[0].err, "so rank 0 hosts"), "%s", n.end[0].err);
    struct run_result r = job_run((const char *const[]){ "--nproc_per_node=2", "--torch_store=launcher",
                                                         "tests/interop/programs/collectives.py", NULL },
                                  &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
    EXPECT(r, 1);
    SAYS(r, "--torch_store=rank0 lets rank 0 host one");
}
