/* rejected.h -- records for a diagnosis: rejected connections, rejected nodes, and the nodes' findings about
 * themselves.
 *
 * A connection's record has its client, its address, and the kind of its first bytes.
 *
 * A port that is open to a network receives more than its job: an old launcher, a browser, a health check, a
 * scanner. If a job does not start they are evidence ("n7 does connect, but speaks TLS"). So they are kept, a
 * row for each source, kind and job. The oldest row is replaced: a scanner costs 64 rows, not memory. */
#ifndef RENDEZVOUS_DIAGNOSIS_REJECTED_H
#define RENDEZVOUS_DIAGNOSIS_REJECTED_H

#include "base/buf.h"
#include "diagnosis/findings.h"
#include "job/rendezvous.h"

#include <stdint.h>

/* kind, its word in JSON, its name for readers */
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
    char job[REJECT_JOB_MAX];                 /* the requested job, "" = none */
    char why[REJECT_WHY_MAX];                 /* ms, of the last occurrence */
    uint8_t first[REJECT_FIRST_MAX], n_first; /* first bytes of the last occurrence */
    uint32_t times;
    uint64_t first_ms, last_ms;
    uint64_t told_ms; /* when rejects_note last requested a log line */
};

struct rejects {
    struct reject row[REJECTS_MAX]; /* `count` rows, in no order */
    uint32_t count;
    uint64_t total;
};

/* Return the protocol of a connection that begins like this. */
enum reject_kind reject_kind_of(struct slice first);
/* True for protocols of a node that was started wrongly (with torchrun, or through a proxy), but not for a port
 * scanner. */
bool reject_may_be_a_node(enum reject_kind kind);
const char *reject_kind_word(enum reject_kind kind);
const char *reject_kind_words(enum reject_kind kind);

struct reject_facts {
    const char *peer; /* "10.0.0.2:41234" */
    const char *job;  /* NULL = the client named none */
    const char *why;
    struct slice first;
    bool is_ours; /* it has sent IDENTIFY as a part of ddprun */
    bool is_user; /* it was closed unread, because of its user id */
};

/* Count the rejection. True if a log line is due: one for each source and minute. */
bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms);

/* --- refusals --------------------------------------------------------------------------------------------- */

/* Nodes that could not join a job: the same records for agents instead of clients.
 *
 * A rejected agent prints the reason and exits. On the waiting nodes the record answers "why does node 3 not join?".
 * So the latest ones are kept, each only once. */

enum { REFUSALS_MAX = 32 };

struct refusal {
    enum rdzv_refused code;
    char job[RDZV_TEXT_MAX], host[RDZV_TEXT_MAX], boot_id[RDZV_TEXT_MAX];
    char sentence[3 * RDZV_WORDS_MAX];
    int32_t node_rank; /* the requested one, -1 = any */
    int pid;
    uint32_t times;
    uint64_t first_ms, last_ms;
};

/* `count` rows; the oldest is replaced. Zeroed before first use. */
struct refusals {
    struct refusal row[REFUSALS_MAX];
    uint32_t count;
};

void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms);

/* --- notices ---------------------------------------------------------------------------------------------- */

/* The nodes' findings about themselves that all nodes should see: limits that are too low, a port that is
 * taken, an unreachable neighbour. The latest ones are kept, each only once. */

enum { NOTICES_MAX = 16 };

/* Zeroed before first use. */
struct notices {
    struct finding *list; /* owned; allocated with room for NOTICES_MAX */
    uint32_t count, next; /* `next`: row to replace when the list is full */
};

/* `code` may be from another version's table: an unknown one is ignored. */
void notices_add(struct notices *n, const char *code, const char *subject, const char *sentence,
                 const char *advice);
/* `subject` NULL = any. */
bool notices_have(const struct notices *n, enum finding_code code, const char *subject);
void notices_free(struct notices *n);

#endif
