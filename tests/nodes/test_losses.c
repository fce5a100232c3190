/* Nodes are lost, or connections break, while a job runs. If a node is lost, every other node names the host of the
 * lost node, and ends. */
#include "job.h"
#include "scene.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(losses, .timeout = 120);

SCENE(losses, a_killed_launcher_is_named, .cases = "F40 F44", .hosts = 3, .until = "up",
      .fault = fault_kill_launcher, .victim = 1, .says = "node 1 (node1) is lost|NODE_LOST_CLOSED|by ddprun",
      .within_ms = EXITS, .node = { { .exit = 125 }, { .exit = KILLED }, { .exit = 125 } })

SCENE(losses, the_launcher_that_has_the_store_is_named, .until = "up", .fault = fault_kill_launcher,
      .victim = 0, .says = "lost|by ddprun", .within_ms = EXITS,
      .node = { { .exit = KILLED }, { .exit = ENDED } })

SCENE(losses, a_cable_that_is_pulled_is_named_on_both_sides, .until = "up", .fault = fault_cable, .victim = 1,
      .within_ms = BEATS,
      .node = { { .exit = 125, .says = "node 1 (node1) is lost|NODE_LOST_SILENT" },
                { .exit = ENDED, .says = "lost the|at 10.9.0.1:29500" } })

SCENE(losses, a_machine_that_is_switched_off_is_named, .cases = "F40", .hosts = 3, .until = "up",
      .fault = fault_power, .victim = 1, .says = "node 1 (node1) is lost|NODE_LOST_SILENT",
      .within_ms = BEATS, .node = { { .exit = 125 }, { .exit = KILLED }, { .exit = 125 } })

/* With --node_timeout=fast, the message must report a silence of less than 2 s. */
SCENE(losses, fast_takes_half_the_time, .until = "up", .options = "--node_timeout=fast", .fault = fault_power,
      .victim = 1, .says = "node 1 (node1)|silent for 1", .within_ms = BEATS,
      .node = { { .exit = 125 }, { .exit = KILLED } })

SCENE(losses, a_frozen_node_is_lost_and_ends_when_it_thaws, .until = "up", .fault = fault_freeze, .victim = 1,
      .within_ms = BEATS, .after = after_heal,
      .node = { { .exit = 125, .says = "node 1 (node1) is lost|NODE_LOST_SILENT" },
                { .exit = ENDED, .ends = "lost" } })

SCENE(losses, ctrl_c_on_one_node_stops_all, .until = "up", .fault = fault_ctrl_c, .victim = 1,
      .says = "SIGINT", .within_ms = EXITS,
      .node = { { .exit = 130, .says = "node 1 (node1) was" }, { .exit = 130 } })

/* Freeze a node for less than --node_timeout. No job may end because of this. */
static void freeze_shortly(struct play *play)
{
    fault_freeze(play);
    poll(NULL, 0, 1200);
    after_heal(play);
    poll(NULL, 0, 4000);
    after_stop_all(play);
}

SCENE(losses, a_short_freeze_harms_nobody, .until = "up", .fault = freeze_shortly, .victim = 1,
      .never = "lost", .says = "stopped by", .node = { { .exit = 143 }, { .exit = 143 } })

SCENE(losses, a_short_freeze_of_the_store_harms_nobody, .until = "up", .fault = freeze_shortly, .victim = 0,
      .never = "lost", .says = "stopped by", .node = { { .exit = 143 }, { .exit = 143 } })

/* The store is stopped for longer than the nodes' timeout. When the store continues, it must read the messages of the
 * nodes before it decides about the nodes. */
SCENE(losses, a_frozen_store_is_lost_by_the_others, .until = "up", .fault = fault_freeze, .victim = 0,
      .within_ms = BEATS, .after = after_heal,
      .node = { { .exit = ENDED, .ends = "node 1 (node1)" }, { .exit = ENDED, .says = "lost the" } })

SCENE(losses, a_worker_that_fails_on_another_node_is_named_on_all,
      .program = "worker say:up only:3 err:bang exit:7 all forever",
      .says = "rank 3 on node1 failed first|exit 7|stderr   | bang|of rank 3", .within_ms = EXITS,
      .node = { { .exit = 7 }, { .exit = 7 } })

SCENE(losses, a_worker_that_is_killed_is_named_on_all, .program = "worker say:up only:0 raise:9 all forever",
      .says = "rank 0 on node0 failed first|SIGKILL", .within_ms = EXITS,
      .node = { { .exit = 137 }, { .exit = 137 } })

/* Hide the program under a mount. */
static void hide_program(struct play *play)
{
    host_sh(&play->net->host[1], "mount -t tmpfs none %s", bin("tests/prog"));
}

SCENE(losses, a_program_that_one_node_lacks_is_named_on_all, .cases = "F32", .before = hide_program,
      .program = "worker say:up forever", .victim = 1, .says = "rank 2 on node1|be started|of rank 2",
      .within_ms = EXITS,
      .node = { { .exit = 127, .says = "rank 2 on node1|PROGRAM_MISSING_ON_NODE" },
                { .exit = 127, .says = "rank 2 on node1|PROGRAM_MISSING_ON_NODE" } })

/* Drop the packets of one direction. The two ends must not continue with different states of the job. */
static void drop_in(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in iifname eth0 drop");
}

static void drop_out(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f out oifname eth0 drop");
}

SCENE(losses, a_node_that_hears_nothing, .until = "up", .fault = drop_in, .within_ms = BEATS,
      .node = { { .exit = 125, .says = "node 1 (node1) is lost" }, { .exit = ENDED, .says = "lost the" } })

SCENE(losses, a_node_that_is_not_heard, .until = "up", .fault = drop_out, .within_ms = BEATS,
      .node = { { .exit = 125, .says = "node 1 (node1) is lost" }, { .exit = ENDED, .says = "lost the" } })

/* Lose a tenth of all packets. The job becomes slow, but no node is lost. */
static void lose_packets(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in iifname eth0 numgen random mod 100 < 10 drop");
    poll(NULL, 0, 8000);
    after_stop_all(play);
}

SCENE(losses, lost_packets_harm_nobody, .until = "up", .fault = lose_packets, .never = "is lost|lost the",
      .says = "stopped by", .node = { { .exit = 143 }, { .exit = 143 } })

/* --- connections that are made again ---------------------------------------------------------------------- */

/* Node 1's connection breaks for less than --node_timeout, then a worker ends. Messages must arrive exactly once. */

#define AGAIN "--node_timeout=12s"

static void kill_workers(struct play *play, int index)
{
    cr_assert_gt(host_signal(&play->net->host[index], "worker", SIGKILL), 0);
}

static void await_resume(struct play *play)
{
    cr_assert(run_until_error(play->node[1], "works again", 40000), "node 1 has not connected again");
}

static void heal_later(struct play *play)
{
    poll(NULL, 0, 3000);
    host_heal(&play->net->host[0]);
    host_heal(&play->net->host[1]);
}

static void cut_both_ways(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in iifname eth0 drop");
    host_rules(&play->net->host[1], "add rule inet f out oifname eth0 drop");
}

/* Cut the network for more than two heartbeats, so that node 1 dials during the cut. Then drop only the packets of the
 * old connection, so that the node needs a new connection. A single transaction changes the rules. */
static void cut_until_dial(struct play *play)
{
    const struct host *node = &play->net->host[1];
    cr_assert(host_sh(node,
                      "ss -Htn state established dst 10.9.0.1:29500 | sed -E 's/.*10.9.0.2:([0-9]+) .*/\\1/' "
                      ">/run/old_port; [ $(wc -l </run/old_port) = 1 ]"));
    cut_both_ways(play);
    cr_assert(run_until_error(play->node[1], "waiting for node 0's store", 40000));
    cr_assert(host_sh(
        node, "p=$(cat /run/old_port); { for c in in out; do echo flush chain inet f $c; for end in sport "
              "dport; do echo add rule inet f $c tcp $end $p drop; done; done; } | nft -f -"));
    await_resume(play);
    kill_workers(play, 1);
}

SCENE(losses, a_cut_of_two_heartbeats_ends_no_job, .options = "--node_timeout=30s", .until = "up",
      .fault = cut_until_dial, .never = "is lost|lost the", .within_ms = 4 * BEATS,
      .says = "on node1 failed first|SIGKILL", .node = { { .exit = 137 }, { .exit = 137 } })

/* Kill the workers while the connection is cut. */
static void fail_during_a_cut(struct play *play)
{
    cut_both_ways(play);
    kill_workers(play, 1);
    heal_later(play);
}

SCENE(losses, a_failure_during_a_cut_is_reported_after_it, .options = AGAIN, .until = "up",
      .fault = fail_during_a_cut, .never = "is lost|lost the", .within_ms = 3 * BEATS,
      .says = "on node1 failed first|SIGKILL", .node = { { .exit = 137 }, { .exit = 137 } })

/* Send resets to the agent. */
static void reset_to_the_agent(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f out oifname eth0 tcp dport 29500 reject with tcp reset");
    cr_assert(run_until_error(play->node[1], "broke: connection reset by peer", 20000));
    kill_workers(play, 0);
    heal_later(play);
    await_resume(play);
}

SCENE(losses, a_reset_of_the_agent_is_no_loss, .options = AGAIN, .until = "up", .fault = reset_to_the_agent,
      .never = "is lost|lost the", .within_ms = 3 * BEATS, .says = "on node0 failed first|SIGKILL",
      .node = { { .exit = 137 }, { .exit = 137, .ends = "broke: connection reset by peer|works again" } })

/* Send resets to the store only. The agent gets no reset, so it must detect that its connection has become silent. */
static void reset_to_the_store(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f out oifname eth0 tcp sport 29500 reject with tcp reset");
    cr_assert(host_sh(&play->net->host[0],
                      "until [ -z \"$(ss -Htn state established src 10.9.0.1:29500 dst 10.9.0.2)\" ]; "
                      "do sleep 0.1; done"));
    host_heal(&play->net->host[0]);
    await_resume(play);
    kill_workers(play, 1);
}

SCENE(losses, a_reset_of_the_store_is_no_loss, .options = "--node_timeout=9s", .until = "up",
      .fault = reset_to_the_store, .never = "is lost|lost the", .within_ms = 3 * BEATS,
      .says = "on node1 failed first|SIGKILL", .node = { { .exit = 137 }, { .exit = 137 } })

/* Drop the packets of the connection, as a router does after it has forgotten the connection. New connections work. */
static void forget_connection(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in counter"); /* also creates the table f, used below */
    cr_assert(
        host_sh(&play->net->host[1],
                "p=$(ss -Htn state established dst 10.9.0.1:29500 | sed -E 's/.*10.9.0.2:([0-9]+) .*/\\1/'); "
                "for c in out in; do nft add rule inet f $c tcp sport $p drop; "
                "nft add rule inet f $c tcp dport $p drop; done"));
    await_resume(play);
    kill_workers(play, 1);
}

SCENE(losses, a_forgotten_connection_is_made_again, .options = "--node_timeout=9s", .until = "up",
      .fault = forget_connection, .never = "is lost|lost the", .within_ms = 3 * BEATS,
      .says = "on node1 failed first|SIGKILL", .node = { { .exit = 137 }, { .exit = 137 } })

/* Reset every connection from node 1 to the store, until the end of the job. */
static void reset_for_ever(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f out oifname eth0 tcp dport 29500 reject with tcp reset");
    host_rules(&play->net->host[0], "add rule inet f out oifname eth0 tcp sport 29500 reject with tcp reset");
}

SCENE(losses, a_connection_that_stays_broken_is_named, .until = "up", .fault = reset_for_ever,
      .within_ms = BEATS,
      .node = { { .exit = 125, .says = "node 1 (node1) is lost" },
                { .exit = ENDED, .says = "connection broke" } })

/* --- large packets that are lost ---------------------------------------------------------------------------- */

/* Drop packets of more than 600 bytes, like a small MTU without ICMP. Disable segmentation offload, so that the rule
 * sees the length on the wire. */
static void shrink_path(struct play *play)
{
    for (int i = 0; i < 2; i++) {
        cr_assert(host_sh(&play->net->host[i], "ip link set eth0 gso_max_segs 1"));
        host_rules(&play->net->host[i], "add rule inet f in iifname eth0 meta length > 600 drop");
    }
}

SCENE(losses, a_join_that_is_too_large_is_sent_in_small_segments, .before = shrink_path,
      .options = "--timeout=100", .program = "worker say:up only:3 exit:7 all forever",
      .says = "rank 3 on node1 failed first|exit 7", .within_ms = 4 * BEATS,
      .node = { { .exit = 7 }, { .exit = 7, .ends = "PATH_LOSES_LARGE" } })

#define LINE \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

static void shrink_path_later(struct play *play)
{
    shrink_path(play);
    kill_workers(play, 1);
}

SCENE(losses, large_messages_of_a_running_job_are_sent_in_small_segments,
      .options = "--node_timeout=15s --grace=25s",
      .program = "worker err:" LINE LINE LINE LINE LINE LINE LINE LINE " say:up forever", .until = "up",
      .fault = shrink_path_later, .never = "is lost|lost the", .within_ms = 4 * BEATS,
      .says = "on node1 failed first|SIGKILL",
      .node = { { .exit = 137 }, { .exit = 137, .ends = "PATH_LOSES_LARGE" } })

/* Write a script in which rank 2 fails with the error line that PyTorch with Gloo prints after a reset. The line
 * contains the address of node 1, although node 1 still lives. */
static void write_reset(struct play *play)
{
    for (int i = 0; i < 3; i++)
        cr_assert(host_sh(&play->net->host[i],
                          "printf '%%s\n' 'import os, time' 'if os.environ[\"RANK\"] == \"2\":' "
                          "' raise RuntimeError(\"[./gloo/transport/tcp/pair.cc:589] Read error "
                          "[%s]:42921: Connection reset by peer\")' 'time.sleep(100)' >/run/reset.py",
                          play->net->host[1].addr));
}

/* Each node runs this script. The usual program of a scene follows as an argument, which the script ignores. */
#define RESET_OPTIONS "--nproc_per_node=1 /usr/bin/python3 /run/reset.py"

SCENE(losses, a_connection_that_breaks_is_named_by_its_nodes, .hosts = 3, .before = write_reset,
      .options = RESET_OPTIONS, .within_ms = CONNECTIONS,
      .says = "between node 1 (node1)|node 2 (node2)|rank 2|[CONNECTION_BROKE]",
      .never = "failed first|packets", .node = { { .exit = 1 }, { .exit = 1 }, { .exit = 1 } })

/* Drop large packets between nodes 1 and 2, but not between these nodes and the store on node 0. */
static void lose_large_between_workers(struct play *play)
{
    write_reset(play);
    for (int i = 1; i < 3; i++)
        host_rules(&play->net->host[i], "add rule inet f in %s saddr %s meta length > 600 drop",
                   play->scene->net == HOSTS_V6 ? "ip6" : "ip", play->net->host[3 - i].addr);
}

SCENE(losses, a_connection_that_breaks_because_large_packets_are_lost, .hosts = 3,
      .before = lose_large_between_workers, .options = RESET_OPTIONS, .within_ms = CONNECTIONS,
      .says =
          "between node 1 (node1)|node 2 (node2)|rank 2|1500 bytes from node2|to node1|(PATH_LOSES_LARGE)|"
          "[CONNECTION_BROKE]",
      .never = "failed first", .node = { { .exit = 1 }, { .exit = 1 }, { .exit = 1 } })

SCENE(
    losses, a_connection_that_breaks_because_large_packets_of_ipv6_are_lost, .hosts = 3, .net = HOSTS_V6,
    .before = lose_large_between_workers, .options = RESET_OPTIONS, .within_ms = CONNECTIONS,
    .says = "between node 1 (node1)|node 2 (node2)|rank 2|1500 bytes from node2|to node1|[CONNECTION_BROKE]",
    .never = "failed first", .node = { { .exit = 1 }, { .exit = 1 }, { .exit = 1 } })

/* Drop all UDP packets, as a firewall does. The probe then cannot find out whether the path loses large packets. */
static void drop_probes(struct play *play)
{
    lose_large_between_workers(play);
    host_rules(&play->net->host[1], "add rule inet f in iifname eth0 meta l4proto udp drop");
}

SCENE(losses, a_path_without_answers_is_unknown, .hosts = 3, .before = drop_probes, .options = RESET_OPTIONS,
      .within_ms = CONNECTIONS, .says = "between node 1 (node1)|node 2 (node2)|rank 2|[CONNECTION_BROKE]",
      .never = "failed first|packets", .node = { { .exit = 1 }, { .exit = 1 }, { .exit = 1 } })

/* --- with PyTorch ------------------------------------------------------------------------------------------- */

/* Answer each TCP packet from node 2 to node 1 with a reset. Only node 1 has this rule. If node 2 had the same rule for
 * packets from node 1, node 2 would drop the resets, and its ranks would not get them. */
static void reset_between_workers(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in ip saddr %s meta l4proto tcp reject with tcp reset",
               play->net->host[2].addr);
}

/* Gloo's own error is in the log of a rank. The report names the nodes, and names no rank as the first failure. */
Test(losses, a_connection_of_gloo_that_breaks_is_named_by_its_nodes, .timeout = 600)
{
    char options[1024], cwd[512];
    torch_skip_without_libuv();
    torch_skip_sanitized();
    cr_assert_not_null(getcwd(cwd, sizeof(cwd)));
    snprintf(options, sizeof(options),
             "--nproc_per_node=1 --env=GLOO_SOCKET_IFNAME=eth0 --env=OMP_NUM_THREADS=1 %s -u "
             "%s/tests/data/hangs/worker.py broken /run/fifo /run",
             torch_python(), cwd);
    scene_play(&(const struct scene){ .name = "a_connection_of_gloo_that_breaks_is_named_by_its_nodes",
                                      .hosts = 3,
                                      .options = options,
                                      .until = "step done",
                                      .fault = reset_between_workers,
                                      .within_ms = CONNECTIONS,
                                      .says = "between node 1 (node1)|node 2 (node2)|[CONNECTION_BROKE]",
                                      .never = "failed first",
                                      .node = { { .exit = 1 }, { .exit = 1 }, { .exit = 1 } } });
}

/* Drop the probes, and count the probes that node 2 sends. Let rank 0 ignore SIGTERM. So the attempt does not end, and
 * the store sends no verdict before the test kills the store. */
static void drop_probes_and_hold(struct play *play)
{
    drop_probes(play);
    host_rules(&play->net->host[2], "add rule inet f out udp dport 33434 counter");
    cr_assert(host_sh(&play->net->host[0], "printf '%%s\n' 'import signal, time' "
                                           "'signal.signal(signal.SIGTERM, signal.SIG_IGN)' "
                                           "'time.sleep(100)' >/run/reset.py"));
}

static void kill_store_during_probe(struct play *play)
{
    cr_assert(host_sh(&play->net->host[2],
                      "until nft list chain inet f out | grep -q 'packets [1-9]'; do sleep 0.02; done"));
    fault_kill_launcher(play);
}

SCENE(losses, a_store_that_is_lost_during_a_probe, .hosts = 3, .before = drop_probes_and_hold,
      .options = "--grace=60s " RESET_OPTIONS, .fault = kill_store_during_probe, .victim = 0,
      .within_ms = EXITS,
      .node = {
          { .exit = KILLED }, { .exit = ENDED, .says = "lost the" }, { .exit = ENDED, .says = "lost the" } })

/* --- large packets of a hanging job ------------------------------------------------------------------------- */

/* Write a script whose rank 2 sends to rank 1, and a py-spy that shows all ranks in all_reduce. */
static void write_hang(struct play *play)
{
    char cwd[512];
    cr_assert_not_null(getcwd(cwd, sizeof(cwd)));
    for (int i = 0; i < 3; i++)
        cr_assert(host_sh(&play->net->host[i],
                          "mkdir /run/hang && ln -s /usr/bin/python3 /run/hang/python3 && "
                          "ln -s %s/tests/data/hangs/fake_py_spy.py /run/hang/py-spy && "
                          "printf '%%s\n' 'import os, socket, time' 'rank = int(os.environ[\"RANK\"])' "
                          "'peer = socket.create_server((\"\", 4711)) if rank == 1 else None' "
                          "'while rank == 2 and peer is None:' "
                          "' try: peer = socket.create_connection((\"%s\", 4711))' "
                          "' except OSError: time.sleep(0.1)' "
                          "'if rank == 2: peer.sendall(bytes(100000))' "
                          "'time.sleep(1000000)' >/run/hang/hang.py && ip link set eth0 gso_max_segs 1",
                          cwd, play->net->host[1].addr));
    lose_large_between_workers(play);
}

SCENE(losses, a_hang_because_large_packets_are_lost, .hosts = 3, .before = write_hang,
      .options = "--nproc_per_node=1 --hang_timeout=2s",
      .program = "/usr/bin/env CULPRIT=none RECORDS=0 /run/hang/python3 /run/hang/hang.py",
      .within_ms = 4 * BEATS, .says = "between node2 and|(rank 2|10.9.0.2:4711|1500 bytes|[ALL_RANKS_WAIT]",
      .after = after_stop_all, .node = { { .exit = 143 }, { .exit = 143 }, { .exit = 143 } })
