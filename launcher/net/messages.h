/* messages.h -- what the agent says to the store and hears from it, as JSON objects of CONTROL.
 *
 * What the agent tells the store, as JSON objects of CONTROL. Each is the caller's to free with
 * cJSON_Delete; one that lacks a member because memory is short is refused by the store, which says what it lacks. */
#ifndef LAUNCHER_NET_MESSAGES_H
#define LAUNCHER_NET_MESSAGES_H

#include "agent/agent.h"
#include "agent/failure.h"
#include "diagnosis/findings.h"
#include "plan/plan.h"

#include <stddef.h>

struct cJSON;

/* Who this process is: "launched twice on one node" and "yesterday's launcher" are told apart by it. */
struct link_who {
    int pid;
    uint64_t pid_start;
    const char *boot_id; /* borrowed */
    char own[64];        /* our end of the connection to the store, "" = of no interest */
};

/* `instance`: what the store gave with the first join, "" before that. */
struct cJSON *say_join(const struct plan *plan, const struct link_who *who, const char *instance);

/* A finding of this node about itself, for all. */
struct cJSON *say_notice(const struct finding *finding);

struct cJSON *say_started(int rank, int local_rank, int pid, const char *host);
struct cJSON *say_exited(int rank, int pid, int exit_code, int signal);

/* `op` is "failed" or, with more words about the same failure, "cause". */
struct cJSON *say_failure(const char *op, const struct cause *cause, enum no_restart never_again);

/* `rank0` -1 = this node does not have rank 0, or it has no code of its own. */
struct cJSON *say_stopped(bool unkillable, int max_code, int rank0);
struct cJSON *say_leave(int signal, const char *by);

/* The connection `conn` is of process `pid`, which belongs to worker `rank`. */
struct cJSON *say_vouch(int64_t conn, int rank, int pid);
struct cJSON *say_owner(int64_t conn, int pid, const char *words);

/* An object with nothing but an "op". */
struct cJSON *say(const char *op);

/* --- link hear -------------------------------------------------------------------------------------------- */

/* What the store pushes, as structs. Pure: nothing in an object is believed to be there, or to be of the
 * type it should be; numbers that are no sane ones become those that mean "none". */

struct cJSON;

enum { HEARD_NODES_MAX = LIMIT_LISTED, HEARD_NAME_MAX = 64, HEARD_LIST_MAX = 512 };

struct heard_node {
    int node_rank, nproc;
    int store_port; /* at which its rank 0 hosts the workers' store; 0 = the launcher has it */
    char host[HEARD_NAME_MAX], addr[HEARD_NAME_MAX]; /* cut when longer */
};

/* "round": all nodes are there, the key space is empty, start your workers. */
struct heard_round {
    int round;    /* from 1 */
    int attempt;  /* rounds of this job before it */
    int restarts; /* those that --max_restarts counts */
    int node_rank, nnodes, first_rank, world_size;
    int role_rank, role_size; /* the same among the workers of this node's role */
    int n_nodes;              /* in the list; a large job's is cut */
    struct heard_node nodes[HEARD_NODES_MAX];
};

/* "waiting": the round is not complete yet. */
struct heard_waiting {
    int joined, min, max, spare;
    int64_t left_ms, last_call_ms; /* -1 = there is no such limit */
    char hosts[HEARD_LIST_MAX];    /* who is here: "n0, n1" */
    char missing[HEARD_LIST_MAX];  /* static jobs, node ranks that are not: "1, 3" */
};

/* "verdict": what comes next, by the store's decision. */
struct heard_verdict {
    struct agent_verdict what;
    int attempt;        /* of the next round */
    int64_t step, best; /* how far this attempt came, and the furthest that any did; -1 = no worker told */
    struct cause cause;
};

/* False when it is no sane object of its kind: then it is not a store of ours that talks. The round must have room for
 * the `nproc` workers of this node. */
bool hear_round(const struct cJSON *push, int nproc, struct heard_round *round);
void hear_waiting(const struct cJSON *push, struct heard_waiting *waiting);
/* Of "findings": the first error that says why, "sentence  [CODE]"; "" when there is none but warnings and who is missing. */
void hear_first_cause(const struct cJSON *push, char *out, size_t size);
/* The sentence of the first finding, "" when there is none. Borrowed. */
const char *hear_first_sentence(const struct cJSON *push);
const char *hear_first_subject(const struct cJSON *push);
/* Its code, FINDING_NONE when it is none that is known here. */
enum finding_code hear_first_code(const struct cJSON *push);
/* Which round a "stop" or "verdict" is about, -1 = it does not say. */
int hear_whose_round(const struct cJSON *push);
/* The cause of a "stop". */
void hear_stop(const struct cJSON *push, struct cause *cause);
bool hear_verdict(const struct cJSON *push, struct heard_verdict *verdict);

/* Of a "status": the other nodes that are not done with the round, "node 1 (n1), node 3 (n3)"; "" = none, or not told. */
void hear_unfinished(const struct cJSON *status, int node_rank, char out[HEARD_LIST_MAX]);

/* A text member, "" when there is none. Borrowed. */
const char *hear_text(const struct cJSON *object, const char *name);

#endif
