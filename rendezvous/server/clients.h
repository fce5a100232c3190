/* clients.h -- the clients of a store server. A client is a TCP connection and its number in the hub. A turn is one
 * pass of the event loop. */
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

/* A map from numbers to pointers with lookup in constant time. An old number never finds a new pointer.
 *
 * A number consists of a serial, which never repeats, and the index of the slot. So connection numbers are unique
 * although slots are reused. A lookup is one array access and one comparison. */

struct id_slot;

/* A zeroed struct is an empty map. */
struct idmap {
    struct id_slot *at;
    size_t cap;
    size_t count;      /* slots in use */
    uint32_t free_top; /* head of the list of free slots, as index + 1; 0 = none */
    uint64_t serial;   /* serial of the latest number */
};

/* Store `pointer`, which is not NULL and stays owned by the caller. Return its number, or 0 if memory is short or
 * 2^20 numbers are in use. */
uint64_t idmap_put(struct idmap *map, void *pointer);

/* Return the pointer of a number, or NULL if the number is not in use. */
void *idmap_get(const struct idmap *map, uint64_t number);

/* Release a number. Ignore a number that is not in use. */
void idmap_remove(struct idmap *map, uint64_t number);

/* Return the next pointer, or NULL after the last pointer. Start with *index = 0. The current pointer may be removed
 * during the iteration. */
void *idmap_next(const struct idmap *map, size_t *index);

void idmap_free(struct idmap *map);

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Small replies of one turn of the loop, in order, which are written together. Pure.
 *
 * Writing a reply wakes its client. Waking a sleeping processor costs more than many requests, but the first reply
 * already wakes the processor. So all later replies are kept here until the server would sleep, or the buffer is
 * full. */

enum {
    REPLIES_MAX = 64, /* most requests that are processed before the first kept reply is sent */
    REPLIES_BYTES = 4096,
};

struct replies {
    uint32_t n, used;
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* all replies, concatenated */
};

/* Store a copy of a reply. Return false if the buffer has no room. */
bool replies_put(struct replies *r, conn_id to, struct slice bytes);

/* Pass all replies to `send` in their order and empty the buffer. `send` must not call replies_put(). */
void replies_flush(struct replies *r, void (*send)(void *user, conn_id to, struct slice bytes), void *user);

/* --- admission -------------------------------------------------------------------------------------------- */

/* Limits for the connections of each source, and the choice of a connection to close if descriptors run out.
 *
 * A source is a user if the kernel knows the user, otherwise an address (for IPv6 the /64 network). Each limit is a
 * share of all connections, so a job with thousands of ranks at one address only needs a high limit of descriptors.
 * Pure. */

enum {
    ADMISSION_SILENT_MS = 1000, /* a younger connection may still send its first request */
    ADMISSION_BUCKETS = 256,
};

/* The key of a source. Set it to zeros before filling it, because keys are compared with memcmp. */
struct admission_key {
    bool is_uid;
    uint32_t uid;
    uint8_t address[16]; /* IPv4 in the form of IPv6; IPv6 without the last 8 bytes */
};

struct admission_source {
    LIST_ENTRY(admission_source) link;
    struct admission_key key;
    uint32_t open;
};

/* The entry of a connection; a member of an object of the caller. */
struct admission_entry {
    TAILQ_ENTRY(admission_entry) link;
    struct admission_source *source; /* NULL = not counted */
    uint64_t since_ms;
    bool is_silent;
};
TAILQ_HEAD(admission_entries, admission_entry);
LIST_HEAD(admission_sources, admission_source);

struct admission {
    uint32_t max;     /* connections of all sources */
    uint32_t self;    /* uid of this process; connections of this user and of root have no separate limit */
    uint32_t limited; /* number of open connections of all other sources */
    struct admission_sources bucket[ADMISSION_BUCKETS];
    struct admission_entries silent; /* without a request, the oldest first */
};

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_FULL,    /* the source has used up its share */
    ADMISSION_CROWDED, /* all limited sources together have used up 7/8; the rest is reserved */
    ADMISSION_NO_MEMORY
};

void admission_init(struct admission *a, uint32_t max, uint32_t self);

/* Return how many connections this source may have: half of all for another user of this host, 7/8 for an address. */
uint32_t admission_limit(const struct admission *a, const struct admission_key *key);

/* Count a new connection, if the verdict is ADMISSION_OK. */
enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                      const struct admission_key *key, uint64_t now_ms);

/* Note that a connection has sent its first request. */
void admission_spoke(struct admission *a, struct admission_entry *e);

/* Stop counting a connection. Further calls do nothing. */
void admission_close(struct admission *a, struct admission_entry *e);

/* Return the oldest connection that has sent no request for ADMISSION_SILENT_MS and whose end would change `verdict`,
 * or NULL if no such connection exists. After ADMISSION_FULL the connection must be of the source `key`. After
 * ADMISSION_CROWDED any limited source is allowed. After ADMISSION_OK (no descriptor is left) any source is allowed,
 * and `key` may be NULL. */
struct admission_entry *admission_oldest_silent(const struct admission *a, enum admission_verdict verdict,
                                                const struct admission_key *key, uint64_t now_ms);

enum {
    CLIENT_UNREAD_MAX = 1 << 20
}; /* a client with more unread replies must read before its next request */

struct client;
TAILQ_HEAD(client_list, client);

struct clients {
    struct hub *hub; /* borrowed */
    struct conn_host host;
    struct idmap map;          /* conn_id -> struct client */
    struct client_list doomed; /* clients whose replies could not be sent; closed at the end of the turn */
    struct client_list
        ending; /* clients that flush their replies or wait for the peer's end; the oldest first */
    struct replies replies; /* replies that are not written yet */
    bool has_replied;       /* a reply was written in this turn of the loop */
    struct admission admission;
    uint32_t n_waiting;  /* number of clients whose reply waits until other clients have read more */
    uint64_t stall_ms;   /* when to check readers next; UINT64_MAX = no client waits */
    struct gate dropped; /* limits messages about dropped clients */
    bool log_peers;
    void *user;
    void (*freed)(void *user); /* called after each freed client */
};

/* Initialize. The caller sets the other members of the struct: hub, admission, host.loop, host.max_queue_bytes,
 * host.max_queued_bytes, log_peers, user, freed. */
void clients_init(struct clients *clients);
/* Free the memory. No client may be left, so call clients_end_all and run the loop first. */
void clients_free(struct clients *clients);

/* Add a client of user `uid` (-1 = unknown) and take over `fd`. If the source has too many connections, close its
 * oldest connection without a request. Without such a connection, reject the new client. Return false if the new
 * connection was closed at once; freed() is then not called for it. */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid);

/* Close up to `n` clients that have sent no request, the oldest first. Do not call this during a call of the hub. */
void clients_close_silent(struct clients *clients, unsigned n);

/* Return the handlers of the hub's effects, except the event log. These handlers never call the hub. The end of a
 * client is reported to the hub at the end of the turn. The first reply of a turn is written at once, so that a
 * single client never waits. Later small replies are kept until the turn ends or the buffer is full. If a reply has
 * no room, the requests of its client are not read. When room is free again, clients.c calls hub_resume. */
struct hub_sink clients_sink(struct clients *clients);

/* Write the kept replies and close the doomed clients. Call this before the loop sleeps. */
void clients_end_turn(struct clients *clients);

/* Return when the oldest ending client times out; UINT64_MAX = never. clients_tick aborts clients that have timed
 * out. */
uint64_t clients_deadline(const struct clients *clients);
void clients_tick(struct clients *clients, uint64_t now_ms);

/* Flush and close all clients without waiting for their peers. clients_abort_all closes them without a flush. */
void clients_end_all(struct clients *clients);
void clients_abort_all(struct clients *clients);

#endif
