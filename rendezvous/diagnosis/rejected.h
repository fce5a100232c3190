/* rejected.h -- records for a diagnosis: rejected connections, refused nodes, and the nodes' findings about
 * themselves.
 *
 * Of connections: the client, its address, and the kind of its first bytes.
 *
 * A port that is open to a network receives more than its job: yesterday's launcher, a browser, a health check, a
 * scanner. For a job that does not start they are evidence ("n7 does connect, but speaks TLS"), so they are kept, a
 * row for each source, kind and job. The oldest row is replaced: a scanner costs 64 rows, not memory. */
#ifndef RENDEZVOUS_DIAGNOSIS_REJECTED_H
#define RENDEZVOUS_DIAGNOSIS_REJECTED_H

#include "base/buf.h"
#include "diagnosis/findings.h"
#include "job/rendezvous.h"

#include <stdint.h>

/* kind, its word in JSON, what a person calls it */
#define REJECT_KINDS(X)                                              \
    X(SILENT, "silent", "nothing")                                   \
    X(C10D_1, "c10d_1", "the store protocol of PyTorch 1.13 to 2.1") \
    X(C10D_2, "c10d_2", "the store protocol of PyTorch from 2.2 on") \
    X(OURS, "ddprun", "ddprun's protocol")                           \
    X(HTTP, "http", "HTTP")                                          \
    X(TLS, "tls", "TLS")                                             \
    X(SSH, "ssh", "SSH")                                             \
    X(OTHER, "other", "no protocol of a store")                      \
    X(USER, "user", "not read, because another user owns it")

enum reject_kind {
#define X(name, word, words) REJECT_##name,
    REJECT_KINDS(X)
#undef X
        REJECT_KINDS_N
};

enum {
    REJECTS_MAX = 64,
    REJECT_FIRST_MAX = 8,
    REJECT_SOURCE_MAX = 64,
    REJECT_JOB_MAX = 64,
    REJECT_WHY_MAX = 160
};

struct reject {
    enum reject_kind kind;
    char source[REJECT_SOURCE_MAX];           /* the address, without the port */
    char job[REJECT_JOB_MAX];                 /* that it asked for, "" = none */
    char why[REJECT_WHY_MAX];                 /* of the last time */
    uint8_t first[REJECT_FIRST_MAX], n_first; /* its first bytes, of the last time */
    uint32_t times;
    uint64_t first_ms, last_ms;
    uint64_t told_ms; /* when rejects_note said that it should be logged */
};

struct rejects {
    struct reject row[REJECTS_MAX]; /* `count` of them, in no order */
    uint32_t count;
    uint64_t total;
};

/* The protocol of a connection that begins like this. */
enum reject_kind reject_kind_of(struct slice first);
/* Is it what a node speaks that was started wrongly: with torchrun, or through a proxy? Not a port scanner. */
bool reject_may_be_a_node(enum reject_kind kind);
const char *reject_kind_word(enum reject_kind kind);
const char *reject_kind_words(enum reject_kind kind);

struct reject_facts {
    const char *peer; /* "10.0.0.2:41234" */
    const char *job;  /* NULL = none was named */
    const char *why;
    struct slice first;
    bool is_ours; /* it has introduced itself as a part of ddprun */
    bool is_user; /* it was closed unread, because of its user */
};

/* Count it. True when a line in the log is due: one for each source and minute. */
bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms);

/* --- refusals --------------------------------------------------------------------------------------------- */

/* Nodes that were not let into a job: what the connections above are for clients, these are for agents.
 *
 * An agent that is refused prints why and ends. On the other nodes, which wait for it, that is the answer to "why does
 * node 3 not come?", so the last of them are kept, the same one only once. */

enum { REFUSALS_MAX = 32 };

struct refusal {
    enum rdzv_refused code;
    char job[RDZV_TEXT_MAX], host[RDZV_TEXT_MAX], boot_id[RDZV_TEXT_MAX];
    char sentence[3 * RDZV_WORDS_MAX];
    int32_t node_rank; /* that it asked for, -1 = any */
    int pid;
    uint32_t times;
    uint64_t first_ms, last_ms;
};

/* `count` rows, the oldest gives way. Zeroed before first use. */
struct refusals {
    struct refusal row[REFUSALS_MAX];
    uint32_t count;
};

void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms);

/* --- notices ---------------------------------------------------------------------------------------------- */

/* The nodes' findings about themselves that all nodes should see: limits that are too low, a port that is taken, a
 * neighbour that cannot be reached. The last of them are kept, the same one only once. */

enum { NOTICES_MAX = 16 };

/* Zeroed before first use. */
struct notices {
    struct finding *list; /* owned; room for NOTICES_MAX once there is one */
    uint32_t count, next; /* `next`: where the next one goes when there is no more room */
};

/* `code` is that of another version's table, perhaps: one that is not known here is passed over. */
void notices_add(struct notices *n, const char *code, const char *subject, const char *sentence,
                 const char *advice);
/* `subject` NULL = any. */
bool notices_have(const struct notices *n, enum finding_code code, const char *subject);
void notices_free(struct notices *n);

#endif
