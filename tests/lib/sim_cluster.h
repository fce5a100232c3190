/* sim_cluster.h -- the agents of several nodes and the real rendezvous, on one clock that jumps from event to event.
 *
 * The test sets the behaviour of each node's worker in each attempt, the faults of nodes and the actions of users.
 * cluster_run runs until every node has ended or was killed. The trace contains the messages that arrive, without
 * heartbeats. The line "n1 > failed" is a message from node 1 to the store, and "n0 < stop: failed" is a message from
 * the store to node 0. A message takes a millisecond.
 *
 * Always checked: an agent starts a worker only after it has received a round. When a round begins, no worker of an
 * older round runs on the nodes of the new round. Ranks are dense and unique. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "agent/agent.h"
#include "base/buf.h"
#include "job/rendezvous.h"

enum { CLUSTER_NODES = 8, CLUSTER_EVENTS = 512, CLUSTER_ATTEMPTS = 8 };

/* The behaviour of a node's worker in an attempt. If the struct is zeroed, the worker exits with code 0 after a
 * second. */
struct cluster_worker {
    uint64_t lives_ms; /* ms until the worker ends; 0 means a second; with UINT64_MAX the worker never ends */
    int exit_code;
    uint64_t slow_ms; /* ms from a signal to the end of the worker; SIGKILL ends it at once */
};

struct cluster_node {
    struct agent *agent;
    uint64_t id; /* number of the node's connection */
    struct cluster_worker worker[CLUSTER_ATTEMPTS];
    uint32_t round; /* number of the round that the node received; 0 if none */
    int node_rank;
    bool joined, running, cut, dead, done; /* cut: no message from or to the node arrives */
    uint32_t worker_round;
    int life; /* number of workers that the node has started; events of older workers have smaller values */
    int exit_code;
    bool judged;       /* the node received a verdict "finish" */
    uint64_t ended_ms; /* time at which the node was done */
};

struct cluster_event {
    int kind;
    uint64_t at_ms, order;
    int node, life;
    struct agent_event event;
    uint32_t round;
    int word; /* for a message to the store: its kind; for a new round: the node rank; for a stop: the reason */
};

struct cluster {
    struct rdzv *rdzv;
    struct quota quota;
    int n;
    struct cluster_node node[CLUSTER_NODES];
    struct rdzv_join join; /* what all nodes send when they join */
    struct cluster_event queue[CLUSTER_EVENTS];
    size_t n_queue;
    uint64_t order, now_ms;
    uint32_t rounds; /* number of rounds that have begun */
    bool store_lost;
    unsigned steps;
    struct buf trace;
};

/* Initialize a static job of `n` nodes, which join at 0, 1, 2 ... ms. The test may change `join` and the workers
 * before cluster_run. */
void cluster_init(struct cluster *c, int n, uint32_t max_restarts);
void cluster_free(struct cluster *c);

/* Plan an event at `at_ms`: the user stops a node, a node's launcher is killed, a node loses its network, or the store
 * is lost. */
void cluster_user_stops(struct cluster *c, int node, uint64_t at_ms);
void cluster_kill(struct cluster *c, int node, uint64_t at_ms);
void cluster_cut(struct cluster *c, int node, uint64_t at_ms);
void cluster_lose_store(struct cluster *c, uint64_t at_ms);

void cluster_run(struct cluster *c);

/* Expect that the trace so far equals `trace`. */
void cluster_expect(struct cluster *c, const char *trace);

#endif
