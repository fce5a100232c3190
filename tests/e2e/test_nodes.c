/* Jobs on several hosts: one case of each kind. `make nodes` has them all. */
#include "run.h"
#include "scene.h"

TestSuite(nodes, .timeout = 120);

SCENE(nodes, two_nodes_run_and_end_well, .program = "worker env",
      .node = { { .prints = "[0] RANK=0|[0] WORLD_SIZE=4|[0] GROUP_RANK=0|[0] MASTER_ADDR=10.9.0.1" },
                { .prints = "[2] RANK=2|[2] WORLD_SIZE=4|[2] GROUP_RANK=1|[2] MASTER_ADDR=10.9.0.1" } })

SCENE(nodes, ranks_of_two_hosts_meet, .program = "member sum barrier:end",
      .node = { { .exit = 0 }, { .exit = 0 } })

SCENE(nodes, the_first_failure_is_named_on_all,
      .program = "member say:up only:3 err:bang exit:7 all barrier:end",
      .says = "rank 3 on node1 failed first: exit 7|bang|because of rank 3 on node1", .within_ms = EXITS,
      .node = { { .exit = 7 }, { .exit = 7 } })

SCENE(nodes, a_lost_node_is_named, .until = "up", .fault = fault_power, .victim = 1,
      .says = "node 1 (node1) is lost: silent", .within_ms = BEATS,
      .node = { { .exit = 125 }, { .exit = KILLED } })

static void drop(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
}

SCENE(nodes, a_firewall_is_named, .options = "--timeout=13", .before = drop, .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .says = "node 1 has not come|NODE_NEVER_CAME", .ends = "--timeout" },
                { .exit = 125, .says = "10.9.0.1:29500|CONNECT_DROPPED", .ends = "gives up|--timeout" } })

static void lose_1_of_3(struct play *play)
{
    fault_kill_launcher(play);
    cr_expect(run_until_output(play->node[0], "GROUP_WORLD_SIZE=2", PATIENCE_MS));
    cr_expect(run_until_output(play->node[2], "GROUP_WORLD_SIZE=2", PATIENCE_MS));
    after_stop_all(play);
}

SCENE(nodes, an_elastic_job_goes_on_without_a_lost_node, .hosts = 3, .elastic = true,
      .options = "--nnodes=2:3 --rdzv_id=el --rdzv_endpoint=10.9.0.1", .program = "worker env say:up forever",
      .until = "up", .fault = lose_1_of_3, .victim = 1, .says = "node 1 (node1) is lost", .within_ms = 60000,
      .node = { { .exit = 143 }, { .exit = KILLED }, { .exit = 143 } })
