/* tls_relay.c -- see tls_relay.h. Each direction of a connection has a pipe of limited size, so a slow reader delays
 * only its own connection. When one side ends, the relay sends a FIN or a reset to the other side, which must
 * distinguish a complete connection from a cut connection. */
#include "net/tls_relay.h"

#include "base/limits.h"
#include "base/list.h"
#include "base/log.h"
#include "server/listen.h"
#include "server/socket_owner.h"

#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    CHUNK_BYTES = 64 << 10,
    PIPE_MAX = 256 << 10,
    BACKLOG = 1024,
    LINKS_MAX = 8192, /* largest number of connections of workers */
    LINKS_MIN = 16,
    HANDSHAKE_MS = 30000, /* time limit for the connection attempt and the TLS handshake together */
    ENDING_MS = 5000, /* after one side has ended, the link closes when no bytes have moved for this time */
    LAST_MS = 1000,   /* when the relay closes, the last bytes of ended workers must be sent in this time */
    TICK_MS = 500,
    KEEPALIVE_S = 60,
    /* One connection is allowed for each 4 descriptors of this process. A connection needs two descriptors,
     * so the relay uses at most half of the descriptors. */
    SHARE = 4
};

/* The bytes of one direction of a link. The source is the socket from which the bytes come, and the sink is the socket
 * to which the bytes go. While a pipe has PIPE_MAX bytes or more, the relay does not read from the source. */
struct pipe {
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct buf waiting, sending; /* libuv uses `sending` while `is_writing` is true */
    bool is_writing;
    bool ends;   /* no more bytes will follow the bytes in `waiting` */
    bool ended;  /* the end of the source was passed on to the sink, or the sink is gone */
    bool is_cut; /* the connection of the source was cut, so the sink gets a reset */
    bool paused; /* the source of the bytes is not read */
};

/* One connection of a worker, and its connection to the store. The steps of a link are:
 *
 *     accept -> check the uid -> connect -> TLS handshake -> read the worker -> both directions -> both ends closed */
struct relay_link {
    struct list node; /* entry in the list relay->links */
    struct tls_relay *relay;
    uv_tcp_t worker, store;
    uv_connect_t connect;
    struct tls *tls;
    struct pipe up, down; /* `up` leads to the store, `down` to the worker */
    int port;             /* port of the relay's end of the connection to the store */
    int handles;          /* open handles of libuv; the last handle that closes frees the link */
    uint64_t since_ms;    /* when the link was created; after the handshake: when bytes last moved */
    bool worker_ended, store_ended; /* no more bytes will be read from the worker, or from the store */
    bool closing;
};

struct tls_relay {
    uv_loop_t *loop;
    const struct tls_context *tls; /* borrowed */
    char store[ENDPOINT_TEXT_MAX]; /* address of the store, for messages */
    struct sockaddr_storage to;
    char address[ENDPOINT_HOST_MAX];
    int port;
    struct acceptor acceptor;
    uv_timer_t timer; /* runs while a link or the acceptor has a time limit */
    struct uid_gate gate;
    struct list links;
    bool closing;
    int handles; /* open handles: the acceptor, the timer, and one for each link */
    char chunk[CHUNK_BYTES];
    struct rate_limit logged;
};

/* --- the end ------------------------------------------------------------------------------------------------ */

/* The end of one side is passed on after the last bytes:
 *
 *   - a worker's FIN: TLS's close_notify and a FIN
 *   - the store's close_notify: a FIN
 *   - any other end after the handshake: a reset
 *
 * A link is closed when both sides have ended, or one side has ended and no bytes have moved for ENDING_MS. The relay
 * first discards unread input, because close(2) would send a reset. */

static void let_go(struct tls_relay *r)
{
    if (--r->handles > 0)
        return;
    uid_gate_close(&r->gate);
    free(r);
}

static void on_handle_closed(uv_handle_t *handle)
{
    let_go(handle->data);
}

static void close_timer(struct tls_relay *r)
{
    if (!uv_is_closing((uv_handle_t *)&r->timer))
        uv_close((uv_handle_t *)&r->timer, on_handle_closed);
}

static void on_closed(uv_handle_t *handle)
{
    struct relay_link *l = handle->data;
    struct tls_relay *r = l->relay;
    if (--l->handles > 0)
        return;
    list_remove(&l->node);
    buf_free(&l->up.waiting);
    buf_free(&l->up.sending);
    buf_free(&l->down.waiting);
    buf_free(&l->down.sending);
    tls_free(l->tls);
    free(l);
    acceptor_client_closed(&r->acceptor);
    if (r->closing && list_is_empty(&r->links))
        close_timer(r);
    let_go(r);
}

static void close_socket(uv_tcp_t *tcp, bool by_reset)
{
    if (!by_reset || uv_tcp_close_reset(tcp, on_closed) != 0)
        uv_close((uv_handle_t *)tcp, on_closed);
}

static void link_close(struct relay_link *l)
{
    if (l->closing)
        return;
    l->closing = true;
    close_socket(&l->worker, l->down.is_cut);
    close_socket(&l->store, l->up.is_cut);
}

/* Log at most one message per second, because a thousand workers may fail at the same time. */
static void relay_log(struct relay_link *l, const char *why)
{
    unsigned left_out;
    uv_update_time(l->relay->loop);
    if (rate_limit_pass(&l->relay->logged, uv_now(l->relay->loop), &left_out))
        log_warn("relay to the store at %s: closed a connection: %s", l->relay->store, why);
}

/* --- time --------------------------------------------------------------------------------------------------- */

static bool has_bytes(const struct pipe *p)
{
    return p->waiting.len + p->sending.len > 0;
}

/* Close the link if its time limit is over. Return true if the link stays open and has a time limit. */
static bool check_time(struct relay_link *l, uint64_t now_ms)
{
    if (l->closing)
        return false;
    const bool shakes = tls_state(l->tls) == TLS_HANDSHAKE, ends = l->worker_ended || l->store_ended;
    if (!shakes && !ends)
        return false;
    if (now_ms < l->since_ms + (shakes ? HANDSHAKE_MS : ENDING_MS) ||
        (!shakes && (has_bytes(&l->up) || has_bytes(&l->down))))
        return true;
    if (shakes)
        relay_log(l, "the connection and the TLS handshake did not complete within 30 s");
    link_close(l);
    return false;
}

static void on_tick(uv_timer_t *timer)
{
    struct tls_relay *r = timer->data;
    bool is_needed = false;
    acceptor_tick(&r->acceptor, uv_now(r->loop));
    LIST_EACH(node, &r->links)
    is_needed |= check_time(LIST_ENTRY(node, struct relay_link, node), uv_now(r->loop));
    if (!is_needed && r->acceptor.resume_ms == UINT64_MAX)
        uv_timer_stop(timer);
}

static void watch_time(struct tls_relay *r)
{
    if (!r->closing && !uv_is_active((uv_handle_t *)&r->timer))
        uv_timer_start(&r->timer, on_tick, TICK_MS, TICK_MS);
}

/* Record that the link has received or sent bytes. During the handshake this does not extend the time limit. */
static void link_moved(struct relay_link *l)
{
    if (tls_state(l->tls) != TLS_HANDSHAKE)
        l->since_ms = uv_now(l->relay->loop);
    if (l->worker_ended || l->store_ended)
        watch_time(l->relay);
}

/* --- pipes -------------------------------------------------------------------------------------------------- */

static struct relay_link *link_of(const struct pipe *p)
{
    return p->write.data;
}

static uv_stream_t *sink_of(struct pipe *p)
{
    struct relay_link *l = link_of(p);
    return (uv_stream_t *)(p == &l->up ? &l->store : &l->worker);
}

static uv_stream_t *source_of(struct pipe *p)
{
    struct relay_link *l = link_of(p);
    return (uv_stream_t *)(p == &l->up ? &l->worker : &l->store);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct relay_link *l = handle->data;
    (void)suggested;
    *buf = uv_buf_init(l->relay->chunk, CHUNK_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
static void pipe_forward(struct pipe *p);

/* Close a link if both directions have ended. While the relay is closing, a link is open only to send the last bytes of
 * its worker. Such a link is closed as soon as the direction to the store has ended. */
static void close_if_over(struct relay_link *l)
{
    if (l->up.ended && (l->relay->closing || (l->worker_ended && l->store_ended && l->down.ended)))
        link_close(l);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    (void)status;
    close_if_over(request->data);
}

/* Drop the bytes of a pipe whose sink is gone. */
static void abandon(struct pipe *p)
{
    p->waiting.len = 0;
    p->ends = p->ended = true;
}

static void on_pipe_written(uv_write_t *write, int status)
{
    struct relay_link *l = write->data;
    struct pipe *p = write == &l->up.write ? &l->up : &l->down;
    p->is_writing = false;
    p->sending.len = 0;
    if (l->closing)
        return;
    link_moved(l);
    if (status < 0)
        abandon(p);
    pipe_forward(p);
}

static void write_waiting(struct pipe *p)
{
    const struct buf empty = p->sending;
    p->sending = p->waiting;
    p->waiting = empty;
    const uv_buf_t bytes = uv_buf_init((char *)p->sending.data, (unsigned)p->sending.len);
    p->is_writing = uv_write(&p->write, sink_of(p), &bytes, 1, on_pipe_written) == 0;
    if (p->is_writing)
        return;
    p->sending.len = 0;
    abandon(p);
}

/* Write the waiting bytes. If the source has ended, shut down the sink after the last byte. If the connection of the
 * source was cut, close the link with a reset instead. Read the source only while the pipe has room. */
static void pipe_forward(struct pipe *p)
{
    struct relay_link *l = link_of(p);
    const bool source_ended = p == &l->up ? l->worker_ended : l->store_ended;
    if (!p->is_writing && p->waiting.len > 0)
        write_waiting(p);
    if (!p->is_writing && p->ends && p->is_cut) {
        link_close(l);
        return;
    }
    if (!p->is_writing && p->ends && !p->ended) {
        p->ended = true;
        (void)uv_shutdown(&p->shutdown, sink_of(p), on_shutdown);
    }
    const bool is_full = p->waiting.len + p->sending.len >= PIPE_MAX;
    if (is_full && !p->paused)
        uv_read_stop(source_of(p));
    if (!is_full && p->paused && !source_ended)
        uv_read_start(source_of(p), on_alloc, on_read);
    p->paused = is_full;
    close_if_over(l);
}

/* --- bytes -------------------------------------------------------------------------------------------------- */

/* Encrypt bytes from a worker. Discard them if the store has ended its side. After an error of the worker's socket,
 * drop the bytes for the worker, too. */
static void on_worker_bytes(struct relay_link *l, ssize_t n, const char *bytes)
{
    if (n > 0 && !l->up.ends && !tls_send(l->tls, slice_of(bytes, (size_t)n), &l->up.waiting)) {
        relay_log(l, tls_why(l->tls));
        link_close(l);
    }
    if (n >= 0)
        return;
    uv_read_stop((uv_stream_t *)&l->worker);
    l->worker_ended = true;
    l->up.is_cut = n != UV_EOF;
    if (!l->up.ends && n == UV_EOF)
        tls_end(l->tls, &l->up.waiting);
    l->up.ends = true;
    if (n != UV_EOF)
        abandon(&l->down);
}

/* Decrypt the store's bytes. When the handshake is over, begin to read from the worker. */
static void on_store_bytes(struct relay_link *l, ssize_t n, const char *bytes)
{
    const bool was_open = tls_state(l->tls) != TLS_HANDSHAKE;
    enum tls_state state = tls_state(l->tls);
    if (n > 0)
        state = tls_receive(l->tls, slice_of(bytes, (size_t)n), &l->down.waiting, &l->up.waiting);
    if (state == TLS_FAILED)
        relay_log(l, tls_why(l->tls));
    else if (n < 0 && !was_open)
        relay_log(l, "the store closed the connection before the end of the TLS handshake");
    const bool ends = n < 0 || state == TLS_FAILED || state == TLS_ENDED;
    if (!was_open && (ends || state == TLS_OPEN))
        uv_read_start((uv_stream_t *)&l->worker, on_alloc, on_read);
    if (!ends)
        return;
    uv_read_stop((uv_stream_t *)&l->store);
    l->down.is_cut = was_open && state != TLS_ENDED;
    l->store_ended = l->down.ends = l->up.ends = true;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct relay_link *l = stream->data;
    if (n == 0)
        return;
    if (stream == (uv_stream_t *)&l->worker)
        on_worker_bytes(l, n, buf->base);
    else
        on_store_bytes(l, n, buf->base);
    if (!l->closing) {
        link_moved(l);
        pipe_forward(&l->up);
    }
    if (!l->closing)
        pipe_forward(&l->down);
}

/* --- connections -------------------------------------------------------------------------------------------- */

static int port_of(const struct sockaddr_storage *at)
{
    return ntohs(((const struct sockaddr_in6 *)at)->sin6_port); /* same offset as sockaddr_in.sin_port */
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct relay_link *l = connect->data;
    struct sockaddr_storage own = { 0 };
    int len = sizeof(own);
    if (l->closing)
        return;
    if (status < 0) {
        relay_log(l, uv_strerror(status));
        link_close(l);
        return;
    }
    uv_tcp_nodelay(&l->store, 1);
    uv_tcp_nodelay(&l->worker, 1);
    uv_tcp_keepalive(&l->store, 1, KEEPALIVE_S);
    uv_tcp_getsockname(&l->store, (struct sockaddr *)&own, &len);
    l->port = port_of(&own);
    if (tls_receive(l->tls, slice_of(NULL, 0), &l->down.waiting, &l->up.waiting) != TLS_HANDSHAKE ||
        uv_read_start((uv_stream_t *)&l->store, on_alloc, on_read) != 0)
        link_close(l);
    else
        pipe_forward(&l->up);
}

/* Return true if this user or root owns the accepted connection. The relay serves no other user. */
static bool is_admitted(struct tls_relay *r, struct relay_link *l)
{
    struct sockaddr_storage peer = { 0 };
    int len = sizeof(peer), fd = -1;
    char why[UID_GATE_WHY_MAX] = "the client is on another host";
    int64_t uid = -1;
    if (uv_tcp_getpeername(&l->worker, (struct sockaddr *)&peer, &len) != 0 ||
        uv_fileno((uv_handle_t *)&l->worker, &fd) != 0)
        return false;
    if (uid_gate_admits(&r->gate, fd, (struct sockaddr *)&peer, &uid, why) && uid >= 0)
        return true;
    if (uid >= 0)
        snprintf(why, sizeof(why), "the client belongs to uid %u, but the relay serves only %s",
                 (unsigned)uid, uid_gate_served((char[UID_GATE_SERVED_MAX]){ 0 }));
    relay_log(l, why);
    return false;
}

/* Connect a link to the store. Log the reason of a failure. */
static bool link_connect(struct relay_link *l)
{
    l->tls = tls_new(l->relay->tls);
    const int rc = l->tls == NULL ? UV_ENOMEM
                                  : uv_tcp_connect(&l->connect, &l->store,
                                                   (const struct sockaddr *)&l->relay->to, on_connected);
    if (rc != 0)
        relay_log(l, uv_strerror(rc));
    return rc == 0;
}

static void on_client(struct acceptor *a, int fd, const struct sockaddr *peer)
{
    struct tls_relay *r = a->user;
    struct relay_link *l = calloc(1, sizeof(*l));
    (void)peer;
    if (l == NULL) {
        close(fd);
        acceptor_client_closed(a);
        return;
    }
    l->relay = r;
    l->worker.data = l->store.data = l->connect.data = l;
    l->up.write.data = l->down.write.data = l->up.shutdown.data = l->down.shutdown.data = l;
    uv_tcp_init(r->loop, &l->worker);
    uv_tcp_init(r->loop, &l->store);
    list_insert(&r->links, &l->node);
    l->handles = 2;
    l->since_ms = uv_now(r->loop);
    r->handles++;
    const int rc = uv_tcp_open(&l->worker, fd);
    if (rc != 0)
        close(fd);
    if (rc != 0 || !is_admitted(l->relay, l) || !link_connect(l))
        link_close(l);
    else
        watch_time(r);
}

/* Handle a lack of descriptors. No link is closed, because each link serves a worker. The acceptor pauses, and the
 * timer ends this pause. */
static void on_pause(struct acceptor *a, unsigned waiting)
{
    (void)waiting;
    watch_time(a->user);
}

static void on_short(struct acceptor *a, unsigned waiting, const char *why)
{
    const struct tls_relay *r = a->user;
    char remedy[FILES_REMEDY_MAX];
    log_warn("relay to the store at %s: %u connections of workers are open, and %u wait: %s%s", r->store,
             a->open, waiting, why, files_remedy(EMFILE, remedy));
}

/* --- start -------------------------------------------------------------------------------------------------- */

static int parse_address(const char *address, int port, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){ 0 };
    const int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

/* Drop all packets that do not arrive through the loopback interface. Packets from this host arrive through the
 * loopback interface, for every address of this host. Accepted sockets inherit the filter. If the socket is bound to
 * another interface, such as a VRF, set no filter: packets from this host then arrive through that interface. Even
 * without the filter, is_admitted() rejects other hosts. */
static void drop_foreign_packets(int fd)
{
    char device[IFNAMSIZ] = "";
    socklen_t len = sizeof(device);
    if (getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, &len) == 0 && device[0] != '\0' &&
        strcmp(device, "lo") != 0)
        return;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(SKF_AD_OFF + SKF_AD_IFINDEX)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, if_nametoindex("lo"), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };
    (void)setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* Bind a socket to a free port of `address`. Return -1 and set errno on failure. */
static int bind_at(const char *address)
{
    struct sockaddr_storage at;
    if (parse_address(address, 0, &at) != 0)
        return -1;
    const int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const socklen_t len = at.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (fd < 0)
        return -1;
    drop_foreign_packets(fd);
    if (bind(fd, (const struct sockaddr *)&at, len) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Return how many links may be open at the same time. While so many links are open, further workers wait in the
 * kernel's queue. */
static unsigned links_max(void)
{
    struct rlimit files = { .rlim_cur = 0 };
    getrlimit(RLIMIT_NOFILE, &files);
    const rlim_t share = files.rlim_cur / SHARE;
    return share > LINKS_MAX ? LINKS_MAX : share < LINKS_MIN ? LINKS_MIN : (unsigned)share;
}

/* Bind to `own`, or to the loopback address if binding to `own` fails. Return -1 and set errno on failure. */
static int relay_bind(struct tls_relay *r, const char *own)
{
    snprintf(r->address, sizeof(r->address), "%s", own);
    int fd = bind_at(r->address);
    if (fd >= 0)
        return fd;
    snprintf(r->address, sizeof(r->address), "127.0.0.1");
    return bind_at(r->address);
}

static int relay_listen(struct tls_relay *r, int fd)
{
    struct sockaddr_storage at = { 0 };
    socklen_t len = sizeof(at);
    const unsigned max = links_max();
    if (listen(fd, BACKLOG) != 0 || getsockname(fd, (struct sockaddr *)&at, &len) != 0)
        return -errno;
    r->port = port_of(&at);
    r->acceptor.user = r;
    r->acceptor.on_client = on_client;
    r->acceptor.make_room = on_pause;
    r->acceptor.on_short = on_short;
    const int rc = acceptor_open(&r->acceptor, r->loop, fd);
    r->acceptor.max = max;
    return rc;
}

ddp_status tls_relay_open(const struct tls_relay_options *options, struct tls_relay **out,
                          struct ddp_err *err)
{
    char remedy[FILES_REMEDY_MAX];
    struct tls_relay *r = calloc(1, sizeof(*r));
    *out = NULL;
    if (r == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "relay for --encrypt: cannot start: out of memory");
    r->loop = options->loop;
    r->tls = options->tls;
    endpoint_print(options->address, options->port, r->store);
    r->handles = 2;
    list_init(&r->links);
    const int fd = relay_bind(r, options->own);
    int rc = fd < 0 ? -errno : parse_address(options->address, options->port, &r->to);
    if (rc == 0)
        rc = relay_listen(r, fd);
    if (rc == 0) {
        uv_timer_init(r->loop, &r->timer);
        r->timer.data = r;
        *out = r;
        return DDP_OK;
    }
    if (fd >= 0)
        close(fd);
    free(r);
    return ddp_fail(err, DDP_ERR_IO, "relay for --encrypt: cannot start: %s%s", uv_strerror(rc),
                    files_remedy(-rc, remedy));
}

const char *tls_relay_address(const struct tls_relay *r)
{
    return r->address;
}

int tls_relay_port(const struct tls_relay *r)
{
    return r->port;
}

/* Find the link by its port. The address is not compared, because a router may have translated it. */
enum tls_relay_found tls_relay_find(const struct tls_relay *r, const char *peer,
                                    char worker[static ENDPOINT_TEXT_MAX],
                                    char here[static ENDPOINT_TEXT_MAX])
{
    struct endpoint end;
    enum tls_relay_found found = TLS_RELAY_NONE;
    if (r == NULL || endpoint_parse(peer, 0, &end, NULL) != DDP_OK)
        return TLS_RELAY_NONE;
    LIST_EACH(node, &r->links)
    {
        const struct relay_link *l = LIST_ENTRY(node, struct relay_link, node);
        struct sockaddr_storage a = { 0 }, b = { 0 };
        int a_len = sizeof(a), b_len = sizeof(b);
        if (l->port != end.port)
            continue;
        found = TLS_RELAY_GONE;
        if (l->closing || uv_tcp_getpeername(&l->worker, (struct sockaddr *)&a, &a_len) != 0 ||
            uv_tcp_getsockname(&l->worker, (struct sockaddr *)&b, &b_len) != 0)
            continue;
        endpoint_of_sockaddr((struct sockaddr *)&a, worker);
        endpoint_of_sockaddr((struct sockaddr *)&b, here);
        return TLS_RELAY_WORKER;
    }
    return found;
}

static void on_acceptor_closed(uv_handle_t *handle)
{
    const struct acceptor *a = handle->data;
    let_go(a->user);
}

static void on_last(uv_timer_t *timer)
{
    struct tls_relay *r = timer->data;
    LIST_EACH(node, &r->links)
    link_close(LIST_ENTRY(node, struct relay_link, node));
}

/* Close all links. If a worker has ended, but its last bytes are not sent yet, its link stays open for at most
 * LAST_MS. */
void tls_relay_close(struct tls_relay *r)
{
    if (r == NULL || r->closing)
        return;
    r->closing = true;
    LIST_EACH(node, &r->links)
    {
        struct relay_link *l = LIST_ENTRY(node, struct relay_link, node);
        if (!l->worker_ended || l->up.ended)
            link_close(l);
    }
    acceptor_close(&r->acceptor, on_acceptor_closed);
    if (list_is_empty(&r->links))
        close_timer(r);
    else
        uv_timer_start(&r->timer, on_last, LAST_MS, 0);
}
