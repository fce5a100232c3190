/* hub.c -- see hub.h and session.h: connections come and go, time passes, bytes go out.
 *
 * While one connection's bytes are worked off (`feeding`) its answers gather in `out` and leave in one
 * piece at the end; whatever goes to others in between (a SET that wakes) leaves at once. So each
 * connection gets its bytes in order, and a pipeline of a hundred requests costs one send. */
#include "core/session.h"

#include "core/encode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    OUT_DIRECT =
        64
        << 10, /* a value this big goes out from where it lies; replies are sent when they pile up so high */
    OUT_KEPT = 1 << 20, /* an output buffer grown beyond this is given back */
};

/* The id's own bytes are the key, so one kind of table serves ids, keys and names. */
static struct slice id_key(const conn_id *id)
{
    return slice_of(id, sizeof(*id));
}

static struct session *find(struct hub *hub, conn_id conn)
{
    struct table_node *node = table_find(&hub->sessions, id_key(&conn), table_hash(id_key(&conn)));
    return node ? TABLE_ENTRY(node, struct session, node) : NULL;
}

/* --- what goes out
 * ------------------------------------------------------------------------------------------- */

/* The buffer is kept for the next call unless a big answer has blown it up. */
static void flush(struct hub *hub)
{
    if (hub->out.len > 0)
        hub->sink.send(hub->sink.user, hub->feeding->id, buf_slice(&hub->out));
    hub->out.len = 0;
    if (hub->out.cap > OUT_KEPT)
        buf_free(&hub->out);
}

/* To the one being fed: first what has gathered for it. */
void hub_send(struct hub *hub, struct session *s, struct slice bytes)
{
    if (s == hub->feeding)
        flush(hub);
    hub->sink.send(hub->sink.user, s->id, bytes);
}

bool hub_reply_blob(struct hub *hub, struct slice value)
{
    if (!put_u64(&hub->out, value.len))
        return false;
    if (hub->out.len >= OUT_DIRECT || value.len >= OUT_DIRECT)
        flush(hub);
    if (value.len < OUT_DIRECT)
        return buf_append(&hub->out, value.data, value.len);
    hub_send(hub, hub->feeding, value);
    return true;
}

/* On the stack, cut when it is longer: a log line is no reason to fail. */
void hub_log(struct hub *hub, const char *fmt, ...)
{
    char line[1024];
    if (hub->sink.log == NULL)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    hub->sink.log(hub->sink.user, line);
}

/* WAIT and BARRIER both end with one zero byte. */
static void wake(void *user, struct store_waiter *waiter)
{
    struct session *s = TABLE_ENTRY(waiter, struct session, waiter);
    s->waits_in = NULL;
    hub_send(user, s, slice_of("\0", 1));
}

/* --- connections
 * --------------------------------------------------------------------------------------------- */

/* Nothing is known of a connection but where it comes from; the attempt that runs now is the one it
 * belongs to. */
bool hub_connect(struct hub *hub, conn_id conn, const char *peer, uint64_t now_ms)
{
    struct session *s = calloc(1, sizeof(*s));
    char *copy = strdup(peer);
    if (s == NULL || copy == NULL) {
        free(s);
        free(copy);
        return false;
    }
    s->id = conn;
    s->node =
        (struct table_node){ .key = &s->id, .key_len = sizeof(s->id), .hash = table_hash(id_key(&conn)) };
    s->peer = copy;
    s->heard_ms = hub->now_ms = now_ms;
    wire_init(&s->wire, hub->limits.dialect_b);
    list_init(&s->midway);
    list_init(&s->by_rank);
    list_init(&s->seat.node);
    s->era = hub->era;
    table_put(&hub->sessions, &s->node);
    return true;
}

/* The one place that frees a session; whoever else knows of it is told here. */
static void forget(struct hub *hub, struct session *s)
{
    session_leave_wait(hub, s);
    store_acted(hub->store, &s->waiter);
    attempt_detach(hub, s);
    list_remove(&s->midway);
    quota_give(&hub->quota, s->in.cap);
    buf_free(&s->in);
    table_remove(&hub->sessions, &s->node);
    free(s->peer);
    free(s);
}

/* Forgotten first, closed after: the shell may reuse or free its side in the callback. */
void hub_drop(struct hub *hub, struct session *s, const char *why)
{
    conn_id conn = s->id;
    hub->closed_by_us++;
    forget(hub, s);
    hub->sink.close(hub->sink.user, conn, why);
}

void hub_disconnect(struct hub *hub, conn_id conn, uint64_t now_ms)
{
    struct session *s = find(hub, conn);
    hub->now_ms = now_ms;
    if (s != NULL)
        forget(hub, s);
}

/* An id that is not known is one we closed ourselves, whose last bytes were under way. */
void hub_feed(struct hub *hub, conn_id conn, struct slice bytes, uint64_t now_ms)
{
    struct session *s = find(hub, conn);
    if (s == NULL)
        return;
    hub->now_ms = s->heard_ms = now_ms;
    hub->feeding = s;
    bool ok = session_feed(hub, s, bytes);
    flush(hub);
    hub->feeding = NULL;
    if (!ok)
        hub_drop(hub, s, hub->err.msg[0] ? hub->err.msg : "out of memory");
}

/* --- time
 * ---------------------------------------------------------------------------------------------------- */

/* Everybody in a line has the same time, so its first is the next to be late: no heap of timers is
 * needed. */
static uint64_t midway_deadline(const struct hub *hub, int spoken)
{
    const struct list *line = &hub->midway[spoken];
    if (list_is_empty(line))
        return UINT64_MAX;
    uint32_t limit = spoken ? hub->limits.command_ms : hub->limits.first_command_ms;
    return LIST_ENTRY(line->next, struct session, midway)->midway_since_ms + limit;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t hub_deadline(const struct hub *hub)
{
    uint64_t unfinished = earlier(midway_deadline(hub, 0), midway_deadline(hub, 1));
    return earlier(unfinished, barriers_deadline(&hub->barriers));
}

static void drop_oldest(struct hub *hub, int spoken)
{
    char why[128];
    struct session *s = LIST_ENTRY(hub->midway[spoken].next, struct session, midway);
    snprintf(why, sizeof(why), "its %srequest is unfinished after %llu ms, with %zu bytes",
             spoken ? "" : "first ", (unsigned long long)(hub->now_ms - s->midway_since_ms), s->in.len);
    hub_drop(hub, s, why);
}

void hub_tick(struct hub *hub, uint64_t now_ms)
{
    hub->now_ms = now_ms;
    for (int spoken = 0; spoken < 2; spoken++)
        while (midway_deadline(hub, spoken) <= now_ms)
            drop_oldest(hub, spoken);
    barriers_tick(&hub->barriers, now_ms);
}

void hub_count(struct hub *hub, enum hub_counter counter)
{
    hub->counter[counter]++;
}

/* --- the hub itself
 * ------------------------------------------------------------------------------------------ */

struct hub *hub_new(const struct hub_limits *limits, const struct hub_sink *sink)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    if (hub == NULL)
        return NULL;
    hub->limits = *limits;
    hub->sink = *sink;
    hub->quota.max = limits->max_bytes;
    hub->members.quota = &hub->quota;
    list_init(&hub->midway[0]);
    list_init(&hub->midway[1]);
    struct barrier_env env = ours_barrier_env(hub);
    hub->store = store_new(&hub->quota, wake, hub);
    bool ok = table_init(&hub->sessions) && barriers_init(&hub->barriers, &hub->quota, &env);
    if (!ok || hub->store == NULL) {
        hub_free(hub);
        return NULL;
    }
    return hub;
}

/* Works on a half-made hub too, for hub_new. */
void hub_free(struct hub *hub)
{
    if (hub == NULL)
        return;
    if (hub->store != NULL)
        store_clear(hub->store); /* so that nobody is woken by the others' leaving */
    struct table_node *node = hub->sessions.chain ? table_next(&hub->sessions, NULL) : NULL;
    for (struct table_node *next; node != NULL; node = next) {
        next = table_next(&hub->sessions, node);
        forget(hub, TABLE_ENTRY(node, struct session, node));
    }
    store_free(hub->store);
    barriers_free(&hub->barriers);
    members_free(&hub->members);
    table_free(&hub->sessions);
    buf_free(&hub->out);
    buf_free(&hub->words);
    free(hub);
}
