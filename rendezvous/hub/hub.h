/* hub.h -- makes all decisions of the store server, without a socket, a clock or a thread. The server
 * (server/clients.c) passes received bytes and the current time to the hub, so a test can pass any time. The hub calls
 * the server to send bytes or to close a connection. */
#ifndef RENDEZVOUS_HUB_HUB_H
#define RENDEZVOUS_HUB_HUB_H

#include "base/endpoint.h"
#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

/* The hub owns the keys (store.h), the named barriers (barrier.h), the members of each job (members.h), and one session
 * (session.h) for each connection. All calls happen on one thread.
 *
 *     bytes -> hub_receive -> requests_process -> wire -> store | barrier | control -> sink.send(conn, bytes) */
struct hub;
struct secret;

typedef uint64_t conn_id; /* id of a connection, chosen by the server; never 0, and never reused */

/* The reason why this store's host cannot serve its job. Such a store serves no key, and rejects every node that
 * joins. All texts are borrowed. */
struct hub_refusal {
    const char *code, *sentence, *advice; /* texts of a row in diagnosis/findings.h */
    void (*on_refused)(void *user);       /* called for each rejected node */
    void *user;
};

struct hub_limits {
    uint64_t max_bytes;   /* limit of all keys, values, queues and unfinished requests together, in bytes */
    uint64_t max_unread;  /* maximum size of one reply, in bytes */
    uint64_t max_replies; /* maximum size of all unread replies together, in bytes; used by the server */
    uint32_t first_command_ms;   /* time limit in ms from the first byte to the end of the first request */
    uint32_t command_ms;         /* time limit in ms from the first byte to the end of each later request */
    const char *instance;        /* random text that is unique to this hub, at most 32 bytes; borrowed */
    const char *host, *endpoint; /* host and address of the store, for messages: "n0", "n0:29500"; borrowed */
    bool many_jobs;              /* true: any number of named jobs (ddp-rendezvous); false: only one job */
    uint64_t keep_ms; /* with many_jobs: a job is dropped after this many ms without a connection */
    const struct secret *secret; /* borrowed: list of the tenants' secrets; NULL if agents need no secret */
    const char *credential;      /* borrowed: the secret, encrypted by MUNGE; NULL without MUNGE */
    bool guarded; /* hold requests from other hosts until an agent confirms the client (gate.c) */
    /* Maximum number of connections that wait until an agent at their address confirms them. Connections from other
     * addresses do not count. The connections that wait for the TLS handshake have a separate limit of the same size.
     * gate.c raises each of the two limits by PER_RANK for each rank of a job. */
    uint32_t max_unconfirmed;
    const struct hub_refusal *refusal; /* borrowed; NULL if nodes may join */
    /* The version of torch that the store assumes for a client that does not begin with VALIDATE. If true, the client
     * has torch 2.1, where opcode 8 means APPEND. If false, the client has an older torch, until one of its opcodes
     * shows that it has torch 2.1 (store/wire.c). */
    bool dialect_b;
};

#define HUB_LIMITS_DEFAULT                                                                    \
    (struct hub_limits)                                                                       \
    {                                                                                         \
        .max_bytes = 1ull << 30, .max_unread = 64 << 20, .max_replies = 256 << 20,            \
        .first_command_ms = 30000, .command_ms = 300000, .instance = "", .host = "the store", \
        .endpoint = "the store", .keep_ms = 30 * 60 * 1000, .max_unconfirmed = 8192           \
    }

struct shared;

/* The callbacks of the server. A callback must not call the hub. One call of the hub may send bytes to several
 * connections. For example, a SET also answers the clients that wait for the key. */
struct hub_sink {
    void *user;
    /* Sends `bytes` to `conn`. If `holder` is NULL, the bytes are valid only during the call. Otherwise the bytes are
     * valid as long as the server has a reference to `holder` (base/buf.h). */
    void (*send)(void *user, conn_id conn, struct slice bytes, struct shared *holder);
    /* Closes `conn` after all its bytes are written. `why` is one sentence, valid only during the call. The server
     * always logs `why` if `is_news` is true. If `is_news` is false, a similar line was logged shortly before, so the
     * server need not log `why`. The hub has already freed the session, so the server must not call hub_disconnect for
     * this connection. */
    void (*close)(void *user, conn_id conn, const char *why, bool is_news);
    /* Writes the local address of `conn`, "10.0.0.1:29500". If the callback is NULL, the address is unknown. */
    void (*here)(void *user, conn_id conn, char text[static ENDPOINT_TEXT_MAX]);
    /* Logs a line for operators, such as "rank 3 (host, pid 12) connected". NULL if there is no log. */
    void (*log)(void *user, const char *line);
    /* Writes one line of an event log, a JSON object without the wall time (base/events.h). NULL if there is no event
     * log. */
    void (*event)(void *event_user, const char *json);
    void *event_user;
    /* Returns true if a reply of `bytes` may be sent to `conn` now. If `bytes` is 0, the hub asks only whether the
     * client reads its replies. If the result is false, the requests of `conn` wait until the server calls hub_resume.
     * If the callback is NULL, the hub may always reply. */
    bool (*may_reply)(void *user, conn_id conn, uint64_t bytes);
    /* Stops or starts reading from `conn`. The hub stops reading from a stranger (gate.c) that has sent too much, until
     * an agent confirms the stranger. If the callback is NULL, reading never stops. */
    void (*read)(void *user, conn_id conn, bool reads);
    /* Fills `bytes` with random bytes. The hub refuses AUTH if this function is NULL or returns false. */
    bool (*random)(void *user, void *bytes, size_t n);
};

/* Return a new hub, or NULL if memory is short. `limits` and `sink` are copied. */
struct hub *hub_new(const struct hub_limits *limits, const struct hub_sink *sink);
/* Free the hub with all jobs and sessions. The connections stay open, because the server closes them itself. */
void hub_free(struct hub *hub);

/* Add an accepted connection; `peer` ("10.0.0.2:41234") is copied. Return false if memory is short. */
bool hub_connect(struct hub *hub, conn_id conn, const char *peer, uint64_t now_ms);

/* Set the user that owns the connection on this host. Without this call the user is unknown. */
void hub_set_uid(struct hub *hub, conn_id conn, uint32_t uid);

/* Mark the connection as a connection from another host. With hub_limits.guarded, the hub holds the client's requests
 * until gate.c admits the client. */
void hub_set_foreign(struct hub *hub, conn_id conn);

/* Announce that the connection must begin with TLS. Call this function before hub_set_foreign. Until hub_set_secret is
 * called, the connection is a stranger (gate.c) that no agent can confirm. */
void hub_expect_tls(struct hub *hub, conn_id conn);

/* Record that the client has named `job` in the TLS handshake, and has proved that it has `secret`. `job` is "" if the
 * client has named no job. After this call, the session may use only the jobs of the secret's tenant. Only an agent of
 * `job` may confirm the session. */
void hub_set_secret(struct hub *hub, conn_id conn, const struct secret *secret, const char *job,
                    uint64_t now_ms);

/* Append to `out` the answer for a client that requests the credential before the TLS handshake (auth/auth.h). If there
 * is no credential, the answer contains the reason. Return false if the session does not exist or memory is short. */
bool hub_give_credential(struct hub *hub, conn_id conn, struct buf *out);

/* Reject a connection whose bytes the server cannot pass to hub_receive. `bytes` are the last received bytes.
 * `is_ddprun` is true if the client is a ddprun. The waiting nodes get a report if `is_ddprun` is true, or if a node
 * may have sent `bytes`. */
void hub_reject(struct hub *hub, conn_id conn, struct slice bytes, bool is_ddprun, const char *why,
                uint64_t now_ms);

/* Free a file descriptor for a new client, by rejecting a connection that no agent has confirmed. Choose the connection
 * that has been in its present state (gate.c) for the longest time. Consider only connections from the host `address`,
 * such as "10.0.0.2", or from all hosts if `address` is NULL. Return false if no such connection exists. */
bool hub_drop_stranger(struct hub *hub, const char *address, uint64_t now_ms);

/* Return true if the connection has sent at least one complete request. */
bool hub_has_request(struct hub *hub, conn_id conn);

/* Record a connection from `peer` that the server closed without passing it to the hub. Return true if the server
 * should log the connection. */
bool hub_note_refused(struct hub *hub, const char *peer, const char *why, uint64_t now_ms);

/* Process received bytes, which are valid only during the call. The hub copies an incomplete request. */
void hub_receive(struct hub *hub, conn_id conn, struct slice bytes, uint64_t now_ms);

/* Process the waiting requests of a connection that the hub has paused because may_reply returned false. */
void hub_resume(struct hub *hub, conn_id conn, uint64_t now_ms);

/* Remove a closed connection; `why` is the reason ("closed by the peer", "connection reset"). End all waits of the
 * client, including waits in barriers. */
void hub_disconnect(struct hub *hub, conn_id conn, const char *why, uint64_t now_ms);

/* Remove a connection that broke without a FIN, by a reset or a timeout. The network may be the cause, so a node stays
 * in its job until its timeout, and may connect again. */
void hub_cut(struct hub *hub, conn_id conn, const char *why, uint64_t now_ms);

/* Return the time at which hub_tick must be called next, on the clock of `now_ms`; UINT64_MAX means never. Every call
 * above may change this time. */
uint64_t hub_deadline(const struct hub *hub);
/* Do everything that is due. The server must first pass all arrived bytes to the hub, because a node whose bytes are
 * unread seems silent. */
void hub_tick(struct hub *hub, uint64_t now_ms);

/* Return the number of connected agents that have joined a job. */
uint32_t hub_nodes(const struct hub *hub);

/* The counters that the answer to `status` contains. The server sets them. */
enum hub_counter {
    HUB_REFUSED_NO_FD,       /* number of times that clients had to wait for a free file descriptor */
    HUB_CUT_OFF_SLOW_READER, /* number of clients that were dropped because they did not read their replies */
    HUB_ACCEPT_OVERFLOWS,    /* connections that the kernel dropped because the accept queue was full */
    HUB_SOMAXCONN,           /* limit of the accept queue */
    HUB_OPEN_FILES,          /* limit of open files, stored when the process had no free descriptor */
    HUB_COUNTERS
};
/* Add 1 to a counter (hub_count), or set the counter to `value` (hub_set_counter). */
void hub_count(struct hub *hub, enum hub_counter counter);
void hub_set_counter(struct hub *hub, enum hub_counter counter, uint64_t value);

#endif
