/* store_link.h -- the agent's connection to the store: an ordinary TCP client, for a store on any host. If the
 * connection breaks without a FIN from the store, a new connection replaces the broken connection. Each end keeps a
 * frame until the other end confirms this frame, because each frame must arrive exactly once. */
#ifndef LAUNCHER_NET_STORE_LINK_H
#define LAUNCHER_NET_STORE_LINK_H

#include "auth/auth.h"
#include "auth/tls.h"
#include "base/buf.h"
#include "base/limits.h"
#include "ddp/error.h"
#include "net/messages.h"
#include "store/ops.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A request is an opcode, a length and JSON. An answer is a length and JSON. Only the answer to IDENTIFY begins with
 * a status byte. The length is limited in both directions. */

enum { LINK_QUEUE_MAX = 4 << 20 }; /* bytes; ten times the messages for the start and end of 1,000 workers */

/* Requests that are not sent yet. The link owns the bytes. */
struct link_queue {
    struct buf bytes;
    /* full: the queue has exceeded LINK_QUEUE_MAX; no_memory: memory was short; if either of these is true, the queue
     * rejects every later request */
    bool full, no_memory;
};

struct cJSON;
struct store_link;

enum { LINK_DROPPED_MAX = 128 };

/* Callbacks for the store's messages. All arguments except `round` are borrowed until the callback returns. */
struct store_link_calls {
    void (*round)(void *user, struct heard_round *round); /* the callback must free `round` at some time */
    void (*waiting)(void *user, const struct heard_waiting *waiting);
    void (*stop)(void *user, const struct failure *cause);
    void (*verdict)(void *user, const struct heard_verdict *verdict);
    /* Called with the push "findings". */
    void (*findings)(void *user, const struct cJSON *push);
    /* Called when the store has accepted the join. If `spare` is true, a round is running, and this node waits for
     * the next round. `store_ms` is the time of the store's clock. `instance` identifies this start of the job. */
    void (*joined)(void *user, bool spare, const char *instance, uint64_t store_ms);
    /* Called with an event of the store, for the event log. `event` is an object of base/events.h. */
    void (*event)(void *user, const struct cJSON *event);
    /* Called when the store rejects this node. `code` is a row of diagnosis/findings.h. `advice` may be "". */
    void (*refused)(void *user, const char *code, const char *why, const char *advice);
    /* Called before each heartbeat. The owner adds changes of the workers' processes to `beat`. */
    void (*beat)(void *user, struct message_heartbeat *beat);
    /* Called when the store asks which process owns the connection `conn` from `peer` to `store`, both
     * "ADDRESS:PORT". If the process is a worker, the owner of the link answers with encode_vouch. For any
     * other process, the owner of the link answers with encode_owner, but only if `any` is true. */
    void (*who)(void *user, int64_t conn, const char *peer, const char *store, bool any);
    /* Called with the answer to store_link_ask_status. */
    void (*status)(void *user, const struct cJSON *answer);
    /* Called when the store asks for the stacks of `ranks`; "" means all ranks. If `still_ms` is not negative, the
     * store also asks for the flight records of these ranks. The owner answers with encode_sampled. */
    void (*sample)(void *user, int64_t id, const char *ranks, bool is_native, int64_t still_ms);
    /* Called with the push "left_waiting". The push contains one finding: a rank exited early with code 0, gave up a
     * wait, or lost a connection to another node. */
    void (*left_waiting)(void *user, const struct cJSON *push);
    /* Called when the connection is broken, or silent. The owner must then dial the store again. `why` is NULL for a
     * silent connection. If this callback is NULL, the link is lost instead. */
    void (*broken)(void *user, const char *why);
    /* Called when the old connection works again, or when a new connection works. The owner then ends the dial that
     * the callback `broken` has begun. */
    void (*restored)(void *user);
    /* Called at most once, after a failure that no new connection can repair. The call is made from the loop or from
     * store_link_resume. */
    void (*lost)(void *user, const char *why);
};

/* The details of a lost link or a silent store. */
struct link_fate {
    /* Why the store has dropped this node, such as "silent for 3.0 s"; "" if the store has not dropped this
     * node. */
    char dropped[LINK_DROPPED_MAX];
    uint64_t stood_ms; /* how long this process was paused before the loss; 0 if not paused */
    bool is_silent;    /* the store was silent, or a timeout of TCP has ended the connection */
    bool is_unheard;   /* the connection ended before the store had answered IDENTIFY */
    /* Details of a TCP segment that the kernel has sent several times, because the store's host has not acknowledged
     * the segment. Both numbers are 0 if there is no such segment. */
    int stuck_bytes; /* maximum size of a segment on this connection, in bytes */
    int stuck_times; /* how often the kernel has sent the oldest unacknowledged segment */
};

struct store_link_options {
    uv_loop_t *loop;
    /* owned by the link: a connected socket on which dial.h has sent the greeting; -1 to connect to `address` */
    int fd;
    struct tls *tls;     /* from dial.h, owned by the link; NULL if not encrypted */
    const char *address; /* numeric address of the store; copied */
    int port;
    const struct plan *plan; /* borrowed until the link is closed, as is `who.boot_id` */
    struct link_who who;
    uint64_t beat_ms; /* interval of heartbeats, whose answers show that the store runs */
    /* the store is lost after a silence of this time; 0: no limit, for a store in this process */
    uint64_t silent_ms;
    struct store_link_calls calls;
    void *user;
};

/* Start to connect to the store and to join the next round. After DDP_OK the caller owns *out and ends the link with
 * store_link_close. No function of this file blocks. Requests are queued until the connection exists.
 *
 *     connect -> AUTH, if the job has a secret or uses MUNGE -> IDENTIFY as agent -> join -> `round`
 *
 * After the join, the agent sends the messages of messages.h as events occur, and a heartbeat every options.beat_ms. */
ddp_status store_link_open(const struct store_link_options *options, struct store_link **out,
                           struct ddp_err *err);

/* Continue on a new socket, after `broken` was called and the owner has dialed the store (dial.h). The dial has already
 * sent the greeting on this socket. The link owns the socket and `tls`, and closes both if the old connection works
 * again. `own` is the local address of the socket. The token from the join proves that the new connection belongs to
 * this node. */
void store_link_resume(struct store_link *link, int fd, struct tls *tls, const char *own);

/* Join the next round. */
void store_link_join(struct store_link *link);

/* Send a request that was made by a function of messages.h. Add the number of the round, and take ownership of `json`.
 * If `link` is NULL, only free `json`. If the queue becomes too long, the link is lost. */
void store_link_send(struct store_link *link, struct cJSON *json);

/* Queue a request. Within a few milliseconds, the link sends all queued requests together. Otherwise the starts of 256
 * workers would wake the store 256 times. */
void store_link_mention(struct store_link *link, struct cJSON *json);

/* Return the details of a loss or a silence. The details are complete when `lost` or `broken` is called, and valid
 * until the link is closed. */
const struct link_fate *store_link_fate(const struct store_link *link);

/* Request the status of the job. The callback `status` receives the answer. Return false if the store is not
 * connected. */
bool store_link_ask_status(struct store_link *link);

/* Close the link at once. After this call, no callback of the owner is called. The event loop frees the memory later.
 * `link` may be NULL. */
void store_link_close(struct store_link *link);

/* --- state ------------------------------------------------------------------------------------------------ */

/* The link itself, private to store_link.c and its tests. */

enum { LINK_READ_BYTES = 4096, LINK_INSTANCE_MAX = LIMIT_INSTANCE };

/* A socket of the link. A socket that the link has dropped exists until its close callback. */
struct link_wire {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    struct store_link *link; /* NULL if the link no longer uses the socket */
    struct tls *tls;         /* owned; NULL if not encrypted */
    struct buf cipher;       /* with TLS: encrypted bytes that are not yet handed to libuv */
    struct buf sending;      /* libuv uses this buffer until on_written */
    bool connected, writing;
    char chunk[LINK_READ_BYTES];
};

enum link_state { LINK_UP, LINK_BROKEN, LINK_RESUMING };

/* The link has two buffers for sending. libuv uses the bytes of a write until the write is done. Until then, new
 * messages are collected in `out`. */
struct store_link {
    struct store_link_options options;
    char address[ENDPOINT_HOST_MAX]; /* options.address points here */
    enum link_state state;
    struct link_wire *wire; /* NULL without a connection */
    uv_timer_t heartbeat, patience;
    uv_prepare_t before_poll;
    struct link_queue out;       /* requests that were not passed to libuv yet */
    const struct secret *secret; /* the plan's secret, or equal to `unsealed`; NULL if no secret is known */
    struct secret *unsealed;     /* owned; a secret from MUNGE, or NULL */
    struct secret_call *call;    /* owned; unseals the store's credential; NULL if no call runs */
    struct auth auth;            /* state of AUTH, used if `secret` is not NULL */
    /* owned; requests that wait until the store has proved that it has the secret, or NULL */
    struct cJSON *early;
    struct buf in;            /* received and decrypted bytes that are not handled yet */
    uint64_t asked, answered; /* number of requests except IDENTIFY, and number of their answers */
    /* number of the latest `join` among the requests; the answer with this number is the answer to `join` */
    uint64_t asked_join;
    uint64_t begun_join; /* value of asked_join when the latest round began */
    /* requests without an answer, numbered from 1 as in `asked`; empty if the link cannot resume */
    struct kept unanswered;
    char token[LIMIT_TOKEN + 1]; /* from the first join; "" if the link cannot resume */
    uint64_t token_at;           /* number of the request whose answer contained `token` */
    /* number of received answers and pushes, from the answer with the token on */
    uint64_t received;
    uint64_t confirmed; /* value of `received` that was last sent to the store */
    char instance[LINK_INSTANCE_MAX];
    int round; /* number of the latest round; 0 before the first round */
    /* when the last bytes arrived, plus the length of later pauses of this process */
    uint64_t last_received_ms;
    uint64_t beat_at_ms; /* when the next heartbeat is due */
    /* the later of two times: when the last answer arrived, and when the oldest unanswered request was sent */
    uint64_t answered_ms;
    uint64_t stood_ms, woke_ms; /* length and end of the last pause of this process */
    struct link_fate fate;
    char why_broken[128];
    bool welcome; /* the store has accepted IDENTIFY */
    bool closing;
    bool suspect; /* the store is silent, so the owner dials the store again */
    bool urgent;  /* `out` has a message that must not wait */
    bool is_open; /* the store has answered that it has no secret */
    int open_handles;
};

/* Return true if no callback may follow: the link is lost or closed. */
static inline bool link_is_over(const struct store_link *link)
{
    return link->closing || link->options.calls.lost == NULL;
}

#endif
