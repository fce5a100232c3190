/* Jobs of a thousand nodes and more on a simulated clock: ranks stay dense, and a node costs a few messages. */
#include "run.h"
#include "sim_rdzv.h"

#include <criterion/criterion.h>

static struct sim_rdzv sim;

static void end(void)
{
    rsim_free(&sim);
}

/* Each node that is left has one of the ranks 0 to n - 1. */
static void expect_dense_ranks(int nodes, int n)
{
    bool taken[SIM_NODES] = { false };
    int found = 0;
    for (int i = 0; i < nodes; i++) {
        int rank = rsim_rank(&sim, i);
        if (rank < 0)
            continue;
        cr_assert(rank < n && !taken[rank], "n%d has rank %d", i, rank);
        taken[rank] = true;
        found++;
    }
    cr_assert_eq(found, n);
}

static void all_stop(int nodes, uint32_t round)
{
    for (int i = 0; i < nodes; i++)
        rsim_stopped(&sim, i, round);
}

/* One comes every millisecond; a rack of fifty dies, one is preempted, a worker fails, and they are done. */
Test(rdzv_many_sim, a_thousand_nodes_come_die_and_are_done, .fini = end)
{
    rsim_init_elastic(&sim, 900, 1000);
    sim.brief = true;
    sim.join.max_restarts = 1;
    for (int i = 0; i < 1000; i++) {
        rsim_at(&sim, (uint64_t)i);
        rsim_join(&sim, i);
    }
    expect_dense_ranks(1000, 1000);
    rsim_at(&sim, 5000);
    for (int i = 100; i < 150; i++)
        rsim_lost(&sim, i);
    all_stop(1000, 1);
    for (int i = 0; i < 1000; i++)
        if (i < 100 || i >= 150)
            rsim_rejoin(&sim, i);
    expect_dense_ranks(1000, 950);
    cr_assert_eq(rsim_rank(&sim, 949), 949);
    rsim_leave(&sim, 0, 15);
    all_stop(1000, 2);
    for (int i = 1; i < 1000; i++)
        if (i < 100 || i >= 150)
            rsim_rejoin(&sim, i);
    rsim_fail(&sim, 500, 3, 2 * rsim_rank(&sim, 500), 9);
    all_stop(1000, 3);
    for (int i = 1; i < 1000; i++)
        if (i < 100 || i >= 150)
            rsim_rejoin(&sim, i);
    rsim_at(&sim, 10000);
    for (int i = 1; i < 1000; i++)
        rsim_done(&sim, i, 4);
    rsim_expect(&sim,
                "[   899] enough nodes (900 of 900 to 1000): last call for 30000 ms\n"
                "[   999] attempt 0 begins: 1000 nodes, 2000 ranks\n"
                "[  5000] attempt 0 stops: node 100 (n100) is lost: its connection was closed\n"
                "[  5000] attempt 0 is over: the next one begins in 0 ms\n"
                "[  5000] attempt 1 begins: 950 nodes, 1900 ranks\n"
                "[  5000] attempt 1 stops: node 0 (n0) was stopped by SIGTERM from pid 77 (bash) of bob\n"
                "[  5000] attempt 1 is over: the next one begins in 0 ms\n"
                "[  5000] attempt 2 begins: 949 nodes, 1898 ranks\n"
                "[  5000] attempt 2 stops: rank 1000 on n500 was killed by signal 9\n"
                "[  5000] attempt 2 is over: the next one begins in 1000 ms\n"
                "[  6000] attempt 3 begins: 949 nodes, 1898 ranks\n"
                "[ 10000] the job is done\n");
}

/* What a node costs does not depend on how many there are: a few messages each, in the largest job, too. */
Test(rdzv_many_sim, the_largest_job_costs_a_few_messages_a_node, .fini = end)
{
    const int n = bin_is_sanitized() ? 2000 : RDZV_NODES_MAX;
    rsim_init(&sim);
    sim.brief = true;
    sim.quota.max = 1 << 30;
    sim.join.nnodes_min = sim.join.nnodes_max = (uint32_t)n;
    for (int i = 0; i < n; i++) {
        rsim_at(&sim, (uint64_t)i / 8);
        sim.join.node_rank = n - 1 - i;
        cr_assert_eq(rsim_join(&sim, i), RDZV_WELCOME, "%s", sim.refusal.sentence);
    }
    rsim_fail(&sim, n - 1, 1, 1, 9);
    all_stop(n, 1);
    cr_assert_eq(sim.told[RDZV_TELL_ROUND], (uint32_t)n);
    cr_assert_eq(sim.told[RDZV_TELL_STOP], (uint32_t)n);
    cr_assert_eq(sim.told[RDZV_TELL_VERDICT], (uint32_t)n);
    cr_assert_leq(sim.told[RDZV_TELL_WAITING], 2 * (uint32_t)n, "%u", sim.told[RDZV_TELL_WAITING]);
    cr_assert_leq(sim.quota.used, (uint64_t)n * 1536, "a node takes %u bytes",
                  (unsigned)(sim.quota.used / n));
}
