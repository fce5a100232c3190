/* messages.h -- what the agent sends to the store and receives from it: conversion between its structs and the rows
 * of hub/messages.h.
 *
 * The caller owns a request, a JSON tree (cJSON_Delete); the link adds the round. A tree that lacks a member because
 * memory is short is rejected by the store, which names the member. A push is not trusted: an invalid number counts
 * as missing. */
#ifndef LAUNCHER_NET_MESSAGES_H
#define LAUNCHER_NET_MESSAGES_H

#include "agent/agent.h"
#include "hub/messages.h"
#include "plan/plan.h"

#include <stddef.h>

/* The identity of this process, which separates "launched twice on one node" from an earlier launcher. */
struct link_who {
    int pid;
    uint64_t pid_start;
    const char *boot_id; /* borrowed */
    char own[64];        /* our end of the connection to the store, "" = of no interest */
};

/* `instance`: returned by the store at the first join, "" before that. */
cJSON *encode_join(const struct plan *plan, const struct link_who *who, const char *instance);

/* A finding of this node about itself, for all nodes. */
cJSON *encode_notice(const struct finding *finding);

cJSON *encode_started(int rank, int local_rank, int pid, const char *host);
cJSON *encode_exited(int rank, int pid, int exit_code, int signal, bool told);

/* FAILED, or EXPLAIN with more details about the same failure. */
cJSON *encode_failure(enum message_id id, const struct failure *failure);

/* `rank0` -1 = rank 0 is on another node or has no exit code. */
cJSON *encode_stopped(bool unkillable, int max_code, int rank0);
cJSON *encode_leave(int signal, const char *by);

/* Process `pid` of worker `rank` owns the connection `conn`. */
cJSON *encode_vouch(int64_t conn, int rank, int pid);
cJSON *encode_owner(int64_t conn, int pid, const char *words);

cJSON *encode_done(void);

/* The answer to `sample`; `rows` (record/stacks.h) is taken over. */
cJSON *encode_sampled(int64_t id, cJSON *rows, bool is_cut);

/* --- pushes --------------------------------------------------------------------------------------------- */

enum { HEARD_NODES_MAX = LIMIT_LISTED, HEARD_NAME_MAX = 64, HEARD_LIST_MAX = 512 };

struct heard_node {
    int node_rank, nproc;
    int store_port; /* port at which its rank 0 hosts the workers' store; 0 = the launcher hosts it */
    char host[HEARD_NAME_MAX], addr[HEARD_NAME_MAX]; /* cut when longer */
};

/* "round": all nodes have joined, the key space is empty, start the workers. */
struct heard_round {
    int round;    /* from 1 */
    int attempt;  /* rounds of this job before it */
    int restarts; /* restarts that --max_restarts counts */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* the same among the workers of this node's role */
    int n_nodes;              /* nodes in the list; that of a large job is cut */
    struct heard_node nodes[HEARD_NODES_MAX];
};

/* "waiting": the round is not complete yet. */
struct heard_waiting {
    int joined, min, max, spare;
    int64_t left_ms, last_call_ms; /* -1 = there is no such limit */
    char hosts[HEARD_LIST_MAX];    /* nodes that have joined: "n0, n1" */
    char missing[HEARD_LIST_MAX];  /* static jobs, missing node ranks: "1, 3" */
};

/* "verdict": the store's decision about what comes next. */
struct heard_verdict {
    struct agent_verdict what;
    int attempt; /* number of the next round */
    int64_t step,
        best; /* steps that this attempt reached, and the most that any reached; -1 = none reported */
    struct failure cause;
};

/* False when it is not a valid object of its kind: then the peer is not a ddprun store. The round must have room for
 * the `nproc` workers of this node. */
bool decode_round(const cJSON *push, int nproc, struct heard_round *round);
void decode_waiting(const cJSON *push, struct heard_waiting *waiting);
/* Of "findings": the first error that names a cause, "sentence  [CODE]"; "" if all are warnings or counts. */
void decode_first_cause(const cJSON *push, char *out, size_t size);
/* The first finding of a "findings" or "left_waiting"; its texts are borrowed, "" without one. */
void decode_first_finding(const cJSON *push, struct message_finding *first);
/* Round that a "stop" or "verdict" is about, -1 = not given. */
int decode_whose_round(const cJSON *push);
/* The cause of a "stop". */
void decode_stop(const cJSON *push, struct failure *cause);
bool decode_verdict(const cJSON *push, struct heard_verdict *verdict);

/* From a "status": the other nodes that are not done with the round, "node 1 (n1), node 3 (n3)"; "" = none, or not
 * reported. */
void decode_unfinished(const cJSON *status, int node_rank, char out[HEARD_LIST_MAX]);

#endif
