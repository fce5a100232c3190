/* Which node gets which rank. */
#include "job/rendezvous_core.h"
#include "sim_rdzv.h"

#include <criterion/criterion.h>

static struct sim_rdzv sim;

static void end(void)
{
    rsim_free(&sim);
}

Test(rdzv_order, names_are_compared_as_people_do)
{
    const char *const sorted[] = { "",
                                   "a",
                                   "a1",
                                   "a2",
                                   "a10",
                                   "a10b",
                                   "b",
                                   "node01",
                                   "node1",
                                   "node1-9",
                                   "node1-10",
                                   "node2",
                                   "node10",
                                   "node99999999999999999999999999",
                                   "node100000000000000000000000000" };
    const size_t n = sizeof(sorted) / sizeof(sorted[0]);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            int order = rdzv_compare_names(sorted[i], sorted[j]);
            bool right = i < j ? order < 0 : i > j ? order > 0 : order == 0;
            cr_expect(right, "'%s' and '%s': %d", sorted[i], sorted[j], order);
        }
}

static void expect_ranks(const int *nodes, int n)
{
    for (int rank = 0; rank < n; rank++)
        cr_expect_eq(rsim_rank(&sim, nodes[rank]), rank, "n%d has rank %d instead of %d", nodes[rank],
                     rsim_rank(&sim, nodes[rank]), rank);
}

Test(rdzv_order, the_first_round_follows_the_names, .fini = end)
{
    rsim_init_elastic(&sim, 4, 4);
    const int come[] = { 10, 9, 100, 2 };
    for (int i = 0; i < 4; i++)
        rsim_join(&sim, come[i]);
    expect_ranks((const int[]){ 2, 9, 10, 100 }, 4);
}

/* Two agents on one host, in a test or by intent. */
Test(rdzv_order, the_pid_orders_nodes_of_one_name, .fini = end)
{
    rsim_init_elastic(&sim, 2, 2);
    sim.join.host = "same";
    rsim_join(&sim, 5);
    rsim_join(&sim, 3);
    expect_ranks((const int[]){ 3, 5 }, 2);
}

/* Stop the round for those who are left of `n`, and let all join again. */
static void next_round(uint32_t round, int n)
{
    for (int i = 0; i < n; i++)
        rsim_stopped(&sim, i, round);
    for (int i = n - 1; i >= 0; i--)
        rsim_rejoin(&sim, i);
}

Test(rdzv_order, a_gap_is_closed_by_the_highest, .fini = end)
{
    rsim_init_elastic(&sim, 2, 6);
    sim.join.uneven = true;
    rsim_join_all(&sim, 0, 5);
    rsim_lost(&sim, 1);
    rsim_lost(&sim, 2);
    for (int i = 0; i < 6; i++)
        rsim_stopped(&sim, i, 1);
    const int back[] = { 5, 3, 4, 0 };
    for (int i = 0; i < 4; i++)
        rsim_rejoin(&sim, back[i]);
    expect_ranks((const int[]){ 0, 5, 4, 3 }, 4);
}

/* n7 to n9 wait already, the last one first; ranks 4 and 5 are theirs whatever they are called. */
Test(rdzv_order, newcomers_go_to_the_end, .fini = end)
{
    rsim_init_elastic(&sim, 2, 6);
    sim.join.last_call_ms = 0;
    sim.join.grow = RDZV_GROW_NOW;
    rsim_join_all(&sim, 3, 4);
    rsim_join(&sim, 9);
    rsim_stopped(&sim, 3, 1);
    rsim_join(&sim, 1);
    rsim_stopped(&sim, 4, 1);
    rsim_rejoin(&sim, 4);
    rsim_rejoin(&sim, 3);
    expect_ranks((const int[]){ 3, 4, 1, 9 }, 4);
}

Test(rdzv_order, who_came_first_is_taken_first, .fini = end)
{
    rsim_init_elastic(&sim, 2, 3);
    sim.join.grow = RDZV_GROW_NEVER;
    sim.join.last_call_ms = 0;
    rsim_join_all(&sim, 0, 1);
    rsim_join(&sim, 9);
    rsim_join(&sim, 2);
    rsim_leave(&sim, 0, 15);
    next_round(1, 2);
    expect_ranks((const int[]){ 1, 2, 9 }, 3);
}

Test(rdzv_order, static_ranks_are_those_given, .fini = end)
{
    rsim_init(&sim);
    sim.join.nnodes_min = sim.join.nnodes_max = 4;
    const int wanted[] = { 3, -1, 1, -1 };
    for (int i = 0; i < 4; i++) {
        sim.join.node_rank = wanted[3 - i];
        rsim_join(&sim, 3 - i);
    }
    expect_ranks((const int[]){ 1, 2, 3, 0 }, 4);
}

/* n1 and n3 had no rank of their own before the first round; then they keep what they got. */
Test(rdzv_order, static_nodes_keep_what_they_got, .fini = end)
{
    rsim_init(&sim);
    sim.join.nnodes_min = sim.join.nnodes_max = 3;
    sim.join.max_restarts = 9;
    sim.join.backoff_ms = 0;
    rsim_join_all(&sim, 1, 3);
    expect_ranks((const int[]){ 1, 2, 3 }, 3);
    rsim_lost(&sim, 2);
    rsim_stopped(&sim, 1, 1);
    rsim_stopped(&sim, 3, 1);
    rsim_rejoin(&sim, 3);
    rsim_join(&sim, 0);
    rsim_rejoin(&sim, 1);
    expect_ranks((const int[]){ 1, 0, 3 }, 3);
}
