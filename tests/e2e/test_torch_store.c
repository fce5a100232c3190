/* Tests of the store client with PyTorch's own TCPStore. Debian has PyTorch 1.13, whose TCPStore uses dialect A. */
#include "ddp/ddp.h"
#include "ddp/store.h"
#include "job.h"
#include "run.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(torch_store, .timeout = 120);

/* A program that hosts a store, answers "question" with "answer" as a second client, and ends on request. */
static const char host[] = "import datetime\n"
                           "from torch.distributed import TCPStore\n"
                           "minute = datetime.timedelta(seconds=60)\n"
                           "s = TCPStore('127.0.0.1', 0, None, True, minute)\n"
                           "print('port', s.port, 'end', flush=True)\n"
                           "s.wait(['question'], minute)\n"
                           "assert s.get('question') == b'what?'\n"
                           "s.set('answer', b'42\\x00')\n"
                           "assert s.add('n', 1) == 4\n"
                           "s.wait(['end'], minute)\n"
                           "print('all well', flush=True)\n";

static struct ddp_err err;

static struct run_process *start_torch(int *port)
{
    const char *argv[] = { torch_python(), "-", NULL };
    const char *env[] = { "OMP_NUM_THREADS=1", NULL };
    struct run_process *p =
        run_start(argv, &(struct run_options){ .env = env, .stdin_text = host, .timeout_ms = 100000 });
    cr_assert(run_until_output(p, " end\n", 60000), "torch hosts no store: %s", run_output(p));
    cr_assert_eq(sscanf(run_output(p), "port %d", port), 1);
    return p;
}

static ddp_store *connected(int port)
{
    ddp_store *store;
    cr_assert_eq(ddp_store_connect("localhost", port, NULL, &store, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(ddp_store_dialect(store), torch_dialect());
    return store;
}

static void expect_value(ddp_store *store, const char *key, const char *value, size_t len)
{
    void *got;
    size_t got_len;
    cr_assert_eq(ddp_store_get(store, key, 20000, &got, &got_len, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(got_len, len);
    cr_assert_eq(memcmp(got, value, len), 0);
    free(got);
}

static void talk(ddp_store *store)
{
    int64_t sum;
    int flag;
    const char *const keys[] = { "question", "missing" };
    cr_assert_eq(ddp_store_add(store, "n", 3, &sum, &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(sum, 3);
    cr_assert_eq(ddp_store_set(store, "question", "what?", 5, &err), DDP_OK, "%s", err.msg);
    expect_value(store, "answer", "42", 3); /* 3 bytes, because the value includes its NUL */
    cr_assert_eq(ddp_store_check(store, keys, 2, &flag, &err), DDP_OK);
    cr_assert_eq(flag, 0);
    cr_assert_eq(ddp_store_compare_set(store, "c", "", 0, "new", 3, NULL, NULL, &err), DDP_OK, "%s", err.msg);
    expect_value(store, "c", "new", 3);
    cr_assert_eq(ddp_store_delete(store, "c", &flag, &err), DDP_OK);
    cr_assert_eq(flag, 1);
    cr_assert_eq(ddp_store_num_keys(store, &sum, &err), DDP_OK);
    cr_assert_eq(sum, 3, "%d keys: question, answer, n", (int)sum);
}

/* Let a wait time out, then set the key of this wait. PyTorch's own server still answers the wait. Check that the
 * client does not mistake this late answer for the reply to the next request. */
static void give_up_a_wait(ddp_store *store, ddp_store *other)
{
    const char *const keys[] = { "question", "late" };
    cr_assert_eq(ddp_store_wait(store, keys, 2, 50, &err), DDP_ERR_TIMEOUT);
    cr_assert_not_null(strstr(err.msg, "missing key: 'late'"), "%s", err.msg);
    cr_assert_eq(ddp_store_set(other, "late", "here", 4, &err), DDP_OK);
    expect_value(store, "late", "here", 4);
    expect_value(store, "question", "what?", 5);
}

Test(torch_store, the_client_speaks_with_a_genuine_store)
{
    int port;
    torch_skip_without_libuv();
    torch_skip_sanitized();
    struct run_process *torch = start_torch(&port);
    ddp_store *store = connected(port), *other = connected(port);
    talk(store);
    give_up_a_wait(store, other);
    ddp_store_set(store, "end", "", 0, NULL);
    struct run_result r = run_wait(torch);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    cr_assert_not_null(strstr(r.out, "all well"));
    ddp_store_close(store);
    ddp_store_close(other);
}

/* Fork a process that runs ddp_init_from_env and ddp_finalize as rank `rank` of two. */
static pid_t start_worker(int port, int rank)
{
    char number[16];
    ddp_ctx *ctx = NULL;
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    snprintf(number, sizeof(number), "%d", port);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("RANK", rank == 0 ? "0" : "1", 1);
    setenv("LOCAL_RANK", rank == 0 ? "0" : "1", 1);
    ddp_status status = ddp_init_from_env(NULL, &ctx);
    if (status == DDP_OK)
        status = ddp_finalize(ctx);
    _exit(status != DDP_OK);
}

/* In the stores of torch 1.13 and 2.1, COMPARE_SET wakes no client that waits for the key. So the workers must be able
 * to start without this wake-up. */
Test(torch_store, workers_start_with_a_genuine_store)
{
    int port, status;
    pid_t pids[2];
    torch_skip_without_libuv();
    torch_skip_sanitized();
    struct run_process *torch = start_torch(&port);
    ddp_store *store = connected(port);
    for (int rank = 0; rank < 2; rank++)
        pids[rank] = start_worker(port, rank);
    for (int rank = 0; rank < 2; rank++) {
        cr_assert_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        cr_expect_eq(status, 0, "rank %d", rank);
    }
    ddp_store_add(store, "n", 3, NULL, NULL); /* the host then adds 1 and expects 4 */
    ddp_store_set(store, "question", "what?", 5, NULL);
    ddp_store_set(store, "end", "", 0, NULL);
    cr_expect_eq(run_wait(torch).exit_code, 0);
    ddp_store_close(store);
}

/* Tests of unmodified PyTorch with ddp-rendezvous. Debian has PyTorch 1.13, which uses dialect A. */

TestSuite(torch_interop, .timeout = 180);

/* torch logs nothing useful, so the tests check the output of the programs. */
static const char train[] = "import torch, torch.distributed as dist\n"
                            "dist.init_process_group('gloo')\n"
                            "rank, world = dist.get_rank(), dist.get_world_size()\n"
                            "t = torch.full((1000,), float(rank + 1))\n"
                            "dist.all_reduce(t)\n"
                            "assert t.eq(world * (world + 1) / 2).all()\n"
                            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))\n"
                            "model(torch.full((4, 10), float(rank))).sum().backward()\n"
                            "dist.barrier(dist.new_group([0, 1]))\n"
                            "print('gradient', model.module.weight.grad.sum().item())\n";

static const char calls[] = "import datetime, os\n"
                            "from torch.distributed import TCPStore\n"
                            "second = datetime.timedelta(seconds=1)\n"
                            "s = TCPStore('127.0.0.1', int(os.environ['MASTER_PORT']), None, False, second)\n"
                            "s.set('a', 'hi')\n"
                            "assert s.get('a') == b'hi'\n"
                            "assert s.add('n', 5) == 5 and s.add('n', -7) == -2 and s.get('n') == b'-2'\n"
                            "assert s.compare_set('a', 'hi', 'yo') == b'yo'\n"
                            "assert s.compare_set('a', 'hi', 'no') == b'yo'\n"
                            "assert s.num_keys() == 2 and s.delete_key('a') and not s.delete_key('a')\n"
                            "s.set('big', 'x' * (8 << 20))\n"
                            "assert len(s.get('big')) == 8 << 20\n"
                            "s.wait(['n', 'big'])\n"
                            "try:\n"
                            "    s.wait(['never'], second)\n"
                            "except Exception as error:\n"
                            "    print('timed out')\n"
                            "assert s.get('n') == b'-2'\n"
                            "print('all calls done')\n";

/* A client that outlives the store. This client has a second connection without traffic. A reset of this connection
 * would abort the client. */
static const char outlive[] = "import datetime, os, sys, time\n"
                              "from torch.distributed import TCPStore\n"
                              "s = TCPStore('127.0.0.1', int(os.environ['MASTER_PORT']), None, False)\n"
                              "s.set('a', 'hi')\n"
                              "print('connected', flush=True)\n"
                              "time.sleep(1)\n"
                              "print('still here', flush=True)\n"
                              "os._exit(0)\n";

static struct run_process *start(const char *program, int port, int rank)
{
    char master_port[32], rank_text[32];
    const char *argv[] = { torch_python(), "-", NULL };
    const char *env[] = { "MASTER_ADDR=127.0.0.1",
                          master_port,
                          rank_text,
                          "WORLD_SIZE=2",
                          "OMP_NUM_THREADS=1",
                          "TORCHELASTIC_USE_AGENT_STORE=True",
                          "TORCHELASTIC_RESTART_COUNT=0",
                          NULL };
    snprintf(master_port, sizeof(master_port), "MASTER_PORT=%d", port);
    snprintf(rank_text, sizeof(rank_text), "RANK=%d", rank);
    return run_start(argv, &(struct run_options){ .env = env, .stdin_text = program, .timeout_ms = 120000 });
}

static void expect_success(struct run_process *process, const char *words)
{
    struct run_result r = run_wait(process);
    cr_assert_eq(r.exit_code, 0, "exit code %d, signal %d: %s", r.exit_code, r.signal, r.err);
    cr_assert_not_null(strstr(r.out, words), "%s%s", r.out, r.err);
}

Test(torch_interop, two_ranks_train_with_gloo)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *first = start(train, d.port, 0), *second = start(train, d.port, 1);
    expect_success(first, "gradient 200.0");
    expect_success(second, "gradient 200.0");
    daemon_stop(&d);
}

Test(torch_interop, every_call_of_its_store_works)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *p = start(calls, d.port, 0);
    expect_success(p, "timed out\nall calls done\n");
    daemon_stop(&d);
}

Test(torch_interop, a_client_survives_the_end_of_the_store)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *p = start(outlive, d.port, 0);
    cr_assert(run_until_output(p, "connected\n", 60000));
    daemon_stop(&d);
    expect_success(p, "still here\n");
}

/* The test runs the same sequence of operations on PyTorch's own store and on ddp-rendezvous;
 * tests/interop/differential compares the results. */

TestSuite(torch_differential, .timeout = 880);

static void expect_no_difference(const char *backend)
{
    char operations[16], seed[16];
    const char *argv[] = { torch_python(),
                           "tests/interop/differential",
                           bin("ddp-rendezvous"),
                           "--operations",
                           operations,
                           "--limit=380",
                           "--seed",
                           seed,
                           backend,
                           NULL };
    snprintf(operations, sizeof(operations), "%d", torch_number("DDP_OPERATIONS", 10000));
    snprintf(seed, sizeof(seed), "%d", torch_number("DDP_SEED", 1));
    struct run_result r = run_command(argv, &(struct run_options){ .timeout_ms = 870000 });
    cr_expect_eq(r.exit_code, 0, "exit %d, signal %d:\n%s%s", r.exit_code, r.signal, r.out, r.err);
    PRINTS(r, "no difference");
    fputs(r.out, stdout);
}

Test(torch_differential, no_operation_differs_from_the_genuine_store)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    expect_no_difference(NULL);
}

Test(torch_differential, nor_from_its_older_server)
{
    torch_skip_without_libuv();
    torch_skip_sanitized();
    if (torch_is_old())
        cr_skip_test("skipped, because torch 1.x has one server only");
    expect_no_difference("--legacy");
}
