/* Simulate whole jobs: the agents of several nodes and the rendezvous between them. A worker fails, a node is lost, a
 * user stops the job, or the store dies. In a trace, the store receives "n1 > failed", and it sends "n1 < stop". */
#include "sim_cluster.h"

#include "ddp/error.h"

#include <criterion/criterion.h>

static struct cluster job;

static void two_nodes(void)
{
    cluster_init(&job, 2, 0);
}

static void done(void)
{
    cluster_free(&job);
}

Test(job_sim, two_nodes_begin_and_end_together, .init = two_nodes, .fini = done)
{
    job.node[1].worker[0].lives_ms = 9000;
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  1003] n0 > done\n"
                         "[  9003] n1 > done\n"
                         "[  9004] n0 < finish\n"
                         "[  9004] n0 exits with 0\n"
                         "[  9004] n1 < finish\n"
                         "[  9004] n1 exits with 0\n");
}

Test(job_sim, a_failure_on_one_node_ends_the_job_on_both, .init = two_nodes, .fini = done)
{
    job.node[1].worker[0].exit_code = 7;
    job.node[0].worker[0].lives_ms = UINT64_MAX;
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  1003] n1 > failed\n"
                         "[  1003] n1 > cause\n"
                         "[  1003] n1 > stopped\n"
                         "[  1004] n0 < stop: failed\n"
                         "[  1004] n1 < stop: failed\n"
                         "[  1005] n0 > stopped\n"
                         "[  1006] n0 < finish\n"
                         "[  1006] n0 exits with 7\n"
                         "[  1006] n1 < finish\n"
                         "[  1006] n1 exits with 7\n");
}

Test(job_sim, every_node_starts_again_together, .fini = done)
{
    cluster_init(&job, 2, 1);
    job.node[0].worker[0].lives_ms = UINT64_MAX;
    job.node[0].worker[0].slow_ms = 300;
    job.node[1].worker[0].exit_code = 7;
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  1003] n1 > failed\n"
                         "[  1003] n1 > cause\n"
                         "[  1003] n1 > stopped\n"
                         "[  1004] n0 < stop: failed\n"
                         "[  1004] n1 < stop: failed\n"
                         "[  1305] n0 > stopped\n"
                         "[  1306] n0 < restart\n"
                         "[  1306] n1 < restart\n"
                         "[  2307] n0 > join\n"
                         "[  2307] n1 > join\n"
                         "[  2307] -- round 2 of 2 nodes\n"
                         "[  2308] n0 < round 2, node rank 0\n"
                         "[  2308] n1 < round 2, node rank 1\n"
                         "[  3309] n0 > done\n"
                         "[  3309] n1 > done\n"
                         "[  3310] n0 < finish\n"
                         "[  3310] n0 exits with 0\n"
                         "[  3310] n1 < finish\n"
                         "[  3310] n1 exits with 0\n");
}

/* The worker of node 0 fails because node 1 is cut off. The store detects the loss of node 1 two seconds later. */
Test(job_sim, a_lost_node_is_the_cause_and_not_its_victim, .init = two_nodes, .fini = done)
{
    job.node[0].worker[0] = (struct cluster_worker){ .lives_ms = 2100, .exit_code = DDP_EXIT_PEER_LOST };
    job.node[1].worker[0].lives_ms = UINT64_MAX;
    cluster_cut(&job, 1, 2000);
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  2000] n1 is cut off\n"
                         "[  2103] n0 > failed\n"
                         "[  2103] n0 > cause\n"
                         "[  2103] n0 > stopped\n"
                         "[  2104] n0 < stop: failed\n"
                         "[  4002] -- n1 is dropped\n"
                         "[  4003] n0 < finish\n"
                         "[  4003] n0 exits with 125\n"
                         "[  5000] n1 exits with 123\n");
}

Test(job_sim, a_killed_launcher_is_known_at_once, .init = two_nodes, .fini = done)
{
    job.node[0].worker[0].lives_ms = job.node[1].worker[0].lives_ms = UINT64_MAX;
    cluster_kill(&job, 1, 2000);
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  2000] n1 is killed\n"
                         "[  2001] n0 < stop: node_lost\n"
                         "[  2002] n0 > stopped\n"
                         "[  2003] n0 < finish\n"
                         "[  2003] n0 exits with 125\n");
}

Test(job_sim, the_users_stop_of_one_node_stops_all, .init = two_nodes, .fini = done)
{
    job.node[0].worker[0].lives_ms = job.node[1].worker[0].lives_ms = UINT64_MAX;
    job.node[1].worker[0].slow_ms = 3000;
    cluster_user_stops(&job, 0, 2000);
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  2000] the user stops n0\n"
                         "[  2001] n0 > leave\n"
                         "[  2001] n0 > stopped\n"
                         "[  2002] n1 < stop: node_left\n"
                         "[  2002] n0 < finish\n"
                         "[  2002] n0 exits with 130\n"
                         "[  5003] n1 > stopped\n"
                         "[  5004] n1 < finish\n"
                         "[  5004] n1 exits with 130\n");
}

Test(job_sim, without_a_store_every_node_stops_by_itself, .init = two_nodes, .fini = done)
{
    job.node[0].worker[0].lives_ms = job.node[1].worker[0].lives_ms = UINT64_MAX;
    cluster_lose_store(&job, 2000);
    cluster_run(&job);
    cluster_expect(&job, "[     0] n0 > join\n"
                         "[     1] n1 > join\n"
                         "[     1] -- round 1 of 2 nodes\n"
                         "[     2] n0 < round 1, node rank 0\n"
                         "[     2] n1 < round 1, node rank 1\n"
                         "[  2000] store gone\n"
                         "[  2001] n0 exits with 123\n"
                         "[  2001] n1 exits with 123\n");
}

/* Both workers fail at almost the same time. The failure that arrives first at the store decides, and both nodes exit
 * with the code of this failure. */
Test(job_sim, of_two_failures_the_first_that_the_store_heard_counts, .init = two_nodes, .fini = done)
{
    job.node[0].worker[0] = (struct cluster_worker){ .lives_ms = 1001, .exit_code = 3 };
    job.node[1].worker[0] = (struct cluster_worker){ .lives_ms = 1000, .exit_code = 9 };
    cluster_run(&job);
    cr_expect_eq(job.node[0].exit_code, 9);
    cr_expect_eq(job.node[1].exit_code, 9);
}

/* Node 0 succeeded long before node 1 failed, but node 0 takes part in the second attempt. */
Test(job_sim, who_is_done_starts_again_with_the_others, .fini = done)
{
    cluster_init(&job, 2, 1);
    job.node[1].worker[0] = (struct cluster_worker){ .lives_ms = 60000, .exit_code = 1 };
    cluster_run(&job);
    cr_expect_eq(job.rounds, 2);
    cr_expect_eq(job.node[0].exit_code, 0);
    cr_expect_eq(job.node[1].exit_code, 0);
}

/* A job allows two or three nodes, and starts with three. One node dies. The other two continue, and no restart is used
 * up. */
Test(job_sim, an_elastic_job_goes_on_without_a_lost_node, .fini = done)
{
    cluster_init(&job, 3, 0);
    job.join.elastic = true;
    job.join.nnodes_min = 2;
    for (int i = 0; i < 3; i++)
        job.node[i].worker[0].lives_ms = UINT64_MAX;
    cluster_kill(&job, 1, 2000);
    cluster_run(&job);
    cr_expect_eq(job.rounds, 2);
    cr_expect_eq(job.node[0].exit_code, 0);
    cr_expect_eq(job.node[2].exit_code, 0);
    cr_expect_eq(job.node[2].node_rank, 1, "the gap is closed");
}

static uint64_t dice;

static unsigned roll(unsigned sides)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)(dice % sides);
}

static void random_worker(struct cluster_worker *w)
{
    static const int codes[] = { 0, 0, 0, 1, 2, DDP_EXIT_PEER_LOST };
    w->lives_ms = roll(3) == 0 ? UINT64_MAX : 1 + roll(9000);
    w->exit_code = codes[roll(6)];
    w->slow_ms = roll(2) == 0 ? 0 : roll(7000);
}

static void random_blow(int node, uint64_t at_ms)
{
    switch (roll(8)) {
    case 0:
        cluster_kill(&job, node, at_ms);
        break;
    case 1:
        cluster_cut(&job, node, at_ms);
        break;
    case 2:
        cluster_user_stops(&job, node, at_ms);
        break;
    case 3:
        if (roll(4) == 0)
            cluster_lose_store(&job, at_ms);
        break;
    default:
        break;
    }
}

/* Check that all nodes exit with the same code, except a node that its user or the network removed. */
static void check_outcome(uint64_t seed)
{
    int code = -1;
    for (int i = 0; i < job.n; i++) {
        const struct cluster_node *node = &job.node[i];
        cr_assert(node->done || node->dead);
        if (!node->judged || node->dead || agent_stop_signal(node->agent) != 0)
            continue;
        cr_assert(code < 0 || node->exit_code == code, "seed %llu: n%d exits with %d, others with %d\n%.*s",
                  (unsigned long long)seed, i, node->exit_code, code, (int)job.trace.len,
                  (const char *)job.trace.data);
        code = node->exit_code;
    }
}

/* After a failure, a loss or a stop at any moment, no process remains, and all nodes end with the same exit code. */
Test(job_sim, any_job_of_several_nodes_comes_to_one_end, .timeout = 120)
{
    unsigned steps = 0;
    for (uint64_t seed = 1; steps < 100000; seed++) {
        dice = seed * 0x9e3779b97f4a7c15u;
        cluster_init(&job, 2 + (int)roll(CLUSTER_NODES - 1), roll(4));
        job.join.elastic = roll(2) == 0;
        if (job.join.elastic)
            job.join.nnodes_min = 1 + roll((unsigned)job.n);
        for (int i = 0; i < job.n; i++) {
            for (int attempt = 0; attempt < CLUSTER_ATTEMPTS; attempt++)
                random_worker(&job.node[i].worker[attempt]);
            random_blow(i, roll(12000));
            cluster_user_stops(&job, i, 200000); /* a user must end a job that does not end by itself */
            cluster_user_stops(&job, i, 200001);
        }
        cluster_run(&job);
        check_outcome(seed);
        steps += job.steps;
        done();
    }
}
