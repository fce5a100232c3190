/* Nodes join, or are rejected. If the values of two nodes do not match, the message has both values and both hosts. The
 * rejected node and the nodes that wait for this node print this message. */
#include "scene.h"

#include "ddp/context.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(joins, .timeout = 120);

#define SAY_ENV "worker env say:done"

/* Both ranks of a node get the same values of the job. The expected text is from the first rank of each node. */
SCENE(
    joins, node_0_first, .program = SAY_ENV,
    .node = {
        { .prints =
              "[0] RANK=0|[0] WORLD_SIZE=4|[0] GROUP_RANK=0|[0] MASTER_ADDR=10.9.0.1|[0] MASTER_PORT=29500" },
        { .late_ms = 1500,
          .prints = "[2] RANK=2|[2] LOCAL_RANK=0|[2] WORLD_SIZE=4|[2] GROUP_RANK=1|[2] "
                    "GROUP_WORLD_SIZE=2|[2] MASTER_ADDR=10.9.0.1" } })

SCENE(joins, node_1_first, .program = SAY_ENV,
      .node = { { .late_ms = 2500, .prints = "[0] RANK=0|[0] WORLD_SIZE=4" },
                { .says = "0's store at 10.9.0.1:29500", .prints = "[2] RANK=2" } })

SCENE(joins, different_numbers_of_workers, .program = SAY_ENV,
      .node = {
          { .options = "--nproc_per_node=3", .prints = "[2] RANK=2|[2] WORLD_SIZE=5|[2] LOCAL_WORLD_SIZE=3" },
          { .prints = "[4] RANK=4|[4] WORLD_SIZE=5|[4] LOCAL_WORLD_SIZE=2" } })

SCENE(joins, names_in_place_of_addresses, .elastic = true, .options = "--nnodes=2 --master_addr=node0",
      .program = SAY_ENV,
      .node = { { .options = "--node_rank=0", .prints = "MASTER_ADDR=10.9.0.1" },
                { .options = "--node_rank=1", .prints = "MASTER_ADDR=10.9.0.1" } })

SCENE(joins, a_node_that_never_comes_is_named_on_all, .cases = "F07 never_came", .hosts = 3,
      .options = "--timeout=12", .says = "node 2 has|NODE_MISSING", .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .ends = "given up|--timeout" },
                { .exit = 125, .ends = "given up|--timeout" },
                { .by_hand = true } })

static void kill_it_waiting(struct play *play)
{
    cr_expect(run_until_error(play->node[1], "missing", 20000));
    fault_kill_launcher(play);
}

SCENE(joins, a_node_that_came_and_died_is_named, .cases = "came_and_died", .hosts = 4,
      .options = "--timeout=14", .fault = kill_it_waiting, .victim = 1, .within_ms = CONNECTIONS,
      .says = "node 1 (node1, pid |NODE_DIED_WAITING",
      .node = { { .exit = 125, .ends = "--timeout" },
                { .exit = KILLED },
                { .exit = 125, .ends = "--timeout" },
                { .by_hand = true } })

/* Start node 1 after the timeout of node 0. */
static void come_too_late(struct play *play)
{
    cr_expect(run_until_error(play->node[0], "given up", 30000));
    poll(NULL, 0, 500);
    scene_start(play, 1, NULL);
}

SCENE(joins, a_node_that_comes_too_late, .options = "--timeout=9", .fault = come_too_late, .within_ms = 60000,
      .node = { { .exit = 125 }, { .by_hand = true, .exit = 125, .ends = "10.9.0.1:29500|CONNECT_REFUSED" } })

SCENE(joins, different_programs, .says = "PROGRAM_DIFFERS", .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = { { .exit = 143 },
                { .exit = 125, .late_ms = 500, .ends = "node1|node0", .program = "member say:up" } })

SCENE(joins, different_numbers_of_nodes, .elastic = true, .options = "--master_addr=10.9.0.1",
      .says = "NNODES_DIFFERS", .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = {
          { .options = "--nnodes=2 --node_rank=0", .exit = 143 },
          { .options = "--nnodes=3 --node_rank=1", .exit = 125, .late_ms = 500, .ends = "node1|node0" } })

SCENE(joins, different_job_ids, .options = "--timeout=12", .says = "yesterday", .within_ms = CONNECTIONS,
      .node = { { .options = "--rdzv_id=today", .exit = ENDED, .ends = "--timeout" },
                { .options = "--rdzv_id=yesterday", .exit = 125, .late_ms = 500, .ends = "today" } })

/* Make a copy of the program that differs only in the digits of its version. */
static void make_old(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1],
                      "LC_ALL=C sed 's/\\b%.*s\\b/0.0.9/g' %s >/run/ddprun && chmod +x /run/ddprun",
                      (int)strlen(DDP_VERSION), DDP_VERSION, bin("ddprun")));
}

SCENE(joins, different_versions, .cases = "F31", .before = make_old,
      .says = "node1|0.0.9|node0|VERSION_DIFFERS", .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = { { .exit = 143 }, { .exit = 125, .late_ms = 500, .ddprun = "/run/ddprun" } })

/* A user has copied the configuration of node 1 to node 2. */
SCENE(joins, the_same_node_rank_on_every_node, .cases = "F23", .hosts = 3, .elastic = true,
      .options = "--nnodes=3 --master_addr=10.9.0.1", .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = {
          { .options = "--node_rank=0", .says = "node2|--node_rank=1|node1|NODE_RANK_TAKEN", .exit = 143 },
          { .options = "--node_rank=1", .says = "node2|--node_rank=1|node1|NODE_RANK_TAKEN", .exit = 143 },
          { .options = "--node_rank=1",
            .late_ms = 1500,
            .exit = 125,
            .says = "--node_rank=1|node1|NODE_RANK_TAKEN" } })

SCENE(joins, node_rank_0_on_every_node, .elastic = true, .options = "--nnodes=2 --master_addr=10.9.0.1",
      .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = {
          { .options = "--node_rank=0", .exit = 143, .says = "node1|NODE_RANK_TAKEN" },
          { .options = "--node_rank=0", .late_ms = 1500, .exit = 125, .says = "node0|NODE_RANK_TAKEN" } })

/* Start a second launcher on node 1 while the job waits for node 2. The first launcher stays in the job. */
static void launch_again(struct play *play)
{
    cr_expect(run_until_error(play->node[1], "missing", 20000));
    play->other = play->node[1];
    scene_start(play, 1, NULL);
}

SCENE(joins, launched_twice_on_one_node, .cases = "F06 launched_twice", .hosts = 3, .fault = launch_again,
      .within_ms = CONNECTIONS, .after = after_stop_all,
      .node = { { .exit = 143, .says = "node1|LAUNCHED_TWICE" },
                { .exit = 125, .says = "node1|LAUNCHED_TWICE" },
                { .by_hand = true } })

/* Start node 1 again while the job runs. */
static void launch_late_again(struct play *play)
{
    play->other = play->node[1];
    scene_start(play, 1, NULL);
}

/* Expect `ddpctl why` to report that node 1 was launched twice. Then stop the job, which must still run. */
static void find_the_second(struct play *play)
{
    for (int i = 0; i < 2; i++)
        scene_expect_why(play, i, "10.9.0.1:29500", "node1|LAUNCHED_TWICE");
    after_stop_all(play);
}

SCENE(joins, launched_twice_into_a_running_job, .cases = "F06", .until = "up", .fault = launch_late_again,
      .within_ms = CONNECTIONS, .after = find_the_second, .never = "is lost",
      .node = { { .exit = 143 }, { .exit = 125, .says = "node1|LAUNCHED_TWICE" } })

/* Start today's job while the launcher of yesterday's job still tries to connect. Yesterday's launcher must not disturb
 * today's launchers. */
static void start_todays(struct play *play)
{
    cr_expect(run_until_error(play->node[1], "waiting for node 0's store", 20000));
    play->other = play->node[1];
    scene_start(play, 0, "--rdzv_id=today");
    cr_expect(run_until_error(play->other, "JOB_DIFFERS", 20000), "the stale launcher is not refused");
    scene_start(play, 1, "--rdzv_id=today");
}

SCENE(joins, a_stale_launcher_of_another_job, .options = "--rdzv_id=yesterday", .program = "worker say:up",
      .fault = start_todays, .within_ms = CONNECTIONS,
      .node = { { .by_hand = true, .prints = "up" }, { .prints = "up" } })

#define UNEQUAL(more)                                                           \
    .elastic = true, .options = "--nnodes=2:2 --rdzv_backend=c10d --rdzv_id=e " \
                                "--rdzv_endpoint=10.9.0.1 " more

SCENE(joins, an_elastic_job_with_different_numbers_of_workers, .cases = "F29", UNEQUAL(""),
      .says = "node1|--nproc_per_node=3|node0|--nproc_per_node=2|NPROC_DIFFERS", .within_ms = CONNECTIONS,
      .after = after_stop_all,
      .node = { { .exit = 143 },
                { .options = "--nproc_per_node=3", .late_ms = 700, .exit = 125, .ends = "--uneven" } })

SCENE(joins, an_uneven_elastic_job, UNEQUAL("--uneven"), .program = "worker env",
      .node = { { .prints = "WORLD_SIZE=5" },
                { .options = "--nproc_per_node=3", .late_ms = 300, .prints = "WORLD_SIZE=5" } })
