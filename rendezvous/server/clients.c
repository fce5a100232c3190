/* clients.c -- see clients.h. A client that fails is only marked as DOOMED and closed at the end of the turn, because
 * the hub may still use it when conn_send reports the failure. A client that sends an invalid request first gets its
 * replies, because they may contain the reason. */

/* The calls for a client without failures:
 *
 *     clients_add -> hub_connect
 *     on_bytes -> hub_receive -> reply -> conn_send, at once or through `replies`
 *     on_end -> hub_disconnect; the conn writes its queue and closes -> on_conn_closed -> free
 *
 * Failures:
 *
 *   - The client sends an invalid request: the hub calls close_client. The client becomes ENDING: its replies are
 *     written, and the client has ENDING_MS to close its side.
 *   - The client does not read, or a write fails. The client becomes DOOMED. It is closed only at the end of the turn
 *     (clients.h).
 *
 * Replies to DOOMED and ENDING clients are discarded. */

#include "server/clients.h"

#include "auth/auth.h"
#include "auth/tls.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "store/encode.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Number  =  serial (44 bits)  |  index (20 bits)
 *
 * By default Linux allows at most 2^20 descriptors for a process (fs.nr_open), so 20 bits are enough for an index.
 * With 1,000 connections per second, 44 bits last for centuries. Serials begin with 1, so no number is 0. */

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_CAP = 64 };

struct id_slot {
    uint64_t number; /* 0 = the slot is free */
    union {
        void *pointer;
        uint32_t next_free; /* index + 1 of the next free slot; 0 = none */
    };
};

/* Double the number of slots and put the new slots on the free list. Return false if memory is short. */
static bool grow_map(struct idmap *map)
{
    size_t cap = map->cap > 0 ? map->cap * 2 : FIRST_CAP;
    struct id_slot *at = cap > INDEX_MASK + 1u ? NULL : realloc(map->at, cap * sizeof(*at));
    if (at == NULL)
        return false;
    for (size_t i = cap; i-- > map->cap;) { /* in reverse order, so that low indices are used first */
        at[i] = (struct id_slot){ .next_free = map->free_top };
        map->free_top = (uint32_t)i + 1;
    }
    map->at = at;
    map->cap = cap;
    return true;
}

/* Store `pointer`, which must not be NULL and is borrowed. Return its number, or 0 if memory is short or 2^20 numbers
 * are in use. */
static uint64_t idmap_store(struct idmap *map, void *pointer)
{
    if (map->free_top == 0 && !grow_map(map))
        return 0;
    uint32_t index = map->free_top - 1;
    struct id_slot *slot = &map->at[index];
    map->free_top = slot->next_free;
    map->count++;
    slot->number = ++map->serial << INDEX_BITS | index;
    slot->pointer = pointer;
    return slot->number;
}

/* Return the pointer of a number, or NULL if the number is not in use. */
static void *idmap_get(const struct idmap *map, uint64_t number)
{
    const size_t index = number & INDEX_MASK;
    return number != 0 && index < map->cap && map->at[index].number == number ? map->at[index].pointer : NULL;
}

/* Free the slot of a number. Ignore a number that is not in use. */
static void idmap_remove(struct idmap *map, uint64_t number)
{
    const uint32_t index = number & INDEX_MASK;
    if (idmap_get(map, number) == NULL)
        return;
    map->at[index] = (struct id_slot){ .next_free = map->free_top };
    map->free_top = index + 1;
    map->count--;
}

/* Return the next pointer of the map, or NULL after the last pointer. *index is the position in the map. Set *index to
 * 0 before the first call. The caller may remove the returned pointer before the next call. */
static void *idmap_next(const struct idmap *map, size_t *index)
{
    while (*index < map->cap) {
        const struct id_slot *slot = &map->at[(*index)++];
        if (slot->number != 0)
            return slot->pointer;
    }
    return NULL;
}

static void idmap_free(struct idmap *map)
{
    free(map->at);
    *map = (struct idmap){ 0 };
}

/* --- replies ---------------------------------------------------------------------------------------------- */

/* Keep a copy of a reply. Return false if the buffer has no room. */
static bool replies_store(struct replies *r, conn_id to, struct slice bytes)
{
    if (r->n == REPLIES_MAX || bytes.len > REPLIES_BYTES - r->used)
        return false;
    if (bytes.len > 0)
        memcpy(r->bytes + r->used, bytes.data, bytes.len);
    r->of[r->n].to = to;
    r->of[r->n++].len = (uint32_t)bytes.len;
    r->used += (uint32_t)bytes.len;
    return true;
}

/* Pass all kept replies to `send`, in order, then empty the buffer. `send` must not call replies_store, which would
 * change the buffer. */
static void replies_flush(struct replies *r, void (*send)(void *user, conn_id to, struct slice bytes),
                          void *user)
{
    const uint8_t *at = r->bytes;
    for (uint32_t i = 0; i < r->n; at += r->of[i++].len)
        send(user, r->of[i].to, slice_of(at, r->of[i].len));
    r->n = r->used = 0;
}

/* --- admission -------------------------------------------------------------------------------------------- */

/* The list `silent` has the connections without a request, the oldest first. */

void admission_init(struct admission *a, uint32_t max, uint32_t self)
{
    a->max = max;
    a->self = self;
    for (int i = 0; i < ADMISSION_BUCKETS; i++)
        LIST_INIT(&a->bucket[i]);
    TAILQ_INIT(&a->silent);
}

/* Return true if the limit of the source is below admission.max. Only root and the user of the store may have all
 * connections. */
static bool is_limited(const struct admission *a, const struct admission_key *key)
{
    return !key->is_uid || (key->uid != 0 && key->uid != a->self);
}

/* Return how many connections a source may have. Root and the user of the store may have `max` (admission.max). Another
 * user of this host may have half of `max`, and an address 7/8 of `max`. An address has a higher limit than a user,
 * because one host may run most ranks of a job. */
static uint32_t admission_limit(const struct admission *a, const struct admission_key *key)
{
    if (!is_limited(a, key))
        return a->max;
    return key->is_uid ? a->max - a->max / 2 : a->max - a->max / 8;
}

static bool is_same(const struct admission_key *x, const struct admission_key *y)
{
    return x->is_uid == y->is_uid && x->uid == y->uid &&
           memcmp(x->address, y->address, sizeof(x->address)) == 0;
}

/* Return the list of the hash table for this key. */
static struct admission_sources *find_bucket(struct admission *a, const struct admission_key *key)
{
    const uint64_t hash = hash_bytes(HASH_START ^ key->uid, key->address, sizeof(key->address));
    return &a->bucket[(hash ^ hash >> 32) % ADMISSION_BUCKETS];
}

/* Return the source with this key, and create it if necessary. Return NULL if memory is short. */
static struct admission_source *find_source(struct admission *a, const struct admission_key *key)
{
    struct admission_sources *bucket = find_bucket(a, key);
    struct admission_source *s;
    LIST_FOREACH(s, bucket, link)
    if (is_same(&s->key, key))
        return s;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->key = *key;
    LIST_INSERT_HEAD(bucket, s, link);
    return s;
}

/* Free the source if it has no connection, because clients with many addresses could otherwise fill the memory. */
static void release_source(struct admission_source *s)
{
    if (s->open > 0)
        return;
    LIST_REMOVE(s, link);
    free(s);
}

enum admission_verdict {
    ADMISSION_OK,
    ADMISSION_FULL,        /* the source has reached its limit */
    ADMISSION_NEARLY_FULL, /* all limited sources together have 7/8 of admission.max connections */
    ADMISSION_NO_MEMORY
};

/* Decide whether to accept a new connection. Count the connection only if the result is ADMISSION_OK. */
static enum admission_verdict admission_open(struct admission *a, struct admission_entry *e,
                                             const struct admission_key *key, uint64_t now_ms)
{
    struct admission_source *s = find_source(a, key);
    if (s == NULL)
        return ADMISSION_NO_MEMORY;
    const bool is_full = s->open >= admission_limit(a, key);
    if (is_full || (is_limited(a, key) && a->limited >= a->max - a->max / 8)) {
        release_source(s);
        return is_full ? ADMISSION_FULL : ADMISSION_NEARLY_FULL;
    }
    s->open++;
    a->limited += is_limited(a, key);
    *e = (struct admission_entry){ .source = s, .since_ms = now_ms, .is_silent = true };
    TAILQ_INSERT_TAIL(&a->silent, e, link);
    return ADMISSION_OK;
}

/* Record that a connection has sent its first request. */
static void admission_spoke(struct admission *a, struct admission_entry *e)
{
    if (e->is_silent)
        TAILQ_REMOVE(&a->silent, e, link);
    e->is_silent = false;
}

/* Stop counting a connection. Further calls do nothing. */
static void admission_close(struct admission *a, struct admission_entry *e)
{
    admission_spoke(a, e);
    if (e->source == NULL)
        return;
    e->source->open--;
    a->limited -= is_limited(a, &e->source->key);
    release_source(e->source);
    e->source = NULL;
}

/* Return the oldest connection that has sent no request and is older than ADMISSION_SILENT_MS, or NULL. `verdict` is
 * the reason for the search, and decides which sources are searched:
 *
 *     ADMISSION_FULL          only the source `key`
 *     ADMISSION_NEARLY_FULL   all limited sources
 *     ADMISSION_OK            all sources, because descriptors have run out; `key` may be NULL */
static struct admission_entry *admission_oldest_silent(const struct admission *a,
                                                       enum admission_verdict verdict,
                                                       const struct admission_key *key, uint64_t now_ms)
{
    struct admission_entry *e;
    TAILQ_FOREACH(e, &a->silent, link)
    {
        if (now_ms < e->since_ms + ADMISSION_SILENT_MS)
            return NULL; /* all later connections in the list are younger */
        if (verdict == ADMISSION_FULL ? is_same(&e->source->key, key)
                                      : verdict != ADMISSION_NEARLY_FULL || is_limited(a, &e->source->key))
            return e;
    }
    return NULL;
}

enum {
    ENDING_MS = 5000, /* time that a client has to close its side after the last reply */
    STALL_MS = 2000,  /* while replies wait for room, each client must read STALL_BYTES in this time */
    STALL_BYTES = 64 << 10,
    REPLY_MIN = 64 << 10, /* room that must be free before a waiting reply is sent */
    REFUSED_MAX = 32768,  /* maximum number of REFUSED clients; exceeds the number of nodes of any job */
    TLS_KEPT = 1 << 20,   /* a buffer of TLS that has grown beyond this size is freed */
};

/* States of a client. A client that is not SERVED is in the list of its state: `doomed`, `ending` or `refused`. */
enum place {
    SERVED, /* requests are handled; a client whose connection is already closing also has this state */
    DOOMED, /* will be closed at the end of the turn: a write failed, or the client reads too slowly */
    ENDING, /* requests are no longer handled; the replies are being written */
    REFUSED, /* like ENDING, for a client on another host; closed before other clients if descriptors run out */
};

struct client {
    struct conn conn;         /* must be the first member: callbacks cast a conn pointer to struct client */
    struct clients *clients;  /* borrowed */
    conn_id id;               /* number in clients.map */
    TAILQ_ENTRY(client) link; /* entry in the list of clients with this `place`; unused if SERVED */
    uint64_t ending_until_ms; /* for ENDING and REFUSED: time at which the connection is aborted */
    struct tls *tls;          /* owned; NULL = the client does not use TLS */
    uint32_t wants;           /* size in bytes of the reply that waits for room; 0 = no reply waits */
    uint32_t unread_before; /* queued bytes at the last check_readers(); 0 if a write has ended since then */
    uint8_t place;          /* enum place */
    uint8_t trouble;        /* if `place` is DOOMED: why the connection ends, an enum conn_sent */
    bool is_foreign;        /* the kernel reports no user: the client is probably on another host */
    bool has_begun;         /* begin() has decided by the first byte whether the client uses TLS */
    bool has_asked;         /* the client has received the credential (auth/auth.h), so TLS must follow */
    bool has_other_version; /* the credential request has a version that this store does not support */
    uint8_t n_asked;        /* number of received bytes of the request for the credential */
    struct admission_entry admission;
    struct sockaddr_in6 peer; /* large enough for IPv4, too */
};

static uint64_t now_ms(const struct clients *clients)
{
    return uv_now(clients->host.loop);
}

/* --- log ----------------------------------------------------------------------------------------------- */

/* Log why the store closes a connection, at most once per second, because a client could fill the disk. */
static void log_dropped(struct client *c, const char *why)
{
    struct clients *clients = c->clients;
    char peer[ENDPOINT_TEXT_MAX];
    unsigned left_out = 0;
    if (!clients->log_peers && !rate_limit_pass(&clients->dropped, now_ms(clients), &left_out))
        return;
    endpoint_of_sockaddr((struct sockaddr *)&c->peer, peer);
    if (left_out > 0)
        log_warn("store client %s: dropped: %s (and %u more since the last such message)", peer, why,
                 left_out);
    else
        log_warn("store client %s: dropped: %s", peer, why);
}

/* Log a connect or a disconnect. Do nothing if log_peers is not set. */
static void log_peer(struct client *c, const char *what)
{
    char peer[ENDPOINT_TEXT_MAX];
    if (c->clients->log_peers)
        log_info("store client %s: %s", endpoint_of_sockaddr((struct sockaddr *)&c->peer, peer), what);
}

/* --- lists ---------------------------------------------------------------------------------------------- */

/* Move a client to a state and to its list. */
static void move_to(struct client *c, enum place place)
{
    struct client_list *const list[] = {
        [DOOMED] = &c->clients->doomed, [ENDING] = &c->clients->ending, [REFUSED] = &c->clients->refused
    };
    c->clients->n_refused += place == REFUSED;
    c->clients->n_refused -= c->place == REFUSED;
    if (c->place != SERVED)
        TAILQ_REMOVE(list[c->place], c, link);
    c->place = (uint8_t)place;
    if (place != SERVED)
        TAILQ_INSERT_TAIL(list[place], c, link);
}

/* --- TLS ------------------------------------------------------------------------------------------------ */

/* Empty a buffer of TLS, and free its memory if it is larger than TLS_KEPT. */
static void trim(struct buf *b)
{
    b->len = 0;
    if (b->cap > TLS_KEPT)
        buf_free(b);
}

/* Encrypt a reply and write it. CONN_BROKEN also means that OpenSSL could not encrypt the reply. */
static enum conn_sent send_encrypted(struct client *c, struct slice bytes)
{
    struct buf *cipher = &c->clients->cipher;
    const enum conn_sent sent =
        tls_send(c->tls, bytes, cipher) ? conn_send(&c->conn, buf_slice(cipher), NULL) : CONN_BROKEN;
    trim(cipher);
    return sent;
}

/* Send an unencrypted TLS alert, so that the client can report the reason. `code` states whether the store or the
 * client does not encrypt. */
static void send_alert(struct client *c, uint8_t code)
{
    uint8_t alert[TLS_ALERT_BYTES];
    tls_alert(code, alert);
    (void)conn_send(&c->conn, slice_of(alert, sizeof(alert)), NULL);
}

/* Send the last message of TLS (close_notify). Without this message, the client treats the end of the connection as a
 * fault of the network. */
static void end_tls(struct client *c)
{
    struct buf *cipher = &c->clients->cipher;
    if (c->tls == NULL)
        return;
    tls_end(c->tls, cipher);
    (void)conn_send(&c->conn, buf_slice(cipher), NULL);
    trim(cipher);
}

/* --- replies ------------------------------------------------------------------------------------------- */

/* Return the client with this number, or NULL if it does not exist or is not SERVED. */
static struct client *find_served(const struct clients *clients, conn_id id)
{
    struct client *c = idmap_get(&clients->map, id);
    return c != NULL && c->place == SERVED ? c : NULL;
}

/* Return true if a reply of this size may be sent now. Small replies never wait, so a quarter of the limit is kept free
 * for small replies. */
static bool has_room(const struct clients *clients, uint64_t bytes)
{
    const struct conn_host *host = &clients->host;
    /* If no reply is queued, a reply of any size may be sent. Otherwise a reply that is larger than the limit would
     * wait forever. */
    return host->queued_bytes == 0 ||
           host->queued_bytes + bytes <= host->max_queued_bytes - host->max_queued_bytes / 4;
}

/* Schedule the next check_readers if a client waits for room, or if the memory for replies is short. Otherwise cancel
 * the check. */
static void watch_readers(struct clients *clients)
{
    if (clients->n_waiting == 0 && has_room(clients, 0))
        clients->stall_ms = UINT64_MAX;
    else if (clients->stall_ms == UINT64_MAX)
        clients->stall_ms = now_ms(clients) + STALL_MS;
}

/* Write a reply, or queue the bytes that the socket does not accept. After a failure only mark the client as DOOMED,
 * because a running function of the hub may still use the client. */
static void send_now(struct clients *clients, conn_id id, struct slice bytes, struct shared *holder)
{
    struct client *c = find_served(clients, id);
    if (c == NULL)
        return;
    c->trouble = (uint8_t)(c->tls == NULL || bytes.len == 0 ? conn_send(&c->conn, bytes, holder)
                                                            : send_encrypted(c, bytes));
    if (c->trouble != CONN_SENT)
        move_to(c, DOOMED);
    if (clients->host.queued_bytes > 0)
        watch_readers(clients);
}

static void send_kept(void *user, conn_id id, struct slice bytes)
{
    send_now(user, id, bytes, NULL);
}

static void flush(struct clients *clients)
{
    replies_flush(&clients->replies, send_kept, clients);
}

/* Send a reply of the hub to a client (hub_sink.send). Send the first reply of a turn at once, and keep later replies
 * in `replies` if they fit. */
static void reply(void *user, conn_id id, struct slice bytes, struct shared *holder)
{
    struct clients *clients = user;
    if (clients->has_replied && replies_store(&clients->replies, id, bytes))
        return;
    /* Write the kept replies first, because each client's replies must stay in order. */
    flush(clients);
    if (!clients->has_replied || !replies_store(&clients->replies, id, bytes))
        send_now(clients, id, bytes, holder);
    clients->has_replied = true;
}

/* Record that a reply of this size waits for room. If `bytes` is 0, record that no reply waits. */
static void set_wants(struct client *c, uint64_t bytes)
{
    struct clients *clients = c->clients;
    clients->n_waiting += bytes > 0;
    clients->n_waiting -= c->wants > 0;
    c->wants = (uint32_t)(bytes < UINT32_MAX ? bytes : UINT32_MAX);
    watch_readers(clients);
}

/* Return true if the hub may handle a request whose reply has this size (hub_sink.may_reply). Otherwise stop reading
 * from the client. on_drained or resume_waiting later calls resume(). */
static bool may_reply(void *user, conn_id id, uint64_t bytes)
{
    struct clients *clients = user;
    struct client *c = find_served(clients, id);
    if (c == NULL)
        return true;
    const bool is_full = conn_queued(&c->conn) > CLIENT_UNREAD_MAX;
    if (!is_full && bytes > 0 && !has_room(clients, bytes))
        set_wants(c, bytes);
    /* on_bytes() also stops reading, but does not run for requests that the hub has held (hub/gate.c). So stop reading
     * here, too. */
    if (is_full || c->wants > 0)
        conn_stop_reading(&c->conn);
    return !is_full && c->wants == 0;
}

/* Stop or start reading from a client. The hub calls this function (hub_sink.read). After this function has stopped
 * reading, on_drained may start reading too early. The hub then calls this function again when the next bytes of the
 * client arrive. */
static void set_reading(void *user, conn_id id, bool reads)
{
    struct client *c = find_served(user, id);
    if (c != NULL && reads)
        conn_start_reading(&c->conn);
    else if (c != NULL)
        conn_stop_reading(&c->conn);
}

/* Stop reading requests if the client does not read its replies, or if its next reply waits for room (has_room). */
static void stop_if_full(struct client *c)
{
    if (c->wants > 0 || conn_queued(&c->conn) > CLIENT_UNREAD_MAX)
        conn_stop_reading(&c->conn);
}

/* Resume reading from a client, after may_reply() or stop_if_full() has stopped reading. The hub first handles the
 * requests that have already arrived. One of these requests may stop reading again. */
static void resume(struct client *c)
{
    struct clients *clients = c->clients;
    conn_start_reading(&c->conn);
    hub_resume(clients->hub, c->id, now_ms(clients));
    stop_if_full(c);
}

/* Return the waiting client with the smallest reply, so that large replies do not delay small replies. */
static struct client *find_waiting(const struct clients *clients)
{
    struct client *c, *best = NULL;
    if (clients->n_waiting == 0 || !has_room(clients, REPLY_MIN))
        return NULL;
    for (size_t i = 0; (c = idmap_next(&clients->map, &i)) != NULL;)
        if (c->wants > 0 && (best == NULL || c->wants < best->wants))
            best = c;
    return best;
}

/* Resume clients whose replies wait for room, the smallest reply first, until no further reply fits. */
static void resume_waiting(struct clients *clients)
{
    struct client *c;
    while ((c = find_waiting(clients)) != NULL && has_room(clients, c->wants)) {
        set_wants(c, 0);
        resume(c);
    }
}

/* Handle a finished write (conn_host.on_drained). Read from this client again if few bytes are still queued for it.
 * Then resume clients whose replies wait for room. */
static void on_drained(struct conn *conn)
{
    struct client *c = (struct client *)conn;
    c->unread_before = 0;
    if (c->wants == 0 && conn->is_stopped && conn_queued(conn) <= CLIENT_UNREAD_MAX)
        resume(c);
    resume_waiting(c->clients);
    watch_readers(c->clients);
}

/* Close clients that have read less than STALL_BYTES since the last check. One client that does not read could
 * otherwise delay the large replies to all other clients. This check runs only while the memory for queued replies is
 * short. */
static void check_readers(struct clients *clients)
{
    struct client *c;
    clients->stall_ms = UINT64_MAX;
    watch_readers(clients);
    for (size_t i = 0; (c = idmap_next(&clients->map, &i)) != NULL;) {
        const size_t unread = conn_queued(&c->conn);
        if (c->place == SERVED && c->conn.state == CONN_OPEN && unread > 0 && c->unread_before > 0 &&
            unread + STALL_BYTES > c->unread_before) {
            c->trouble = CONN_SLOW;
            move_to(c, DOOMED);
        }
        c->unread_before = (uint32_t)unread;
    }
}

/* --- how a client ends --------------------------------------------------------------------------------- */

/* Make a client ENDING or REFUSED. All clients have the same time limit, so the first client of each list times out
 * first. */
static void start_ending(struct client *c, enum place place)
{
    c->ending_until_ms = now_ms(c->clients) + ENDING_MS;
    move_to(c, place);
}

/* Close an ENDING or REFUSED client at once. */
static void abort_ending(struct client *c)
{
    move_to(c, SERVED); /* removes the client from its list */
    conn_abort(&c->conn);
}

/* Free a client whose connection is closed (conn_host.on_closed). Only this function frees a client that had a
 * connection. */
static void on_conn_closed(struct conn *conn)
{
    struct client *c = (struct client *)conn;
    struct clients *clients = c->clients;
    move_to(c, SERVED);
    admission_close(&clients->admission, &c->admission);
    set_wants(c, 0);
    idmap_remove(&clients->map, c->id);
    tls_free(c->tls);
    free(c);
    resume_waiting(clients);
    watch_readers(clients);
    clients->freed(clients->user);
}

/* Report to the hub that a connection has ended. If the network may have broken the connection, call hub_cut, so that
 * the node may connect again. */
static void leave_hub(struct client *c, const char *why)
{
    /* TLS without close_notify counts as broken, because an attacker can forge a FIN. */
    if (c->conn.is_cut || (c->tls != NULL && tls_state(c->tls) == TLS_OPEN))
        hub_cut(c->clients->hub, c->id, why, now_ms(c->clients));
    else
        hub_disconnect(c->clients->hub, c->id, why, now_ms(c->clients));
}

/* Handle the end of a connection (conn_host.on_end). Report the end to the hub at once, even if replies to this client
 * are not written yet. The ranks in a barrier must not wait for these writes. */
static void on_end(struct conn *conn, const char *why)
{
    struct client *c = (struct client *)conn;
    log_peer(c, why);
    flush(c->clients);
    start_ending(c, ENDING);
    leave_hub(c, why);
}

static const char *const trouble_words[] = {
    [CONN_SLOW] = "too many unread replies: the client does not read, or sends too many requests at once",
    [CONN_NO_ROOM] = "the unread replies of all clients together have reached their limit",
    [CONN_GONE] = "the client closed the connection before its reply was sent",
    [CONN_BROKEN] = "cannot write replies to the client",
};

/* Log why a client is dropped. If the client has closed its side, log only a disconnect, because this is normal for a
 * killed worker. */
static void log_trouble(struct client *c)
{
    if (c->trouble == CONN_GONE)
        log_peer(c, trouble_words[c->trouble]);
    else
        log_dropped(c, trouble_words[c->trouble]);
}

/* Close a DOOMED client, and discard its replies. */
static void close_doomed(struct client *c)
{
    struct hub *hub = c->clients->hub;
    if (c->trouble == CONN_SLOW)
        hub_count(hub, HUB_CUT_OFF_SLOW_READER);
    log_trouble(c);
    move_to(c, SERVED);
    conn_abort(&c->conn);
    leave_hub(c, trouble_words[c->trouble]);
}

/* Close the DOOMED clients and write the kept replies, until no client is DOOMED. hub_disconnect may send replies to
 * other clients. These clients become DOOMED if the write fails. */
void clients_end_turn(struct clients *clients)
{
    struct client *c;
    do {
        while ((c = TAILQ_FIRST(&clients->doomed)) != NULL)
            close_doomed(c);
        flush(clients);
    } while (!TAILQ_EMPTY(&clients->doomed));
    clients->has_replied = false;
}

/* Return the time at which the first client of a list times out. */
static uint64_t ending_deadline(const struct client_list *list)
{
    const struct client *oldest = TAILQ_FIRST(list);
    return oldest != NULL ? oldest->ending_until_ms : UINT64_MAX;
}

uint64_t clients_deadline(const struct clients *clients)
{
    const uint64_t ending_ms = ending_deadline(&clients->ending),
                   refused_ms = ending_deadline(&clients->refused);
    const uint64_t first_ms = ending_ms < refused_ms ? ending_ms : refused_ms;
    return first_ms < clients->stall_ms ? first_ms : clients->stall_ms;
}

void clients_tick(struct clients *clients, uint64_t now)
{
    if (clients->stall_ms <= now)
        check_readers(clients);
    while (ending_deadline(&clients->ending) <= now)
        abort_ending(TAILQ_FIRST(&clients->ending));
    while (ending_deadline(&clients->refused) <= now)
        abort_ending(TAILQ_FIRST(&clients->refused));
}

void clients_end_all(struct clients *clients)
{
    struct client *c;
    flush(clients);
    for (size_t i = 0; (c = idmap_next(&clients->map, &i)) != NULL;) {
        end_tls(c);
        start_ending(c, ENDING);
        conn_finish(&c->conn, false);
    }
}

/* Abort each client of the map. The loop is safe, because conn_abort does not change the map: on_conn_closed removes
 * the client later. */
void clients_abort_all(struct clients *clients)
{
    struct client *c;
    for (size_t i = 0; (c = idmap_next(&clients->map, &i)) != NULL;)
        conn_abort(&c->conn);
}

/* --- effects of the hub --------------------------------------------------------------------------------- */

/* Close a client (hub_sink.close). The hub has already freed the session of this client. First write the kept replies,
 * because some of them may be for this client. */
static void close_client(void *user, conn_id id, const char *why, bool is_news)
{
    struct clients *clients = user;
    struct client *c = find_served(clients, id);
    if (c == NULL)
        return;
    flush(clients);
    if (is_news || clients->log_peers)
        log_dropped(c, why);
    end_tls(c);
    start_ending(c, c->is_foreign ? REFUSED : ENDING);
    conn_finish(&c->conn, true);
    if (clients->n_refused > REFUSED_MAX)
        abort_ending(TAILQ_FIRST(&clients->refused));
}

/* Write the local address of the client's connection, or "" if the client does not exist. */
static void address_here(void *user, conn_id id, char text[static ENDPOINT_TEXT_MAX])
{
    const struct clients *clients = user;
    struct sockaddr_storage here = { 0 };
    int len = sizeof(here);
    const struct client *c = idmap_get(&clients->map, id);
    text[0] = '\0';
    if (c != NULL && uv_tcp_getsockname(&c->conn.tcp, (struct sockaddr *)&here, &len) == 0)
        endpoint_of_sockaddr((struct sockaddr *)&here, text);
}

static void log_hub(void *user, const char *line)
{
    const struct clients *clients = user;
    log_line(clients->log_peers ? LOG_INFO : LOG_DEBUG, "%s", line);
}

static bool random_bytes(void *user, void *bytes, size_t n)
{
    (void)user;
    return sys_getrandom(bytes, n, 0) == (ssize_t)n;
}

struct hub_sink clients_sink(struct clients *clients)
{
    return (struct hub_sink){ .user = clients,
                              .send = reply,
                              .may_reply = may_reply,
                              .read = set_reading,
                              .close = close_client,
                              .here = address_here,
                              .log = log_hub,
                              .random = random_bytes };
}

/* --- connections and their bytes ------------------------------------------------------------------------ */

/* Remove a client from the list `silent` after its first complete request, so that close_oldest_silent() does not close
 * the client. */
static void check_silent(struct client *c)
{
    if (c->admission.is_silent && hub_has_request(c->clients->hub, c->id))
        admission_spoke(&c->clients->admission, &c->admission);
}

/* Reject a client whose bytes must not reach hub_receive. */
static void reject(struct client *c, struct slice bytes, const char *why)
{
    hub_reject(c->clients->hub, c->id, bytes, c->tls != NULL && tls_is_ddprun(c->tls), why,
               now_ms(c->clients));
}

/* Close a TLS client after a message that cannot be decrypted. The network or an attacker has changed the message. So
 * the node is not at fault, and may connect again. */
static void cut_by_tls(struct client *c)
{
    flush(c->clients);
    log_dropped(c, tls_why(c->tls));
    move_to(c, SERVED);
    conn_abort(&c->conn);
    hub_cut(c->clients->hub, c->id, tls_why(c->tls), now_ms(c->clients));
}

/* Decrypt received bytes and pass them to the hub. No byte reaches hub_receive before the end of the handshake, because
 * only the handshake proves that the client has a secret. */
static void pass_tls(struct client *c, struct slice bytes)
{
    struct clients *clients = c->clients;
    struct buf *plain = &clients->plain, *cipher = &clients->cipher;
    const bool was_open = tls_state(c->tls) != TLS_HANDSHAKE;
    const enum tls_state state = tls_receive(c->tls, bytes, plain, cipher);
    const enum conn_sent sent = conn_send(&c->conn, buf_slice(cipher), NULL);
    trim(cipher);
    if (!was_open && (state == TLS_OPEN || state == TLS_ENDED))
        hub_set_secret(clients->hub, c->id, tls_secret(c->tls), tls_job(c->tls), now_ms(clients));
    /* Also pass on the bytes that were decrypted before a failure. */
    if (plain->len > 0 && c->place == SERVED) {
        hub_receive(clients->hub, c->id, buf_slice(plain), now_ms(clients));
        check_silent(c);
    }
    trim(plain);
    if (c->place != SERVED)
        return;
    if (state == TLS_FAILED && was_open)
        cut_by_tls(c);
    else if (state == TLS_FAILED)
        reject(c, bytes, tls_why(c->tls));
    else if (sent != CONN_SENT) {
        c->trouble = (uint8_t)sent;
        move_to(c, DOOMED);
    }
}

/* Send the credential (auth/auth.h): the secret, encrypted by MUNGE, so that only processes of the store's user can
 * decrypt it. Return false if the credential cannot be sent. */
static bool send_credential(struct client *c)
{
    struct buf *answer = &c->clients->plain;
    c->has_asked = hub_give_credential(c->clients->hub, c->id, answer) &&
                   conn_send(&c->conn, buf_slice(answer), NULL) == CONN_SENT;
    trim(answer);
    return c->has_asked;
}

/* Reject a client whose request for the credential has another version than this store. */
static void refuse_version(struct client *c)
{
    static const uint8_t refusal[AUTH_ASK_BYTES] = { AUTH_VERSION, AUTH_OTHER_VERSION };
    struct buf *answer = &c->clients->plain;
    if (append_blob(answer, slice_of(refusal, sizeof(refusal))))
        (void)conn_send(&c->conn, buf_slice(answer), NULL);
    trim(answer);
    hub_reject(c->clients->hub, c->id, slice_of("", 0), true, auth_result_text(AUTH_OTHER_VERSION),
               now_ms(c->clients));
}

/* Answer the request for the credential, and remove the request from `bytes`. The request is the first message of a
 * connection and has a fixed size. From a client on another host, also accept the request in parts, because this client
 * must begin with this request or with TLS. From a client on this host, accept only the whole request, because this
 * client may begin with another request that has the same first bytes. Return false if more bytes must arrive, or if
 * the client was rejected. */
static bool answer_credential_request(struct client *c, struct slice *bytes)
{
    const size_t rest = AUTH_ASK_TLS_BYTES - c->n_asked, n = bytes->len < rest ? bytes->len : rest;
    if (c->clients->tls == NULL || c->has_asked)
        return true;
    if ((n < rest && !c->is_foreign) ||
        !auth_begins_ask_tls(slice_of(bytes->data, n), c->n_asked, &c->has_other_version))
        return true;
    c->n_asked += (uint8_t)n;
    *bytes = slice_of((const uint8_t *)bytes->data + n, bytes->len - n);
    if (n == rest && c->has_other_version) {
        refuse_version(c);
        return false;
    }
    if (n == rest && !send_credential(c)) {
        reject(c, *bytes, "cannot send the credential");
        return false;
    }
    return bytes->len > 0;
}

/* Decide by the first byte whether the client uses TLS. Return false if the client was rejected. */
static bool begin(struct client *c, struct slice bytes)
{
    const bool is_tls = *(const uint8_t *)bytes.data == TLS_FIRST_BYTE && (c->n_asked == 0 || c->has_asked);
    c->has_begun = true;
    if (is_tls && c->clients->tls == NULL) {
        send_alert(c, TLS_ALERT_PLAIN); /* the caller then passes the bytes to the hub, which rejects them */
    } else if (is_tls && (c->tls = tls_new(c->clients->tls)) == NULL) {
        reject(c, bytes, "out of memory");
        return false;
    } else if (!is_tls && (c->is_foreign || c->has_asked) && c->clients->tls != NULL) {
        send_alert(c, TLS_ALERT_ENCRYPTED);
        reject(c, bytes, "not encrypted, but this store accepts only TLS from other hosts; use --encrypt");
        return false;
    }
    return true;
}

/* Pass received bytes to the hub (conn_host.on_bytes). The hub sends the replies through callbacks before hub_receive
 * returns. Discard the bytes of a client that is being closed. */
static void on_bytes(struct conn *conn, struct slice bytes)
{
    struct client *c = (struct client *)conn;
    if (c->place != SERVED || (!c->has_begun && (!answer_credential_request(c, &bytes) || !begin(c, bytes))))
        return;
    if (c->tls != NULL) {
        pass_tls(c, bytes);
    } else {
        hub_receive(c->clients->hub, c->id, bytes, now_ms(c->clients));
        check_silent(c);
    }
    stop_if_full(c);
}

/* Return the key of a connection's source. */
static struct admission_key source_of(const struct sockaddr *peer, int64_t uid)
{
    struct admission_key key = { .is_uid = uid >= 0, .uid = uid >= 0 ? (uint32_t)uid : 0 };
    const struct in6_addr *six = &((const struct sockaddr_in6 *)peer)->sin6_addr;
    if (key.is_uid)
        return key;
    if (peer->sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(six)) {
        memcpy(key.address, six, 8);
    } else {
        key.address[10] = key.address[11] = 0xff;
        memcpy(key.address + 12,
               peer->sa_family == AF_INET6 ? (const void *)(six->s6_addr + 12)
                                           : (const void *)&((const struct sockaddr_in *)peer)->sin_addr,
               4);
    }
    return key;
}

/* Close the oldest connection that has sent no request, to free its descriptor. Return false if no connection may be
 * closed (admission_oldest_silent). */
static bool close_oldest_silent(struct clients *clients, enum admission_verdict verdict,
                                const struct admission_key *key)
{
    char why[160];
    struct admission_entry *e = admission_oldest_silent(&clients->admission, verdict, key, now_ms(clients));
    if (e == NULL)
        return false;
    struct client *c = (struct client *)((char *)e - offsetof(struct client, admission));
    snprintf(why, sizeof(why),
             "sent no request for %.3g s, and another client needs a connection; raise the limit of %u "
             "connections with 'ulimit -n'",
             (double)(now_ms(clients) - e->since_ms) / 1000, clients->admission.max);
    admission_close(&clients->admission, e);
    log_dropped(c, why);
    move_to(c, SERVED);
    conn_abort(&c->conn);
    hub_disconnect(clients->hub, c->id, why, now_ms(clients));
    return true;
}

/* Close the oldest REFUSED client. With ADMISSION_FULL, close only a client of the source `key`. Return false if no
 * such client exists. */
static bool close_oldest_refused(struct clients *clients, enum admission_verdict verdict,
                                 const struct admission_key *key)
{
    struct client *c;
    TAILQ_FOREACH(c, &clients->refused, link)
    if (c->admission.source != NULL &&
        (verdict != ADMISSION_FULL || is_same(&c->admission.source->key, key))) {
        admission_close(&clients->admission, &c->admission);
        abort_ending(c);
        return true;
    }
    return false;
}

/* Close a client to free its descriptor. `address` is the address of the new client, without its port; it may be NULL.
 * Return false if no client may be closed. */
static bool make_room(struct clients *clients, enum admission_verdict verdict,
                      const struct admission_key *key, const char *address)
{
    return close_oldest_refused(clients, verdict, key) ||
           (hub_drop_stranger(clients->hub, address, now_ms(clients)) &&
            close_oldest_refused(clients, verdict, key)) ||
           close_oldest_silent(clients, verdict, key);
}

void clients_close_silent(struct clients *clients, unsigned n)
{
    while (n > 0 && make_room(clients, ADMISSION_OK, NULL, NULL))
        n--;
}

/* Count the new client for its source. If a limit is reached, first close another client (make_room). If no other
 * client may be closed, log the reason and return false. */
static bool admit(struct clients *clients, struct client *c, int64_t uid)
{
    char why[160], address[ENDPOINT_TEXT_MAX];
    const struct admission_key key = source_of((const struct sockaddr *)&c->peer, uid);
    enum admission_verdict verdict =
        admission_open(&clients->admission, &c->admission, &key, now_ms(clients));
    if (verdict == ADMISSION_FULL || verdict == ADMISSION_NEARLY_FULL) {
        endpoint_of_sockaddr((const struct sockaddr *)&c->peer, address);
        *strrchr(address, ':') = '\0';
        if (make_room(clients, verdict, &key, verdict == ADMISSION_FULL ? address : NULL))
            verdict = admission_open(&clients->admission, &c->admission, &key, now_ms(clients));
    }
    if (verdict == ADMISSION_FULL)
        snprintf(why, sizeof(why),
                 "the client's %s already has %u connections, the limit for one %s (limit for all: %u); "
                 "raise both limits with 'ulimit -n'",
                 key.is_uid ? "user" : "address", admission_limit(&clients->admission, &key),
                 key.is_uid ? "user" : "address", clients->admission.max);
    else if (verdict == ADMISSION_NEARLY_FULL)
        snprintf(
            why, sizeof(why),
            "%u of %u connections are open, and the others are reserved for root and the store's user; raise "
            "the limit with 'ulimit -n'",
            clients->admission.limited, clients->admission.max);
    else
        return verdict == ADMISSION_OK;
    log_dropped(c, why);
    return false;
}

/* Add a client. If conn_open or hub_connect fails, the connection is closed, and on_conn_closed frees the client later.
 * After such a failure the hub has no session of this client, so the hub ignores all calls with the client's id. */
bool clients_add(struct clients *clients, int fd, const struct sockaddr *peer, int64_t uid)
{
    char text[ENDPOINT_TEXT_MAX];
    struct client *c = calloc(1, sizeof(*c));
    if (c != NULL) {
        c->clients = clients;
        memcpy(&c->peer, peer, peer->sa_family == AF_INET6 ? sizeof(c->peer) : sizeof(struct sockaddr_in));
    }
    if (c == NULL || !admit(clients, c, uid) || (c->id = idmap_store(&clients->map, c)) == 0) {
        if (c != NULL)
            admission_close(&clients->admission, &c->admission);
        free(c);
        close(fd);
        return false;
    }
    endpoint_of_sockaddr(peer, text);
    if (conn_open(&c->conn, &clients->host, fd) && !hub_connect(clients->hub, c->id, text, now_ms(clients)))
        conn_abort(&c->conn);
    c->is_foreign = uid < 0;
    if (c->is_foreign && clients->tls != NULL)
        hub_expect_tls(clients->hub, c->id);
    if (uid >= 0)
        hub_set_uid(clients->hub, c->id, (uint32_t)uid);
    else
        hub_set_foreign(clients->hub, c->id);
    log_peer(c, "connected");
    return true;
}

void clients_init(struct clients *clients)
{
    TAILQ_INIT(&clients->doomed);
    TAILQ_INIT(&clients->refused);
    TAILQ_INIT(&clients->ending);
    clients->host.on_bytes = on_bytes;
    clients->host.on_end = on_end;
    clients->host.on_drained = on_drained;
    clients->stall_ms = UINT64_MAX;
    clients->host.on_closed = on_conn_closed;
}

void clients_free(struct clients *clients)
{
    assert(clients->map.count == 0); /* a client in the map would still have an open handle */
    idmap_free(&clients->map);
    buf_free(&clients->plain);
    buf_free(&clients->cipher);
}
