/* store_server.c -- see store_server.h.
 *
 * The happy path: acceptor -> on_client -> hub_connect; conn -> on_bytes -> hub_feed -> on_send -> conn_send;
 * conn -> on_end -> hub_disconnect -> on_closed -> free.
 *
 * Every callback ends with settle(), which does what must not be done while the hub is at work:
 *   - cut off the clients whose replies could not be sent (a sink callback may not call the hub);
 *   - set the one timer to the nearest of three deadlines: the hub's, the acceptor's, the oldest ending
 * client's.
 *
 * It can go wrong when
 *   - the peer speaks nonsense: the hub calls on_close, the connection lingers until the peer has closed, at
 * most ENDING_MS;
 *   - the peer does not read: conn_send says CONN_SLOW, the client is cut off;
 *   - there are no descriptors left: see acceptor.c; counted and logged here;
 *   - the server is stopped: all replies are flushed for at most STOPPING_MS, then every connection is
 * closed. */
#include "store_server.h"

#include "acceptor.h"
#include "base/endpoint.h"
#include "base/log.h"
#include "conn.h"
#include "idmap.h"
#include "listener.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

enum {
    ENDING_MS = 5000,   /* a client that we told to go has so long to read its replies and close */
    STOPPING_MS = 1000, /* the same when the whole server stops */
    COMPLAIN_MS = 1000, /* one warning of a kind in so many ms */
    DEFAULT_QUEUE_BYTES = 32 << 20,
};

struct client {
    struct conn conn; /* first: on_* get this address */
    struct store_server *server;
    conn_id id;
    uint64_t ending_until_ms;
    TAILQ_ENTRY(client) link; /* in `doomed` or `ending`, see `list` */
    struct clients *list;     /* NULL = in neither */
    const char *doom;         /* why it is in `doomed` */
    bool slow;                /* it is there because it did not read */
    struct sockaddr_in6 peer; /* big enough for IPv4 too */
};

TAILQ_HEAD(clients, client);

/* Lets one line through in COMPLAIN_MS and counts the rest. */
struct complaints {
    uint64_t next_ms;
    unsigned left_out;
};

struct store_server {
    uv_loop_t loop;
    uv_async_t stop_request;
    uv_timer_t timer;
    uint64_t timer_at_ms; /* UINT64_MAX = not set */
    struct acceptor acceptor;
    struct conn_host host;
    struct hub *hub;
    struct idmap clients;
    struct clients doomed; /* to be cut off by settle() */
    struct clients ending; /* flushing or lingering, oldest first */
    uint64_t stop_at_ms;   /* UINT64_MAX = not stopping */
    struct complaints dropped, short_of_fds;
    bool log_peers;
    struct listener listener;
    uv_thread_t thread;
};

static void settle(struct store_server *s);

/* --- words --------------------------------------------------------------------------------------------- */

/* True when a line may be written now; *left_out says how many were not before it. */
static bool may_complain(struct complaints *c, uint64_t now_ms, unsigned *left_out)
{
    if (now_ms < c->next_ms) {
        c->left_out++;
        return false;
    }
    *left_out = c->left_out;
    *c = (struct complaints){ .next_ms = now_ms + COMPLAIN_MS };
    return true;
}

/* We end a connection ourselves. A port scanner may cause thousands of these lines, hence the gate. */
static void log_dropped(struct client *c, const char *why)
{
    struct store_server *s = c->server;
    char peer[ENDPOINT_TEXT_MAX];
    unsigned left_out = 0;
    if (!s->log_peers && !may_complain(&s->dropped, uv_now(&s->loop), &left_out))
        return;
    endpoint_of_sockaddr((struct sockaddr *)&c->peer, peer);
    if (left_out > 0)
        log_warn("%s: dropped: %s (and %u more in between)", peer, why, left_out);
    else
        log_warn("%s: dropped: %s", peer, why);
}

static void log_peer(struct client *c, const char *what)
{
    char peer[ENDPOINT_TEXT_MAX];
    if (c->server->log_peers)
        log_info("%s: %s", endpoint_of_sockaddr((struct sockaddr *)&c->peer, peer), what);
}

/* --- a client's end ------------------------------------------------------------------------------------ */

static void enlist(struct client *c, struct clients *list)
{
    if (c->list != NULL)
        TAILQ_REMOVE(c->list, c, link);
    c->list = list;
    if (list != NULL)
        TAILQ_INSERT_TAIL(list, c, link);
}

static void start_ending(struct client *c, bool linger)
{
    c->ending_until_ms = uv_now(&c->server->loop) + ENDING_MS;
    enlist(c, &c->server->ending);
    conn_finish(&c->conn, linger);
}

static void maybe_stopped(struct store_server *s)
{
    if (s->stop_at_ms != UINT64_MAX && s->clients.count == 0)
        uv_close((uv_handle_t *)&s->timer, NULL); /* the last handle: the loop ends */
}

/* The one place where a client is freed. */
static void on_closed(struct conn *conn)
{
    struct client *c = (struct client *)conn;
    struct store_server *s = c->server;
    enlist(c, NULL);
    idmap_remove(&s->clients, c->id);
    acceptor_put_back(&s->acceptor);
    free(c);
    maybe_stopped(s);
}

static void on_end(struct conn *conn, const char *why)
{
    struct client *c = (struct client *)conn;
    struct store_server *s = c->server;
    log_peer(c, why);
    c->ending_until_ms = uv_now(&s->loop) + ENDING_MS;
    enlist(c, &s->ending);
    hub_disconnect(s->hub, c->id, uv_now(&s->loop));
    settle(s);
}

static void cut_off(struct client *c)
{
    struct store_server *s = c->server;
    enlist(c, NULL);
    log_dropped(c, c->doom);
    if (c->slow)
        hub_count(s->hub, HUB_CUT_OFF_SLOW_READER);
    conn_abort(&c->conn);
    hub_disconnect(s->hub, c->id, uv_now(&s->loop)); /* may doom others */
}

/* --- what the hub wishes ------------------------------------------------------------------------------- */

static void on_send(void *user, conn_id id, struct slice bytes)
{
    struct store_server *s = user;
    struct client *c = idmap_get(&s->clients, id);
    if (c == NULL || c->list != NULL)
        return;
    enum conn_sent sent = conn_send(&c->conn, bytes);
    if (sent == CONN_SENT)
        return;
    c->slow = sent == CONN_SLOW;
    c->doom = c->slow ? "it does not read its replies, too many are queued" : "writing to it failed";
    enlist(c, &s->doomed);
}

static void on_close(void *user, conn_id id, const char *why)
{
    struct store_server *s = user;
    struct client *c = idmap_get(&s->clients, id);
    if (c == NULL)
        return;
    log_dropped(c, why);
    start_ending(c, true);
}

static void on_log(void *user, const char *line)
{
    const struct store_server *s = user;
    log_line(s->log_peers ? LOG_INFO : LOG_DEBUG, "%s", line);
}

/* --- clients come -------------------------------------------------------------------------------------- */

static void on_bytes(struct conn *conn, struct slice bytes)
{
    struct client *c = (struct client *)conn;
    struct store_server *s = c->server;
    hub_feed(s->hub, c->id, bytes, uv_now(&s->loop));
    settle(s);
}

static void on_client(struct acceptor *a, int fd, const struct sockaddr *peer)
{
    struct store_server *s = a->user;
    char text[ENDPOINT_TEXT_MAX];
    struct client *c = calloc(1, sizeof(*c));
    if (c == NULL || (c->id = idmap_put(&s->clients, c)) == 0) {
        free(c);
        close(fd);
        acceptor_put_back(a);
        return;
    }
    c->server = s;
    memcpy(&c->peer, peer, sizeof(c->peer));
    if (!conn_open(&c->conn, &s->host, fd))
        return; /* on_closed comes */
    if (!hub_connect(s->hub, c->id, endpoint_of_sockaddr(peer, text), uv_now(&s->loop)))
        conn_abort(&c->conn);
    log_peer(c, "connected");
    settle(s);
}

static void on_short(struct acceptor *a, unsigned waiting, const char *why)
{
    struct store_server *s = a->user;
    unsigned left_out;
    hub_count(s->hub, HUB_REFUSED_NO_FD);
    if (may_complain(&s->short_of_fds, uv_now(&s->loop), &left_out))
        log_warn("no file descriptors left (%s): %u clients are connected, %u wait until one leaves; "
                 "'ulimit -n' raises the limit",
                 why, a->open, waiting);
}

/* --- time ---------------------------------------------------------------------------------------------- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t next_deadline(const struct store_server *s)
{
    uint64_t at = earlier(hub_deadline(s->hub), acceptor_deadline(&s->acceptor));
    const struct client *oldest = TAILQ_FIRST(&s->ending);
    return earlier(oldest != NULL ? earlier(at, oldest->ending_until_ms) : at, s->stop_at_ms);
}

/* Abort the ending clients whose time is over (all of them once the server's own time is). */
static void abort_late(struct store_server *s, uint64_t now_ms)
{
    struct client *c;
    while ((c = TAILQ_FIRST(&s->ending)) != NULL &&
           (c->ending_until_ms <= now_ms || s->stop_at_ms <= now_ms)) {
        enlist(c, NULL);
        conn_abort(&c->conn);
    }
}

static void on_time(uv_timer_t *timer)
{
    struct store_server *s = timer->data;
    uint64_t now_ms = uv_now(&s->loop);
    s->timer_at_ms = UINT64_MAX;
    abort_late(s, now_ms);
    acceptor_tick(&s->acceptor, now_ms);
    if (hub_deadline(s->hub) <= now_ms)
        hub_tick(s->hub, now_ms);
    settle(s);
}

static void settle(struct store_server *s)
{
    struct client *c;
    while ((c = TAILQ_FIRST(&s->doomed)) != NULL)
        cut_off(c);
    uint64_t at_ms = next_deadline(s), now_ms = uv_now(&s->loop);
    if (at_ms >= s->timer_at_ms)
        return; /* it will ring in time; ringing too early costs less than setting it anew for every command
                 */
    s->timer_at_ms = at_ms;
    uv_timer_start(&s->timer, on_time, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* --- start and stop ------------------------------------------------------------------------------------ */

static void on_stop(uv_async_t *async)
{
    struct store_server *s = async->data;
    struct client *c;
    s->stop_at_ms = uv_now(&s->loop) + STOPPING_MS;
    uv_close((uv_handle_t *)async, NULL);
    acceptor_close(&s->acceptor, NULL);
    for (size_t i = 0; (c = idmap_next(&s->clients, &i)) != NULL;)
        start_ending(c, false);
    maybe_stopped(s);
    if (s->clients.count > 0)
        settle(s);
}

static void run(void *user)
{
    struct store_server *s = user;
    uv_run(&s->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&s->loop);
    assert(left == 0); /* a handle that nobody closed is a bug here */
    (void)left;
}

/* Signals are the caller's business: none is delivered on our thread, SIGPIPE neither (write then says
 * EPIPE). */
static int start_thread(struct store_server *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = uv_thread_create(&s->thread, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static struct store_server *server_new(const struct store_server_options *o)
{
    struct store_server *s = calloc(1, sizeof(*s));
    const struct hub_sink sink = { .user = s, .send = on_send, .close = on_close, .log = on_log };
    if (s == NULL)
        return NULL;
    s->hub = hub_new(&o->limits, &sink);
    TAILQ_INIT(&s->doomed);
    TAILQ_INIT(&s->ending);
    s->timer_at_ms = s->stop_at_ms = UINT64_MAX;
    s->log_peers = o->log_peers;
    s->host.loop = &s->loop;
    s->host.max_queue_bytes = o->max_queue_bytes > 0 ? o->max_queue_bytes : DEFAULT_QUEUE_BYTES;
    s->host.on_bytes = on_bytes;
    s->host.on_end = on_end;
    s->host.on_closed = on_closed;
    s->acceptor.user = s;
    s->acceptor.on_client = on_client;
    s->acceptor.on_short = on_short;
    return s;
}

static void server_free(struct store_server *s)
{
    if (s == NULL)
        return;
    if (s->hub != NULL)
        hub_free(s->hub);
    idmap_free(&s->clients);
    free(s);
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    uv_close(handle, NULL);
}

/* Undo serve when there is no thread that does it on its way out. */
static void close_handles(struct store_server *s)
{
    uv_walk(&s->loop, close_handle, NULL);
    close(s->listener.fd);
    run(s);
}

/* 0 when the thread runs, or a libuv error; the loop and the listening socket are closed then. */
static int serve(struct store_server *s)
{
    int rc = uv_loop_init(&s->loop);
    if (rc != 0) {
        close(s->listener.fd);
        return rc;
    }
    uv_timer_init(&s->loop, &s->timer);
    rc = uv_async_init(&s->loop, &s->stop_request, on_stop);
    s->timer.data = s->stop_request.data = s;
    if (rc == 0)
        rc = acceptor_open(&s->acceptor, &s->loop, s->listener.fd);
    if (rc == 0)
        rc = start_thread(s);
    if (rc != 0)
        close_handles(s);
    return rc;
}

ddp_status store_server_start(const struct store_server_options *options, struct store_server **out,
                              struct ddp_err *err)
{
    struct store_server *s = server_new(options);
    if (s == NULL || s->hub == NULL) {
        server_free(s);
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot start the store: out of memory");
    }
    ddp_status status = listener_open(options->host, options->port, &s->listener, err);
    if (status == DDP_OK) {
        int rc = serve(s);
        if (rc != 0)
            status = ddp_fail(err, DDP_ERR_IO, "cannot start the store: %s", uv_strerror(rc));
    }
    if (status == DDP_OK)
        *out = s;
    else
        server_free(s);
    return status;
}

int store_server_port(const struct store_server *server)
{
    return server->listener.port;
}

const char *store_server_address(const struct store_server *server)
{
    return server->listener.address;
}

void store_server_stop(struct store_server *server)
{
    if (server == NULL)
        return;
    uv_async_send(&server->stop_request);
    uv_thread_join(&server->thread);
    server_free(server);
}
