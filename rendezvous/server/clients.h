/* clients.h -- the clients of a store server: their connections, their unsent replies, and the limits for both. The hub
 * makes the decisions, conn.h moves the bytes, and this module connects both. All functions run on the thread of the
 * event loop. */
#ifndef RENDEZVOUS_SERVER_CLIENTS_H
#define RENDEZVOUS_SERVER_CLIENTS_H

#include "base/buf.h"
#include "base/log.h"
#include "hub/hub.h"
#include "server/conn.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct id_slot;

/* A map from numbers to pointers, with lookup in constant time. A number consists of a serial, which never repeats,
 * and the index of a slot. A slot is reused with a new serial, so an old number never finds a new pointer. A zeroed
 * struct is an empty map. */
struct idmap {
    struct id_slot *at; /* owned array of `cap` slots */
    size_t cap;
    size_t count;      /* number of slots in use */
    uint32_t free_top; /* index + 1 of the first free slot; 0 if no slot is free */
    uint64_t serial;   /* the serial that was used last */
};

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Small replies of one turn of the loop. A turn is one pass of the event loop: the loop handles all events that are
 * ready, and then sleeps. The replies are kept in order, and are written together at the end of the turn. If the buffer
 * is full, the kept replies are written earlier.
 *
 * Writing a reply wakes the client that receives it. If the client's processor is idle, the wake-up costs more time
 * than handling many requests. So the first reply of a turn is not kept, but written at once. The client of this first
 * reply then wakes up while the server handles further requests. */

enum {
    REPLIES_MAX = 64,     /* maximum number of kept replies */
    REPLIES_BYTES = 4096, /* maximum total size of the kept replies, in bytes */
};

struct replies {
    uint32_t n, used; /* n: number of kept replies; used: size of all kept replies in bytes */
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* all kept replies, one after the other */
};

/* --- admission -------------------------------------------------------------------------------------------- */

/* Limits for the connections of each source, and the choice of a connection to close if descriptors run out.
 *
 * If the kernel knows the user of a connection, the source is this user. Otherwise the source is an address (for IPv6
 * the /64 network). The limit of a source is a fraction of `max`, and the limit of descriptors determines `max`. If
 * thousands of ranks share one address, the user only has to raise the limit of descriptors. */

enum {
    ADMISSION_SILENT_MS = 1000, /* an older connection that has sent no request may be closed */
    ADMISSION_BUCKETS = 256,    /* number of lists in the hash table of sources */
};

/* The key of a source. Unused bytes of `address` must be zero, because all bytes are compared. */
struct admission_key {
    bool is_uid;
    uint32_t uid;
    uint8_t address[16]; /* IPv4 address as ::ffff:10.0.0.2, or IPv6 address without its last 8 bytes */
};

/* A row of the hash table: a source (a user or an address) with at least one connection. */
struct admission_source {
    LIST_ENTRY(admission_source) link; /* entry in admission.bucket */
    struct admission_key key;
    uint32_t open; /* number of open connections */
};

/* The data about one connection that the admission needs. Each struct client contains one entry. */
struct admission_entry {
    TAILQ_ENTRY(admission_entry) link; /* entry in admission.silent, used if `is_silent` */
    struct admission_source *source;   /* borrowed; NULL if the connection counts for no source */
    uint64_t since_ms;                 /* time of the accept, on the clock of the event loop */
    bool is_silent;                    /* has sent no complete request */
};
TAILQ_HEAD(admission_entries, admission_entry);
LIST_HEAD(admission_sources, admission_source);

struct admission {
    uint32_t max;     /* limit for the connections of all sources together */
    uint32_t self;    /* uid of this process; only `max` limits the connections of this user and of root */
    uint32_t limited; /* number of open connections of all sources other than root and `self` */
    struct admission_sources bucket[ADMISSION_BUCKETS];
    struct admission_entries silent; /* connections that have sent no complete request, oldest first */
};

/* Initialize `a`, which the caller has zeroed. */
void admission_init(struct admission *a, uint32_t max, uint32_t self);

/* Limit of the bytes of replies that a client has not read yet. If a client has more unread bytes than this limit, the
 * server stops reading the client's requests. */
enum { CLIENT_UNREAD_MAX = 1 << 20 };

struct client;
struct tls_context;
TAILQ_HEAD(client_list, client);

struct clients {
    struct hub *hub;            /* borrowed */
    struct conn_host host;      /* shared by the connections of all clients */
    struct idmap map;           /* conn_id -> struct client; owns the clients */
    struct client_list doomed;  /* clients that failed or are slow; closed at the end of the loop's turn */
    struct client_list ending;  /* clients that close after their last replies; the earliest deadline first */
    struct client_list refused; /* clients on other hosts that the hub has closed; otherwise like `ending` */
    unsigned n_refused;         /* number of clients in `refused` */
    struct replies replies;     /* replies that are written at the end of the loop's turn */
    bool has_replied;           /* a reply was written in this turn of the loop */
    struct admission admission;
    uint32_t n_waiting;            /* number of clients whose reply waits for room (client.wants) */
    uint64_t stall_ms;             /* time of the next check_readers; UINT64_MAX if no check is due */
    struct rate_limit dropped;     /* limits how often dropped clients are logged */
    bool log_peers;                /* log every connect, disconnect and drop, without a rate limit */
    const struct tls_context *tls; /* borrowed; if not NULL, clients on other hosts must use TLS */
    /* plain: decrypted bytes of one call; cipher: encrypted bytes. Their memory is kept to save mallocs. */
    struct buf plain, cipher;
    void *user;
    void (*freed)(void *user); /* called after a client was freed */
};

/* Initialize the fields that only clients.c uses. The caller sets the other fields: hub, admission, host.loop,
 * host.max_queue_bytes, host.max_queued_bytes, log_peers, tls, user, freed. */
void clients_init(struct clients *clients);
/* Free the map. At this time no client may exist, so first call clients_end_all and run the loop. */
void clients_free(struct clients *clients);

/* Add the client that is connected to `fd`, and own `fd` from now on. `uid` is the user of the client, or -1 if the
 * user is unknown. If a limit is reached, first close another client, chosen as in clients_close_silent. If no client
 * may be closed, reject the new client: close `fd` and return false, without calling freed(). */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid);

/* Close up to `n` clients to free their descriptors: first clients in the list `refused`, then clients that no agent
 * has confirmed, finally clients that have sent no request. Do not call this function while the hub is running. */
void clients_close_silent(struct clients *clients, unsigned n);

/* Return the callbacks for the hub, without hub_sink.event. The callbacks never call the hub, because the hub is not
 * reentrant. If a connection fails during a callback, its client is removed from the hub at the end of the loop's turn.
 *
 * Near the limit for the unread replies of all clients, a large reply must wait until other clients have read their
 * replies. Meanwhile the server reads no further requests from the waiting client. After the wait, clients.c calls
 * hub_resume. */
struct hub_sink clients_sink(struct clients *clients);

/* Write the replies of this turn of the loop that are still in `replies`, and close the clients in `doomed`. Call this
 * function before the loop sleeps. */
void clients_end_turn(struct clients *clients);

/* Return the time at which clients_tick must be called, or UINT64_MAX if no call is needed. */
uint64_t clients_deadline(const struct clients *clients);
/* Abort clients that have not closed their side in time. If the memory for replies is short, also close clients that do
 * not read their replies. */
void clients_tick(struct clients *clients, uint64_t now_ms);

/* Close all clients after their replies are written, without waiting until they close their side. The loop frees them
 * later. */
void clients_end_all(struct clients *clients);
/* Close all clients immediately, and discard their unsent replies. The loop frees them later. */
void clients_abort_all(struct clients *clients);

#endif
