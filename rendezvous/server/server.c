/* server.c -- see server.h. One thread runs one libuv loop with the acceptor, the clients and one timer.
 * store_server_start binds and listens on the caller's thread, because it must return errors. Then it starts the thread
 * that runs the loop. */
#include "server/server.h"

#include "auth/tls.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "base/timed_call.h"
#include "server/clients.h"
#include "server/listen.h"
#include "server/socket_owner.h"
#include "store/table.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STOPPING_MS = 1000,    /* time for the clients to read their last replies */
    WAIT_SILENT_MS = 1000, /* a shorter wait for nodes is not logged */
    NONCE_BYTES = 8,
    QUEUE_CHECK_MS = 1000, /* minimum time between two calls of check_queue that do a check */
};

/* All times are on the clock of the loop (uv_now). */
struct store_server {
    uv_loop_t loop;
    uv_async_t stop_request; /* wakes the loop to stop; both threads use this member and `stop_requested` */
    uv_timer_t timer;
    uv_prepare_t before_sleep; /* calls on_before_sleep each time before the loop sleeps */
    uint64_t timer_at_ms;      /* UINT64_MAX if the timer is not set */
    bool caught_up; /* was_suspended() has set a short timer; until it fires, the loop only reads input */
    bool stopping;  /* end_all was called */
    atomic_bool stop_requested; /* a stop was requested by the thread of store_server_start */
    uint64_t wait_nodes_ms;     /* limit of the wait until all nodes have left; set before the stop request */
    uint64_t wait_nodes_end_ms; /* end of the wait for nodes; UINT64_MAX = no wait */
    uint64_t wait_nodes_log_ms; /* when to log that the store waits for nodes; UINT64_MAX = never */
    uint64_t force_at_ms;       /* when to abort all clients; UINT64_MAX = never */
    struct listener listener;
    struct acceptor acceptor;
    struct uid_gate uid_gate;
    struct clients clients;
    struct hub *hub;                /* owned */
    struct rate_limit short_of_fds; /* limits how often the shortage of descriptors is logged */
    struct tls_context *tls;        /* owned; NULL if the store does not encrypt */
    pthread_t thread;
    char instance[2 * NONCE_BYTES + 1]; /* the hub borrows `instance`, `host` and `endpoint` */
    char host[HOST_NAME_MAX + 1], endpoint[HOST_NAME_MAX + ENDPOINT_TEXT_MAX];
    uint64_t queue_checked_ms; /* time of the last check by check_queue */
};

/* --- time ---------------------------------------------------------------------------------------------- */

static void on_time(uv_timer_t *timer);

/* Return the time at which the timer must next call on_time(): the next deadline of the hub, the acceptor, the clients,
 * or the stop. */
static uint64_t next_deadline(const struct store_server *s)
{
    uint64_t clients_or_force = earlier_of(clients_deadline(&s->clients), s->force_at_ms);
    uint64_t wait_nodes = earlier_of(s->wait_nodes_end_ms, s->wait_nodes_log_ms);
    return earlier_of(earlier_of(clients_or_force, wait_nodes),
                      earlier_of(hub_deadline(s->hub), s->acceptor.resume_ms));
}

static void end_all(struct store_server *s);

/* End all clients after a stop request, once all nodes have left or the wait has reached its limit. */
static void wait_for_nodes(struct store_server *s, uint64_t now_ms)
{
    if (hub_nodes(s->hub) == 0 || now_ms >= s->wait_nodes_end_ms) {
        end_all(s);
    } else if (now_ms >= s->wait_nodes_log_ms) {
        s->wait_nodes_log_ms = UINT64_MAX;
        log_info("the store waits for %u node%s to read the job's result, for at most %.3g s",
                 hub_nodes(s->hub), hub_nodes(s->hub) == 1 ? "" : "s", (double)s->wait_nodes_ms / 1000);
    }
}

/* End a turn of the loop. Setting the timer in each turn would cost more than a useless call of on_time. So set the
 * timer again only if it would fire too late. */
static void on_before_sleep(uv_prepare_t *prepare)
{
    struct store_server *s = prepare->data;
    const uint64_t now_ms = uv_now(&s->loop);
    clients_end_turn(&s->clients);
    if (s->wait_nodes_end_ms != UINT64_MAX)
        wait_for_nodes(s, now_ms);
    const uint64_t at_ms = next_deadline(s);
    if (at_ms >= s->timer_at_ms)
        return;
    s->timer_at_ms = at_ms;
    uv_timer_start(&s->timer, on_time, at_ms > now_ms ? at_ms - now_ms : 0, 0);
}

/* Return true if the timer is so late that the process must have been suspended (clock.h). Messages may have arrived in
 * time, but the loop has not read them yet. So set a short timer: the loop reads the messages before it checks the
 * deadlines. */
static bool was_suspended(struct store_server *s)
{
    s->caught_up = !s->caught_up && uv_now(&s->loop) > s->timer_at_ms + STOOD_STILL_MS;
    if (s->caught_up)
        uv_timer_start(&s->timer, on_time, CLOCK_CATCH_UP_MS, 0);
    return s->caught_up;
}

/* Handle the deadlines that have passed. on_before_sleep() handles the deadlines of wait_for_nodes(). */
static void on_time(uv_timer_t *timer)
{
    struct store_server *s = timer->data;
    uint64_t now_ms = uv_now(&s->loop);
    if (was_suspended(s))
        return;
    s->timer_at_ms = UINT64_MAX;
    clients_tick(&s->clients, now_ms);
    acceptor_tick(&s->acceptor, now_ms);
    if (hub_deadline(s->hub) <= now_ms)
        hub_tick(s->hub, now_ms);
    if (s->force_at_ms <= now_ms) {
        s->force_at_ms = UINT64_MAX;
        clients_abort_all(&s->clients);
    }
}

/* --- events -------------------------------------------------------------------------------------------- */

/* Report to the hub, at most once per QUEUE_CHECK_MS, how many connections the kernel has dropped. This function is
 * called for each new connection. No other call is needed, because a dropped client tries again and then causes a new
 * connection. */
static void check_queue(struct store_server *s)
{
    const uint64_t now_ms = uv_now(&s->loop);
    if (now_ms < s->queue_checked_ms + QUEUE_CHECK_MS)
        return;
    s->queue_checked_ms = now_ms;
    hub_set_counter(s->hub, HUB_ACCEPT_OVERFLOWS, listen_queue_drops(s->listener.fd));
}

/* Close a connection that the uid gate rejects. The hub records the rejection for its findings. The hub also decides
 * whether to log the rejection, because a client may try again many times. After a stop request, log nothing, because
 * ddprun itself may then have closed its connection before this thread has accepted it. */
static void refuse_client(struct store_server *s, int fd, const struct sockaddr *peer, const char *why)
{
    char text[ENDPOINT_TEXT_MAX];
    close(fd);
    if (!atomic_load(&s->stop_requested) &&
        hub_note_refused(s->hub, endpoint_of_sockaddr(peer, text), why, uv_now(&s->loop)))
        log_warn("store client %s: rejected: %s", text, why);
}

/* Handle a new connection. Check its user before reading any byte, because PyTorch's protocol has no password. */
static void on_client(struct acceptor *a, int fd, const struct sockaddr *peer)
{
    struct store_server *s = a->user;
    char why[UID_GATE_WHY_MAX];
    int64_t uid;
    check_queue(s);
    const bool admitted = uid_gate_admits(&s->uid_gate, fd, peer, &uid, why);
    if (!admitted)
        refuse_client(s, fd, peer, why);
    if (!admitted || !clients_add(&s->clients, fd, peer, uid))
        acceptor_client_closed(a);
}

static void on_make_room(struct acceptor *a, unsigned waiting)
{
    struct store_server *s = a->user;
    clients_close_silent(&s->clients, waiting);
}

/* Count and log a shortage of descriptors. listen.c has paused the acceptor. */
static void on_short(struct acceptor *a, unsigned waiting, const char *why)
{
    struct store_server *s = a->user;
    unsigned left_out;
    struct rlimit files = { 0 };
    getrlimit(RLIMIT_NOFILE, &files);
    hub_count(s->hub, HUB_REFUSED_NO_FD);
    hub_set_counter(s->hub, HUB_OPEN_FILES, files.rlim_cur);
    if (rate_limit_pass(&s->short_of_fds, uv_now(&s->loop), &left_out))
        log_warn(
            "no file descriptors left: %s (connected clients: %u, clients that must wait: %u); raise the "
            "limit with 'ulimit -n' (now %llu)",
            why, a->open, waiting, (unsigned long long)files.rlim_cur);
}

/* Close the last two handles after the last client was freed. The loop then ends. */
static void end_if_empty(struct store_server *s)
{
    if (!s->stopping || s->clients.map.count > 0)
        return;
    uv_close((uv_handle_t *)&s->timer, NULL);
    uv_close((uv_handle_t *)&s->before_sleep, NULL);
}

static void on_freed(void *user)
{
    struct store_server *s = user;
    acceptor_client_closed(&s->acceptor);
    end_if_empty(s);
}

/* Close the acceptor and the connections of all clients. Do not call hub_disconnect, which would report the clients as
 * lost. Clients that do not read their last replies are aborted after STOPPING_MS. */
static void end_all(struct store_server *s)
{
    s->wait_nodes_end_ms = s->wait_nodes_log_ms = UINT64_MAX;
    s->stopping = true;
    s->force_at_ms = uv_now(&s->loop) + STOPPING_MS;
    acceptor_close(&s->acceptor, NULL);
    clients_end_all(&s->clients);
    clients_end_turn(&s->clients);
    end_if_empty(s);
}

/* Begin to wait until all nodes have left. The server's thread runs this function. If the limit of the wait is 0,
 * on_before_sleep ends the wait at once. */
static void on_stop(uv_async_t *async)
{
    struct store_server *s = async->data;
    const uint64_t now_ms = uv_now(&s->loop);
    uv_close((uv_handle_t *)async, NULL);
    s->wait_nodes_end_ms = now_ms + s->wait_nodes_ms;
    s->wait_nodes_log_ms = now_ms + WAIT_SILENT_MS;
}

/* --- start and stop ------------------------------------------------------------------------------------ */

/* How the server stops:
 * 1. store_server_begin_stop wakes the server's thread, which calls on_stop.
 * 2. The loop waits until all nodes have left, but at most wait_nodes_ms. Then wait_for_nodes calls end_all.
 * 3. After the last client was freed, end_if_empty closes the last two handles, so uv_run returns.
 * 4. store_server_stop joins the thread. */

/* Run the loop until no handle is left. This is the main function of the server's thread. */
static void *run_loop(void *user)
{
    struct store_server *s = user;
    uv_run(&s->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&s->loop);
    assert(left == 0); /* an open handle is a bug in this module */
    (void)left;
    return NULL;
}

static void close_handle(uv_handle_t *handle, void *unused)
{
    (void)unused;
    uv_close(handle, NULL);
}

/* Close all handles, because the server's thread did not start. */
static void close_handles(struct store_server *s)
{
    uv_walk(&s->loop, close_handle, NULL);
    run_loop(s);
}

/* Start the loop and the thread. Return 0, or a libuv error; after an error the loop is closed. */
static int serve(struct store_server *s)
{
    int rc = uv_loop_init(&s->loop);
    if (rc != 0)
        return rc;
    uv_timer_init(&s->loop, &s->timer);
    uv_prepare_init(&s->loop, &s->before_sleep);
    uv_prepare_start(&s->before_sleep, on_before_sleep);
    rc = uv_async_init(&s->loop, &s->stop_request, on_stop);
    s->timer.data = s->before_sleep.data = s->stop_request.data = s;
    if (rc == 0)
        rc = acceptor_open(&s->acceptor, &s->loop, s->listener.fd);
    admission_init(&s->clients.admission, s->acceptor.max, (uint32_t)geteuid());
    if (rc == 0)
        rc = -thread_start(&s->thread, run_loop, s);
    if (rc != 0)
        close_handles(s);
    return rc;
}

/* Free the server after its thread has ended. Free the hub before the map of clients, because the hub may use the
 * map. */
static void server_free(struct store_server *s)
{
    if (s == NULL)
        return;
    if (s->hub != NULL)
        hub_free(s->hub);
    clients_free(&s->clients);
    tls_context_close(s->tls);
    uid_gate_close(&s->uid_gate);
    free(s->clients.host.read_buffer);
    free(s);
}

/* Make a random text that identifies this store. An agent that connects again compares this text, to detect that
 * another store now uses the port. If the kernel has no random bytes yet, use the clock and the pid. */
static void make_nonce(char text[static 2 * NONCE_BYTES + 1])
{
    uint64_t nonce;
    if (sys_getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK) != sizeof(nonce))
        nonce = uv_hrtime() ^ (uint64_t)getpid() << 32;
    snprintf(text, 2 * NONCE_BYTES + 1, "%016" PRIx64, nonce);
}

/* Make the secret of all hash tables (store/table.h). uv_once calls this function only once in a process, because a
 * new secret would make existing tables useless. */
static void make_hash_key(void)
{
    uint64_t key[2];
    if (sys_getrandom(key, sizeof(key), 0) != sizeof(key))
        key[0] = key[1] = uv_hrtime() ^ (uint64_t)getpid() << 32;
    table_set_hash_key(key);
}

/* Create the server, and connect the hub, the acceptor and the clients through callbacks. */
static struct store_server *server_new(const struct store_server_options *o)
{
    static uv_once_t hash_key_made = UV_ONCE_INIT;
    struct store_server *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->uid_gate.insecure = o->insecure;
    clients_init(&s->clients);
    struct hub_sink sink = clients_sink(&s->clients);
    sink.event = o->event;
    sink.event_user = o->event_user;
    struct hub_limits limits = o->limits;
    limits.instance = s->instance;
    limits.host = s->host;
    limits.endpoint = s->endpoint;
    make_nonce(s->instance);
    uv_once(&hash_key_made, make_hash_key);
    s->hub = hub_new(&limits, &sink);
    /* malloc, because calloc may write zeros to all pages of the buffer before the pages are needed */
    s->clients.host.read_buffer = malloc(CONN_READ_BYTES);
    if (s->hub == NULL || s->clients.host.read_buffer == NULL) {
        server_free(s);
        return NULL;
    }
    s->timer_at_ms = s->force_at_ms = s->wait_nodes_end_ms = s->wait_nodes_log_ms = UINT64_MAX;
    s->acceptor.user = s->clients.user = s;
    s->acceptor.on_client = on_client;
    s->acceptor.make_room = on_make_room;
    s->acceptor.on_short = on_short;
    s->clients.hub = s->hub;
    s->clients.host.loop = &s->loop;
    s->clients.host.max_queue_bytes = o->limits.max_unread + CLIENT_UNREAD_MAX;
    s->clients.host.max_queued_bytes = o->limits.max_replies;
    s->clients.log_peers = o->log_peers;
    s->clients.freed = on_freed;
    return s;
}

/* Set the host name and the address that messages and answers show for the store. If the store listens on all
 * addresses, show the host name, because no single address is right for all hosts. */
static void name_server(struct store_server *s)
{
    const char *address = s->listener.address;
    const bool any = strncmp(address, "[::]:", 5) == 0 || strncmp(address, "0.0.0.0:", 8) == 0;
    if (gethostname(s->host, sizeof(s->host)) != 0)
        strcpy(s->host, "this machine");
    if (any)
        snprintf(s->endpoint, sizeof(s->endpoint), "%s:%d", s->host, s->listener.port);
    else
        snprintf(s->endpoint, sizeof(s->endpoint), "%s", address);
    hub_set_counter(s->hub, HUB_SOMAXCONN, listen_queue_limit(s->listener.fd));
}

ddp_status store_server_start(const struct store_server_options *options, struct store_server **out,
                              struct ddp_err *err)
{
    struct store_server *s = server_new(options);
    if (s == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "store: cannot start: out of memory");
    if (options->encrypt &&
        tls_context_open(TLS_SERVER, options->limits.secret, "", &s->tls, err) != DDP_OK) {
        server_free(s);
        return DDP_ERR_UNSUPPORTED;
    }
    s->clients.tls = s->tls;
    ddp_status status = listener_open(options->host, options->port, options->port_option, &s->listener, err);
    if (status == DDP_OK)
        name_server(s);
    char remedy[FILES_REMEDY_MAX];
    int rc = status == DDP_OK ? serve(s) : 0;
    if (rc != 0) {
        close(s->listener.fd);
        status = ddp_fail(err, DDP_ERR_IO, "store: cannot start: %s%s", uv_strerror(rc),
                          files_remedy(-rc, remedy));
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

/* Set wait_nodes_ms. This needs no lock: the caller sets the limit before the stop request, and the server's thread
 * reads it after this request. */
void store_server_wait_nodes(struct store_server *server, uint64_t limit_ms)
{
    server->wait_nodes_ms = limit_ms;
}

void store_server_begin_stop(struct store_server *server)
{
    if (server != NULL && !atomic_exchange(&server->stop_requested, true))
        uv_async_send(&server->stop_request);
}

void store_server_stop(struct store_server *server)
{
    if (server == NULL)
        return;
    store_server_begin_stop(server);
    pthread_join(server->thread, NULL);
    server_free(server);
}
