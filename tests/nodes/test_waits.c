/* A barrier or a key that one rank of another host never reaches: who is missing and why is found out at once, by
 * `ddpctl why` on every host, long before a time-out; and in the time-out's words. */
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

/* All but rank 3 wait in a barrier; rank 3 does `deed`. */
#define MISSING_RANK(test, deed, texts)                                                               \
    static void find_##test(struct play *play)                                                        \
    {                                                                                                 \
        stop_after(play, texts);                                                                      \
    }                                                                                                 \
    SCENE(waits, test, .program = "member say:up only:3 " deed " all barrier:epoch-1", .until = "up", \
          .after = find_##test, .node = { { .exit = 143 }, { .exit = 143 } })

MISSING_RANK(a_rank_that_waits_for_a_key, "key:answer", "rank 3|node1|key '/answer'|RANK_WAITS_ELSEWHERE")
MISSING_RANK(a_rank_that_waits_in_another_barrier, "barrier:epoch-2", "epoch-2|epoch-1")
MISSING_RANK(a_rank_that_is_stopped, "stop", "rank 3|stopped (state T)|node1|RANK_STOPPED")
MISSING_RANK(a_rank_that_computes, "spin", "rank 3|computes|node1|RANK_BURNS_CPU")
MISSING_RANK(a_rank_that_sleeps, "forever", "rank 3|node1")

/* F36: it ends well while the others have one more batch. Told to all, at once, without asking. */
SCENE(waits, a_rank_that_has_exited, .program = "member say:up only:3 exit:0 all barrier:epoch-1",
      .says = "rank 3|epoch-1", .within_ms = EXITS, .node = { { .exit = ENDED }, { .exit = ENDED } })

/* F05, F44: who died by himself is named first, and those that fail by his death are no causes. */
SCENE(waits, followers_are_no_causes,
      .program = "member say:up only:3 sleep:500 err:bang exit:9 all barrier:epoch-1 sum",
      .says = "rank 3 on node1 failed first: exit 9|bang|because of rank 3 on node1", .within_ms = EXITS,
      .never = "rank 0 on node0 failed first", .node = { { .exit = 9 }, { .exit = 9 } })

/* A peer's death in a collective between hosts. */
SCENE(waits, a_rank_that_dies_in_a_sum, .program = "member say:up only:3 sleep:500 exit:9 all sum",
      .says = "rank 3 on node1 failed first: exit 9", .within_ms = EXITS,
      .node = { { .exit = 9 }, { .exit = 9 } })

/* F34: the store's port alone is open between the nodes. */
static void close_ports(struct play *play)
{
    for (int i = 0; i < 2; i++)
        host_rules(&play->net->host[i],
                   "add rule inet f in iifname eth0 tcp dport != 29500 tcp sport != 29500 drop");
}

SCENE(waits, only_the_stores_port_is_open, .program = "member sum", .before = close_ports,
      .within_ms = CONNECTIONS, .options = "--timeout=20", .says = "PORTS_CLOSED|node",
      .after = after_stop_all, .node = { { .exit = ENDED }, { .exit = ENDED } })

/* F58: a stranger at the store's port harms nobody, and is found. */
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

SCENE(waits, a_stranger_at_the_port, .until = "up", .fault = knock, .after = find_stranger, .never = "lost",
      .node = { { .exit = 143 }, { .exit = 143 } })

/* The two halves of a job train the same on two hosts as on one. */
SCENE(waits, train_on_two_hosts, .program = "train --help", .node = { { .exit = 0 }, { .exit = 0 } })
