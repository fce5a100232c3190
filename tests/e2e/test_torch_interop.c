/* Unmodified PyTorch against ddp-rendezvous. Debian's is 1.13 and speaks dialect A. */
#include "run.h"
#include "job.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(torch_interop, .timeout = 180);

/* torch prints nothing useful to a log; what the programs print is what the tests look at. */
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

/* The store goes away while a client with its silent second connection lives. A reset would abort that process. */
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
    run_free(&r);
}

Test(torch_interop, two_ranks_train_with_gloo)
{
    torch_skip_without_libuv();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *first = start(train, d.port, 0), *second = start(train, d.port, 1);
    expect_success(first, "gradient 200.0");
    expect_success(second, "gradient 200.0");
    daemon_stop(&d);
}

Test(torch_interop, every_call_of_its_store_works)
{
    torch_skip_without_libuv();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *p = start(calls, d.port, 0);
    expect_success(p, "timed out\nall calls done\n");
    daemon_stop(&d);
}

Test(torch_interop, a_client_survives_the_end_of_the_store)
{
    torch_skip_without_libuv();
    struct daemon d = daemon_start("127.0.0.1:0", NULL);
    struct run_process *p = start(outlive, d.port, 0);
    cr_assert(run_until_output(p, "connected\n", 60000));
    daemon_stop(&d);
    expect_success(p, "still here\n");
}
