/* Tests with several nodes on the loopback interface of one machine: how the nodes join, and which messages they
 * print if they cannot join. Each node is a separate ddprun, so the tests cover the store, its clients and the order
 * of their starts. */
#include "auth/secret.h"
#include "ddp/context.h"
#include "documents.h"
#include "job.h"
#include "procstat.h"
#include "run.h"
#include "store_peers.h"

#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(ddprun_meet, .timeout = 240);

#define TELL                                                                                              \
    "echo rank=$RANK/$WORLD_SIZE local=$LOCAL_RANK/$LOCAL_WORLD_SIZE node=$GROUP_RANK/$GROUP_WORLD_SIZE " \
    "at=$MASTER_ADDR"

static struct run_process *node(const char *const options[])
{
    static const struct run_options patience = { .timeout_ms = 2 * PATIENCE_MS };
    const char *argv[16] = { bin("ddprun") };
    int n = 1;
    for (; *options != NULL; options++)
        argv[n++] = *options;
    argv[n++] = "sh";
    argv[n++] = "-c";
    argv[n++] = TELL;
    struct run_process *process = run_start(argv, &patience);
    cr_assert_not_null(process);
    return process;
}

#define NODE(...) node((const char *const[]){ __VA_ARGS__, NULL })

static void expect_line(const struct run_result *r, const char *line)
{
    cr_expect_eq(job_count(r->out, line), 1, "'%s' is not once in:\n%s%s", line, r->out, r->err);
}

Test(ddprun_meet, two_static_nodes_with_different_numbers_of_workers)
{
    const char *port = free_port_option("--master_port=");
    struct run_process *second =
        NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--nproc_per_node=3");
    cr_assert(run_until_error(second, "0's store at 127.0.0.1:", PATIENCE_MS),
              "who is first says what it waits for");
    struct run_process *first =
        NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port, "--nproc_per_node=2");
    struct run_result a = run_wait(first), b = run_wait(second);
    EXPECT(a, 0);
    EXPECT(b, 0);
    expect_line(&a, "[1] rank=1/5 local=1/2 node=0/2 at=127.0.0.1");
    expect_line(&b, "[2] rank=2/5 local=0/3 node=1/2 at=127.0.0.1");
    expect_line(&b, "[4] rank=4/5 local=2/3 node=1/2 at=127.0.0.1");
}

/* The relay to a store on 127.0.0.1. The relay closes the first connections at their second message, as a busy store
 * does if hundreds of nodes connect at once. */
static struct {
    int listener, port, store;
    atomic_int closed;
} door;

enum { DOOR_CLOSES = 3 };

static int door_connect(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Forward bytes in both directions until one side ends. */
static void *door_pass(void *arg)
{
    char bytes[65536];
    int fd[2] = { (int)(intptr_t)arg, door_connect(door.store) };
    bool ends = fd[1] < 0;
    for (int messages = 0; !ends;) {
        struct pollfd ready[2] = { { fd[0], POLLIN, 0 }, { fd[1], POLLIN, 0 } };
        poll(ready, 2, -1);
        for (int i = 0; i < 2 && !ends; i++) {
            const ssize_t n = ready[i].revents != 0 ? read(fd[i], bytes, sizeof(bytes)) : 1;
            if (ready[i].revents == 0)
                continue;
            messages += i == 0;
            ends = n <= 0 || (i == 0 && messages == 2 && atomic_fetch_add(&door.closed, 1) < DOOR_CLOSES) ||
                   send(fd[1 - i], bytes, (size_t)n, MSG_NOSIGNAL) != n;
        }
    }
    close(fd[0]);
    if (fd[1] >= 0)
        close(fd[1]);
    return NULL;
}

static void *door_run(void *unused)
{
    for (int fd; (fd = accept4(door.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, door_pass, (void *)(intptr_t)fd) == 0)
            pthread_detach(thread);
    }
    return unused;
}

static void door_open(void)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(own);
    pthread_t thread;
    door.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(door.listener, (struct sockaddr *)&own, len) == 0 && listen(door.listener, 64) == 0 &&
              getsockname(door.listener, (struct sockaddr *)&own, &len) == 0);
    door.port = ntohs(own.sin_port);
    door.store = free_port();
    cr_assert_eq(pthread_create(&thread, NULL, door_run, NULL), 0);
    pthread_detach(thread);
}

Test(ddprun_meet, a_node_that_a_busy_store_drops_connects_again)
{
    char *dir = job_dir(), file[300], ports[2][40];
    struct ddp_err err;
    door_open();
    snprintf(file, sizeof(file), "--secret_file=%s/key", dir);
    cr_assert_eq(secret_write(strchr(file, '/'), &err), DDP_OK, "%s", err.msg);
    snprintf(ports[0], sizeof(ports[0]), "--master_port=%d", door.store);
    snprintf(ports[1], sizeof(ports[1]), "--master_port=%d", door.port);
    struct run_process *first =
        NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", ports[0], file);
    struct run_process *second =
        NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", ports[1], file);
    struct run_result a = run_wait(first), b = run_wait(second);
    EXPECT(a, 0);
    EXPECT(b, 0);
    SILENT(b, "trying again");
    cr_expect_gt(door.closed, DOOR_CLOSES);
    job_dir_remove(dir);
}

/* Every node has the same command line; the first node hosts the store. */
Test(ddprun_meet, three_elastic_nodes_number_themselves)
{
    const char *endpoint = free_port_option("--rdzv_endpoint=127.0.0.1:");
    char line[64];
    struct run_process *nodes[3];
    int seen[3] = { 0 };
    for (int i = 0; i < 3; i++)
        nodes[i] = NODE("--nnodes=1:3", "--rdzv_id=e", endpoint, "--nproc_per_node=1");
    for (int i = 0; i < 3; i++) {
        struct run_result r = run_wait(nodes[i]);
        EXPECT(r, 0);
        for (int rank = 0; rank < 3; rank++) {
            snprintf(line, sizeof(line), "rank=%d/3 local=0/1 node=%d/3 at=127.0.0.1", rank, rank);
            seen[rank] += job_count(r.out, line);
        }
    }
    for (int rank = 0; rank < 3; rank++)
        cr_expect_eq(seen[rank], 1, "rank %d was there %d times", rank, seen[rank]);
}

static void expect_failure(struct run_process *process, const char *code, const char *sentence)
{
    struct run_result r = run_wait(process);
    EXPECT(r, 125);
    cr_expect(strstr(r.err, code) != NULL, "%s is not in:\n%s", code, r.err);
    cr_expect(strstr(r.err, sentence) != NULL, "'%s' is not in:\n%s", sentence, r.err);
}

Test(ddprun_meet, a_store_that_never_comes_is_told_with_every_stage)
{
    const char *port = free_port_option("--master_port=");
    expect_failure(NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--timeout=3"),
                   "MASTER_IS_LOOPBACK", "after 3.0 s (--timeout)");
}

/* Run a node that first warns of the loopback address. Expect exactly one hint on a terminal, directly after the
 * warning. Expect no hint in a file. */
static void expect_hint(const char *const options[], int exit_code)
{
    for (int on_terminal = 0; on_terminal < 2; on_terminal++) {
        const char *argv[16] = { bin("ddprun"), "--timeout=3" };
        for (int n = 0; options[n] != NULL; n++)
            argv[n + 2] = options[n];
        struct run_result r = run_command(argv, &(struct run_options){ .terminal = on_terminal == 1 });
        const char *text = on_terminal == 1 ? r.out : r.err;
        const char *finding = strstr(text, "  finding  LOOPBACK_ADDRESS\n");
        const char *next = finding != NULL ? strchr(finding, '\n') + 1 : text;
        const size_t length = strcspn(next, "\n");
        const char *hint = memmem(next, length, "(ddprun explain LOOPBACK_ADDRESS)", 33);
        cr_expect_eq(r.exit_code, exit_code, "%s", text);
        cr_expect_not_null(finding, "%s", text);
        cr_expect_eq(hint != NULL, on_terminal == 1, "%s", text);
        cr_expect_eq(job_count_text(text, "(ddprun explain "), on_terminal, "%s", text);
    }
}

#define HINT(exit_code, ...) expect_hint((const char *const[]){ __VA_ARGS__, NULL }, exit_code)

Test(ddprun_meet, the_hint_follows_the_first_code_once_and_only_on_a_terminal)
{
#define ELASTIC "--nnodes=1:2", "--rdzv_conf=last_call_timeout=1", endpoint
    char endpoint[64];
    snprintf(endpoint, sizeof(endpoint), "--rdzv_endpoint=127.0.0.1:%d", free_port());
    const char *port = free_port_option("--master_port=");
    HINT(125, "--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "true");
    HINT(125, "--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port, "true");
    HINT(7, ELASTIC, "sh", "-c", "exit 7");
    HINT(0, ELASTIC, "true");
}

Test(ddprun_meet, another_service_on_the_port_is_told_before_the_time_is_up)
{
    char port[64];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_HTTP));
    struct run_process *process =
        NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--timeout=60");
    cr_assert(run_until_error(process, "HTTP proxy", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
}

Test(ddprun_meet, who_is_stopped_while_it_waits_speaks_of_no_workers)
{
    struct run_process *process = NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
                                       free_port_option("--master_port="), "--timeout=60");
    cr_assert(run_until_error(process, "rank 1 is missing", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    SAYS(r, ": leaving");
    SILENT(r, "stopping");
}

/* Both signals are pending when the agent continues. The test sends the signals directly to the agent. If the test sent
 * them to the guardian, the guardian would resume the agent with SIGCONT at the first signal. */
Test(ddprun_meet, two_stops_at_once_while_it_waits_are_no_success)
{
    struct run_process *process = NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
                                       free_port_option("--master_port="), "--timeout=60");
    cr_assert(run_until_error(process, "rank 1 is missing", PATIENCE_MS));
    const pid_t agent = procstat_child(run_pid(process), 0);
    if (agent == 0)
        cr_skip_test("skipped, because this kernel has no /proc/PID/task/TID/children");
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    kill(agent, SIGINT);
    kill(agent, SIGTERM);
    kill(agent, SIGCONT);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + SIGINT);
}

#define LOCAL_ONLY "localhost is a"

Test(ddprun_meet, a_loopback_endpoint_is_warned_of_in_each_waiting_line_and_in_the_report)
{
    struct run_process *process = NODE("--nnodes=2", free_port_option("--rdzv_endpoint=localhost:"),
                                       "--rdzv_backend=c10d", "--timeout=60");
    cr_assert(run_until_error(process, LOCAL_ONLY, PATIENCE_MS));
    cr_assert(run_until_error(process, "; " LOCAL_ONLY, PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    const char *warning = strstr(r.err, "LOOPBACK_ADDRESS"), *waits = strstr(r.err, "1 of 2 nodes has");
    cr_assert(warning != NULL && waits != NULL && warning < waits, "%s", r.err);
    const char *repeated = strstr(waits, "; " LOCAL_ONLY);
    cr_expect(repeated != NULL && repeated < strchr(waits, '\n'), "%s", r.err);
    SAYS(r, "  nodes    not all");
}

Test(ddprun_meet, a_node_that_waits_for_a_store_on_loopback_is_warned)
{
    struct run_process *process = NODE("--nnodes=2", "--node_rank=1", "--master_addr=localhost",
                                       free_port_option("--master_port="), "--timeout=60");
    cr_assert(run_until_error(process, "this machine", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    const char *warning = strstr(r.err, "LOOPBACK_ADDRESS"), *waits = strstr(r.err, "waiting for node 0's");
    cr_assert(warning != NULL && waits != NULL && warning < waits, "%s", r.err);
    const char *repeated = strstr(waits, "; " LOCAL_ONLY);
    cr_expect(repeated == NULL || repeated > strchr(waits, '\n'), "%s", r.err);
}

static void start_alone(const char *program, struct run_result *r)
{
    const char *argv[] = { bin("ddprun"),
                           "--nnodes=1:2",
                           "--rdzv_backend=c10d",
                           free_port_option("--rdzv_endpoint=localhost:"),
                           "--rdzv_conf=last_call_timeout=1",
                           "--no_python",
                           "--",
                           program,
                           NULL };
    *r = run_wait(run_start(argv, NULL));
}

Test(ddprun_meet, a_job_that_began_without_all_nodes_repeats_the_warning_at_its_end)
{
    static const char began[] = "1 of 2 nodes; " LOCAL_ONLY;
    struct run_result r;
    start_alone("true", &r);
    EXPECT(r, 0);
    SAYS(r, began);
    start_alone("false", &r);
    EXPECT(r, 1);
    SAYS(r, "  nodes    the job");
    SAYS(r, "1 of 2 nodes; localhost is");
}

Test(ddprun_meet, a_port_in_use_on_node_0_names_its_holder)
{
    char port[64];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_SILENT));
    expect_failure(NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port), "by test_ddprun",
                   "--host_store=no");
}

Test(ddprun_meet, a_master_address_of_nobody_ends_node_0_at_once)
{
    expect_failure(NODE("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7"), "NO_STORE_HOST",
                   "203.0.113.7");
}

/* Node 0 cannot start its store. Node 0 continues until its timeout, so that the other nodes can get the reason. */
Test(ddprun_meet, a_node_0_without_a_store_waits_no_longer_than_its_timeout)
{
    struct run_result r = run_wait(NODE("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7",
                                        free_port_option("--master_port="), "--timeout=2"));
    EXPECT(r, 125);
    SAYS(r, " --timeout) for");
}

static struct run_result end_of_waiting(const char *secret, const char *other)
{
    const char *port = free_port_option("--master_port=");
    struct run_process *waits =
        NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--timeout=600", other);
    cr_assert(run_until_error(waits, "waiting for node 0's store", PATIENCE_MS));
    struct run_result first =
        run_wait(NODE("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7", port, secret));
    EXPECT(first, 125);
    SAYS(first, "finding  NO_STORE_HOST");
    struct run_result r = run_wait(waits);
    EXPECT(r, 125);
    return r;
}

Test(ddprun_meet, a_node_0_without_a_store_sends_its_error_to_the_node_that_waits)
{
    char secret[64], other[80];
    struct ddp_err err;
    const char *const texts[] = { "cannot join", " reports: ", "203.0.113.7", "[NO_STORE_HOST]" };
    snprintf(secret, sizeof(secret), "--secret_file=/tmp/ddprun-meet-%d", (int)getpid());
    snprintf(other, sizeof(other), "%s-other", secret);
    cr_assert_eq(secret_write(strchr(secret, '/'), &err), DDP_OK, "%s", err.msg);
    cr_assert_eq(secret_write(strchr(other, '/'), &err), DDP_OK, "%s", err.msg);
    struct run_result open = end_of_waiting("--grace=1", "--grace=1"),
                      closed = end_of_waiting(secret, secret), foreign = end_of_waiting(secret, other);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cr_expect(strstr(open.err, texts[i]) != NULL, "'%s' is not in:\n%s", texts[i], open.err);
        cr_expect(strstr(closed.err, texts[i]) != NULL, "'%s' is not in:\n%s", texts[i], closed.err);
    }
    SAYS(foreign, "secrets differ");
    cr_expect(strstr(foreign.err, "203.0.113.7") == NULL, "without the secret it gets no error:\n%s",
              foreign.err);
    unlink(strchr(secret, '/'));
    unlink(strchr(other, '/'));
}

/* These tests run several ddprun processes on one machine as the nodes of one job. tests/sim/test_job_sim.c tests the
 * decisions of the rendezvous. */

enum { NODES = 2, ARGS_MAX = 24 };

static struct run_process *loopback_node[NODES];
static struct run_result end[NODES];
static char port_option[40];
static const char *other_ddprun; /* the ddprun that node 1 runs; NULL if both nodes run the same ddprun */

static void choose_port(void)
{
    snprintf(port_option, sizeof(port_option), "%s", free_port_option("--master_port="));
}

static void start(int node_rank, const char *const args[])
{
    char rank_option[24];
    const char *argv[ARGS_MAX] = { node_rank == 1 && other_ddprun != NULL ? other_ddprun : bin("ddprun"),
                                   "--nnodes=2",
                                   rank_option,
                                   "--master_addr=127.0.0.1",
                                   port_option,
                                   "--grace=5s" };
    int n = 6;
    snprintf(rank_option, sizeof(rank_option), "--node_rank=%d", node_rank);
    for (int i = 0; args[i] != NULL; i++)
        argv[n++] = args[i];
    argv[n] = NULL;
    loopback_node[node_rank] = run_start(argv, NULL);
    cr_assert_not_null(loopback_node[node_rank]);
}

#define START(...) start_both((const char *const[]){ __VA_ARGS__, NULL })
static void start_both(const char *const args[])
{
    choose_port();
    start(1, args); /* node 1 looks for the store before the store exists */
    start(0, args);
}

static void finish(void)
{
    for (int i = 0; i < NODES; i++)
        end[i] = run_wait(loopback_node[i]);
}

static void tear_down(void)
{
    gate_gone();
}

TestSuite(loopback_nodes, .init = gate_shut, .fini = tear_down, .timeout = 120);

static void expect_codes(int code0, int code1)
{
    cr_expect_eq(end[0].exit_code, code0, "node 0: exit %d, signal %d:\n%s", end[0].exit_code, end[0].signal,
                 end[0].err);
    cr_expect_eq(end[1].exit_code, code1, "node 1: exit %d, signal %d:\n%s", end[1].exit_code, end[1].signal,
                 end[1].err);
}

static void says(int i, const char *words)
{
    cr_expect_not_null(strstr(end[i].err, words), "'%s' is not in what node %d says:\n%s", words, i,
                       end[i].err);
}

static void prints(int i, const char *line)
{
    cr_expect_eq(job_count(end[i].out, line), 1, "'%s' is not what node %d prints:\n%s%s", line, i,
                 end[i].out, end[i].err);
}

#define SH "--no_python", "--", "/bin/sh", "-c"

Test(loopback_nodes, ranks_follow_the_node_ranks_whatever_each_brings)
{
    static const char script[] =
        "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE";
    choose_port();
    start(1, (const char *const[]){ "--nproc_per_node=3", SH, script, NULL });
    start(0, (const char *const[]){ "--nproc_per_node=2", SH, script, NULL });
    finish();
    expect_codes(0, 0);
    prints(0, "[0] 0/5 0/2 0/2");
    prints(0, "[1] 1/5 1/2 0/2");
    prints(1, "[2] 2/5 0/3 1/2");
    prints(1, "[4] 4/5 2/3 1/2");
}

/* Node 1 fails first, and its stderr is also in the report of node 0. */
Test(loopback_nodes, the_first_failure_is_named_on_every_node)
{
    START("--nproc_per_node=2", SH,
          ALL_HERE "; if [ $RANK = 3 ]; then echo bang >&2; exit 9; fi; exec sleep 1000");
    finish();
    expect_codes(9, 9);
    for (int i = 0; i < NODES; i++) {
        says(i, "ddprun: rank 3 on ");
        says(i, "first: exit 9, ");
        says(i, ", peak memory ");
        says(i, "stderr   | bang");
        says(i, "of rank 3");
        says(i, "exit 9; stopping");
        says(i, "[WORKER_FAILED]");
    }
    says(0, "  then     ranks 0-1 of node 0 (");
}

static void expect_gpu_busy(const char *dir, const char *file, const char *words)
{
    char command[400];
    snprintf(command, sizeof(command),
             "grep -q '\"code\":[[:space:]]*\"GPU_BUSY\"' %s/%s && grep -q '%s' %s/%s", dir, file, words, dir,
             file);
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    cr_expect_eq(r.exit_code, 0, "GPU_BUSY and '%s' are not in %s", words, file);
}

/* A fake driver provides the GPUs of both nodes, and reports this test as the process on GPU 1. */
Test(loopback_nodes, a_process_on_a_full_gpu_is_named_on_every_node)
{
    static const char script[] = ALL_HERE "; [ $RANK = 3 ] || exec sleep 1000; echo process 1 $FOREIGN 31744 "
                                          ">$FAKE_NVML; echo CUDA out of memory >&2; exit 9";
    char *dir = job_dir(), users[300], pid[20], words[40], logs[NODES][300], events[NODES][300];
    snprintf(users, sizeof(users), "%s/users", dir);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    snprintf(words, sizeof(words), "by pid %d (user ", (int)getpid());
    setenv("LD_LIBRARY_PATH", bin("tests/fake/nvml"), 1);
    setenv("FAKE_NVML", users, 1);
    setenv("FOREIGN", pid, 1);
    choose_port();
    for (int i = NODES - 1; i >= 0; i--) {
        snprintf(logs[i], sizeof(logs[i]), "--log_dir=%s/node%d", dir, i);
        snprintf(events[i], sizeof(events[i]), "--events=%s/events%d", dir, i);
        start(i, (const char *const[]){ "--nproc_per_node=2", logs[i], events[i], SH, script, NULL });
    }
    finish();
    expect_codes(9, 9);
    for (int i = 0; i < NODES; i++) {
        char report[40];
        says(i, "\n  gpu      GPU 1 of ");
        says(i, " (rank 3) ");
        says(i, words);
        says(i, ", 31 GiB)  [GPU_BUSY]\n");
        snprintf(report, sizeof(report), "node%d/*/report.json", i);
        expect_gpu_busy(dir, report, words);
    }
    cr_expect_null(strstr(end[0].err, "; ddprun on "), "node 0 has the values: %s", end[0].err);
    expect_gpu_busy(dir, "events?", words);
    job_dir_remove(dir);
}

/* Expect that the last event of node `i` contains a report that matches report.schema.json. */
static void expect_schema(int i, const char *code, const char *said)
{
    char why[512] = "";
    char *text = job_file("launcher", "report.schema.json");
    const char *last = strstr(end[i].out, "{\"event\":\"finished\"");
    cr_assert_not_null(text, "tests run in the root of the tree");
    cr_assert_not_null(last, "node %d: %s%s", i, end[i].out, end[i].err);
    cJSON *schema = cJSON_Parse(text), *event = cJSON_Parse(last);
    const cJSON *report = cJSON_GetObjectItemCaseSensitive(event, "report");
    cr_expect(schema_fits(schema, report, why, sizeof(why)), "node %d: %s\n%s", i, why, last);
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(report, "code"));
    cr_expect(found != NULL && strcmp(found, code) == 0 && strstr(last, said) != NULL, "%s", last);
    cJSON_Delete(schema);
    cJSON_Delete(event);
    free(text);
}

Test(loopback_nodes, the_json_reports_fit_their_schema_on_every_node)
{
    START("--json", SH, "if [ $RANK = 1 ]; then echo oops >&2; exit 9; fi; exec sleep 1000");
    finish();
    expect_codes(9, 9);
    for (int i = 0; i < NODES; i++)
        expect_schema(i, "WORKER_FAILED", "\"first_failure\":{\"rank\":1,");
    for (int i = 0; i < NODES; i++)
        cr_expect_null(strstr(end[i].out, "\"peak_rss\":null"), "node %d: %s", i, end[i].out);
}

/* Rank 3 exits with code 0 while the other ranks wait for rank 3 at a barrier. */
Test(loopback_nodes, a_rank_that_leaves_early_is_named_on_every_node)
{
    START("--nproc_per_node=2", bin("tests/prog/member"), "only:3", "exit:0", "all", "barrier:epoch-3");
    finish();
    expect_codes(75, 75);
    for (int i = 0; i < NODES; i++) {
        says(i, "ddprun: rank 3 (");
        says(i, " code 0, ");
        says(i, "barrier 'epoch-3'  [RANK_EXITED_EARLY]\nddprun:   try    ");
        says(i, "barrier 'epoch-3' [RANK_EXITED_EARLY]\n  ");
        says(i, "of rank 3 ("); /* the last line of the report names the rank again */
    }
}

Test(loopback_nodes, a_rank_that_leaves_a_collective_early_is_named_in_the_json_of_every_node)
{
    START("--json", bin("tests/prog/member"), "only:1", "exit:0", "all", "sum");
    finish();
    expect_codes(75, 75);
    for (int i = 0; i < NODES; i++) {
        cr_expect_not_null(
            strstr(end[i].out, "\"findings\":[{\"code\":\"RANK_EXITED_EARLY\",\"grade\":\"warning\","), "%s",
            end[i].out);
        expect_schema(i, "RANK_EXITED_EARLY", "\"left_waiting_code\":\"RANK_EXITED_EARLY\"");
    }
}

Test(loopback_nodes, a_failure_starts_all_nodes_again)
{
    START("--max_restarts=1", "--restart_backoff=10ms", SH,
          "echo attempt $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit; " ALL_HERE
          "; [ $RANK = 1 ] && exit 1; exec sleep 1000");
    finish();
    expect_codes(0, 0);
    for (int i = 0; i < NODES; i++) {
        cr_expect_not_null(strstr(end[i].out, "attempt 0"), "%s", end[i].out);
        cr_expect_not_null(strstr(end[i].out, "attempt 1"), "%s", end[i].out);
        says(i, "attempt 0 failed");
        says(i, "rank 1 on ");
        says(i, "(restart 1 of 1)");
        says(i, "in 0.01 s");
    }
}

static void until_said(int i, const char *words)
{
    cr_assert(run_until_error(loopback_node[i], words, PATIENCE_MS), "node %d does not say '%s'", i, words);
}

static void until_both_run(void)
{
    for (int i = 0; i < NODES; i++)
        cr_assert(run_until_output(loopback_node[i], "ready", PATIENCE_MS), "node %d: %s", i,
                  run_output(loopback_node[i]));
}

Test(loopback_nodes, the_users_stop_of_one_node_stops_the_job)
{
    START(SH, "echo ready; exec sleep 1000");
    until_both_run();
    run_signal(loopback_node[1], SIGTERM);
    finish();
    expect_codes(128 + SIGTERM, 128 + SIGTERM);
    says(0, "node 1 (");
    says(0, "stopped by SIGTERM from ");
    says(1, "stopped by SIGTERM from ");
}

Test(loopback_nodes, a_launcher_that_is_killed_ends_the_job)
{
    bin_seek_no_leaks(); /* LeakSanitizer would wait forever for its helper, which dies with the launcher */
    START(SH, "echo ready; exec sleep 1000");
    until_both_run();
    run_signal(loopback_node[1], SIGKILL);
    finish();
    cr_expect_eq(end[0].exit_code, 125, "%s", end[0].err);
    says(0, "node 1 (");
    says(0, ") is lost");
}

Test(loopback_nodes, the_death_of_the_host_ends_the_job_on_the_others)
{
    bin_seek_no_leaks(); /* LeakSanitizer would wait forever for its helper, which dies with the launcher */
    START(SH, "echo ready; exec sleep 1000");
    until_both_run();
    run_signal(loopback_node[0], SIGKILL);
    finish();
    cr_expect_eq(end[1].exit_code, 123, "exit %d: %s", end[1].exit_code, end[1].err);
    says(1, "lost the");
    says(1, " on node 0 (");
}

/* Return the parent of a worker. The worker has printed the pid of its parent. */
static pid_t agent_of(int i)
{
    const char *said;
    until_both_run();
    said = strstr(run_output(loopback_node[i]), "ready, child of ");
    cr_assert_not_null(said);
    return (pid_t)atoi(said + strlen("ready, child of "));
}

#define READY "echo ready, child of $PPID; exec sleep 30"

/* Stop the agent of node `i` with SIGSTOP until the other node has ended. The guardian of node `i` keeps running. */
static void freeze(int i)
{
    const pid_t agent = agent_of(i);
    kill(agent, SIGSTOP);
    cr_assert(job_until_state(agent, 'T'));
    end[1 - i] = run_wait(loopback_node[1 - i]);
    kill(agent, SIGCONT);
    end[i] = run_wait(loopback_node[i]);
}

Test(loopback_nodes, a_node_that_was_frozen_says_so_when_it_goes_on, .fini = tear_down)
{
    START("--node_timeout=fast", "--contain=plain", SH, READY);
    freeze(1);
    expect_codes(125, 123);
    says(0, ") is lost: silent for ");
    says(1, "(node 1, ");
    says(1, "was frozen");
    says(1, "'silent for ");
    says(1, "--node_timeout is 1.5 s");
    says(1, "[NODE_FROZEN]");
    says(1, "kill -STOP");
}

/* While node 0 and its store are frozen, node 1 declares the store lost and exits. */
Test(loopback_nodes, a_store_that_was_frozen_does_not_blame_the_others, .fini = tear_down)
{
    START("--node_timeout=fast", "--contain=plain", SH, READY);
    freeze(0);
    expect_codes(125, 123);
    says(0, "was suspended");
    says(1, "for 1.5 s (--node_timeout)");
}

/* The workers detect the end of the store themselves, and are not the cause of the job's end. */
Test(loopback_nodes, workers_that_die_of_the_hosts_death_are_not_blamed_for_it)
{
    bin_seek_no_leaks(); /* LeakSanitizer would wait forever for its helper, which dies with the launcher */
    START("--no_python", "--", "/bin/bash", "-c",
          "echo ready; exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT; read -r x <&3; exit 7");
    until_both_run();
    run_signal(loopback_node[0], SIGKILL);
    finish();
    cr_expect_eq(end[1].exit_code, 123, "exit %d: %s", end[1].exit_code, end[1].err);
    says(1, "lost the");
}

Test(loopback_nodes, a_program_that_only_one_node_lacks_is_named_on_both)
{
    choose_port();
    start(1, (const char *const[]){ "--no_python", "--uneven", "--", "./not/here", NULL });
    start(0, (const char *const[]){ "--uneven", SH, "exec sleep 1000", NULL });
    finish();
    expect_codes(127, 127);
    for (int i = 0; i < NODES; i++) {
        says(i, "started: ./not/here: ");
        says(i, "[PROGRAM_MISSING_ON_NODE]");
    }
    cr_expect_null(strstr(end[0].err, "pid 0"), "%s", end[0].err);
}

static void is_plain(int i)
{
    for (const char *p = end[i].err; *p != '\0'; p++)
        cr_expect((unsigned char)*p >= ' ' || *p == '\n' || *p == '\t', "byte %d of node %d:\n%s",
                  (unsigned char)*p, i, end[i].err);
}

Test(loopback_nodes, names_of_others_are_no_commands_to_a_terminal, .fini = tear_down)
{
    choose_port();
    start(1, (const char *const[]){ "--no_python", "--uneven", "--", "./not\033[31m\033[2J/here", NULL });
    start(0, (const char *const[]){ "--uneven", SH, "exec sleep 30", NULL });
    finish();
    expect_codes(127, 127);
    for (int i = 0; i < NODES; i++) {
        says(i, "started: ./not");
        is_plain(i);
    }
}

Test(loopback_nodes, last_lines_are_named_after_their_stream_on_every_node)
{
    START("--nproc_per_node=2", SH,
          "echo up; " ALL_HERE "; if [ $RANK = 3 ]; then kill -9 $$; fi; exec sleep 1000");
    finish();
    expect_codes(128 + SIGKILL, 128 + SIGKILL);
    for (int i = 0; i < NODES; i++)
        says(i, "stdout   | up");
}

/* The workers of node 1 end long before the workers of node 0. The end of node 1 must not disturb node 0. */
Test(loopback_nodes, who_is_done_waits_only_so_long)
{
    START("--exit_barrier_timeout=300ms", SH, ALL_HERE "; [ $RANK = 1 ] || " AT_GATE "; echo done");
    until_said(1, "within 0.3 s (--exit_barrier_timeout); leaving");
    gate_open();
    finish();
    expect_codes(0, 0);
    prints(0, "done");
}

Test(loopback_nodes, who_has_the_store_stays_until_the_others_are_done)
{
    START("--exit_barrier_timeout=300ms", SH, ALL_HERE "; [ $RANK = 0 ] || " AT_GATE "; echo done");
    until_said(0, "within 0.3 s (--exit_barrier_timeout); this node");
    gate_open();
    finish();
    expect_codes(0, 0);
    prints(1, "done");
}

/* A user stops the node that hosts the store. The store still serves the other node, whose worker takes longer to
 * end. */
Test(loopback_nodes, a_stopped_host_keeps_its_store_until_the_others_have_ended)
{
    START(SH, "[ $RANK = 0 ] || trap '" AT_GATE "; exit 0' TERM; echo ready; while sleep 0.05; do :; done");
    until_both_run();
    run_signal(loopback_node[0], SIGTERM);
    until_said(0, "for 1 node");
    gate_open();
    finish();
    expect_codes(128 + SIGTERM, 128 + SIGTERM);
    says(1, "node 0 (");
    says(1, "stopped by SIGTERM from ");
}

Test(loopback_nodes, nodes_that_do_not_agree_are_told_both_values)
{
    choose_port();
    start(0, (const char *const[]){ "--timeout=10s", SH, "exit 0", NULL });
    until_said(0, "1 of 2 nodes has");
    start(1, (const char *const[]){ "--nnodes=3", SH, "exit 0", NULL });
    until_said(0, "NNODES_DIFFERS"); /* node 1 was rejected, and node 0 reports the rejection */
    finish();
    expect_codes(125, 125);
    for (int i = 0; i < NODES; i++) {
        says(i, "NNODES_DIFFERS");
        says(i, "has --nnodes=2");
        says(i, "has --nnodes=3");
    }
    says(0, "NODE_REJECTED");
    says(0, "; first cause: "); /* node 0 prints this in its report when --timeout has expired */
}

/* Copy a program, and replace its version by `version`, a text of the same length. */
static const char *with_version(const char *dir, const char *name, const char *version)
{
    static char path[300];
    char command[800];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(command, sizeof(command), "LC_ALL=C sed 's/\\b%s\\b/%s/g' '%s' >'%s' && chmod +x '%s'",
             DDP_VERSION, version, bin(name), path, path);
    struct run_result r = run_command((const char *const[]){ "sh", "-c", command, NULL }, NULL);
    cr_assert_eq(r.exit_code, 0, "%s", r.err);
    return path;
}

/* Return DDP_VERSION with another minor or patch number. */
static const char *version_like(bool same_minor)
{
    static char text[] = DDP_VERSION;
    char *digit = same_minor ? &text[sizeof(text) - 2] : strchr(text, '.') + 1;
    snprintf(text, sizeof(text), "%s", DDP_VERSION);
    *digit = *digit == '9' ? '8' : (char)(*digit + 1);
    return text;
}

Test(loopback_nodes, another_minor_version_is_a_finding_on_both_sides)
{
    char *dir = job_dir();
    const char *version = version_like(false);
    other_ddprun = with_version(dir, "ddprun", version);
    choose_port();
    start(0, (const char *const[]){ SH, "exit 0", NULL });
    until_said(0, "1 of 2 nodes has");
    start(1, (const char *const[]){ SH, "exit 0", NULL });
    until_said(0, "VERSION_DIFFERS");
    run_signal(loopback_node[0], SIGTERM);
    finish();
    expect_codes(128 + SIGTERM, 125);
    for (int i = 0; i < NODES; i++) {
        says(i, "VERSION_DIFFERS");
        says(i, "runs ddprun " DDP_VERSION);
        says(i, version);
        says(i, "third number");
    }
    job_dir_remove(dir);
}

Test(loopback_nodes, another_patch_version_is_none)
{
    char *dir = job_dir();
    other_ddprun = with_version(dir, "ddprun", version_like(true));
    START(SH, "exit 0");
    finish();
    expect_codes(0, 0);
    job_dir_remove(dir);
}

Test(ddprun_meet, a_store_of_another_minor_version_refuses_every_node)
{
    char *dir = job_dir(), listen[64], at[64];
    const int port = free_port();
    const char *argv[] = { with_version(dir, "ddp-rendezvous", version_like(false)), listen, NULL };
    snprintf(listen, sizeof(listen), "--listen=127.0.0.1:%d", port);
    snprintf(at, sizeof(at), "--rdzv_endpoint=127.0.0.1:%d", port);
    struct run_process *store = run_start(argv, NULL);
    cr_assert(run_until_output(store, "listening on ", PATIENCE_MS));
    expect_failure(NODE("--nnodes=2", "--rdzv_backend=c10d", "--host_store=no", at), "VERSION_DIFFERS",
                   "has version");
    run_signal(store, SIGTERM);
    run_wait(store);
    job_dir_remove(dir);
}

Test(loopback_nodes, the_status_can_be_asked_on_each_node)
{
    START(SH, "echo ready; " AT_GATE);
    until_both_run();
    run_signal(loopback_node[1], SIGQUIT);
    until_said(1, "rank 1 (pid ");
    gate_open();
    finish();
    expect_codes(0, 0);
}
