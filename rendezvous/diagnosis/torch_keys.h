/* torch_keys.h -- the purpose of PyTorch's keys: one table, and the reader that finds the row of a key.
 *
 * A user who reads '//worker/attempt_0/default_pg/0/0/3' learns nothing. But the key shows what PyTorch waits for:
 * rank 3's Gloo address, without which init_process_group does not continue. Every report, list and JSON that shows a
 * key uses this table.
 *
 *     /worker/attempt_0/   default_pg/   0//   cpu//     0/3          1.13 to 2.5 begin with the attempt, and have no
 *     (until 2.5)                        group device    tail         device and one slash after the group
 *
 * The tail is compared with the rows: '#' is a number that is a rank, '@' any other number, '*' any text. */
#ifndef RENDEZVOUS_DIAGNOSIS_TORCH_KEYS_H
#define RENDEZVOUS_DIAGNOSIS_TORCH_KEYS_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* The places of a tail: after a process group's path, after that of RPC, or as the whole key. */
#define TORCH_IN_GROUP  1
#define TORCH_IN_RPC    2
#define TORCH_ELSEWHERE 4

/* A name, place, tail; the rank that sets it if the tail does not contain it (-1: not known); what waits for it;
 * text. SETUP: the ranks of a group meet before they begin. START: a rank cannot do its first operation. LATER: all
 * else. Rows of one meaning share a name in JSON. */
/* clang-format off */
#define TORCH_KEYS(X)                                                                                                    \
    X(GLOO_HOST, "gloo_host", TORCH_IN_GROUP | TORCH_IN_RPC, "@/rank_#", -1, SETUP, "rank ${rank}'s host name")          \
    X(GLOO_ADDRESS, "gloo_address", TORCH_IN_GROUP | TORCH_IN_RPC, "@/#", -1, SETUP, "rank ${rank}'s Gloo address")      \
    X(SEQUENCE, "sequence_number", TORCH_IN_GROUP, "SEQ_NUM_STORE_KEY", 0, SETUP, "rank ${rank}'s sequence number")      \
    X(BARRIER_LAST, "setup_barrier", TORCH_IN_GROUP, "store_based_barrier_key:*:last_worker", -1, SETUP,                 \
      "the last rank in the barrier of ${setup}")                                                                        \
    X(BARRIER, "setup_barrier", TORCH_IN_GROUP, "store_based_barrier_key:*", -1, SETUP,                                  \
      "the other ranks in the barrier of ${setup}")                                                                      \
    X(NCCL_ID, "nccl_id", TORCH_IN_GROUP, "@", 0, START, "rank ${rank}'s NCCL id")                                       \
    X(NCCL_PAIR_ID, "nccl_id", TORCH_IN_GROUP, "#:@", -1, START, "rank ${rank}'s NCCL id for rank ${number}")            \
    X(NCCL_ROOT_ID, "nccl_id", TORCH_IN_GROUP, "UniqueNCCLID:@", -1, START, "the NCCL id of root ${number}")             \
    X(NCCL4PY_ID, "nccl_id", TORCH_IN_GROUP, "nccl4py_uid", 0, START, "rank ${rank}'s NCCL id")                          \
    X(NCCL_ABORTED, "nccl_aborted", TORCH_IN_GROUP, "NCCLABORTEDCOMM:*", -1, LATER, "the notice of an aborted NCCL group")     \
    X(SYMMETRIC, "symmetric_memory", TORCH_IN_GROUP, "symmetric_memory-*", -1, START, "addresses of symmetric memory")   \
    X(TRACE_START, "nccl_trace", TORCH_IN_GROUP | TORCH_ELSEWHERE, "*_#_trace_start", -1, LATER,                         \
      "the last operation that rank ${rank} began")                                                                      \
    X(TRACE_END, "nccl_trace", TORCH_IN_GROUP | TORCH_ELSEWHERE, "*_#_trace_end", -1, LATER,                             \
      "the last operation that rank ${rank} ended")                                                                      \
    X(TRANSPORT, "transport", TORCH_IN_GROUP | TORCH_ELSEWHERE, "transport/*/@/@/@/#", -1, START,                        \
      "rank ${rank}'s transport address")                                                                                \
    X(RPC_NAME, "rpc_name", TORCH_IN_RPC, "names/#", -1, SETUP, "rank ${rank}'s name")                                   \
    X(RPC_ADDRESS, "rpc_address", TORCH_IN_RPC, "addrs/*", -1, SETUP, "the address of worker '${name}'")                 \
    X(RPC_STATIC, "rpc_static", TORCH_IN_RPC, "rpcIsStaticGroup", -1, SETUP, "the kind of group of the first worker")    \
    X(RPC_TOKEN, "rpc_token", TORCH_IN_RPC, "RpcGroupManagementToken", -1, LATER, "permission to join or to leave")              \
    X(RPC_DONE, "rpc_token", TORCH_IN_RPC, "Token_for_*", -1, LATER, "'${name}' to join or leave")                 \
    X(CLIENTS, "clients", TORCH_ELSEWHERE, "init/", -1, SETUP, "the count of clients")                                   \
    X(EXCEPTION_DUMP, "exception_dump", TORCH_ELSEWHERE, "exception_dump", -1, LATER, "the notice of a rank that gave up")     \
    X(REMOTE_ERROR, "remote_error", TORCH_IN_GROUP | TORCH_ELSEWHERE, "remote_error:*", -1, LATER,                       \
      "the notice of a rank that gave up")                                                                                     \
    X(DEBUG_SERVER, "debug_server", TORCH_ELSEWHERE, "debug_server/rank#", -1, LATER, "rank ${rank}'s debug server")     \
    X(AGENT_ROLE, "agent_role", TORCH_ELSEWHERE, "*torchelastic/role_info/@", -1, LATER,                                 \
      "the workers of the torchrun agent of node ${number}")                                                                \
    X(AGENT_RANKS, "agent_ranks", TORCH_ELSEWHERE, "*torchelastic/assigned_ranks/@", -1, LATER,                          \
      "the ranks of the torchrun agent of node ${number}")                                                               \
    X(AGENT_END, "agent_end", TORCH_ELSEWHERE, "*torchelastic/agent/terminal_state*", -1, LATER,                         \
      "the end of the other torchrun agents")                                                                            \
    X(LAST_MEMBER, "elastic_barrier", TORCH_ELSEWHERE, "*/last_member", -1, LATER, "the last one in the barrier '${name}'") \
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

enum { TORCH_GROUP_MAX = 48 }; /* length of the name of a group, which may be a hash of 40 digits */

struct torch_key {
    enum torch_key_kind kind;
    struct slice name;           /* the text that '*' stands for, borrowed from the key */
    int64_t rank, number;        /* -1 = none; the rank counts in the group */
    char group[TORCH_GROUP_MAX]; /* "0" is the default group; "" = none */
    bool is_rpc;                 /* from init_rpc, whatever its form */
    bool of_all;                 /* a barrier of every rank of the job, including those outside the group */
};

/* False for a key that is not one of PyTorch's: `out` then has no kind. */
bool torch_key_read(struct slice key, struct torch_key *out);

/* Append "rank 0's NCCL id in group 3"; false when memory is short. */
bool torch_key_put(const struct torch_key *key, struct buf *out);
/* Append "init_process_group", "new_group (group 3)", "init_rpc": the step that needs the key. */
bool torch_key_put_setup(const struct torch_key *key, struct buf *out);

enum torch_when torch_key_when(const struct torch_key *key);
/* True if every rank of the job waits there. */
bool torch_key_is_for_all(const struct torch_key *key);
/* True if two keys belong to the same setup of the same group: their ranks are at the same place of the program. */
bool torch_key_same_setup(const struct torch_key *a, const struct torch_key *b);
/* Fast, for every ADD: is this the counter of a store-based barrier? */
bool torch_key_counts(struct slice key);
/* Beginnings of the keys above, or of their last component, for store_observer; ends with NULL. */
extern const char *const torch_key_prefixes[];
/* Fast: may a group be set up with this key? */
bool torch_key_may_set_up(struct slice key);

/* Return {"kind":"nccl_id","text":"rank 0's NCCL id","group":"0","rank":0}; the caller frees it (cJSON_Delete). NULL
 * when memory is short. */
struct cJSON *torch_key_json(const struct torch_key *key);

/* --- torch notes ------------------------------------------------------------------------------------------ */

/* Notes of the actions of a job's PyTorch ranks while their process groups form.
 *
 * Two facts cannot be found afterwards, so they are recorded when they happen: which ranks were counted in a
 * store-based barrier (torch 1.13 then polls it a hundred times a second instead of waiting), and as which rank a
 * client has published its address. With them a check shows which ranks are missing, and whether more processes take
 * part than there are ranks.
 *
 * Written by torch_observer.c, forgotten with the attempt. */

enum { TORCH_MEETS_MAX = 16, TORCH_MEET_KEY_MAX = 160 };

/* A barrier with at least one count. */
struct torch_meet {
    uint32_t id;  /* 0 = free; later barriers have higher ids */
    uint32_t len; /* hash of the key */
    int64_t count;
    char key[TORCH_MEET_KEY_MAX];
};

/* Embedded in a job, zeroed before first use. The oldest is replaced, because ranks pass barriers one after the
 * other. */
struct torch_meets {
    uint32_t last_id;
    uint32_t owners_asked; /* in this attempt */
    uint32_t repeated; /* 1 + the last rank that has published its address twice in this attempt, 0 = none */
    struct torch_meet meet[TORCH_MEETS_MAX];
};

/* State of a session that has used one of PyTorch's keys. It is separate, because a store may have a hundred thousand
 * idle sessions. */
struct torch_client {
    uint32_t meet;    /* the barrier that it has counted in last, 0 = none */
    uint32_t rank;    /* 1 + the rank of the default group as which it has published its address, 0 = none */
    uint32_t awaited; /* a hash of the key that it last waited for */
    bool polls;       /* its last request read the count of `meet`, which was not complete */
    bool waits;       /* its current or last wait is for one of PyTorch's keys: `awaited` */
    bool asked;       /* agents were asked for its owner in case it is not one of their workers */
    uint64_t since_ms, left_ms; /* start of that wait, and when it last gave up; 0 = it did not */
    uint64_t tried_ms;          /* when it last began or continued a setup; 0 = never */
    struct torch_key key;       /* purpose of the key, without its name */
    char *owner; /* owned: an agent's description of a process that is not a worker; NULL = none */
};

/* Return the notes at *at, allocated on first use. NULL when memory is short: then nothing is recorded, and a check
 * sees less. */
struct torch_client *torch_client_at(struct torch_client **at);
/* Free the notes and reset the pointer to NULL. */
void torch_client_free(struct torch_client **at);

static inline struct slice torch_meet_key(const struct torch_meet *meet)
{
    return slice_of(meet->key, meet->len);
}

/* NULL = not known, or no longer known. */
struct torch_meet *torch_meets_find(struct torch_meets *meets, struct slice key);
const struct torch_meet *torch_meets_of_id(const struct torch_meets *meets, uint32_t id);
/* `key` has TORCH_MEET_KEY_MAX bytes at most. */
struct torch_meet *torch_meets_make(struct torch_meets *meets, struct slice key);

#endif
