/* torch_keys.h -- the purpose of PyTorch's keys (one table), and facts about PyTorch's ranks while their groups form.
 * Every report, list and JSON object that contains a key uses this table, because '//worker/attempt_0/default_pg/0/0/3'
 * means nothing to a user. But this key shows what PyTorch waits for: the Gloo address of rank 3, which
 * init_process_group needs. */
#ifndef RENDEZVOUS_DIAGNOSIS_TORCH_KEYS_H
#define RENDEZVOUS_DIAGNOSIS_TORCH_KEYS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* The parts of a key:
 *
 *     /worker/attempt_0/   default_pg/   0//     cpu//    0/3
 *     (until torch 2.5)                  group   device   tail
 *
 * A key of torch 1.13 has no device, and only one slash after the group. The part before the tail is the path of a
 * process group, the path of RPC, or nothing: */
#define TORCH_IN_GROUP  1
#define TORCH_IN_RPC    2
#define TORCH_ELSEWHERE 4

/* Columns: name, word in JSON, place, tail, rank, operation, text. In a tail '#' is a number that is a rank, '@' is
 * any other number, and '*' is any text. If the tail has no '#', `rank` is the rank that sets the key; -1 = unknown.
 * The column `operation` is the operation that waits for the key: SETUP (the setup of a group), START (the first
 * operation in a group) or LATER (any other operation).
 *
 * The formats are from torch/csrc/distributed/c10d/ (TCPStore.cpp, ProcessGroupGloo.cpp, ProcessGroupNCCL.cpp),
 * torch/distributed/distributed_c10d.py and torch/distributed/rpc/. */
/* clang-format off */
#define TORCH_KEYS(X)                                                                                                    \
    X(GLOO_HOST, "gloo_host", TORCH_IN_GROUP | TORCH_IN_RPC, "@/rank_#", -1, SETUP, "rank ${rank}'s host name")          \
    X(GLOO_ADDRESS, "gloo_address", TORCH_IN_GROUP | TORCH_IN_RPC, "@/#", -1, SETUP, "rank ${rank}'s Gloo address")      \
    X(SEQUENCE, "sequence_number", TORCH_IN_GROUP, "SEQ_NUM_STORE_KEY", 0, SETUP, "rank ${rank}'s sequence number")      \
    X(BARRIER_LAST, "setup_barrier", TORCH_IN_GROUP, "store_based_barrier_key:*:last_worker", -1, SETUP,                 \
      "the last rank to enter the barrier of ${setup}")                                                                  \
    X(BARRIER, "setup_barrier", TORCH_IN_GROUP, "store_based_barrier_key:*", -1, SETUP,                                  \
      "the other ranks to enter the barrier of ${setup}")                                                                \
    X(NCCL_ID, "nccl_id", TORCH_IN_GROUP, "@", 0, START, "rank ${rank}'s NCCL id")                                       \
    X(NCCL_PAIR_ID, "nccl_id", TORCH_IN_GROUP, "#:@", -1, START, "rank ${rank}'s NCCL id for rank ${number}")            \
    X(NCCL_ROOT_ID, "nccl_id", TORCH_IN_GROUP, "UniqueNCCLID:@", -1, START, "the NCCL id of root ${number}")             \
    X(NCCL4PY_ID, "nccl_id", TORCH_IN_GROUP, "nccl4py_uid", 0, START, "rank ${rank}'s NCCL id")                          \
    X(NCCL_ABORTED, "nccl_aborted", TORCH_IN_GROUP, "NCCLABORTEDCOMM:*", -1, LATER, "the notice of an aborted NCCL group")     \
    X(SYMMETRIC, "symmetric_memory", TORCH_IN_GROUP, "symmetric_memory-*", -1, START, "addresses of symmetric memory")   \
    X(TRACE_START, "nccl_trace", TORCH_IN_GROUP | TORCH_ELSEWHERE, "*_#_trace_start", -1, LATER,                         \
      "the record of rank ${rank}'s last started operation")                                                             \
    X(TRACE_END, "nccl_trace", TORCH_IN_GROUP | TORCH_ELSEWHERE, "*_#_trace_end", -1, LATER,                             \
      "the record of rank ${rank}'s last completed operation")                                                           \
    X(TRANSPORT, "transport", TORCH_IN_GROUP | TORCH_ELSEWHERE, "transport/*/@/@/@/#", -1, START,                        \
      "rank ${rank}'s transport address")                                                                                \
    X(RPC_NAME, "rpc_name", TORCH_IN_RPC, "names/#", -1, SETUP, "rank ${rank}'s name")                                   \
    X(RPC_ADDRESS, "rpc_address", TORCH_IN_RPC, "addrs/*", -1, SETUP, "the address of worker '${name}'")                 \
    X(RPC_STATIC, "rpc_static", TORCH_IN_RPC, "rpcIsStaticGroup", -1, SETUP, "the first worker's group type (static or dynamic)") \
    X(RPC_TOKEN, "rpc_token", TORCH_IN_RPC, "RpcGroupManagementToken", -1, LATER, "permission to join or to leave")              \
    X(RPC_DONE, "rpc_token", TORCH_IN_RPC, "Token_for_*", -1, LATER, "the end of step '${name}'")                        \
    X(CLIENTS, "clients", TORCH_ELSEWHERE, "init/", -1, SETUP, "the count of clients")                                   \
    X(EXCEPTION_DUMP, "exception_dump", TORCH_ELSEWHERE, "exception_dump", -1, LATER, "the notice of a rank that gave up")     \
    X(REMOTE_ERROR, "remote_error", TORCH_IN_GROUP | TORCH_ELSEWHERE, "remote_error:*", -1, LATER,                       \
      "the notice of a rank that gave up")                                                                                     \
    X(DEBUG_SERVER, "debug_server", TORCH_ELSEWHERE, "debug_server/rank#", -1, LATER, "rank ${rank}'s debug server")     \
    X(AGENT_ROLE, "agent_role", TORCH_ELSEWHERE, "*torchelastic/role_info/@", -1, LATER,                                 \
      "the worker count of node ${number}'s torchrun agent")                                                             \
    X(AGENT_RANKS, "agent_ranks", TORCH_ELSEWHERE, "*torchelastic/assigned_ranks/@", -1, LATER,                          \
      "the rank assignment for node ${number}'s torchrun agent")                                                         \
    X(AGENT_END, "agent_end", TORCH_ELSEWHERE, "*torchelastic/agent/terminal_state*", -1, LATER,                         \
      "the end of the other torchrun agents")                                                                            \
    X(LAST_MEMBER, "elastic_barrier", TORCH_ELSEWHERE, "*/last_member", -1, LATER, "the last member to enter the barrier '${name}'") \
    X(MASTER_ADDR, "master", TORCH_ELSEWHERE, "MASTER_ADDR", -1, LATER, "the address of the first node")                 \
    X(MASTER_PORT, "master", TORCH_ELSEWHERE, "MASTER_PORT", -1, LATER, "the port of the first node")
/* clang-format on */

enum torch_key_kind {
    TORCH_KEY_NONE,
#define X(kind, ...) TORCH_KEY_##kind,
    TORCH_KEYS(X)
#undef X
        TORCH_KEY_KINDS
};

enum torch_when { TORCH_LATER, TORCH_START, TORCH_SETUP };

enum { TORCH_GROUP_MAX = 48 }; /* maximum length of a group's name, which may be a hash of 40 digits */

struct torch_key {
    enum torch_key_kind kind;
    struct slice name;           /* the part of the key at the '*' in TORCH_KEYS; borrowed from the key */
    int64_t rank, number;        /* rank: from '#' or column `rank`; number: from '@'; -1 = none */
    char group[TORCH_GROUP_MAX]; /* "0" is the default group; "" = none */
    bool is_rpc;                 /* the key belongs to init_rpc */
    bool of_all; /* all ranks of the job enter this barrier, not only the members of the group */
};

/* Find the row of TORCH_KEYS for a key. If the key is not PyTorch's, set the kind to TORCH_KEY_NONE and return
 * false. */
bool torch_key_read(struct slice key, struct torch_key *out);

/* Append the purpose of the key, such as "rank 0's NCCL id in group 3". Return false if memory is short. */
bool torch_key_append(const struct torch_key *key, struct buf *out);
/* Append the step that needs the key: "init_process_group", "new_group (group 3)" or "init_rpc". */
bool torch_key_append_setup(const struct torch_key *key, struct buf *out);

enum torch_when torch_key_when(const struct torch_key *key);
/* Return true if every rank of the job waits for this key. */
bool torch_key_is_for_all(const struct torch_key *key);
/* Return true if two keys belong to the same setup of the same group. Ranks that wait for two such keys are at the
 * same place of the program. */
bool torch_key_same_setup(const struct torch_key *a, const struct torch_key *b);
/* Return true if a key is the counter of a store-based barrier. The check must be fast, because the store calls
 * this function for every observed ADD. */
bool torch_key_counts(struct slice key);
/* The prefixes of PyTorch's keys, or of the last components of these keys, for store_observer. NULL ends the array. */
extern const char *const torch_key_prefixes[];
/* Return true if PyTorch may set up a group with this key. The check is fast, but the result is true for some other
 * keys, too. */
bool torch_key_may_set_up(struct slice key);

/* Return {"kind":"nccl_id","text":"rank 0's NCCL id","group":"0","rank":0}. The caller frees the object
 * (cJSON_Delete). Return NULL if memory is short. */
struct cJSON *torch_key_json(const struct torch_key *key);

/* --- torch notes ------------------------------------------------------------------------------------------ */

/* Facts about a job's PyTorch ranks while their process groups form.
 *
 * torch_observer.c records two facts in the moment when they occur, because a later check could not find them. The
 * first fact is which clients have increased the counter of a store-based barrier. The second fact is the rank under
 * which a client has published its address. With torch 1.13, clients do not wait for such a barrier in the store, but
 * poll its counter. A check uses these facts to find missing ranks and extra processes.
 *
 * The facts are deleted at the end of the attempt. */

enum { TORCH_MEETS_MAX = 16, TORCH_MEET_KEY_MAX = 160 };

/* A barrier that at least one rank has entered. */
struct torch_meet {
    uint32_t id;  /* 0 = free; a later barrier has a higher id */
    uint32_t len; /* length of `key` */
    int64_t count;
    char key[TORCH_MEET_KEY_MAX];
};

/* The latest barriers of one job. The struct is zeroed before its first use. If `meet` is full, a new barrier replaces
 * the oldest barrier, because ranks pass barriers one after the other. */
struct torch_meets {
    uint32_t last_id;
    uint32_t owners_asked; /* number of questions to agents for the owner of a process in this attempt */
    uint32_t repeated;     /* 1 + the latest rank whose address two processes have published; 0 = none */
    uint64_t repeated_ms;  /* when the second of these processes published the address */
    struct torch_meet meet[TORCH_MEETS_MAX];
};

/* State of a session that has used one of PyTorch's keys. Allocated only for such sessions, to save memory. */
struct torch_client {
    uint32_t meet; /* id of the barrier that the session entered last; 0 = none */
    uint32_t rank; /* 1 + the rank (in the default group) whose address the session has published; 0 = none */
    uint32_t awaited; /* hash of the key that the session last waited for */
    bool polls;       /* the session polls the counter of `meet` until all ranks have arrived */
    bool waits;       /* the present or last wait of the session is for a key of PyTorch */
    bool asked;       /* the store has asked the agents which process owns the connection */
    /* since_ms: start of the wait; left_ms: when the session gave up the wait; 0 = the session has not given up */
    uint64_t since_ms, left_ms;
    uint64_t tried_ms; /* when the session last began or continued a setup; 0 = never */
    /* when the session last entered a barrier or published an address, or first read a barrier's counter; 0 = never */
    uint64_t registered_ms;
    struct torch_key key; /* the awaited key, decoded; key.name is always empty */
    char *owner;          /* owned: an agent's description of a process that is not a worker; NULL = none */
};

/* Return the state at *at, and allocate it in the first call. Return NULL if memory is short. The caller then records
 * nothing. The owner of the pointer *at calls torch_client_free. */
struct torch_client *torch_client_at(struct torch_client **at);
/* Free the state at *at, and set *at to NULL. */
void torch_client_free(struct torch_client **at);

static inline struct slice torch_meet_key(const struct torch_meet *meet)
{
    return slice_of(meet->key, meet->len);
}

/* Find a barrier by its key (torch_meets_find) or by its id (torch_meets_of_id). Return NULL if the barrier was never
 * recorded or was overwritten. `meets` owns all barriers. The pointer is valid until the next torch_meets_make. */
struct torch_meet *torch_meets_find(struct torch_meets *meets, struct slice key);
const struct torch_meet *torch_meets_of_id(const struct torch_meets *meets, uint32_t id);
/* Record a new barrier. `key` has at most TORCH_MEET_KEY_MAX bytes. */
struct torch_meet *torch_meets_make(struct torch_meets *meets, struct slice key);

#endif
