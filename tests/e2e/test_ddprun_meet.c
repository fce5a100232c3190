/* Several nodes on one machine, on loopback: how they meet, and what each says when it cannot. */
#include "run.h"
#include "job.h"
#include "store_peers.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(ddprun_meet, .timeout = 240);

#define TELL                                                                                              \
    "echo rank=$RANK/$WORLD_SIZE local=$LOCAL_RANK/$LOCAL_WORLD_SIZE node=$GROUP_RANK/$GROUP_WORLD_SIZE " \
    "at=$MASTER_ADDR"

/* One node: these options and the same program on each. */
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
    cr_assert(run_until_error(second, "waiting for node 0's store at 127.0.0.1:", PATIENCE_MS),
              "who is first says what it waits for");
    struct run_process *first =
        NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port, "--nproc_per_node=2");
    struct run_result a = run_wait(first), b = run_wait(second);
    EXPECT(a, 0);
    EXPECT(b, 0);
    expect_line(&a, "[1] rank=1/5 local=1/2 node=0/2 at=127.0.0.1");
    expect_line(&b, "[2] rank=2/5 local=0/3 node=1/2 at=127.0.0.1");
    expect_line(&b, "[4] rank=4/5 local=2/3 node=1/2 at=127.0.0.1");
    run_free(&a);
    run_free(&b);
}

/* The same line on each node; one of them has the store, whoever is first. */
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
        run_free(&r);
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
    run_free(&r);
}

Test(ddprun_meet, a_store_that_never_comes_is_told_with_every_stage)
{
    const char *port = free_port_option("--master_port=");
    expect_failure(NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--timeout=3"),
                   "MASTER_IS_LOOPBACK", "gives up after 3.0 s (--timeout)");
}

Test(ddprun_meet, another_service_on_the_port_is_told_before_the_time_is_up)
{
    char port[64];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_HTTP));
    struct run_process *process =
        NODE("--nnodes=2", "--node_rank=1", "--master_addr=127.0.0.1", port, "--timeout=60");
    cr_assert(run_until_error(process, "is a web server or HTTP proxy and not a store", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    run_free(&r);
}

Test(ddprun_meet, who_is_stopped_while_it_waits_speaks_of_no_workers)
{
    struct run_process *process = NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1",
                                       free_port_option("--master_port="), "--timeout=60");
    cr_assert(run_until_error(process, "node rank 1 is missing", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    cr_expect_not_null(strstr(r.err, ": leaving the job; no workers run here"), "%s", r.err);
    cr_expect_null(strstr(r.err, "stopping the workers"), "%s", r.err);
    run_free(&r);
}

#define LOCAL_ONLY "localhost is a loopback address: only ddprun processes on "

/* On two hosts each node would wait alone for the other. */
Test(ddprun_meet, a_loopback_endpoint_is_warned_of_in_each_waiting_line_and_in_the_report)
{
    struct run_process *process = NODE("--nnodes=2", free_port_option("--rdzv_endpoint=localhost:"),
                                       "--rdzv_backend=c10d", "--timeout=60");
    cr_assert(run_until_error(process, LOCAL_ONLY, PATIENCE_MS));
    cr_assert(run_until_error(process, "; " LOCAL_ONLY, PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    const char *warning = strstr(r.err, "LOOPBACK_ADDRESS"), *waits = strstr(r.err, "1 of 2 nodes is here");
    cr_assert(warning != NULL && waits != NULL && warning < waits, "%s", r.err);
    const char *repeated = strstr(waits, "; " LOCAL_ONLY);
    cr_expect(repeated != NULL && repeated < strchr(waits, '\n'), "%s", r.err);
    cr_expect_not_null(strstr(r.err, "  nodes    the nodes did not come together; localhost is"), "%s",
                       r.err);
    run_free(&r);
}

Test(ddprun_meet, a_node_that_waits_for_a_store_on_loopback_is_warned)
{
    struct run_process *process = NODE("--nnodes=2", "--node_rank=1", "--master_addr=localhost",
                                       free_port_option("--master_port="), "--timeout=60");
    cr_assert(run_until_error(process, "waiting for node 0's store", PATIENCE_MS));
    run_signal(process, 15);
    struct run_result r = run_wait(process);
    EXPECT(r, 128 + 15);
    const char *warning = strstr(r.err, "LOOPBACK_ADDRESS"), *waits = strstr(r.err, "waiting for node 0's");
    cr_assert(warning != NULL && waits != NULL && warning < waits, "%s", r.err);
    const char *repeated = strstr(waits, "; " LOCAL_ONLY);
    cr_expect(repeated != NULL && repeated < strchr(waits, '\n'), "%s", r.err);
    run_free(&r);
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
    static const char began[] = "the job began with 1 of 2 nodes; " LOCAL_ONLY;
    struct run_result r;
    start_alone("true", &r);
    EXPECT(r, 0);
    cr_expect_not_null(strstr(r.err, began), "%s", r.err);
    run_free(&r);
    start_alone("false", &r);
    EXPECT(r, 1);
    cr_expect_not_null(strstr(r.err, "  nodes    the job began with 1 of 2 nodes; localhost is"), "%s",
                       r.err);
    run_free(&r);
}

Test(ddprun_meet, a_port_in_use_on_node_0_names_its_holder)
{
    char port[64];
    snprintf(port, sizeof(port), "--master_port=%d", rude_start(RUDE_SILENT));
    expect_failure(NODE("--nnodes=2", "--node_rank=0", "--master_addr=127.0.0.1", port),
                   "is in use by test_ddprun", "--host_store=no joins a ddp-rendezvous");
}

Test(ddprun_meet, a_master_address_of_nobody_ends_node_0_at_once)
{
    expect_failure(NODE("--nnodes=2", "--node_rank=0", "--master_addr=203.0.113.7"), "NOBODY_SERVES",
                   "is none of the addresses of");
}
