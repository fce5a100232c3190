/* Jobs of many nodes on a simulated clock. The trace has the operators' log and the messages to each node; see
 * sim_rdzv.h for its format. */
#include "run.h"
#include "sim_rdzv.h"

#include <criterion/criterion.h>

static struct sim_rdzv sim;

static void two_static(void)
{
    rsim_init(&sim);
}

static void two_to_four(void)
{
    rsim_init_elastic(&sim, 2, 4);
}

static void end(void)
{
    rsim_free(&sim);
}

Test(rdzv_sim, two_static_nodes_come_run_and_are_done, .init = two_static, .fini = end)
{
    rsim_join(&sim, 0);
    rsim_at(&sim, 5000);
    rsim_join(&sim, 1);
    rsim_at(&sim, 60000);
    rsim_done(&sim, 1, 1);
    rsim_done(&sim, 0, 1);
    rsim_lost(&sim, 0); /* the connections end without a message */
    rsim_lost(&sim, 1);
    rsim_expect(&sim, "[     0] node n0 joined (1 of 2)\n"
                      "[   250]   n0 < gathering: 1 of 2\n"
                      "[  5000] node n1 joined (2 of 2)\n"
                      "[  5000]   keys of attempt 0\n"
                      "[  5000] attempt 0 begins: 2 nodes, 4 ranks\n"
                      "[  5000]   n0 < round 1: node 0 of 2, ranks from 0 of 4\n"
                      "[  5000]   n1 < round 1: node 1 of 2, ranks from 2 of 4\n"
                      "[ 60000] node 1 (n1) is done (1 of 2)\n"
                      "[ 60000] node 0 (n0) is done (2 of 2)\n"
                      "[ 60000] the job is done\n"
                      "[ 60000]   n0 < finish: done, exit 0/0/0\n"
                      "[ 60000]   n1 < finish: done, exit 0/0/0\n");
}

/* n10 joins first, but gets a higher rank than n2, because numbers in host names are compared as numbers. When two
 * nodes have joined, the store waits 30 s for more nodes (the last call). n7 joins after this wait, so n7 must wait for
 * the next round. */
Test(rdzv_sim, an_elastic_job_makes_a_last_call_and_keeps_a_late_node, .init = two_to_four, .fini = end)
{
    rsim_join(&sim, 10);
    rsim_at(&sim, 1000);
    rsim_join(&sim, 2);
    rsim_at(&sim, 40000);
    rsim_join(&sim, 7);
    rsim_at(&sim, 50000);
    rdzv_grow_agreed(sim.r, sim.now_ms);
    rsim_stopped(&sim, 2, 1);
    rsim_at(&sim, 50100);
    rsim_stopped(&sim, 10, 1);
    rsim_rejoin(&sim, 10);
    rsim_rejoin(&sim, 2);
    rsim_expect(&sim, "[     0] node n10 joined (1 of 2 to 4)\n"
                      "[   250]   n10 < gathering: 1 of 4\n"
                      "[  1000] node n2 joined (2 of 2 to 4)\n"
                      "[  1000] enough nodes (2 joined, 2 to 4 allowed): more nodes may join within 30.0 s\n"
                      "[  1250]   n10 < last call: 2 of 4\n"
                      "[  1250]   n2 < last call: 2 of 4\n"
                      "[ 31000]   keys of attempt 0\n"
                      "[ 31000] attempt 0 begins: 2 nodes, 4 ranks\n"
                      "[ 31000]   n2 < round 1: node 0 of 2, ranks from 0 of 4\n"
                      "[ 31000]   n10 < round 1: node 1 of 2, ranks from 2 of 4\n"
                      "[ 40000] node n7 joined as a spare: a round is running\n"
                      "[ 40000]   key waiting_nodes = 1\n"
                      "[ 40250]   n7 < running: 2 of 4, 1 spare\n"
                      "[ 50000] attempt 0 stops: 1 more node can join\n"
                      "[ 50000]   n2 < stop round 1: grow\n"
                      "[ 50000]   n10 < stop round 1: grow\n"
                      "[ 50000] node 0 (n2) has stopped\n"
                      "[ 50100] node 1 (n10) has stopped\n"
                      "[ 50100] attempt 0 is over: the next attempt begins in 0 ms\n"
                      "[ 50100]   n2 < restart after grow, in 0 ms\n"
                      "[ 50100]   n10 < restart after grow, in 0 ms\n"
                      "[ 50100] node 1 (n10) has joined again\n"
                      "[ 50100] node 0 (n2) has joined again\n"
                      "[ 50100]   keys of attempt 1\n"
                      "[ 50100] attempt 1 begins: 3 nodes, 6 ranks\n"
                      "[ 50100]   n2 < round 2: node 0 of 3, ranks from 0 of 6\n"
                      "[ 50100]   n10 < round 2: node 1 of 3, ranks from 2 of 6\n"
                      "[ 50100]   n7 < round 2: node 2 of 3, ranks from 4 of 6\n");
}

Test(rdzv_sim, a_node_that_leaves_during_the_last_call_takes_the_job_back, .init = two_to_four, .fini = end)
{
    rsim_join(&sim, 0);
    rsim_join(&sim, 1);
    rsim_at(&sim, 2000);
    rsim_leave(&sim, 1, 15);
    rsim_at(&sim, 600000);
    rsim_expect(&sim, "[     0] node n0 joined (1 of 2 to 4)\n"
                      "[     0] node n1 joined (2 of 2 to 4)\n"
                      "[     0] enough nodes (2 joined, 2 to 4 allowed): more nodes may join within 30.0 s\n"
                      "[   250]   n0 < last call: 2 of 4\n"
                      "[   250]   n1 < last call: 2 of 4\n"
                      "[  2000] node n1 leaves: SIGTERM from bash (pid 77, uid 1000)\n"
                      "[  2000]   n1 < finish: node_left, exit 143/143/143, stopped\n"
                      "[  2000] too few nodes again: the job waits for more\n"
                      "[  2250]   n0 < gathering: 1 of 4\n"
                      "[600000] too few nodes: 1 of 2 joined within 10 min (--timeout)\n"
                      "[600000] the job is over: timeout, no restart: too_few_nodes\n"
                      "[600000]   n0 < finish: timeout, exit 125/125/125, too_few_nodes\n");
}

Test(rdzv_sim, an_elastic_job_goes_on_without_a_dead_node, .init = two_to_four, .fini = end)
{
    rsim_join_all(&sim, 0, 3);
    rsim_at(&sim, 10000);
    rsim_forget(&sim);
    rsim_lost(&sim, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_stopped(&sim, 2, 1);
    rsim_stopped(&sim, 3, 1);
    rsim_rejoin(&sim, 2);
    rsim_rejoin(&sim, 0);
    rsim_rejoin(&sim, 3);
    rsim_expect(&sim, "[ 10000] node 1 (n1) is lost: connection closed\n"
                      "[ 10000] attempt 0 stops: node 1 (n1) is lost: connection closed\n"
                      "[ 10000]   n0 < stop round 1: node_lost\n"
                      "[ 10000]   n2 < stop round 1: node_lost\n"
                      "[ 10000]   n3 < stop round 1: node_lost\n"
                      "[ 10000] node 0 (n0) has stopped\n"
                      "[ 10000] node 2 (n2) has stopped\n"
                      "[ 10000] node 3 (n3) has stopped\n"
                      "[ 10000] attempt 0 is over: the next attempt begins in 0 ms\n"
                      "[ 10000]   n0 < restart after node_lost, in 0 ms\n"
                      "[ 10000]   n2 < restart after node_lost, in 0 ms\n"
                      "[ 10000]   n3 < restart after node_lost, in 0 ms\n"
                      "[ 10000] node 2 (n2) has joined again\n"
                      "[ 10000] node 0 (n0) has joined again\n"
                      "[ 10000] node 3 (n3) has joined again\n"
                      "[ 10000]   keys of attempt 1\n"
                      "[ 10000] attempt 1 begins: 3 nodes, 6 ranks\n"
                      "[ 10000]   n0 < round 2: node 0 of 3, ranks from 0 of 6\n"
                      "[ 10000]   n3 < round 2: node 1 of 3, ranks from 2 of 6\n"
                      "[ 10000]   n2 < round 2: node 2 of 3, ranks from 4 of 6\n");
}

/* The store gets the failure at once and its details a little later. The budget allows one more attempt. */
Test(rdzv_sim, a_failure_stops_all_nodes_and_they_start_again, .init = two_static, .fini = end)
{
    sim.join.max_restarts = 1;
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
    rsim_at(&sim, 7000);
    rsim_fail(&sim, 1, 1, 3, 9);
    rsim_at(&sim, 7200);
    rsim_stopped(&sim, 1, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_rejoin(&sim, 1);
    rsim_rejoin(&sim, 0);
    rsim_at(&sim, 9000);
    rsim_fail(&sim, 0, 2, 0, -3);
    rsim_stopped(&sim, 0, 2);
    rsim_stopped(&sim, 1, 2);
    rsim_expect(&sim, "[  7000] attempt 0 stops: rank 3 on n1 died of signal 9\n"
                      "[  7000]   n0 < stop round 1: failed\n"
                      "[  7000]   n1 < stop round 1: failed\n"
                      "[  7200] node 1 (n1) has stopped\n"
                      "[  7200] node 0 (n0) has stopped\n"
                      "[  7200] attempt 0 is over: the next attempt begins in 1.0 s\n"
                      "[  7200]   n0 < restart after failed, in 1000 ms\n"
                      "[  7200]   n1 < restart after failed, in 1000 ms\n"
                      "[  7200] node 1 (n1) has joined again\n"
                      "[  7200] node 0 (n0) has joined again\n"
                      "[  7450]   n1 < backing off: 2 of 2\n"
                      "[  7450]   n0 < backing off: 2 of 2\n"
                      "[  8200]   keys of attempt 1\n"
                      "[  8200] attempt 1 begins: 2 nodes, 4 ranks\n"
                      "[  8200]   n0 < round 2: node 0 of 2, ranks from 0 of 4\n"
                      "[  8200]   n1 < round 2: node 1 of 2, ranks from 2 of 4\n"
                      "[  9000] attempt 1 stops: rank 0 on n0 had exit code 3\n"
                      "[  9000]   n0 < stop round 2: failed\n"
                      "[  9000]   n1 < stop round 2: failed\n"
                      "[  9000] node 0 (n0) has stopped\n"
                      "[  9000] node 1 (n1) has stopped\n"
                      "[  9000] the job is over: failed, no restart: used_up\n"
                      "[  9000]   n0 < finish: failed, exit 3/3/3, used_up\n"
                      "[  9000]   n1 < finish: failed, exit 3/3/3, used_up\n");
}

/* The scheduler removes one node. The node gets its own verdict as soon as it has stopped, and no restart is
 * used up. */
Test(rdzv_sim, a_preempted_node_leaves_and_the_others_go_on, .init = two_to_four, .fini = end)
{
    rsim_join_all(&sim, 0, 3);
    rsim_forget(&sim);
    rsim_at(&sim, 1000);
    rsim_leave(&sim, 0, 15);
    rsim_stopped(&sim, 2, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_lost(&sim, 0);
    rsim_stopped(&sim, 1, 1);
    rsim_stopped(&sim, 3, 1);
    rsim_rejoin(&sim, 1);
    rsim_rejoin(&sim, 2);
    rsim_rejoin(&sim, 3);
    rsim_expect(&sim,
                "[  1000] node 0 (n0) leaves its round: SIGTERM from bash (pid 77, uid 1000)\n"
                "[  1000] attempt 0 stops: node 0 (n0) was stopped by SIGTERM from bash (pid 77, uid 1000)\n"
                "[  1000]   n1 < stop round 1: node_left\n"
                "[  1000]   n2 < stop round 1: node_left\n"
                "[  1000]   n3 < stop round 1: node_left\n"
                "[  1000] node 2 (n2) has stopped\n"
                "[  1000] node 0 (n0) has stopped\n"
                "[  1000]   n0 < finish: node_left, exit 143/143/143, stopped\n"
                "[  1000] node 1 (n1) has stopped\n"
                "[  1000] node 3 (n3) has stopped\n"
                "[  1000] attempt 0 is over: the next attempt begins in 0 ms\n"
                "[  1000]   n1 < restart after node_left, in 0 ms\n"
                "[  1000]   n2 < restart after node_left, in 0 ms\n"
                "[  1000]   n3 < restart after node_left, in 0 ms\n"
                "[  1000] node 1 (n1) has joined again\n"
                "[  1000] node 2 (n2) has joined again\n"
                "[  1000] node 3 (n3) has joined again\n"
                "[  1000]   keys of attempt 1\n"
                "[  1000] attempt 1 begins: 3 nodes, 6 ranks\n"
                "[  1000]   n3 < round 2: node 0 of 3, ranks from 0 of 6\n"
                "[  1000]   n1 < round 2: node 1 of 3, ranks from 2 of 6\n"
                "[  1000]   n2 < round 2: node 2 of 3, ranks from 4 of 6\n");
}

Test(rdzv_sim, the_user_of_one_static_node_stops_the_job, .init = two_static, .fini = end)
{
    sim.join.max_restarts = 3;
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
    rsim_leave(&sim, 0, 2);
    rsim_stopped(&sim, 0, 1);
    rsim_stopped(&sim, 1, 1);
    rsim_expect(&sim,
                "[     0] node 0 (n0) leaves its round: SIGINT from bash (pid 77, uid 1000)\n"
                "[     0] attempt 0 stops: node 0 (n0) was stopped by SIGINT from bash (pid 77, uid 1000)\n"
                "[     0]   n1 < stop round 1: node_left\n"
                "[     0] node 0 (n0) has stopped\n"
                "[     0]   n0 < finish: node_left, exit 130/130/130, stopped\n"
                "[     0] node 1 (n1) has stopped\n"
                "[     0] the job is over: node_left, no restart: stopped\n"
                "[     0]   n1 < finish: node_left, exit 130/130/130, stopped\n");
}

/* n1 is silent from 10.0 s on. A worker on n0 gives up before n1 is declared lost. The cause is n1, not this worker. */
Test(rdzv_sim, a_silent_node_is_the_cause_though_its_peers_gave_up_before, .init = two_static, .fini = end)
{
    sim.join.node_timeout_ms = 3000;
    rsim_join_all(&sim, 0, 1);
    sim.beats[0] = sim.beats[1] = true;
    rsim_at(&sim, 10000);
    rsim_forget(&sim);
    sim.beats[1] = false;
    rsim_at(&sim, 11000);
    rsim_fail(&sim, 0, 1, 0, -75);
    rsim_stopped(&sim, 0, 1);
    rsim_at(&sim, 20000);
    rsim_expect(&sim, "[ 11000] attempt 0 stops: rank 0 on n0 had exit code 75\n"
                      "[ 11000]   n0 < stop round 1: failed\n"
                      "[ 11000]   n1 < stop round 1: failed\n"
                      "[ 11000] node 0 (n0) has stopped\n"
                      "[ 13000]   n1 is dropped: silent for 3.0 s\n"
                      "[ 13000] node 1 (n1) is lost: silent for 3.0 s\n"
                      "[ 13000] the job is over: node_lost\n"
                      "[ 13000]   n0 < finish: node_lost, exit 125/125/125\n");
}

Test(rdzv_sim, a_server_that_stood_still_declares_nobody_lost, .init = two_static, .fini = end)
{
    sim.join.node_timeout_ms = 3000;
    rsim_join_all(&sim, 0, 1);
    sim.beats[0] = sim.beats[1] = true;
    rsim_at(&sim, 10000);
    rsim_forget(&sim);
    rsim_freeze_until(&sim, 40000);
    rsim_at(&sim, 41000);
    rsim_expect(&sim, "");
    sim.beats[0] = false;
    rsim_at(&sim, 43999);
    rsim_expect(&sim, "");
    rsim_at(&sim, 44000);
    rsim_expect_part(&sim, "[ 44000] node 0 (n0) is lost: silent for 3.0 s\n");
}

/* Each check of the store is a second and a half late. n0 sends nothing after 10.0 s. n1 does send, and the store
 * reads its messages. */
Test(rdzv_sim, a_server_that_is_always_late_still_finds_the_silent_one, .init = two_static, .fini = end)
{
    sim.join.node_timeout_ms = 3000;
    rsim_join_all(&sim, 0, 1);
    sim.beats[0] = sim.beats[1] = true;
    rsim_at(&sim, 10000);
    rsim_forget(&sim);
    sim.beats[0] = false;
    for (uint64_t ms = 12000; ms <= 16000; ms += 2000) {
        rdzv_received(sim.r, 2, ms);
        rsim_freeze_until(&sim, ms);
    }
    rsim_expect(&sim, "");
    rdzv_received(sim.r, 2, 18000);
    rsim_freeze_until(&sim, 18000);
    rsim_expect_part(&sim, "[ 18000] node 0 (n0) is lost: silent for 8.0 s\n");
}

/* A virtual machine that is migrated may be suspended twice, before the nodes have had time to send a message. */
Test(rdzv_sim, a_server_that_stood_still_twice_declares_nobody_lost, .init = two_static, .fini = end)
{
    sim.join.node_timeout_ms = 3000;
    rsim_join_all(&sim, 0, 1);
    sim.beats[0] = sim.beats[1] = true;
    rsim_at(&sim, 10000);
    rsim_forget(&sim);
    rsim_freeze_until(&sim, 40000);
    rsim_at(&sim, 40600);
    rsim_freeze_until(&sim, 90100);
    rsim_at(&sim, 95000);
    rsim_expect(&sim, "");
}

Test(rdzv_sim, a_node_that_never_stops_is_dropped, .init = two_static, .fini = end)
{
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
    rsim_fail(&sim, 0, 1, 0, 11);
    rsim_stopped(&sim, 0, 1);
    rsim_at(&sim, 30000);
    rsim_expect(&sim, "[     0] attempt 0 stops: rank 0 on n0 died of signal 11\n"
                      "[     0]   n0 < stop round 1: failed\n"
                      "[     0]   n1 < stop round 1: failed\n"
                      "[     0] node 0 (n0) has stopped\n"
                      "[ 15000]   n1 is dropped: its workers did not stop in time\n"
                      "[ 15000] node 1 (n1) is lost: its workers did not stop in time\n"
                      "[ 15000] the job is over: failed\n"
                      "[ 15000]   n0 < finish: failed, exit 139/139/139\n");
}

/* The strangers are a launcher of yesterday's job, a launcher of an earlier round, and a launcher with a rank that is
 * taken. */
Test(rdzv_sim, strangers_are_refused, .init = two_static, .fini = end)
{
    struct rdzv_join old = sim.join, twin = sim.join;
    old.instance = "life-0";
    twin.node_rank = sim.join.node_rank = 1;
    twin.host = "n1";
    rsim_join(&sim, 1);
    rsim_join_as(&sim, 5, &old);
    rsim_join_as(&sim, 6, &twin);
    twin.host = "n6";
    rsim_join_as(&sim, 6, &twin);
    sim.join.node_rank = 0;
    rsim_join(&sim, 0);
    cr_assert_eq(rsim_fail(&sim, 0, 0, 0, 9), RDZV_STALE_ROUND);
    cr_assert_eq(rsim_fail(&sim, 9, 1, 0, 9), RDZV_NO_MEMBER);
    rsim_expect(&sim,
                "[     0] node 1 (n1) joined (1 of 2)\n"
                "[     0] refused (STALE_INSTANCE): n5 (pid 105) belongs to an earlier run of job 'j' "
                "(instance id life-0); the present run has instance id life-1; "
                "restart ddprun on that node\n"
                "[     0] refused (LAUNCHED_TWICE): ddprun was started twice on n1: pid 106 has the same "
                "--node_rank=1 as pid 101; stop one of the two ddprun processes; two jobs on the same nodes "
                "need different "
                "--rdzv_id and --master_port\n"
                "[     0] refused (NODE_RANK_TAKEN): n6 (pid 106) has the same "
                "--node_rank=1 as n1 (pid 101); give every node its own --node_rank, or stop the ddprun that "
                "belongs to an earlier "
                "start\n"
                "[     0] node 0 (n0) joined (2 of 2)\n"
                "[     0]   keys of attempt 0\n"
                "[     0] attempt 0 begins: 2 nodes, 4 ranks\n"
                "[     0]   n0 < round 1: node 0 of 2, ranks from 0 of 4\n"
                "[     0]   n1 < round 1: node 1 of 2, ranks from 2 of 4\n"
                "[     0] node 0 (n0) sent a message about round 0, but the current round is 1: ignored\n");
}

Test(rdzv_sim, a_static_node_that_never_comes, .init = two_static, .fini = end)
{
    sim.join.node_rank = 0;
    rsim_join(&sim, 0);
    rsim_at(&sim, 1000000);
    rsim_expect(&sim, "[     0] node 0 (n0) joined (1 of 2)\n"
                      "[   250]   n0 < gathering: 1 of 2, missing 1\n"
                      "[900000] too few nodes: 1 of 2 joined within 15 min (--timeout)\n"
                      "[900000] the job is over: timeout, no restart: too_few_nodes\n"
                      "[900000]   n0 < finish: timeout, exit 125/125/125, too_few_nodes\n");
}

Test(rdzv_sim, a_lost_static_node_may_come_again, .init = two_static, .fini = end)
{
    sim.join.max_restarts = 1;
    rsim_join_all(&sim, 0, 1);
    rsim_forget(&sim);
    rsim_at(&sim, 1000);
    rsim_lost(&sim, 1);
    rsim_stopped(&sim, 0, 1);
    rsim_rejoin(&sim, 0);
    rsim_at(&sim, 20000);
    rsim_join(&sim, 8);
    rsim_expect(&sim, "[  1000] node 1 (n1) is lost: connection closed\n"
                      "[  1000] attempt 0 stops: node 1 (n1) is lost: connection closed\n"
                      "[  1000]   n0 < stop round 1: node_lost\n"
                      "[  1000] node 0 (n0) has stopped\n"
                      "[  1000] attempt 0 is over: the next attempt begins in 1.0 s\n"
                      "[  1000]   n0 < restart after node_lost, in 1000 ms\n"
                      "[  1000] node 0 (n0) has joined again\n"
                      "[  1250]   n0 < backing off: 1 of 2, missing 1\n"
                      "[ 20000] node n8 joined (2 of 2)\n"
                      "[ 20000]   keys of attempt 1\n"
                      "[ 20000] attempt 1 begins: 2 nodes, 4 ranks\n"
                      "[ 20000]   n0 < round 2: node 0 of 2, ranks from 0 of 4\n"
                      "[ 20000]   n8 < round 2: node 1 of 2, ranks from 2 of 4\n");
}

/* Tests of a thousand nodes and more: ranks stay dense, and a node costs few messages. */

/* Expect the ranks 0 to n - 1 on the remaining nodes. */
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

/* One node joins every millisecond. A rack of fifty nodes dies, one node is preempted, a worker fails, and the job
 * finishes. */
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
                "[   899] enough nodes (900 joined, 900 to 1000 allowed): more nodes may join within 30.0 s\n"
                "[   999] attempt 0 begins: 1000 nodes, 2000 ranks\n"
                "[  5000] attempt 0 stops: node 100 (n100) is lost: connection closed\n"
                "[  5000] attempt 0 is over: the next attempt begins in 0 ms\n"
                "[  5000] attempt 1 begins: 950 nodes, 1900 ranks\n"
                "[  5000] attempt 1 stops: node 0 (n0) was stopped by SIGTERM from bash (pid 77, uid 1000)\n"
                "[  5000] attempt 1 is over: the next attempt begins in 0 ms\n"
                "[  5000] attempt 2 begins: 949 nodes, 1898 ranks\n"
                "[  5000] attempt 2 stops: rank 1000 on n500 died of signal 9\n"
                "[  5000] attempt 2 is over: the next attempt begins in 1.0 s\n"
                "[  6000] attempt 3 begins: 949 nodes, 1898 ranks\n"
                "[ 10000] the job is done\n");
}

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
    cr_assert_eq(sim.told[RDZV_NOTICE_ROUND], (uint32_t)n);
    cr_assert_eq(sim.told[RDZV_NOTICE_STOP], (uint32_t)n);
    cr_assert_eq(sim.told[RDZV_NOTICE_VERDICT], (uint32_t)n);
    cr_assert_leq(sim.told[RDZV_NOTICE_WAITING], 2 * (uint32_t)n, "%u", sim.told[RDZV_NOTICE_WAITING]);
    cr_assert_leq(sim.quota.used, (uint64_t)n * 1536, "a node takes %u bytes",
                  (unsigned)(sim.quota.used / n));
}
