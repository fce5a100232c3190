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

/* From a number to a pointer in constant time, where an old number never finds a new pointer.
 *
 * A number is a serial (which never repeats) in front of the slot's index. So the shell can give out
 * connection numbers that stay unique although slots are used again, and a lookup is one array access and one
 * comparison. */

struct id_slot;

/* A zeroed struct is empty. */
struct idmap {
    struct id_slot *at;
    size_t cap;
    size_t count;      /* slots in use */
    uint32_t free_top; /* head of the list of free slots, as index + 1; 0 = none */
    uint64_t serial;   /* of the latest number */
};

/* Keep `pointer` (not NULL, stays the caller's); returns its number, 0 when memory is short or 2^20 are in
 * use. */
uint64_t idmap_put(struct idmap *map, void *pointer);

/* The pointer of a number that is in use, else NULL. */
void *idmap_get(const struct idmap *map, uint64_t number);

/* Give a number back; one that is not in use is ignored. */
void idmap_remove(struct idmap *map, uint64_t number);

/* Go through all pointers: start with *index = 0, ends with NULL. The current one may be removed on the way.
 */
void *idmap_next(const struct idmap *map, size_t *index);

void idmap_free(struct idmap *map);

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Small replies of one turn of the loop, in order, until they are written together. Pure.
 *
 * A reply that is written wakes its client, and waking a processor that sleeps costs more than many requests: after the first of
 * several that follow each other the client is awake. So all replies but the first wait here until the server would sleep, or until
 * this is full. */

enum {
    REPLIES_MAX = 64, /* so many requests at most are worked off before one of them is answered */
    REPLIES_BYTES = 4096,
};

struct replies {
    uint32_t n, used;
    struct {
        conn_id to;
        uint32_t len;
    } of[REPLIES_MAX];
    uint8_t bytes[REPLIES_BYTES]; /* of all, one behind the other */
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

/* Of one connection; lives inside an object of the caller. */
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
    uint32_t self;    /* the user whose connections, like root's, have no limit of their own */
    uint32_t limited; /* open connections of all other sources */
    struct admission_sources bucket[ADMISSION_BUCKETS];
    struct admission_entries silent; /* without a request, the oldest first */
};

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_FULL, /* the source has its share */
    ADMISSION_CROWDED, /* all limited sources together have theirs, 7/8: the rest is for root and the store's user */
    ADMISSION_NO_MEMORY
};

void admission_init(struct admission *a, uint32_t max, uint32_t self);

/* How many connections this source may have: half of all for another user of this host, 7/8 for an address. */
uint32_t admission_limit(const struct admission *a, const struct admission_key *key);

/* Count a new connection. It is not counted unless ADMISSION_OK. */
enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                      const struct admission_key *key, uint64_t now_ms);

/* It has sent a request. */
void admission_spoke(struct admission *a, struct admission_entry *e);

/* It is closing. May be called any number of times. */
void admission_close(struct admission *a, struct admission_entry *e);

/* Find the oldest connection that has sent no request for ADMISSION_SILENT_MS and whose end would change the verdict about
 * `key`: one of the same source (FULL), of any limited source (CROWDED), or any at all (OK: no descriptor is left; `key` may be
 * NULL). NULL = none. */
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

/* The rest of the struct is filled by the caller: hub, admission, host.loop, host.max_queue_bytes, host.max_queued_bytes, log_peers, user,
 * freed. */
void clients_init(struct clients *clients);
/* There must be no client left (clients_end_all, and the loop has run). */
void clients_free(struct clients *clients);

/* A new client of user `uid` (-1 = not known); `fd` is taken over. False: it was closed at once, and freed() is not called for it.
 * A client whose source has too many connections replaces the oldest one of that source that has sent no request; without
 * such a one it is refused. */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid);

/* Close up to `n` clients that have sent no request, the oldest first. Not during a call of the hub. */
void clients_close_silent(struct clients *clients, unsigned n);

/* The hub's wishes, all but its event log. They never call the hub: the end of a client is reported to it at the end of the turn. The
 * first reply of a turn of the loop is written at once, so that a single client waits for nothing; small ones after it are kept
 * back until then, or until there are many. A client that may not be sent a reply now is not read any more; when there is room
 * again, hub_resume is called for it. */
struct hub_sink clients_sink(struct clients *clients);

/* Before the loop sleeps: write what was kept back, and cut off the doomed. */
void clients_end_turn(struct clients *clients);

/* When the oldest ending client has had its time; UINT64_MAX = none. clients_tick aborts those whose time is over. */
uint64_t clients_deadline(const struct clients *clients);
void clients_tick(struct clients *clients, uint64_t now_ms);

/* Flush and close all, none of them waits for its peer. clients_abort_all: at once. */
void clients_end_all(struct clients *clients);
void clients_abort_all(struct clients *clients);

#endif
