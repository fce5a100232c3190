/* rejected.h -- records for a diagnosis: rejected connections, rejected nodes, and the nodes' findings about
 * themselves.
 *
 * The record of a connection has its address, the kind of its protocol, and its first bytes.
 *
 * An open port also receives connections of other programs: an old launcher, a browser, a health check, a scanner. If
 * a job does not start, these connections are evidence ("n7 does connect, but speaks TLS"). The table has one row for
 * each source, kind and job. A full table overwrites its oldest row. */
#ifndef RENDEZVOUS_DIAGNOSIS_REJECTED_H
#define RENDEZVOUS_DIAGNOSIS_REJECTED_H

#include "base/buf.h"
#include "diagnosis/findings.h"
#include "job/rendezvous.h"

#include <stdint.h>

/* columns: kind, word in JSON, name in sentences */
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
    char source[REJECT_SOURCE_MAX];           /* address of the client, without the port */
    char job[REJECT_JOB_MAX];                 /* the requested job, "" = none */
    char why[REJECT_WHY_MAX];                 /* reason of the last rejection */
    uint8_t first[REJECT_FIRST_MAX], n_first; /* first bytes of the last rejected connection */
    uint32_t times;
    uint64_t first_ms, last_ms;
    uint64_t told_ms; /* when rejects_note last requested a log line */
};

struct rejects {
    struct reject row[REJECTS_MAX]; /* `count` rows, not sorted */
    uint32_t count;
    uint64_t total;
};

/* Return the protocol of a connection that begins with these bytes. */
enum reject_kind reject_kind_of(struct slice first);
/* Return true if a wrongly started node may use this protocol, for example torchrun, or ddprun through a proxy. */
bool reject_may_be_a_node(enum reject_kind kind);
const char *reject_kind_word(enum reject_kind kind);
const char *reject_kind_words(enum reject_kind kind);

struct reject_facts {
    const char *peer; /* "10.0.0.2:41234" */
    const char *job;  /* NULL = the client named no job */
    const char *why;
    struct slice first;
    bool is_ours; /* the client has sent IDENTIFY as a part of ddprun */
    bool is_user; /* the connection was closed unread, because it belongs to another user */
};

/* Count a rejection. Return true if a log line is due. Each source gets one line per minute. */
bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms);

/* --- refusals --------------------------------------------------------------------------------------------- */

/* Nodes that were rejected when they joined a job.
 *
 * A rejected agent prints the reason and exits. This record shows the reason on the other nodes, which still wait. */

enum { REFUSALS_MAX = 32 };

struct refusal {
    enum rdzv_refused code;
    char job[RDZV_TEXT_MAX], host[RDZV_TEXT_MAX], boot_id[RDZV_TEXT_MAX];
    char sentence[3 * RDZV_WORDS_MAX];
    int32_t node_rank; /* requested node rank, -1 = any */
    int pid;
    uint32_t times;
    uint64_t first_ms, last_ms;
};

/* `count` rows; a new row replaces the oldest row. Zero the struct before its first use. */
struct refusals {
    struct refusal row[REFUSALS_MAX];
    uint32_t count;
};

void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms);

/* --- notices ---------------------------------------------------------------------------------------------- */

/* Findings of nodes about themselves that all nodes should see: limits that are too low, a port that is in use, an
 * unreachable neighbour. The list keeps the latest findings; an equal finding is kept once. */

enum { NOTICES_MAX = 16 };

/* Zero the struct before its first use. */
struct notices {
    struct finding *list; /* owned; has NOTICES_MAX entries once it is allocated */
    uint32_t count, next; /* `next`: the row to replace if the list is full */
};

/* Add a finding, or replace an equal finding. `code` may be from the table of another version: an unknown code is
 * ignored. */
void notices_add(struct notices *n, const char *code, const char *subject, const char *sentence,
                 const char *advice);
/* Return true if the list has a finding with this code and subject. `subject` NULL = any subject. */
bool notices_have(const struct notices *n, enum finding_code code, const char *subject);
void notices_free(struct notices *n);

#endif
