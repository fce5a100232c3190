/* Node 1 does not reach the store. Long before the timeout, node 1 prints the reason with its code. Node 0 waits, and
 * names node 1. At the timeout, the message names --timeout. */
#include "scene.h"

TestSuite(reach, .timeout = 120);

/* A finding that persists is printed in full only after 8 s, so the timeout must be longer. */
#define SHORT "--timeout=13 "

#define MISSING "node 1 has|NODE_MISSING"

/* Only node 1 has the fault, but both nodes give up in the end. */
#define GIVES_UP(...)                                              \
    {                                                              \
        { .exit = 125, .says = MISSING, .ends = "--timeout" },     \
        {                                                          \
            .exit = 125, .ends = "gives up|--timeout", __VA_ARGS__ \
        }                                                          \
    }

static void drop(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 drop");
}

SCENE(reach, packets_that_are_dropped, .cases = "F02 dropped", .options = SHORT, .before = drop,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "node 0's store at 10.9.0.1:29500|CONNECT_DROPPED"))

static void drop_answers(struct play *play)
{
    host_rules(&play->net->host[1], "add rule inet f in tcp sport 29500 drop");
}

SCENE(reach, answers_that_are_dropped, .cases = "dropped", .options = SHORT, .before = drop_answers,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1:29500|CONNECT_DROPPED"))

static void reject(struct play *play)
{
    host_rules(&play->net->host[0],
               "add rule inet f in iifname eth0 tcp dport 29500 reject with icmpx type admin-prohibited");
}

SCENE(reach, packets_that_are_rejected, .cases = "refused", .options = SHORT, .before = reject,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1:29500|CONNECT_REJECTED"))

static void reset(struct play *play)
{
    host_rules(&play->net->host[0], "add rule inet f in iifname eth0 tcp dport 29500 reject with tcp reset");
}

SCENE(reach, connections_that_are_refused, .cases = "refused", .options = SHORT, .before = reset,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1:29500|CONNECT_REFUSED"))

SCENE(reach, a_master_that_was_never_started, .cases = "F26", .hosts = 3, .options = SHORT,
      .within_ms = CONNECTIONS, .says = "10.9.0.1:29500|CONNECT_REFUSED",
      .node = { { .by_hand = true },
                { .exit = 125, .ends = "gives up|--timeout" },
                { .exit = 125, .ends = "gives up|--timeout" } })

static void unroute(struct play *play)
{
    host_sh(&play->net->host[1], "ip route add unreachable 10.9.0.1/32");
}

SCENE(reach, a_route_that_says_no, .cases = "unroutable", .options = SHORT, .before = unroute,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1|ROUTE_UNREACHABLE"))

static void prohibit(struct play *play)
{
    host_sh(&play->net->host[1], "ip route add prohibit 10.9.0.1/32");
}

SCENE(reach, a_route_that_prohibits, .cases = "unroutable", .options = SHORT, .before = prohibit,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1|ROUTE_PROHIBITED"))

static void lose_route(struct play *play)
{
    host_sh(&play->net->host[1], "ip link set eth0 down");
}

SCENE(reach, no_route_at_all, .cases = "unroutable", .options = SHORT, .before = lose_route,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1|NO_ROUTE"))

static void unplug_master(struct play *play)
{
    host_cable(play->net, 0, false);
}

SCENE(reach, a_machine_that_is_not_there, .cases = "unroutable", .options = SHORT, .before = unplug_master,
      .within_ms = CONNECTIONS, .node = GIVES_UP(.says = "10.9.0.1|HOST_SILENT"))

SCENE(reach, a_master_whose_name_is_unknown, .cases = "F17 name_unknown", .elastic = true,
      .options = "--nnodes=2 --master_addr=not-in-dns-xyz --timeout=13",
      .says = "not-in-dns-xyz|NAME_UNKNOWN", .within_ms = CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .ends = "gives up|--timeout" },
                { .options = "--node_rank=1", .exit = 125, .ends = "gives up|--timeout" } })

static void loopback_name(struct play *play)
{
    host_names(&play->net->host[1], "127.0.0.1 localhost\n127.0.1.1 node0\n");
}

SCENE(reach, a_name_that_means_the_node_itself, .elastic = true,
      .options = "--nnodes=2 --master_addr=node0 --timeout=13", .before = loopback_name,
      .within_ms = CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .says = MISSING },
                { .options = "--node_rank=1", .exit = 125, .says = "127.0.1.1|NAME_IS_LOOPBACK" } })

/* Remove the name of the master, which learn_name() adds later. In a cluster, the name of a pod also becomes known only
 * later. */
static void forget_name(struct play *play)
{
    host_names(&play->net->host[1], "127.0.0.1 localhost\n");
}

static void learn_name(struct play *play)
{
    host_names(&play->net->host[1], "127.0.0.1 localhost\n10.9.0.1 master-0\n");
}

static void know_master(struct play *play)
{
    host_names(&play->net->host[0], "127.0.0.1 localhost\n10.9.0.1 master-0 node0\n");
    forget_name(play);
}

/* Map node 0's name to 127.0.1.1 on node 0 itself, as Debian's installer does. */
static void own_name_is_loopback(struct play *play)
{
    host_names(&play->net->host[0], "127.0.0.1 localhost\n127.0.1.1 node0\n");
}

SCENE(reach, a_name_that_means_node_0_itself_on_node_0, .elastic = true,
      .options = "--nnodes=2 --master_addr=node0", .before = own_name_is_loopback, .within_ms = CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .says = "127.0.1.1|MASTER_NAME_IS_LOOPBACK" },
                { .options = "--node_rank=1",
                  .exit = 125,
                  .says = "node0 reports: |127.0.1.1|[MASTER_NAME_IS_LOOPBACK]" } })

/* Node 0 cannot host the store. The job needs node 1, so node 0 waits until node 1 has received the reason. Node 1
 * starts after 11 s. For a node that the job does not need, node 0 would wait only 10 s. */
SCENE(reach, a_node_that_starts_late_gets_node_0s_reason, .elastic = true,
      .options = "--nnodes=2 --master_addr=node0", .before = own_name_is_loopback,
      .within_ms = 4 * CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .says = "MASTER_NAME_IS_LOOPBACK" },
                { .options = "--node_rank=1",
                  .late_ms = 11000,
                  .exit = 125,
                  .says = "node0 reports: |127.0.1.1|[MASTER_NAME_IS_LOOPBACK]" } })

static void stop_the_wait(struct play *play)
{
    cr_expect(run_until_error(play->node[0], "MASTER_NAME_IS_LOOPBACK", 20000));
    fault_ctrl_c(play);
}

SCENE(reach, ctrl_c_ends_the_wait_for_nodes_without_the_reason, .elastic = true,
      .options = "--nnodes=2 --master_addr=node0", .before = own_name_is_loopback, .fault = stop_the_wait,
      .within_ms = CONNECTIONS, .node = { { .options = "--node_rank=0", .exit = 130 }, { .by_hand = true } })

SCENE(reach, the_wait_for_nodes_without_the_reason_has_a_limit, .elastic = true,
      .options = "--nnodes=2 --master_addr=node0 --timeout=11", .before = own_name_is_loopback,
      .within_ms = CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .says = "MASTER_NAME_IS_LOOPBACK" },
                { .by_hand = true } })

SCENE(reach, a_name_that_comes_late, .cases = "F17", .elastic = true,
      .options = "--nnodes=2 --master_addr=master-0", .before = know_master, .program = "worker say:up",
      .after = learn_name, .within_ms = CONNECTIONS,
      .node = {
          { .options = "--node_rank=0", .says = "rank 1 is missing", .prints = "[1] up" },
          { .options = "--node_rank=1", .says = "node1 cannot resolve 'master-0'", .prints = "[3] up" } })

/* Start a server on the store's port. `python` is the source text of the server. The server's answers do not contain
 * the word "ddprun". */
static void listen_with(struct play *play, const char *python)
{
    const char *argv[] = { "/usr/bin/python3", "-c", python, NULL };
    play->other = host_start(&play->net->host[0], argv, &(struct run_options){ .timeout_ms = 100000 });
    cr_assert(run_until_output(play->other, "listening", 20000));
}

#define SERVER(body)                               \
    "import socket,time\n"                         \
    "s=socket.create_server(('10.9.0.1',29500))\n" \
    "print('listening',flush=True)\n"              \
    "kept=[]\n"                                    \
    "while True:\n"                                \
    " c=s.accept()[0]\n" body

static void web_server(struct play *play)
{
    listen_with(play, SERVER(" c.recv(999)\n c.send(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\n c.close()\n"));
}

static void mute_server(struct play *play)
{
    listen_with(play, SERVER(" kept.append(c)\n"));
}

static void closing_server(struct play *play)
{
    listen_with(play, SERVER(" c.recv(999)\n c.close()\n"));
}

#define ONLY_1(...)                  \
    {                                \
        { .by_hand = true },         \
        {                            \
            .exit = 125, __VA_ARGS__ \
        }                            \
    }

SCENE(reach, a_web_server_on_the_port, .cases = "other_service", .options = SHORT, .before = web_server,
      .within_ms = CONNECTIONS, .node = ONLY_1(.says = "10.9.0.1:29500|HTTP|PORT_IS_HTTP"))

SCENE(reach, a_service_that_says_nothing, .cases = "other_service", .options = SHORT, .before = mute_server,
      .within_ms = CONNECTIONS, .node = ONLY_1(.says = "10.9.0.1:29500|HELLO_UNANSWERED"))

SCENE(reach, a_proxy_that_closes, .cases = "other_service", .options = SHORT, .before = closing_server,
      .within_ms = CONNECTIONS, .node = ONLY_1(.says = "10.9.0.1:29500|HELLO_CLOSED"))

/* Another process has the port of node 0's store. Node 0 names this process at once. Node 1 only finds that no store
 * answers. */
SCENE(reach, a_port_that_is_taken, .cases = "F01", .options = SHORT, .before = mute_server,
      .within_ms = CONNECTIONS,
      .node = { { .exit = 125, .says = "port 29500|python3|PORT_IN_USE", .within_ms = EXITS },
                { .exit = 125, .says = "10.9.0.1:29500|HELLO_UNANSWERED" } })

SCENE(reach, an_address_that_nobody_has, .cases = "F25", .elastic = true,
      .options = "--nnodes=2 --master_addr=10.9.0.77 --timeout=13", .within_ms = CONNECTIONS,
      .node = { { .options = "--node_rank=0", .exit = 125, .says = "10.9.0.77|NO_STORE_HOST" },
                { .options = "--node_rank=1",
                  .exit = 125,
                  .says = "10.9.0.77|HOST_SILENT",
                  .ends = "gives up|--timeout" } })

/* The endpoint is localhost, so each host starts a separate store and runs a separate job of one node. */
SCENE(reach, a_loopback_endpoint, .elastic = true,
      .options = "--nnodes=1:2 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 "
                 "--rdzv_conf=last_call_timeout=1",
      .program = "worker say:up", .within_ms = CONNECTIONS, .says = "localhost|LOOPBACK_ADDRESS|1 of 2 nodes",
      .node = { { .says = "on node0 can|10.9.0.1 (eth0)" }, { .says = "on node1 can|10.9.0.2 (eth0)" } })

/* Give both hosts the bridge docker0 with the same address, which is the job's master address. */
static void add_bridges(struct play *play)
{
    for (int i = 0; i < 2; i++)
        host_sh(&play->net->host[i], "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev "
                                     "docker0 && ip link set docker0 up");
}

SCENE(reach, an_address_that_every_machine_has, .cases = "F11", .elastic = true,
      .options = "--nnodes=2 --master_addr=172.17.0.1 --timeout=13", .before = add_bridges,
      .within_ms = CONNECTIONS,
      .node = {
          { .options = "--node_rank=0", .exit = 125, .says = "172.17.0.1|docker0 on node0|BRIDGE_ADDRESS" },
          { .options = "--node_rank=1", .exit = 125, .says = "172.17.0.1|docker0 on node1|BRIDGE_ADDRESS" } })
