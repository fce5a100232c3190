/* Ranks wait at a barrier or for a key, but a rank on another host never arrives or never sets the key. Long before the
 * timeout, `ddpctl why` on every host reports which rank is missing and why. The error after the timeout reports the
 * same. */
#include "scene.h"

#include <signal.h>
#include <stdlib.h>

TestSuite(waits, .timeout = 120);

#define STORE "10.9.0.1:29500"

static void stop_after(struct play *play, const char *texts)
{
    for (int i = 0; i < 2; i++)
        scene_expect_why(play, i, STORE, texts);
    after_stop_all(play);
}

/* All except rank 3 wait in a barrier; rank 3 does `deed`. */
#define MISSING_RANK(suite, test, which, deed, texts)                                                        \
    static void find_##test(struct play *play)                                                               \
    {                                                                                                        \
        stop_after(play, texts);                                                                             \
    }                                                                                                        \
    SCENE(suite, test, which, .program = "member say:up only:3 " deed " all barrier:epoch-1", .until = "up", \
          .after = find_##test, .node = { { .exit = 143 }, { .exit = 143 } })

MISSING_RANK(waits, a_rank_that_waits_for_a_key, .cases = "elsewhere_key", "key:answer",
             "rank 3|node1|key '/answer'|RANK_WAITS_ELSEWHERE")
MISSING_RANK(waits, a_rank_that_waits_in_another_barrier, .cases = "elsewhere_barrier", "barrier:epoch-2",
             "barrier 'epoch-1'|RANKS_DIVERGED|rank 3|node1|barrier 'epoch-2'|RANK_WAITS_ELSEWHERE")
MISSING_RANK(waits, a_rank_that_is_stopped, .cases = "stopped", "stop",
             "rank 3|stopped (state|node1|RANK_STOPPED")
MISSING_RANK(waits, a_rank_that_computes, .cases = "burns_cpu", "spin", "rank 3|% CPU|node1|RANK_BUSY")
MISSING_RANK(waits, a_rank_that_sleeps, .cases = NULL, "forever", "rank 3|node1|not reached|RANK_MISSING")

/* No user asks for a report. */
SCENE(waits, a_barrier_that_hangs_is_told_unasked, .cases = "elsewhere_key",
      .program = "member say:up only:3 key:answer all barrier:epoch-1",
      .says = "rank 3: connected (node1, pid |key '/answer'|[RANK_WAITS_ELSEWHERE]|barrier 'epoch-1'",
      .within_ms = 30000, .after = after_stop_all, .node = { { .exit = 143 }, { .exit = 143 } })

/* Rank 3 ends with 0 while the other ranks have one more batch. All nodes report this at once, without a request. */
SCENE(waits, a_rank_that_has_exited, .cases = "F36 exited",
      .program = "member say:up only:3 exit:0 all barrier:epoch-1",
      .says = "rank 3 (node1, pid |barrier 'epoch-1'  [RANK_EXITED_EARLY]", .within_ms = EXITS,
      .node = { { .exit = ENDED }, { .exit = ENDED } })

/* Rank 3 leaves before a collective. The collective does not use the store, so the store reports the finding only at
 * the end of the round. */
SCENE(waits, a_rank_that_has_left_a_collective, .cases = "F36",
      .program = "member say:up only:3 exit:0 all sum",
      .says = "rank 3 (node1, pid |a collective  [RANK_EXITED_EARLY]", .within_ms = EXITS,
      .node = { { .exit = 75 }, { .exit = 75 } })

/* The host of the failed rank prints this finding, too. */
#define FAILED "rank 3 on node1 (|node 1, pid |exit 9; stopping |[WORKER_FAILED]"

SCENE(waits, followers_are_no_causes, .cases = "F05 F44",
      .program = "member say:up only:3 sleep:500 err:bang exit:9 all barrier:epoch-1 sum",
      .says = "rank 3 on node1 failed first|exit 9|bang|of rank 3", .within_ms = EXITS,
      .never = "rank 0 on node0 failed first",
      .node = { { .exit = 9, .says = FAILED }, { .exit = 9, .says = FAILED } })

/* A peer dies in a collective between hosts. */
SCENE(waits, a_rank_that_dies_in_a_sum, .program = "member say:up only:3 sleep:500 exit:9 all sum",
      .says = "rank 3 on node1 failed first|exit 9", .within_ms = EXITS,
      .node = { { .exit = 9 }, { .exit = 9 } })

/* Close all ports between the nodes except the store's. */
static void close_ports(struct play *play)
{
    for (int i = 0; i < 2; i++)
        host_rules(&play->net->host[i], "add rule inet f in tcp dport 29500 accept; "
                                        "add rule inet f in tcp sport 29500 accept; "
                                        "add rule inet f in iifname eth0 meta l4proto tcp drop");
}

SCENE(waits, only_the_stores_port_is_open, .cases = "F34", .program = "member sum", .before = close_ports,
      .within_ms = CONNECTIONS, .says = "[PORTS_CLOSED]|failed first|exit 1|at 10.9.0.|DDP_PORT_RANGE",
      .node = { { .exit = ENDED }, { .exit = ENDED } })

/* Lower the limits on node 1. `ddpctl why` must name this node on every host. */
static void lower_limits(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1],
                      "mount -t tmpfs none /sys/class && mkdir -p /sys/class/infiniband/mlx5_0 && "
                      "printf '#!/bin/sh\nulimit -l 64\nulimit -n 30\nexec %s \"$@\"\n' >/run/ddprun && "
                      "chmod +x /run/ddprun",
                      bin("ddprun")));
}

static void find_limits(struct play *play)
{
    for (int i = 0; i < 2; i++)
        scene_expect_why(play, i, STORE, "node1 allows 30 |LIMIT_NOFILE");
    stop_after(play, "node1 allows 64 KiB|LIMIT_MEMLOCK");
}

SCENE(waits, low_limits_of_one_node, .cases = "F52 F53", .hosts = 3, .before = lower_limits,
      .after = find_limits, .within_ms = CONNECTIONS,
      .node = { { .exit = 143, .says = "missing" },
                { .ddprun = "/run/ddprun", .exit = 143, .says = "missing" },
                { .by_hand = true } })

/* Connect as a stranger to the store's port. The stranger does no harm and is reported. */
static void knock(struct play *play)
{
    cr_assert(host_sh(&play->net->host[1],

                      "python3 -c \"import socket; s=socket.create_connection(('10.9.0.1',29500)); "
                      "s.send(b'GET / HTTP/1.0\\\\r\\\\n\\\\r\\\\n'); s.recv(99)\" || true"));
}

static void find_stranger(struct play *play)
{
    stop_after(play, "10.9.0.2|GET /|FOREIGN_CLIENT");
}

SCENE(waits, a_stranger_at_the_port, .cases = "F58", .until = "up", .fault = knock, .after = find_stranger,
      .never = "lost", .node = { { .exit = 143 }, { .exit = 143 } })

SCENE(waits, training_on_two_hosts_gives_the_bits_of_one, .options = "--nproc_per_node=1",
      .before = train_make_data, .program = TRAIN_TEN_STEPS(training_on_two_hosts_gives_the_bits_of_one),
      .after = train_expect_one_hosts_bits, .node = { { .exit = 0 }, { .exit = 0 } })

/* Connect from the address of a sidecar proxy. */
static void knock_as_proxy(struct play *play)
{
    cr_assert(host_sh(
        &play->net->host[0],
        "python3 -c \"import socket; s=socket.create_connection(('10.9.0.1',29500),9,('127.0.0.6',0)); "
        "s.close()\""));
}

static void find_proxy(struct play *play)
{
    stop_after(play, "127.0.0.6|PROXY_BETWEEN");
}

SCENE(waits, a_proxy_between, .cases = "F50", .until = "up", .fault = knock_as_proxy, .after = find_proxy,
      .never = "lost", .node = { { .exit = 143 }, { .exit = 143 } })

/* Limit the queue of new connections to four. */
static void narrow_queue(struct play *play)
{
    cr_assert(host_sh(&play->net->host[0], "echo 4 >/proc/sys/net/core/somaxconn"));
}

static void overflow(struct play *play)
{
    host_signal(&play->net->host[0], "ddprun", SIGSTOP);
    host_sh(&play->net->host[1], "python3 -c \"\nimport socket,time\nall=[]\nfor i in range(20):\n "
                                 "s=socket.socket(); s.setblocking(False)\n"
                                 " s.connect_ex(('10.9.0.1',29500)); all.append(s)\ntime.sleep(.5)\n\"");
    host_signal(&play->net->host[0], "ddprun", SIGCONT);
}

static void find_overflow(struct play *play)
{
    stop_after(play, "ACCEPT_QUEUE_OVERFLOWED");
}

SCENE(waits, a_queue_that_overflows, .cases = "F55", .before = narrow_queue, .options = "--node_timeout=30s",
      .until = "up", .fault = overflow, .after = find_overflow, .never = "lost",
      .node = { { .exit = 143 }, { .exit = 143 } })
