/* Tests of other networks than a single IPv4 network: a network with only IPv6, and a router that translates
 * addresses. Network namespaces provide these networks, so that the tests need no second machine. */
#include "scene.h"

TestSuite(networks, .timeout = 120);

#define V6     .net = HOSTS_V6
#define V6_10D V6, .elastic = true, .options = "--nnodes=2:2 --rdzv_id=v6 --rdzv_backend=c10d "
#define V6_JOB "[fd00::1]:29500"

SCENE(networks, v6_addresses_reach_the_workers_as_they_are, V6, .program = "worker env",
      .node = { { .prints = "[0] RANK=0|[0] WORLD_SIZE=4|[0] MASTER_ADDR=fd00::1" },
                { .prints = "[2] RANK=2|[2] WORLD_SIZE=4|[2] MASTER_ADDR=fd00::1" } })

SCENE(networks, v6_endpoint_in_brackets, V6_10D "--rdzv_endpoint=[fd00::1]:29400",
      .program = "member sum barrier:end", .node = { { .exit = 0 }, { .exit = 0 } })

/* Any spelling of an IPv6 address works, because endpoints are compared as addresses. */
SCENE(networks, v6_endpoint_without_a_port, V6_10D "--rdzv_endpoint=[FD00:0::0:1]", .program = "worker env",
      .node = { { .prints = "MASTER_ADDR=fd00::1|MASTER_PORT=29400" }, { .prints = "MASTER_ADDR=fd00::1" } })

SCENE(networks, v6_name, V6_10D "--rdzv_endpoint=node0", .program = "member sum barrier:end",
      .node = { { .exit = 0 }, { .exit = 0 } })

static void host_store(struct play *play)
{
    const char *argv[] = { bin("ddp-rendezvous"), "--listen",   "[fd00::3]:29400",
                           "--secret_file",       play->secret, NULL };
    play->other = host_start(&play->net->host[2], argv, &(struct run_options){ .timeout_ms = 100000 });
    cr_assert(run_until_output(play->other, "listening on [fd00::3]:29400", 20000));
}

SCENE(networks, v6_rendezvous_of_its_own, .hosts = 3, V6_10D "--rdzv_endpoint=[fd00::3]:29400",
      .before = host_store, .program = "member sum barrier:end",
      .node = { { .exit = 0 }, { .exit = 0 }, { .by_hand = true } })

SCENE(networks, v6_loss_is_named, V6, .until = "up", .fault = fault_power, .victim = 1,
      .says = "node 1 (node1) is lost: silent", .within_ms = BEATS,
      .node = { { .exit = 125 }, { .exit = KILLED } })

SCENE(networks, v6_failure_is_named, V6, .program = "member say:up only:3 err:bang exit:7 all sum",
      .says = "rank 3 on node1 failed first|exit 7|bang", .within_ms = EXITS,
      .node = { { .exit = 7 }, { .exit = 7 } })

static void drop(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
}

SCENE(networks, v6_firewall_is_named, V6, .options = "--timeout=13", .before = drop, .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .says = "node 1|NODE_MISSING", .ends = "--timeout" },
                { .exit = 125, .says = V6_JOB "|CONNECT_DROPPED", .ends = "gives up|--timeout" } })

/* Replace the IPv6 address of the host by an IPv4 address, from which the IPv6 address of the store cannot be
 * reached. */
static void take_address(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1], "ip addr flush dev eth0 && ip addr add 10.9.0.2/24 dev eth0"));
}

SCENE(networks, v6_master_of_a_host_with_v4, V6, .options = "--timeout=13", .before = take_address,
      .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .says = "node 1|NODE_MISSING", .ends = "--timeout" },
                { .exit = 125, .says = "fd00::1|NO_ROUTE", .ends = "gives up|--timeout" } })

static void ask_who_is_missing(struct play *play)
{
    for (int i = 0; i < 2; i++)
        scene_expect_why(play, i, V6_JOB, "rank 3|node1|RANK_STOPPED");
    after_stop_all(play);
}

SCENE(networks, v6_ddpctl, V6, .program = "member say:up only:3 stop all barrier:epoch-1", .until = "up",
      .after = ask_who_is_missing, .node = { { .exit = 143 }, { .exit = 143 } })

SCENE(networks, v6_training_gives_the_bits_of_one_host, V6, .options = "--nproc_per_node=1",
      .before = train_make_data, .program = TRAIN_TEN_STEPS(v6_training_gives_the_bits_of_one_host),
      .after = train_expect_one_hosts_bits, .node = { { .exit = 0 }, { .exit = 0 } })

#define NAT        .net = HOSTS_NAT
#define TRANSLATED "10.8.1.2|10.9.0.254|ADDRESS_TRANSLATED"

/* All nodes connect to node 0, so the job works. Every node reports once that connections between the other nodes may
 * fail. */
SCENE(networks, nat_is_no_harm_to_who_only_goes_out, NAT, .program = "member sum barrier:end",
      .says = TRANSLATED, .within_ms = CONNECTIONS, .node = { { .exit = 0 }, { .exit = 0 } })

/* These workers open no connection, so only the agents connect to the store. */
SCENE(networks, nat_is_no_harm_to_the_rendezvous, .hosts = 3, NAT, .program = "worker env say:up",
      .node = { { .prints = "WORLD_SIZE=6|MASTER_ADDR=10.9.0.1" },
                { .prints = "[2] RANK=2|MASTER_ADDR=10.9.0.1" },
                { .prints = "[4] RANK=4|MASTER_ADDR=10.9.0.1" } })

/* Two nodes with a router in between do not reach each other. The finding about the router must precede the findings
 * about its consequences. */
SCENE(networks, nat_between_ranks_is_named, .hosts = 3, NAT, .program = "member sum barrier:end",
      .says = "10.9.0.254|ADDRESS_TRANSLATED|at 10.8.1.2|PORTS_CLOSED", .within_ms = 2 * CONNECTIONS,
      .never = "ADDRESS_NOT_UNIQUE", .node = { { .exit = ENDED }, { .exit = ENDED }, { .exit = ENDED } })

static void ask_why(struct play *play)
{
    for (int i = 0; i < 2; i++)
        scene_expect_why(play, i, "10.9.0.1:29500",
                         "warning  node 1 (node1|10.8.1.2|10.9.0.254|ADDRESS_TRANSLATED");
    after_stop_all(play);
}

SCENE(networks, nat_is_known_to_ddpctl, NAT, .until = "up", .after = ask_why,
      .node = { { .exit = 143 }, { .exit = 143 } })

/* Heartbeats pass the router in both directions, and the loss of a node is detected as usual. */
SCENE(networks, nat_hides_no_loss, NAT, .until = "up", .fault = fault_power, .victim = 1,
      .says = "node 1 (node1) is lost: silent", .within_ms = BEATS,
      .node = { { .exit = 125 }, { .exit = KILLED } })
