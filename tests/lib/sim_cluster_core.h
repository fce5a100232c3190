/* sim_cluster_core.h -- private to sim_cluster*.c. */
#ifndef TESTS_SIM_CLUSTER_CORE_H
#define TESTS_SIM_CLUSTER_CORE_H

#include "sim_cluster.h"

enum { DELAY_MS = 1, BEAT_MS = 1000 };

enum kind { TO_AGENT, TO_STORE, FROM_STORE, BEAT, USER_STOPS, KILLED, CUT, STORE_GONE };

enum word { W_JOIN, W_FAILED, W_CAUSE, W_DONE, W_STOPPED, W_LEAVE, W_BEAT };

void cluster_schedule(struct cluster *c, struct cluster_event e);

/* An event of the node's own: a process, a clock. */
void cluster_soon(struct cluster *c, int node, uint64_t after_ms, struct agent_event event);

/* A line of the trace. */
void cluster_say(struct cluster *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* What the rendezvous calls, and a word of an agent that arrives at it. */
struct rdzv_env cluster_env(struct cluster *c);
void cluster_hear(struct cluster *c, const struct cluster_event *e);

#endif
