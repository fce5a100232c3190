/* dial_plan.h -- decides how a node connects to the store, and which messages the user gets. The module is pure: dial.c
 * carries out the steps, and reports each result with its time. */
#ifndef LAUNCHER_NET_DIAL_PLAN_H
#define LAUNCHER_NET_DIAL_PLAN_H

#include "base/buf.h"
#include "base/connector.h"
#include "base/endpoint.h"
#include "base/text.h"
#include "diagnosis/findings.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>

/* The stages in their order. In the stage "route" the kernel chooses a network interface before the first packet. */
#define DIAL_STAGES_LIST(X) \
    X(RESOLVE, "resolve")   \
    X(ROUTE, "route")       \
    X(CONNECT, "connect")   \
    X(HELLO, "hello")

enum dial_stage {
#define X(id, name) STAGE_##id,
    DIAL_STAGES_LIST(X)
#undef X
        DIAL_STAGES
};

/* Errors that have no errno or EAI value. Their numbers are above all errno and EAI values. */
enum dial_error {
    DIAL_LOOPBACK = 10001, /* the name resolves to this machine by mistake */
    /* a loopback address refused the connection, on a node that does not host the store */
    DIAL_REFUSED_HERE,
    HELLO_SILENT,    /* connected, but no byte arrived */
    HELLO_CLOSED,    /* the peer closed or reset the connection before it had sent a byte */
    HELLO_HTTP,      /* the peer is an HTTP server */
    HELLO_TLS,       /* the peer is a TLS server, but not a store */
    HELLO_SSH,       /* the peer is an ssh server */
    HELLO_ENCRYPTED, /* the peer is a store that accepts other hosts only with TLS */
    HELLO_NO_SECRET, /* MUNGE does not deliver the store's secret; dial_met.bytes has the reason */
    HELLO_PLAIN,     /* the peer is a store without TLS, although this node requires TLS */
    HELLO_REJECTED,  /* the TLS handshake has failed */
    HELLO_TORCH,     /* the peer is PyTorch's store, which rejects ddprun's requests */
    HELLO_OTHER      /* the peer is another service */
};

/* The possible failures between a node and the store; the sentences are in diagnosis/findings.h. The first row that
 * matches is reported, so special errors precede general errors.
 *
 * Columns: code, stage where an attempt ended, error (0: any), minimum duration of the stage in ms, sure (waiting
 * rarely helps, so report the finding at once). */

/* clang-format off */
#define DIAL_FINDINGS(X)                                              \
    X(NAME_IS_LOOPBACK, RESOLVE, DIAL_LOOPBACK, 0, true)              \
    X(NAME_UNKNOWN, RESOLVE, EAI_NONAME, 0, false)                    \
    X(RESOLVER_DOWN, RESOLVE, EAI_AGAIN, 0, false)                    \
    X(RESOLVER_SILENT, RESOLVE, ETIMEDOUT, 0, false)                  \
    X(RESOLVE_FAILED, RESOLVE, 0, 0, false)                           \
    X(NO_ROUTE, ROUTE, ENETUNREACH, 0, false)                         \
    X(ROUTE_UNREACHABLE, ROUTE, EHOSTUNREACH, 0, false)               \
    X(ROUTE_PROHIBITED, ROUTE, EACCES, 0, false)                      \
    X(FAMILY_OFF, ROUTE, EADDRNOTAVAIL, 0, false)                     \
    X(ROUTE_FAILED, ROUTE, 0, 0, false)                               \
    X(MASTER_IS_LOOPBACK, CONNECT, DIAL_REFUSED_HERE, 0, false)       \
    X(CONNECT_REFUSED, CONNECT, ECONNREFUSED, 0, false)               \
    X(CONNECT_DROPPED, CONNECT, ETIMEDOUT, 0, false)                  \
    X(HOST_SILENT, CONNECT, EHOSTUNREACH, 1000, false)                \
    X(CONNECT_REJECTED, CONNECT, EHOSTUNREACH, 0, false)              \
    X(NET_UNREACHABLE, CONNECT, ENETUNREACH, 0, false)                \
    X(CONNECT_PROHIBITED, CONNECT, EACCES, 0, false)                  \
    X(NO_DESCRIPTORS, CONNECT, EMFILE, 0, true)                       \
    X(CONNECT_FAILED, CONNECT, 0, 0, false)                           \
    X(HELLO_UNANSWERED, HELLO, HELLO_SILENT, 0, false)                \
    X(HELLO_CLOSED, HELLO, HELLO_CLOSED, 0, false)                       \
    X(PORT_IS_HTTP, HELLO, HELLO_HTTP, 0, true)                       \
    X(STORE_ENCRYPTED, HELLO, HELLO_ENCRYPTED, 0, true)               \
    X(STORE_NOT_ENCRYPTED, HELLO, HELLO_PLAIN, 0, true)               \
    X(TLS_REJECTED, HELLO, HELLO_REJECTED, 0, true)                   \
    X(SECRET_UNKNOWN, HELLO, HELLO_NO_SECRET, 0, true)                \
    X(PORT_IS_TLS, HELLO, HELLO_TLS, 0, true)                         \
    X(PORT_IS_SSH, HELLO, HELLO_SSH, 0, true)                         \
    X(PORT_IS_TORCH, HELLO, HELLO_TORCH, 0, true)                     \
    X(PORT_IS_OTHER_SERVICE, HELLO, HELLO_OTHER, 0, true)                   \
    X(HELLO_FAILED, HELLO, 0, 0, false)
/* clang-format on */

enum { DIAL_HISTORY_MAX = 24, DIAL_BYTES_MAX = 24, DIAL_REASON_MAX = 256 };

struct dial_options {
    const char *host; /* the store's host, as the user wrote it; borrowed, like all texts here */
    int port;
    bool literal;           /* `host` is an address that needs no lookup */
    bool master;            /* this node hosts the store, or should host the store */
    const char *who;        /* name of the store in messages, such as "the store" or "node 0's store" */
    const char *here;       /* name of this node */
    const char *knob;       /* the option that sets `budget_ms`, for messages; NULL if no option sets it */
    const char *note;       /* a line to add to each message that has advice; "" or NULL for no line */
    const char *local_only; /* a warning that follows each message about waiting; "" or NULL for no warning */
    uint64_t budget_ms;     /* duration after which the dial gives up */
    uint64_t open_files;    /* this process's limit of open files; only error texts use it */
    uint32_t seed;          /* seed of the random part of the pauses */
};

/* The failure of an attempt. */
struct dial_met {
    enum dial_stage stage;
    int error;                   /* errno, EAI_*, or enum dial_error */
    uint64_t took_ms;            /* duration of `stage` */
    char address[RACE_TEXT_MAX]; /* address of the peer; "" if the lookup failed */
    /* the first printable bytes of another service's answer; for HELLO_NO_SECRET, the reason */
    char bytes[DIAL_REASON_MAX];
};

/* One row of the history: a finding that was recorded once, or several times in succession. */
struct dial_past {
    enum finding_code finding;
    uint64_t from_ms, to_ms; /* ms since the dial began: when `finding` was recorded first and last */
    unsigned times;          /* how often `finding` was recorded in succession */
};

/* The phases of a dial: one node's attempt to connect to the store, with all retries.
 *
 *     RESOLVING --addresses--> RACING --all failed--> PAUSING --time--> RESOLVING or RACING ...
 *         '--unknown--> PAUSING   '--one answered--> ARRIVED          budget used up: OVER
 *
 * All addresses of a name are tried at overlapping times, and the first address that answers wins (base/race.h). The
 * connection to one address is a runner. The pauses between two races grow from about 20 ms to about 2 s. */
enum dial_phase { DIAL_RESOLVING, DIAL_RACING, DIAL_PAUSING, DIAL_ARRIVED, DIAL_OVER };

struct dial {
    struct dial_options options;
    enum dial_phase phase;
    uint64_t begun_ms; /* start of the dial */
    uint64_t since_ms; /* start of the phase */
    /* In DIAL_PAUSING: end of the pause. In DIAL_RESOLVING: when the lookup must start; UINT64_MAX after the step
     * RESOLVE. */
    uint64_t next_ms;
    uint64_t resolved_ms; /* end of the last successful lookup */
    uint32_t random;      /* state of the random numbers */
    unsigned failed_rounds;
    struct race race;
    char hosts_line[HOSTS_LINE_MAX]; /* first line of /etc/hosts that has the name; "" without such a line */
    bool only_loopback;              /* the name resolves to this machine by mistake */
    struct dial_stage_seen {
        /* tries: number of attempts that began this stage; done: number of attempts that completed this
         * stage */
        unsigned tries, done;
        uint64_t took_ms; /* duration of the stage when it was last completed */
    } seen[DIAL_STAGES];
    char source[RACE_TEXT_MAX]; /* local address of the last connection; "" before the first connection */
    struct dial_met worst;      /* failure at the latest stage in this round; valid if `round_met` */
    bool round_met;             /* an attempt to connect has failed in this round of the dial */
    struct dial_met verdict;    /* the failure that `finding` describes; valid if `finding` is set */
    enum finding_code finding;  /* finding of the last failed round, or of a later slow lookup */
    uint64_t finding_since_ms;  /* when `finding` last changed */
    struct dial_past history[DIAL_HISTORY_MAX];
    unsigned n_past, past_lost; /* n_past: number of rows in `history`; past_lost: number of dropped rows */
    struct dial_printed {       /* the last message to the user */
        uint64_t at_ms;
        enum finding_code finding;
        bool anything; /* the user has got a message in this dial */
        bool in_full;  /* the advice for `finding` was printed, now or in an earlier message */
    } printed;
};

enum dial_do { DIAL_WAIT, DIAL_RESOLVE, DIAL_CONNECT, DIAL_DROP, DIAL_GIVE_UP };

struct dial_step {
    enum dial_do what;
    int runner;     /* for CONNECT: the new runner; for DROP: the runner whose socket must be closed */
    uint64_t at_ms; /* for WAIT: when to call dial_next if no event occurs before that time */
};

/* Begin a dial. The texts of `options` must outlive the dial. */
void dial_begin(struct dial *d, const struct dial_options *options, uint64_t now_ms);

/* Return the next step. The caller carries out the step and calls this function again, until the step is WAIT or
 * GIVE_UP. */
struct dial_step dial_next(struct dial *d, uint64_t now_ms);

/* Process the numeric addresses of the name. At most RACE_ADDRESSES_MAX addresses are used. `hosts_line` is the
 * line of /etc/hosts with the name, or NULL. */
void dial_resolved(struct dial *d, const char *const *addresses, int n, const char *hosts_line,
                   uint64_t now_ms);

/* Record that the lookup has failed. `error` is an EAI value. */
void dial_unresolved(struct dial *d, int error, uint64_t now_ms);

/* Record that a runner has connected from the local address `source` and now sends its greeting. */
void dial_connected(struct dial *d, int runner, const char *source, uint64_t now_ms);

/* Record that a runner has failed in its current stage. `on_the_spot` is true if connect() has failed at once.
 * `answer` contains the received bytes. For HELLO_NO_SECRET, `answer` contains the reason instead. */
void dial_failed(struct dial *d, int runner, bool on_the_spot, int error, struct slice answer,
                 uint64_t now_ms);

/* Record that a store has answered. The caller cancels the other runners. */
void dial_arrived(struct dial *d, int runner, uint64_t now_ms);

/* Restart the time limit of a runner (connection to one address). The caller repeats this while MUNGE unseals the
 * secret, because the peer does not cause this delay. */
void dial_continued(struct dial *d, int runner, uint64_t now_ms);

/* Return the error (enum dial_error) for a service that has sent these first bytes instead of a store's answer. */
int dial_answer_kind(struct slice bytes);

/* Return the name of a finding, such as "CONNECT_REFUSED", or "NO_ANSWER_YET" for FINDING_NONE. The text is
 * constant. */
const char *dial_code(enum finding_code finding);

/* Print the messages that are due now. */
void dial_print_status(struct dial *d, uint64_t now_ms, void (*print)(void *user, const char *words),
                       void *user);

/* Return when to call dial_print_status again if no event occurs. */
uint64_t dial_status_due(const struct dial *d);

/* Append the full report: finding, advice, stages with their times, and history. */
bool dial_report(const struct dial *d, struct buf *out, uint64_t now_ms);

/* --- large packets -------------------------------------------------------------------------------------- */

/* A path may lose large packets, for example in a tunnel with a smaller MTU. A probe sends small and large packets in
 * turn to a closed UDP port of the other node. The kernel of the other node answers with ICMP "port unreachable". */
enum path_size { PATH_SMALL, PATH_LARGE };
struct path_answers {
    int sent[2], answered[2]; /* numbers of packets, indexed by enum path_size */
    bool is_reported; /* a router has reported a smaller MTU, to which the kernel adapts all connections */
    bool has_error;   /* the kernel has reported another error, for example that it cannot send packets */
};

enum path_step { PROBE_SEND_SMALL, PROBE_SEND_LARGE, PROBE_LOSES, PROBE_CARRIES, PROBE_UNKNOWN };

/* Return the next packet to send, or the result. */
enum path_step path_next(const struct path_answers *a);

#endif
