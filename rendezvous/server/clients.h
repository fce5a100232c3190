/* clients.h -- the clients of a store server: their connections, kept replies, and limits. A turn is one pass of the
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

/* A map from numbers to pointers, with lookup in constant time. A number consists of a serial, which never repeats,
 * and the index of a slot. So an old number never finds a new pointer, although slots are reused. */

struct id_slot;

/* A map, initialized by setting all bytes to zero. */
struct idmap {
    struct id_slot *at;
    size_t cap;
    size_t count;      /* slots in use */
    uint32_t free_top; /* index + 1 of the first free slot; 0 = none */
    uint64_t serial;   /* serial of the last number */
};

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Small replies of one turn, kept in order and written together at the end of the turn. Pure.
 *
 * Writing a reply wakes its client, and waking a sleeping processor costs more than many requests. The first reply of
 * a turn is written at once and wakes the processor. All later replies are kept until the server would sleep, or
 * until the buffer is full. */

enum {
    REPLIES_MAX = 64, /* most replies that are kept */
    REPLIES_BYTES = 4096,
};

struct replies {
    uint32_t n, used;
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* all kept replies, one after the other */
};

/* --- admission -------------------------------------------------------------------------------------------- */

/* Limits for the connections of each source, and the choice of a connection to close if descriptors run out. Pure.
 *
 * A source is a user of this host if the kernel knows the user, else an address (for IPv6 the /64 network). Each
 * limit is a share of all connections. So a job with thousands of ranks at one address needs only a high limit of
 * descriptors. */

enum {
    ADMISSION_SILENT_MS = 1000, /* a connection of this age without a request may be closed */
    ADMISSION_BUCKETS = 256,
};

/* The key of a source. Unused bytes of `address` must be zero, because all bytes are compared. */
struct admission_key {
    bool is_uid;
    uint32_t uid;
    uint8_t address[16]; /* IPv4 as an IPv6-mapped address; IPv6 without the last 8 bytes */
};

struct admission_source {
    LIST_ENTRY(admission_source) link;
    struct admission_key key;
    uint32_t open;
};

/* The data of a connection, a member of the caller's struct. */
struct admission_entry {
    TAILQ_ENTRY(admission_entry) link;
    struct admission_source *source; /* NULL = not counted for any source */
    uint64_t since_ms;
    bool is_silent;
};
TAILQ_HEAD(admission_entries, admission_entry);
LIST_HEAD(admission_sources, admission_source);

struct admission {
    uint32_t max;     /* limit for the connections of all sources together */
    uint32_t self;    /* uid of this process; no limit applies to this user and to root */
    uint32_t limited; /* number of open connections of all limited sources */
    struct admission_sources bucket[ADMISSION_BUCKETS];
    struct admission_entries silent; /* open connections without a request, the oldest first */
};

void admission_init(struct admission *a, uint32_t max, uint32_t self);

enum { CLIENT_UNREAD_MAX = 1 << 20 }; /* while a client has more unread bytes, its requests wait */

struct client;
struct tls_context;
TAILQ_HEAD(client_list, client);

struct clients {
    struct hub *hub; /* borrowed */
    struct conn_host host;
    struct idmap map;          /* conn_id -> struct client */
    struct client_list doomed; /* clients whose last write failed; closed at the end of the turn */
    struct client_list ending; /* clients that are being closed, the oldest first */
    struct replies replies;    /* kept replies */
    bool has_replied;          /* a reply was written in this turn of the loop */
    struct admission admission;
    uint32_t n_waiting;  /* number of clients whose reply waits for room */
    uint64_t stall_ms;   /* time of the next check_readers; UINT64_MAX = none */
    struct gate dropped; /* limits log messages about dropped clients */
    bool log_peers;
    const struct tls_context *tls; /* borrowed; clients on other hosts must use TLS; NULL = no client may */
    struct buf plain, cipher;      /* reused buffers of TLS */
    void *user;
    void (*freed)(void *user); /* called after a client was freed */
};

/* Initialize the fields that only clients.c uses. The caller sets the other fields: hub, admission, host.loop,
 * host.max_queue_bytes, host.max_queued_bytes, log_peers, tls, user, freed. */
void clients_init(struct clients *clients);
/* Free the map. No client may be left, so call clients_end_all and run the loop first. */
void clients_free(struct clients *clients);

/* Add the client that is connected to `fd`. `uid` -1 = unknown. The clients own `fd` after the call. If the source
 * has too many connections, close its oldest connection without a request, else reject the new client. Return false
 * if the client was rejected; freed() is then not called. */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid);

/* Close up to `n` clients without a request, the oldest first. Do not call this function while the hub is running. */
void clients_close_silent(struct clients *clients, unsigned n);

/* Return the callbacks for the hub, all but `event`. The callbacks never call the hub. A client that fails is
 * therefore disconnected from the hub only at the end of the turn.
 *
 * The first reply of a turn is written at once; later small replies are kept until the turn ends. While a reply
 * waits for room, no further requests from its client are read. When there is room again, clients.c calls
 * hub_resume. */
struct hub_sink clients_sink(struct clients *clients);

/* Write the kept replies and close the doomed clients. Call this function before the loop sleeps. */
void clients_end_turn(struct clients *clients);

/* Return when clients_tick must be called, to abort ending clients or to check readers; UINT64_MAX = never. */
uint64_t clients_deadline(const struct clients *clients);
void clients_tick(struct clients *clients, uint64_t now_ms);

/* Close all clients: clients_end_all after flushing their replies, clients_abort_all without a flush. Neither
 * function waits until the peers close. */
void clients_end_all(struct clients *clients);
void clients_abort_all(struct clients *clients);

#endif
