/* messages.h -- converts between the agent's structs and the messages of hub/messages.h. A request is a message of the
 * agent, and a push is a message that the store sends without a request. Hosts also send findings to each other without
 * the store, because a node may not reach the store. */
#ifndef LAUNCHER_NET_MESSAGES_H
#define LAUNCHER_NET_MESSAGES_H

#include "agent/agent.h"
#include "diagnosis/findings.h"
#include "hub/messages.h"
#include "plan/plan.h"

#include <stddef.h>

struct flight_entry;

/* The identity of this process, by which the store detects two launchers on one node. */
struct link_who {
    int pid;
    uint64_t pid_start;  /* start time of this process, in clock ticks since boot */
    const char *boot_id; /* /proc/sys/kernel/random/boot_id; borrowed */
    char own[64];        /* numeric address of this end of the connection to the store; "" if not sent */
    bool resumes;        /* this process connects again and sends `resume` if the connection breaks */
};

/* Each function that encodes a request returns a JSON tree, which the caller owns (cJSON_Delete). If memory is short,
 * the tree is NULL or incomplete. If a request is NULL, the link ends. The store rejects an incomplete request. */

/* Encode a join. `instance` is from the answer to the previous join, or "". */
cJSON *encode_join(const struct plan *plan, const struct link_who *who, const char *instance);

/* Encode a finding of this node about itself. The store sends the finding to all nodes. */
cJSON *encode_notice(const struct finding *finding);

cJSON *encode_started(int rank, int local_rank, int pid, const char *host);

/* Encode the end of a worker. `signal` is 0 if the worker exited by itself. `told` is true if the agent requested
 * this end. */
cJSON *encode_exited(int rank, int pid, int exit_code, int signal, bool told);

cJSON *encode_leave(int signal, const char *by, const char *code);

/* Encode the answer to the store's question `who`: process `pid` of worker `rank` owns the connection `conn`. */
cJSON *encode_vouch(int64_t conn, int rank, int pid);

/* Encode the answer to the store's question `who`: process `pid`, which is not a worker, owns the connection `conn`.
 * `words` describes the process. */
cJSON *encode_owner(int64_t conn, int pid, const char *words);

/* Encode a collective call from a rank's flight record. */
cJSON *encode_flight_call(int rank, const struct flight_entry *call);

/* Encode the answer to the store's request `sample` with the number `id`. The answer owns the arrays `rows`
 * (record/stacks.h) and `calls`. `calls` may be NULL. `is_cut` is true if some rows are missing. */
cJSON *encode_sampled(int64_t id, cJSON *rows, cJSON *calls, bool is_cut);

/* --- pushes --------------------------------------------------------------------------------------------- */

/* In a push, an invalid number counts as missing. */

enum { HEARD_NODES_MAX = LIMIT_LISTED, HEARD_NAME_MAX = 64, HEARD_LIST_MAX = 512 };

struct heard_node {
    int node_rank, nproc;
    /* port on this node for the workers' store, which rank 0 hosts; 0 if the launcher hosts this store */
    int store_port;
    char host[HEARD_NAME_MAX], addr[HEARD_NAME_MAX], own[HEARD_NAME_MAX]; /* longer texts are cut */
};

/* The push "round": all nodes have joined, the store is empty, and the workers can be started. */
struct heard_round {
    int round;    /* number of the round; the first round is 1 */
    int attempt;  /* number of earlier rounds of this job */
    int restarts; /* number of restarts so far that count for --max_restarts */
    int node_rank, nnodes, first_rank, world_size;
    /* role_rank: index of this node's first worker among all workers of its role; role_size: number of these
     * workers */
    int role_rank, role_size;
    int n_nodes; /* number of nodes in `nodes`; the list of a large job is cut */
    struct heard_node nodes[HEARD_NODES_MAX];
};

/* The push "waiting": the round is not complete yet. */
struct heard_waiting {
    int joined, min, max;         /* joined: number of nodes that have joined; min, max: limits of `joined` */
    int spare;                    /* number of nodes that must wait for the next round */
    int64_t left_ms;              /* time until the join timeout; -1 without a limit */
    int64_t last_call_ms;         /* time left for more nodes to join; -1 before enough nodes have joined */
    char hosts[HEARD_LIST_MAX];   /* nodes that have joined: "n0, n1" */
    char missing[HEARD_LIST_MAX]; /* in a static job, the missing node ranks: "1, 3" */
};

/* The push "verdict": the store's decision about the next step of the job. */
struct heard_verdict {
    struct agent_verdict what;
    int attempt;        /* number of the attempt that the next round begins */
    int64_t step, best; /* highest step: `step` in this attempt, `best` in all attempts; -1 if unknown */
    struct failure cause;
    const cJSON *stacks; /* borrowed from the message: rows of all nodes (record/stacks.h), or NULL */
};

/* Decode the push "round" or "waiting". Return false if the push is invalid; the peer is then not a ddprun
 * store. A round must have ranks for the `nproc` workers of this node. */
bool decode_round(const cJSON *push, int nproc, struct heard_round *round);
void decode_waiting(const cJSON *push, struct heard_waiting *waiting);
/* Find the first finding in a push "findings" that explains why the job does not start. Write this finding as
 * "sentence  [CODE]", and return its code. Write "" and return FINDING_NONE if no finding explains this. */
enum finding_code decode_first_cause(const cJSON *push, char *out, size_t size);
/* Decode the first finding of a push "findings" or "left_waiting". The texts are borrowed, or "" if the push has no
 * finding. */
void decode_first_finding(const cJSON *push, struct message_finding *first);

/* List the other nodes that have not finished the round, as "node 1 (n1), node 3 (n3)". `status` is the store's answer
 * to the request "status". Write "" if all other nodes have finished, or if the answer lists no nodes. */
void decode_unfinished(const cJSON *status, int node_rank, char out[HEARD_LIST_MAX]);

/* --- findings between hosts ----------------------------------------------------------------------------- */

/* A node that does not reach the store cannot send its findings through the store. With --hosts, it sends each finding
 * through the socket NEWS_FD to the relay on the same host (remote/relay.c). The relay sends the finding to the
 * starter, the ddprun that the user has started. The starter sends the finding to all other hosts, or only to the first
 * host (pass_finding in remote/starter.c). A finding is one line of JSON of at most NEWS_MAX bytes. */
enum { NEWS_FD = 3, NEWS_MAX = 3900 };

/* Descriptor and path of the library that --ship sends with the program (remote/remote.h). A shipped ddprun
 * loads the library from this descriptor when it starts. */
enum { SHIPPED_LIBRARY_FD = 4 };
#define SHIPPED_LIBRARY "/dev/fd/4"

struct news {
    char host[HEARD_NAME_MAX];
    char code[FINDING_SUBJECT_MAX]; /* code of the finding; "" withdraws the host's earlier finding */
    char sentence[FINDING_TEXT_MAX], advice[FINDING_TEXT_MAX];
    bool ends; /* ddprun on this host exits, so the job cannot begin */
    /* the finding is the reason for the job's end; each relay passes it on, then ends ddprun */
    bool stops;
};

/* Append the finding as one line of JSON, without a newline. Return false if memory is short or the line is too
 * long. */
bool encode_news(const struct news *news, struct buf *out);

/* Decode a line of encode_news. Control characters become '?', because the line is from another host. Return false if
 * the line is invalid. */
bool decode_news(struct slice line, struct news *news);

#endif
