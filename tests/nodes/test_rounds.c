/* Tests of rounds: jobs continue with fewer nodes, accept more nodes, and restart. Some jobs have their store on a
 * separate host. */
#include "scene.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

TestSuite(rounds, .timeout = 120);

#define STATIC_UP "worker say:up forever"

#define FAILS_ONCE "member but:3 forever all sleep:300 exit:7"

SCENE(rounds, a_failure_on_one_node_restarts_all_until_the_budget_is_used,
      .options = "--max_restarts=1 --restart_backoff=200ms",
      .program = "worker env only:3 sleep:300 exit:7 all forever",
      .says = "rank 3|exit 7|rank 3 on node1 failed first",
      .node = { { .exit = 7, .prints = "TORCHELASTIC_RESTART_COUNT=0|TORCHELASTIC_RESTART_COUNT=1" },
                { .exit = 7, .prints = "TORCHELASTIC_RESTART_COUNT=0|TORCHELASTIC_RESTART_COUNT=1" } })

SCENE(rounds, what_fails_once_ends_well, .options = "--max_restarts=2 --restart_backoff=200ms",
      .program = "attempt_worker keys 1", .says = "starting attempt 1", .within_ms = 60000,
      .node = { { .exit = 0 }, { .exit = 0 } })

#define ELASTIC                                                                                      \
    .elastic = true,                                                                                 \
    .options = "--nnodes=2:4 --rdzv_id=el --rdzv_endpoint=10.9.0.1 --rdzv_conf=last_call_timeout=1 " \
               "--restart_backoff=200ms"

SCENE(rounds, min_nodes_begin_after_the_last_call, ELASTIC, .program = "worker env", .within_ms = 60000,
      .node = { { .prints = "GROUP_WORLD_SIZE=2|MASTER_ADDR=10.9.0.1" },
                { .prints = "GROUP_WORLD_SIZE=2|MASTER_ADDR=10.9.0.1" } })

SCENE(rounds, node1_may_come_before_the_one_that_hosts, ELASTIC, .program = "worker env", .within_ms = 60000,
      .node = { { .late_ms = 2500, .prints = "GROUP_RANK=0|GROUP_WORLD_SIZE=2" },
                { .prints = "GROUP_RANK=1|GROUP_WORLD_SIZE=2" } })

SCENE(rounds, four_nodes_begin_without_a_last_call, .hosts = 4, .elastic = true,
      .options = "--nnodes=2:4 --rdzv_id=el --rdzv_endpoint=10.9.0.1 --rdzv_conf=last_call_timeout=100",
      .program = "worker env", .within_ms = 60000,
      .node = { { .prints = "GROUP_RANK=0|GROUP_WORLD_SIZE=4" },
                { .prints = "GROUP_RANK=1|GROUP_WORLD_SIZE=4" },
                { .prints = "GROUP_RANK=2|GROUP_WORLD_SIZE=4" },
                { .prints = "GROUP_RANK=3|GROUP_WORLD_SIZE=4" } })

/* Start a third node, which is kept as a spare. All nodes report the spare. */
static void come_late(struct play *play)
{
    scene_start(play, 2, NULL);
}

static void expect_spare(struct play *play)
{
    for (int i = 0; i < 3; i++)
        scene_expect_why(play, i, "10.9.0.1:29400", "node2|NODE_IS_SPARE");
}

static void find_the_spare(struct play *play)
{
    expect_spare(play);
    after_stop_all(play);
}

SCENE(rounds, a_late_node_is_a_spare, .cases = "F59", .hosts = 3, ELASTIC, .until = "up", .fault = come_late,
      .within_ms = CONNECTIONS, .after = find_the_spare, .never = "is lost",
      .node = { { .exit = 143 }, { .exit = 143 }, { .by_hand = true, .exit = 143, .says = "next restart" } })

static void come_and_grow(struct play *play)
{
    scene_start(play, 2, NULL);
    for (int i = 0; i < 3; i++)
        cr_expect(run_until_output(play->node[i], "GROUP_WORLD_SIZE=3", 30000), "node %d does not grow", i);
    after_stop_all(play);
}

SCENE(rounds, a_late_node_is_taken_in_at_once, .hosts = 3, .elastic = true,
      .options =
          "--nnodes=2:4 --rdzv_id=el --rdzv_endpoint=10.9.0.1 --rdzv_conf=last_call_timeout=1 --grow=now",
      .program = "worker env say:up forever", .until = "up", .fault = come_and_grow, .within_ms = 60000,
      .node = { { .exit = 143 }, { .exit = 143 }, { .by_hand = true, .exit = 143 } })

/* Lose a node of a job that has its maximum of nodes, while one more node waits as a spare. The spare replaces the lost
 * node. */
static void lose_1_of_2(struct play *play)
{
    cr_expect(run_until_error(play->node[2], "next restart", 20000));
    expect_spare(play);
    fault_kill_launcher(play);
    cr_expect(run_until_output(play->node[2], "GROUP_WORLD_SIZE=2", 30000), "the spare is not taken in");
    after_stop_all(play);
}

SCENE(rounds, a_spare_replaces_a_lost_node, .cases = "F61", .hosts = 3, .elastic = true,
      .options =
          "--nnodes=2:2 --rdzv_backend=c10d --rdzv_id=el --rdzv_endpoint=10.9.0.1 --restart_backoff=200ms",
      .program = "worker env say:up forever", .fault = lose_1_of_2, .victim = 1, .within_ms = 60000,
      .node = { { .exit = 143, .says = "node 1 (node1) is lost|NODE_LOST_CLOSED" },
                { .exit = KILLED },
                { .late_ms = 2500, .exit = 143 } })

static void lose_1_of_3(struct play *play)
{
    fault_kill_launcher(play);
    cr_expect(run_until_output(play->node[0], "GROUP_WORLD_SIZE=2", 30000));
    cr_expect(run_until_output(play->node[2], "GROUP_WORLD_SIZE=2", 30000));
    after_stop_all(play);
}

SCENE(rounds, the_others_go_on_without_a_lost_node, .hosts = 3, ELASTIC,
      .program = "worker env say:up forever", .until = "up", .fault = lose_1_of_3, .victim = 1,
      .says = "node 1 (node1) is lost", .within_ms = 60000,
      .node = { { .exit = 143 }, { .exit = KILLED }, { .exit = 143 } })

/* Lose a node. The remaining ranks of libddp form a smaller group. */
static void lose_1_of_3_members(struct play *play)
{
    fault_kill_launcher(play);
    cr_expect(run_until_output(play->node[0], "again", 30000));
    cr_expect(run_until_output(play->node[2], "again", 30000));
    after_stop_all(play);
}

SCENE(rounds, ranks_meet_again_without_a_lost_node, .hosts = 3, ELASTIC,
      .program = "member sum say:met attempt:1 say:again all forever", .until = "met",
      .fault = lose_1_of_3_members, .victim = 1, .says = "node 1 (node1) is lost", .within_ms = 60000,
      .never = "failed first", .node = { { .exit = 143 }, { .exit = KILLED }, { .exit = 143 } })

/* Host the store in a ddp-rendezvous on the last host, where no node runs. */
static void host_store(struct play *play)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen",   "10.9.0.3:29400",
                           "--secret_file",       play->secret, NULL };
    play->other = host_start(&play->net->host[2], argv, &(struct run_options){ .timeout_ms = 100000 });
    cr_assert(run_until_output(play->other, "listening", 20000));
}

#define SERVED                                                                                          \
    .hosts = 3, .elastic = true, .before = host_store,                                                  \
    .options =                                                                                          \
        "--nnodes=2:2 --rdzv_backend=c10d --rdzv_id=x --rdzv_endpoint=10.9.0.3:29400 --max_restarts=3 " \
        "--restart_backoff=200ms --timeout=20"

SCENE(rounds, a_rendezvous_of_its_own, SERVED, .program = "worker env",
      .node = {
          { .prints = "MASTER_ADDR=10.9.0.3" }, { .prints = "MASTER_ADDR=10.9.0.3" }, { .by_hand = true } })

/* Kill the victim and start it again. The job continues even without node 0, because the store is on another host. */
static void die_and_come_again(struct play *play)
{
    const int other = 1 - play->scene->victim;
    fault_kill_launcher(play);
    cr_expect(run_until_error(play->node[other], "is lost", 20000));
    run_wait(play->node[play->scene->victim]);
    scene_start(play, play->scene->victim, NULL);
    cr_expect(run_until_output(play->node[play->scene->victim], "up", 30000));
    after_stop_all(play);
}

SCENE(rounds, a_served_job_survives_node_0, SERVED, .until = "up", .fault = die_and_come_again, .victim = 0,
      .within_ms = 60000,
      .node = { { .exit = 143 }, { .exit = 143, .says = "(node0) is lost" }, { .by_hand = true } })

SCENE(rounds, a_served_job_survives_node_1, SERVED, .until = "up", .fault = die_and_come_again, .victim = 1,
      .within_ms = 60000,
      .node = { { .exit = 143, .says = "(node1) is lost" }, { .exit = 143 }, { .by_hand = true } })

static void kill_store(struct play *play)
{
    run_signal(play->other, SIGKILL);
}

SCENE(rounds, the_death_of_the_rendezvous_is_named, SERVED, .until = "up", .fault = kill_store,
      .says = "lost the|at 10.9.0.3:29400|by ddprun", .within_ms = EXITS,
      .node = { { .exit = ENDED }, { .exit = ENDED }, { .by_hand = true } })

SCENE(rounds, a_node_that_is_done_waits_for_the_other, .program = "worker only:3 sleep:4000 all say:up",
      .node = { { .exit = 0 }, { .exit = 0 } })

/* Node 0 hosts the store, so node 0 continues to run until the other node has ended. */
SCENE(rounds, a_node_that_waits_too_long_names_the_knob, .options = "--exit_barrier_timeout=2s",
      .program = "worker only:3 sleep:6000 all", .within_ms = CONNECTIONS, .never = "lost",
      .node = { { .exit = ANY, .says = "--exit_barrier_timeout" }, { .exit = 0 } })

/* Rank 0 leaves. The ranks that wait for rank 0 report the exit of rank 0, and not a broken pipe. */
SCENE(rounds, rank_0_leaves_first, .cases = "F19", .program = "member only:0 exit:0 all barrier:epoch-3",
      .within_ms = CONNECTIONS, .after = after_stop_all,
      .says = "rank 0 (node0, pid |barrier 'epoch-3'  [RANK_EXITED_EARLY]", .never = "roken pipe",
      .node = { { .exit = ANY }, { .exit = ANY } })
