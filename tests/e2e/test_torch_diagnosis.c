/* Tests with the real PyTorch: if a process group does not form, every node and `ddpctl` report the reason, long before
 * PyTorch's own timeout. */
#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(torch_diagnosis, .timeout = 600);

enum { LONG_MS = 240000, NODES_MAX = 2 };

struct nodes {
    struct run_process *process[NODES_MAX];
    int count, port;
};

/* Start `nproc` workers in total, the same number on each node. */
static void start(struct nodes *n, int count, int nproc, const char *program, const char *argument)
{
    char nnodes[24], local[32], node_rank[24], port[32], path[128];
    *n = (struct nodes){ .count = count, .port = free_port() };
    snprintf(nnodes, sizeof(nnodes), "--nnodes=%d", count);
    snprintf(local, sizeof(local), "--nproc_per_node=%d", nproc / count);
    snprintf(port, sizeof(port), "--master_port=%d", n->port);
    snprintf(path, sizeof(path), "tests/interop/programs/%s", program);
    for (int i = 0; i < count; i++) {
        snprintf(node_rank, sizeof(node_rank), "--node_rank=%d", i);
        const char *argv[] = { bin("ddprun"), nnodes,   local, node_rank, port, "--master_addr=127.0.0.1",
                               path,          argument, NULL };
        n->process[i] = run_start(argv, &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
    }
}

static void stop(struct nodes *n)
{
    for (int i = 0; i < n->count; i++)
        run_signal(n->process[i], SIGTERM);
    for (int i = 0; i < n->count; i++) {
        run_wait(n->process[i]);
    }
}

static void expect_words(struct nodes *n, const char *words)
{
    for (int i = 0; i < n->count; i++)
        cr_expect(run_until_error(n->process[i], words, LONG_MS), "node %d of %d never says '%s'", i,
                  n->count, words);
}

static void expect_ctl(const struct nodes *n, const char *command, const char *words)
{
    char addr[40];
    snprintf(addr, sizeof(addr), "--addr=127.0.0.1:%d", n->port);
    const char *argv[] = { bin("ddpctl"), addr, command, NULL };
    struct run_result r = run_command(argv, NULL);
    cr_expect(strstr(r.out, words) != NULL, "ddpctl %s does not say '%s':\n%s%s", command, words, r.out,
              r.err);
}

static const struct scene {
    const char *what;
    const char *wait, *reason; /* texts that all nodes print */
    bool also_alone;           /* the scene also runs on one node */
} scenes[] = {
    { "never", "init_process_group: 1 of 2 ranks", "rank 1: started (", true },
    { "imports", "init_process_group: 1 of 2 ranks", "[RANK_NOT_CONNECTED]", false },
    { "computes", "init_process_group: 1 of 2 ranks",
      "rank 1: " /* no exact line, because a sample may show rank 1 in any state */, false },
    { "exits", "init_process_group: 1 of 2 ranks", "rank 1: exited", false },
    { "nccl_id", "NCCL id (key '", "rank 0: ", true },
};

static void expect_scene(const struct scene *scene, struct nodes *n)
{
    expect_words(n, scene->wait);
    expect_words(n, scene->reason);
    if (strcmp(scene->what, "nccl_id") == 0)
        expect_ctl(n, "waiters", "0's NCCL id: '/");
    else
        expect_ctl(n, "why", "missing: rank 1");
}

/* Start all jobs at once, because they mostly wait or import torch. */
static void try_all(int count)
{
    enum { SCENES = sizeof(scenes) / sizeof(*scenes) };
    struct nodes n[SCENES];
    torch_skip_without();
    torch_skip_sanitized();
    for (size_t i = 0; i < SCENES; i++)
        if (count > 1 || scenes[i].also_alone)
            start(&n[i], count, 2, "absent.py", scenes[i].what);
    for (size_t i = 0; i < SCENES; i++)
        if (count > 1 || scenes[i].also_alone)
            expect_scene(&scenes[i], &n[i]);
    for (size_t i = 0; i < SCENES; i++)
        if (count > 1 || scenes[i].also_alone)
            stop(&n[i]);
}

Test(torch_diagnosis, names_who_is_missing_on_one_node)
{
    try_all(1);
}

Test(torch_diagnosis, names_who_is_missing_on_two_nodes)
{
    try_all(2);
}

/* Rank 0 fails first, with a PyTorch timeout; the missing rank is on another node. */
Test(torch_diagnosis, who_gave_up_is_reported_with_whom_it_has_waited_for)
{
    struct nodes n;
    torch_skip_without();
    torch_skip_sanitized();
    start(&n, 2, 2, "absent.py", "impatient");
    for (int i = 0; i < n.count; i++) {
        struct run_result end = run_wait(n.process[i]);
        const char *report = strstr(end.err, "first: exit 1");
        cr_expect(report != NULL && strstr(report, "\n  why      rank 0 (") != NULL, "node %d: %s", i,
                  end.err);
        cr_expect(strstr(end.err, "gave up") != NULL &&
                      has_parts(end.err, "1's Gloo address|rank 1: started ("),
                  "node %d: %s", i, end.err);
    }
}

/* Start a second ddprun with two workers. The workers use `port`, the port of the first job. */
static struct run_process *start_second(int port, const char *how)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", port);
    const char *argv[] = { bin("ddprun"),
                           "--standalone",
                           "--nproc_per_node=2",
                           "--rdzv_id=second",
                           "tests/interop/programs/shared.py",
                           text,
                           how,
                           NULL };
    return run_start(argv, &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
}

static struct run_process *start_first(int port, const char *how)
{
    char master[32], text[16];
    snprintf(text, sizeof(text), "%d", port);
    snprintf(master, sizeof(master), "--master_port=%d", port);
    const char *argv[] = { bin("ddprun"),
                           "--nproc_per_node=2",
                           "--rdzv_id=first",
                           master,
                           "tests/interop/programs/shared.py",
                           text,
                           how,
                           NULL };
    return run_start(argv, &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
}

static void share(const char *how, const char *words)
{
    torch_skip_without();
    torch_skip_sanitized();
    const int port = free_port();
    struct nodes both = { .process = { start_first(port, how) }, .count = 2 };
    /* When the first job prints "has begun", its store already listens on `port`. */
    cr_expect(run_until_error(both.process[0], "has begun", LONG_MS));
    both.process[1] = start_second(port, how);
    cr_expect(run_until_error(both.process[0], words, LONG_MS), "it never says '%s'", words);
    cr_expect(run_until_error(both.process[0], "two launches", LONG_MS));
    cr_expect(run_until_error(both.process[0], "of ddprun job second", LONG_MS));
    cr_expect(run_until_error(both.process[0], "[STORE_SHARED]", LONG_MS));
    stop(&both);
}

/* This test needs torch 1.x, whose ranks wait in the barrier while more ranks than the world size have arrived. In
 * torch 2.x, all ranks leave the barrier once the number of arrivals has reached the world size. After that, only the
 * addresses that the ranks publish show the error. */
Test(torch_diagnosis, more_in_a_barrier_than_there_are_ranks)
{
    torch_skip_without();
    if (!torch_is_old())
        cr_skip_test("skipped, because only torch 1.x compares the count again and again");
    share("barrier", "part, but");
}

Test(torch_diagnosis, two_processes_that_are_the_same_rank)
{
    share(NULL, "take part,");
}

static struct run_result run_alone(const char *program, const char *argument)
{
    const char *argv[] = { bin("ddprun"), "--standalone", "--nproc_per_node=1", program, argument, NULL };
    return run_command(argv, &(struct run_options){ .env = torch_env(), .timeout_ms = LONG_MS });
}

static void expect_hint(struct run_result r, const char *words)
{
    EXPECT(r, 1);
    const char *hint = strstr(r.err, "\n  hint  ");
    cr_expect(hint != NULL && strstr(hint, words) != NULL, "no hint with '%s' in:\n%s", words, r.err);
}

Test(torch_diagnosis, a_data_loader_that_was_killed_is_named)
{
    torch_skip_without();
    torch_skip_sanitized();
    expect_hint(run_alone("tests/interop/programs/loader_dies.py", NULL), "DataLoader worker");
}

Test(torch_diagnosis, nccl_without_a_gpu_is_answered_with_gloo)
{
    torch_skip_without();
    torch_skip_sanitized();
    if (access("/dev/nvidiactl", F_OK) == 0)
        cr_skip_test("skipped, because this machine has a GPU");
    expect_hint(run_alone("tests/interop/programs/wants_nccl.py", NULL), "init_process_group('gloo')");
}
