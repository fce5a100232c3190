/* sim_cluster.h -- the agents of several nodes and the real rendezvous, on one clock that jumps from event to event.
 *
 * The test sets the workers' behaviour, faults and users' actions; cluster_run runs to the end. The trace has all
 * messages without heartbeats: "n1 > failed" goes to the store, "n0 < stop: failed" comes from it. A message takes a
 * millisecond.
 *
 * Always checked:
 * - an agent starts a worker only in a round
 * - no worker of an older round runs on the nodes of a new round
 * - ranks are dense and unique
 * - each agent ends */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "agent/agent.h"
#include "base/buf.h"
#include "job/rendezvous.h"

enum { CLUSTER_NODES = 8, CLUSTER_EVENTS = 512, CLUSTER_ATTEMPTS = 8 };

/* A worker's behaviour in an attempt. Zeroed: it exits with code 0 after a second. */
struct cluster_worker {
    uint64_t lives_ms; /* ms until the worker ends; 0: a second; UINT64_MAX: never */
    int exit_code;
    uint64_t slow_ms; /* ms from a signal to the end; SIGKILL: at once */
};

struct cluster_node {
    struct agent *agent;
    uint64_t id; /* number of the node's connection */
    struct cluster_worker worker[CLUSTER_ATTEMPTS];
    uint32_t round; /* number of the received round, or 0 */
    int node_rank;
    bool joined, running, cut, dead, done; /* cut: no message from or to the node arrives */
    uint32_t worker_round;
    int life; /* number of started workers; older workers' events have smaller numbers */
    int exit_code;
    bool judged;       /* the node received a verdict "finish" */
    uint64_t ended_ms; /* time of the node's end */
};

struct cluster_event {
    int kind;
    uint64_t at_ms, order;
    int node, life;
    struct agent_event event;
    uint32_t round;
    int word; /* to the store: the kind; a new round: the node rank; a stop: the reason */
};

struct cluster {
    struct rdzv *rdzv;
    struct quota quota;
    int n;
    struct cluster_node node[CLUSTER_NODES];
    struct rdzv_join join; /* join of all nodes */
    struct cluster_event queue[CLUSTER_EVENTS];
    size_t n_queue;
    uint64_t order, now_ms;
    uint32_t rounds; /* number of rounds that have begun */
    bool store_lost;
    unsigned steps;
    struct buf trace;
};

/* Initialize a static job of `n` nodes, which join at 0, 1, 2 ... ms. The test may change `join` and workers before
 * cluster_run. */
void cluster_init(struct cluster *c, int n, uint32_t max_restarts);
void cluster_free(struct cluster *c);

/* Plan an event at `at_ms`: a user's stop, a killed launcher, a lost network or store. */
void cluster_user_stops(struct cluster *c, int node, uint64_t at_ms);
void cluster_kill(struct cluster *c, int node, uint64_t at_ms);
void cluster_cut(struct cluster *c, int node, uint64_t at_ms);
void cluster_lose_store(struct cluster *c, uint64_t at_ms);

void cluster_run(struct cluster *c);

/* Expect that the trace so far equals `trace`. */
void cluster_expect(struct cluster *c, const char *trace);

#endif
