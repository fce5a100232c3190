/* rejected.h -- three lists of the store that a diagnosis reads: rejected connections, rejected nodes, and findings
 * that nodes have sent about themselves. All three lists have a fixed size, so that no client can fill the memory. In a
 * full list, a new row replaces an old row. */
#ifndef RENDEZVOUS_DIAGNOSIS_REJECTED_H
#define RENDEZVOUS_DIAGNOSIS_REJECTED_H

#include "base/buf.h"
#include "diagnosis/findings.h"
#include "job/rendezvous.h"

#include <stdint.h>

/* Columns: kind, word in JSON, name in sentences. */
#define REJECT_KINDS(X)                                              \
    X(SILENT, "silent", "nothing")                                   \
    X(C10D_1, "c10d_1", "the store protocol of PyTorch 1.13 to 2.1") \
    X(C10D_2, "c10d_2", "the store protocol of PyTorch from 2.2 on") \
    X(DDPRUN, "ddprun", "ddprun's protocol")                         \
    X(HTTP, "http", "HTTP")                                          \
    X(TLS, "tls", "TLS")                                             \
    X(SSH, "ssh", "SSH")                                             \
    X(OTHER, "other", "an unknown protocol")                         \
    X(USER, "user", "an unknown protocol, because the store reads nothing from clients of another user")

enum reject_kind {
#define X(name, word, words) REJECT_##name,
    REJECT_KINDS(X)
#undef X
        REJECT_KINDS_N
};

/* Maximum number of rows, and sizes of texts in bytes. */
enum {
    REJECTS_MAX = 64,
    REJECT_FIRST_MAX =
        8, /* how many bytes from the start of a connection are kept; enough to recognize each protocol */
    REJECT_SOURCE_MAX = 64,
    REJECT_JOB_MAX = 64,
    REJECT_WHY_MAX = 160
};

/* The rejected connections with one source, protocol and job. All times are from the store's monotonic clock. */
struct reject {
    enum reject_kind kind;
    char source[REJECT_SOURCE_MAX];           /* address of the client, without the port */
    char job[REJECT_JOB_MAX];                 /* the requested job, or "" if the client named no job */
    char why[REJECT_WHY_MAX];                 /* reason of the last rejection */
    uint8_t first[REJECT_FIRST_MAX], n_first; /* first bytes of the last rejected connection */
    uint32_t times;
    uint64_t first_ms, last_ms;
    uint64_t logged_ms; /* 1 + the time when rejects_note last requested a log line; 0 = never */
};

/* The list of rejected connections. An open port also receives connections of other programs: another launcher, a
 * browser, a health check, a port scanner. If a job does not start, these connections are evidence: "n7 connects, but
 * speaks TLS". If the list is full, a new row replaces the row whose last rejection is the oldest. */
struct rejects {
    struct reject row[REJECTS_MAX]; /* `count` rows, not sorted */
    uint32_t count;
    uint64_t total; /* number of all rejections, with the rejections of overwritten rows */
    uint32_t lines; /* number of log lines that rejects_note has requested since `lines_since_ms` */
    uint64_t lines_since_ms;
};

/* Return the protocol of a connection that begins with these bytes. */
enum reject_kind reject_kind_of(struct slice first);
/* Return true if a client with this protocol may be a node. Such a node was started wrongly, for example with torchrun,
 * or it connects through a proxy. */
bool reject_may_be_a_node(enum reject_kind kind);
/* Return the protocol's word for JSON, such as "http". The texts of a kind are constant. */
const char *reject_kind_word(enum reject_kind kind);
/* Return the protocol's name for sentences, such as "HTTP". */
const char *reject_kind_words(enum reject_kind kind);

/* One rejection, as an argument of rejects_note. The pointers need to be valid only during that call. */
struct reject_facts {
    const char *peer;   /* address and port of the client: "10.0.0.2:41234" */
    const char *job;    /* NULL = the client named no job */
    const char *why;    /* reason for the log and for `ddpctl rejects` */
    struct slice first; /* the first bytes that the client has sent */
    bool is_ddprun;     /* the client is a part of ddprun */
    bool is_user;       /* the connection belongs to another user, so the store did not read from it */
};

/* Count a rejection. Return true if a log line is due. Each source gets at most one line per minute. All sources
 * together get at most REJECTS_MAX lines per minute. */
bool rejects_note(struct rejects *r, const struct reject_facts *what, uint64_t now_ms);

/* --- refusals --------------------------------------------------------------------------------------------- */

/* Nodes that were rejected when they joined a job. A rejected agent exits. The other nodes still wait for this node,
 * and this list shows them why the node was rejected. */

enum { REFUSALS_MAX = 32 };

/* All rejections of one process with one code. */
struct refusal {
    enum rdzv_refused code;
    char job[RDZV_TEXT_MAX], host[RDZV_TEXT_MAX], boot_id[RDZV_TEXT_MAX];
    char addr[REJECT_SOURCE_MAX];      /* address of the node; "" = unknown */
    char sentence[3 * RDZV_WORDS_MAX]; /* the reason, with the values of both nodes (job/admission.c) */
    int32_t node_rank;                 /* requested node rank, -1 = any */
    int pid;
    uint32_t times;
    uint64_t first_ms, last_ms;
};

/* A list of `count` rows. If the list is full, a new row replaces the oldest row. Zero the struct before its first use,
 * and free it with refusals_free(). */
struct refusals {
    /* The struct owns these REFUSALS_MAX rows. The pointer is NULL before the first rejection, because most jobs have
     * no rejection. */
    struct refusal *row;
    uint32_t count;
};

/* Count a rejection of the node that sent `join`. If memory is short, do nothing. */
void refusals_note(struct refusals *r, const struct rdzv_join *join, const struct rdzv_refusal *why,
                   uint64_t now_ms);
/* Remove the rejections of a finished run of `job`. */
void refusals_forget(struct refusals *r, const char *job);
void refusals_free(struct refusals *r);

/* --- notices ---------------------------------------------------------------------------------------------- */

/* Findings that nodes have reported about themselves, such as a limit that is too low. The store shows these findings
 * to all nodes. Two findings with the same code and subject share a row. Only the store and the sender may replace or
 * remove a finding. */

enum { NOTICES_MAX = 16 };

/* The `sender` of a finding of the store itself. If a node leaves the job, its findings get this `sender`, too. Any
 * node may replace such a finding. */
enum { NOTICE_OF_STORE = 0 };

struct notice {
    struct finding finding;
    uint64_t sender; /* connection of the node that has sent the finding, or NOTICE_OF_STORE */
};

/* Zero the struct before its first use. */
struct notices {
    /* Owned; has room for NOTICES_MAX rows once it is allocated. The oldest row is the first. */
    struct notice *list;
    uint32_t count;
};

/* Add a finding, or replace the old finding with the same code and subject. If `sentence` is empty, only remove the old
 * finding. Ignore an unknown code, which another version of ddprun may send. If another node has sent the old
 * finding, change nothing and return false. But the store (NOTICE_OF_STORE) may replace or remove the finding of any
 * node. A finding that the store replaces keeps its old `sender`. */
bool notices_add(struct notices *n, uint64_t sender, const char *code, const char *subject,
                 const char *sentence, const char *advice);
/* Make `to` the sender of all findings of the connection `from`, which has ended or is replaced. `to` is the new
 * connection of the node, or NOTICE_OF_STORE if the node has left. */
void notices_moved(struct notices *n, uint64_t from, uint64_t to);
/* Return true if the list has a finding with this code and subject. If `subject` is NULL, any subject matches. */
bool notices_have(const struct notices *n, enum finding_code code, const char *subject);
void notices_free(struct notices *n);

#endif
