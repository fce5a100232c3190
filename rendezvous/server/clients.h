/* clients.h -- the clients of a store server: each one ties a connection (bytes) to a number in the hub (meaning). */
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

/* Map a number to a pointer in constant time. An old number never finds a new pointer.
 *
 * A number is a serial, which never repeats, in front of the slot's index. So connection numbers stay unique
 * although slots are used again, and a lookup is one array access and one comparison. */

struct id_slot;

/* A zeroed struct is empty. */
struct idmap {
    struct id_slot *at;
    size_t cap;
    size_t count;      /* slots in use */
    uint32_t free_top; /* head of the list of free slots, as index + 1; 0 = none */
    uint64_t serial;   /* of the latest number */
};

/* Store `pointer` (not NULL; the caller keeps ownership). Return its number, or 0 if memory is short or 2^20
 * are in use. */
uint64_t idmap_put(struct idmap *map, void *pointer);

/* Return the pointer of a number in use, else NULL. */
void *idmap_get(const struct idmap *map, uint64_t number);

/* Release a number. A number that is not in use is ignored. */
void idmap_remove(struct idmap *map, uint64_t number);

/* Iterate over all pointers: start with *index = 0; NULL ends it. The current one may be removed during the
 * walk. */
void *idmap_next(const struct idmap *map, size_t *index);

void idmap_free(struct idmap *map);

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Small replies of one turn of the loop, in order, until they are written together. Pure.
 *
 * A written reply wakes its client, and waking a sleeping processor costs more than many requests. After the
 * first of several replies the client is awake. So all replies but the first wait here until the server would
 * sleep, or until the buffer is full. */

enum {
    REPLIES_MAX = 64, /* most requests that are processed before one of them gets its reply */
    REPLIES_BYTES = 4096,
};

struct replies {
    uint32_t n, used;
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* of all replies, concatenated */
};

/* A copy; false when there is no room for it. */
bool replies_put(struct replies *r, conn_id to, struct slice bytes);

/* Hands out all of them in their order and is empty then. `send` must not put anything here. */
void replies_flush(struct replies *r, void (*send)(void *user, conn_id to, struct slice bytes), void *user);

/* --- admission -------------------------------------------------------------------------------------------- */

/* Limit the connections of each source, and choose the connection that is closed when descriptors run out.
 *
 * A source is a user where the kernel names it, otherwise an address; the /64 network counts for IPv6. Each limit is a share
 * of all connections, so a job with thousands of ranks at one address needs a descriptor limit and nothing else. Pure. */

enum {
    ADMISSION_SILENT_MS = 1000, /* a younger connection may still send its first request */
    ADMISSION_BUCKETS = 256,
};

/* Zeroed before it is filled, so that memcmp compares it. */
struct admission_key {
    bool is_uid;
    uint32_t uid;
    uint8_t address[16]; /* IPv4 as IPv4 in IPv6; without the last 8 bytes for IPv6 */
};

struct admission_source {
    LIST_ENTRY(admission_source) link;
    struct admission_key key;
    uint32_t open;
};

/* The entry of one connection; lives inside an object of the caller. */
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
    uint32_t self;    /* connections of this user and of root have no separate limit */
    uint32_t limited; /* open connections of all other sources */
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

/* Return the connections that this source may have: half of all for another user of this host, 7/8 for an
 * address. */
uint32_t admission_limit(const struct admission *a, const struct admission_key *key);

/* Count a new connection. It is not counted unless ADMISSION_OK. */
enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                      const struct admission_key *key, uint64_t now_ms);

/* Record the first request of a connection. */
void admission_spoke(struct admission *a, struct admission_entry *e);

/* Stop counting a connection. May be called any number of times. */
void admission_close(struct admission *a, struct admission_entry *e);

/* Find the oldest connection that has sent no request for ADMISSION_SILENT_MS and whose end would change the
 * verdict about `key`. FULL: one of the same source. CROWDED: one of any limited source. OK (no descriptor is
 * left): any at all; `key` may be NULL. Return NULL if no such connection exists. */
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
    struct client_list doomed; /* their replies could not be sent; cut off at the end of the turn */
    struct client_list ending; /* flushing or lingering, the oldest first */
    struct replies replies;    /* not written yet */
    bool has_replied;          /* in this turn of the loop */
    struct admission admission;
    uint32_t n_waiting;  /* clients whose reply must wait until the others have read more */
    uint64_t stall_ms;   /* when readers are checked next; UINT64_MAX = no client waits */
    struct gate dropped; /* for the log */
    bool log_peers;
    void *user;
    void (*freed)(void *user); /* one client less */
};

/* The caller fills the rest of the struct: hub, admission, host.loop, host.max_queue_bytes,
 * host.max_queued_bytes, log_peers, user, freed. */
void clients_init(struct clients *clients);
/* No client may be left (clients_end_all, and the loop has run). */
void clients_free(struct clients *clients);

/* Add a client of user `uid` (-1 = unknown) and take over `fd`. False: it was closed at once, and freed() is
 * not called for it. A client whose source has too many connections replaces the oldest one of that source
 * that has sent no request. Without such a connection it is rejected. */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid);

/* Close up to `n` clients that have sent no request, the oldest first. Not during a call of the hub. */
void clients_close_silent(struct clients *clients, unsigned n);

/* Return the handlers of the hub's effects, without its event log. They never call the hub; the end of a
 * client is reported to it at the end of the turn. The first reply of a turn is written at once, so that a
 * single client never waits. Small replies after it are kept back until the turn ends or many have gathered.
 * A client that cannot get a reply now is not read; hub_resume is called for it when room is free again. */
struct hub_sink clients_sink(struct clients *clients);

/* Call before the loop sleeps: writes the replies that were kept back, and cuts off the doomed clients. */
void clients_end_turn(struct clients *clients);

/* Return when the oldest ending client times out; UINT64_MAX = none. clients_tick aborts the clients that
 * timed out. */
uint64_t clients_deadline(const struct clients *clients);
void clients_tick(struct clients *clients, uint64_t now_ms);

/* Flush and close all clients without waiting for their peers. clients_abort_all closes without a flush. */
void clients_end_all(struct clients *clients);
void clients_abort_all(struct clients *clients);

#endif
