/* tls_relay.c -- see tls_relay.h.
 *
 *     accept -> uid gate -> connect -> TLS handshake -> read the worker -> both directions -> both ends closed
 *
 * Each direction has a pipe with at most PIPE_MAX waiting bytes and one read. While a pipe is full, its source is not
 * read, so a slow reader delays only its own connection. The end of one side is passed on after the last bytes: a
 * worker's FIN becomes TLS's close_notify and a FIN, and the reverse. A connection is closed when both sides have
 * ended. Until then input is read and discarded, because the kernel sends a reset if close(2) finds unread input.
 *
 * The relay has a share of the descriptors. While all are in use, further workers wait in the queue of the kernel. */
#include "net/tls_relay.h"

#include "base/list.h"
#include "base/log.h"
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
    LINKS_MAX = 8192, /* most connections of workers */
    LINKS_MIN = 16,
    SHARE = 4 /* each connection needs two descriptors, and half of all descriptors belong to other parts */
};

/* The bytes on their way to one side. */
struct pipe {
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct buf waiting, sending; /* libuv uses `sending` while `is_writing` */
    bool is_writing;
    bool ends;   /* no more bytes follow `waiting` */
    bool ended;  /* the end was passed on, or the sink is gone */
    bool paused; /* the source of the bytes is not read */
};

/* One connection of a worker, and its connection to the store. */
struct relay_link {
    struct list node; /* in relay->links */
    struct tls_relay *relay;
    uv_tcp_t worker, store;
    uv_connect_t connect;
    struct tls *tls;
    struct pipe up, down; /* to the store, to the worker */
    int port;             /* of the relay's end of the connection to the store */
    int handles;
    bool worker_ended, store_ended; /* no more bytes will be read */
    bool closing;
};

struct tls_relay {
    uv_loop_t *loop;
    const struct tls_context *tls; /* borrowed */
    char store[ENDPOINT_TEXT_MAX]; /* for messages */
    struct sockaddr_storage to;
    char address[ENDPOINT_HOST_MAX];
    int port;
    uv_tcp_t listener;
    struct uid_gate gate;
    struct list links;
    unsigned n, max;
    bool has_waiting; /* libuv has accepted a connection that exceeds `max` */
    bool closing;
    int handles; /* the listener, and one for each link */
    char chunk[CHUNK_BYTES];
    struct gate logged;
};

/* --- the end ------------------------------------------------------------------------------------------------ */

static void let_go(struct tls_relay *r)
{
    if (--r->handles > 0)
        return;
    uid_gate_close(&r->gate);
    free(r);
}

static void accept_waiting(struct tls_relay *r);

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
    r->n--;
    if (r->has_waiting && !r->closing)
        accept_waiting(r);
    let_go(r);
}

static void link_close(struct relay_link *l)
{
    if (l->closing)
        return;
    l->closing = true;
    uv_close((uv_handle_t *)&l->worker, on_closed);
    uv_close((uv_handle_t *)&l->store, on_closed);
}

/* Log at most one message per second, because a thousand workers may fail at once. */
static void relay_log(struct relay_link *l, const char *why)
{
    unsigned left_out;
    uv_update_time(l->relay->loop);
    if (gate_pass(&l->relay->logged, uv_now(l->relay->loop), &left_out))
        log_warn("relay to the store at %s: closed a connection: %s", l->relay->store, why);
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
static void pump(struct pipe *p);

static void close_if_over(struct relay_link *l)
{
    if (l->worker_ended && l->store_ended && l->up.ended && l->down.ended)
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
    if (status < 0)
        abandon(p);
    pump(p);
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

/* Write the waiting bytes, or pass on the end. Read the source while the pipe has room. */
static void pump(struct pipe *p)
{
    struct relay_link *l = link_of(p);
    const bool source_ended = p == &l->up ? l->worker_ended : l->store_ended;
    if (!p->is_writing && p->waiting.len > 0)
        write_waiting(p);
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

/* Encrypt a worker's bytes. After the end of the store's bytes, the worker's bytes have no receiver. After an error the
 * worker receives no more bytes. */
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
    if (!l->up.ends)
        tls_end(l->tls, &l->up.waiting);
    l->up.ends = true;
    if (n != UV_EOF)
        abandon(&l->down);
}

/* Decrypt the store's bytes. The first bytes complete the handshake, and then the worker is read. */
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
    if (!l->closing)
        pump(&l->up);
    if (!l->closing)
        pump(&l->down);
}

/* --- connections -------------------------------------------------------------------------------------------- */

static int port_of(const struct sockaddr_storage *at)
{
    return ntohs(((const struct sockaddr_in6 *)at)->sin6_port); /* the same offset in sockaddr_in */
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
    uv_tcp_getsockname(&l->store, (struct sockaddr *)&own, &len);
    l->port = port_of(&own);
    if (tls_receive(l->tls, slice_of(NULL, 0), &l->down.waiting, &l->up.waiting) != TLS_HANDSHAKE ||
        uv_read_start((uv_stream_t *)&l->store, on_alloc, on_read) != 0)
        link_close(l);
    else
        pump(&l->up);
}

/* Return true if a user whom the relay may serve owns the accepted connection: this user or root. */
static bool is_admitted(struct tls_relay *r, struct relay_link *l)
{
    struct sockaddr_storage peer = { 0 };
    int len = sizeof(peer), fd = -1;
    char why[UID_GATE_WHY_MAX] = "its client is on another host";
    int64_t uid = -1;
    if (uv_tcp_getpeername(&l->worker, (struct sockaddr *)&peer, &len) != 0 ||
        uv_fileno((uv_handle_t *)&l->worker, &fd) != 0)
        return false;
    if (uid_gate_admits(&r->gate, fd, (struct sockaddr *)&peer, &uid, why) && uid >= 0)
        return true;
    if (uid >= 0)
        snprintf(why, sizeof(why), "it belongs to uid %u, but the relay serves only uid %u and root",
                 (unsigned)uid, (unsigned)geteuid());
    relay_log(l, why);
    return false;
}

static void accept_one(struct tls_relay *r)
{
    struct relay_link *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        r->has_waiting = true; /* the next connection that closes frees memory */
        return;
    }
    l->relay = r;
    l->worker.data = l->store.data = l->connect.data = l;
    l->up.write.data = l->down.write.data = l->up.shutdown.data = l->down.shutdown.data = l;
    uv_tcp_init(r->loop, &l->worker);
    uv_tcp_init(r->loop, &l->store);
    list_insert(&r->links, &l->node);
    l->handles = 2;
    r->handles++;
    r->n++;
    if (uv_accept((uv_stream_t *)&r->listener, (uv_stream_t *)&l->worker) != 0 || !is_admitted(r, l) ||
        (l->tls = tls_new(r->tls)) == NULL ||
        uv_tcp_connect(&l->connect, &l->store, (const struct sockaddr *)&r->to, on_connected) != 0)
        link_close(l);
}

static void accept_waiting(struct tls_relay *r)
{
    r->has_waiting = false;
    accept_one(r);
}

/* While `max` connections are open, do not accept: libuv then stops polling the listener. */
static void on_connection(uv_stream_t *listener, int status)
{
    struct tls_relay *r = listener->data;
    if (status < 0 || r->closing)
        return;
    if (r->n < r->max)
        accept_one(r);
    else
        r->has_waiting = true;
}

/* --- start -------------------------------------------------------------------------------------------------- */

static int parse_address(const char *address, int port, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){ 0 };
    const int rc = uv_ip4_addr(address, port, (struct sockaddr_in *)out);
    return rc == 0 ? 0 : uv_ip6_addr(address, port, (struct sockaddr_in6 *)out);
}

/* Drop all packets that do not arrive through the loopback interface, as packets of this host do, for every address of
 * this host. Accepted sockets inherit the filter. Without the filter, the uid gate still rejects other hosts. */
static void drop_foreign_packets(int fd)
{
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

static unsigned links_max(void)
{
    struct rlimit files = { .rlim_cur = 0 };
    getrlimit(RLIMIT_NOFILE, &files);
    const rlim_t share = files.rlim_cur / SHARE;
    return share > LINKS_MAX ? LINKS_MAX : share < LINKS_MIN ? LINKS_MIN : (unsigned)share;
}

ddp_status tls_relay_open(const struct tls_relay_options *options, struct tls_relay **out,
                          struct ddp_err *err)
{
    struct sockaddr_storage at = { 0 };
    int len = sizeof(at), fd;
    struct tls_relay *r = calloc(1, sizeof(*r));
    *out = NULL;
    if (r == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "cannot start the relay for --encrypt: out of memory");
    r->loop = options->loop;
    r->tls = options->tls;
    endpoint_print(options->address, options->port, r->store);
    r->max = links_max();
    r->handles = 1;
    list_init(&r->links);
    snprintf(r->address, sizeof(r->address), "%s", options->own);
    if ((fd = bind_at(r->address)) < 0) {
        snprintf(r->address, sizeof(r->address), "127.0.0.1");
        fd = bind_at(r->address);
    }
    if (fd < 0 || parse_address(options->address, options->port, &r->to) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        free(r);
        return ddp_fail(err, DDP_ERR_IO, "cannot start the relay for --encrypt: %s", strerror(error));
    }
    uv_tcp_init(options->loop, &r->listener);
    r->listener.data = r;
    int rc = uv_tcp_open(&r->listener, fd);
    if (rc != 0)
        close(fd);
    if (rc == 0)
        rc = uv_listen((uv_stream_t *)&r->listener, BACKLOG, on_connection);
    if (rc == 0)
        rc = uv_tcp_getsockname(&r->listener, (struct sockaddr *)&at, &len);
    r->port = port_of(&at);
    if (rc == 0) {
        *out = r;
        return DDP_OK;
    }
    tls_relay_close(r);
    return ddp_fail(err, DDP_ERR_IO, "cannot start the relay for --encrypt: %s", uv_strerror(rc));
}

const char *tls_relay_address(const struct tls_relay *r)
{
    return r->address;
}

int tls_relay_port(const struct tls_relay *r)
{
    return r->port;
}

/* Compare only the port, because a router may have translated the address. */
bool tls_relay_find(const struct tls_relay *r, const char *peer, char worker[static ENDPOINT_TEXT_MAX],
                    char here[static ENDPOINT_TEXT_MAX])
{
    struct endpoint end;
    if (r == NULL || endpoint_parse(peer, 0, &end, NULL) != DDP_OK)
        return false;
    LIST_EACH(node, &r->links)
    {
        const struct relay_link *l = LIST_ENTRY(node, struct relay_link, node);
        struct sockaddr_storage a = { 0 }, b = { 0 };
        int a_len = sizeof(a), b_len = sizeof(b);
        if (l->port != end.port || l->closing)
            continue;
        if (uv_tcp_getpeername(&l->worker, (struct sockaddr *)&a, &a_len) != 0 ||
            uv_tcp_getsockname(&l->worker, (struct sockaddr *)&b, &b_len) != 0)
            return false;
        endpoint_of_sockaddr((struct sockaddr *)&a, worker);
        endpoint_of_sockaddr((struct sockaddr *)&b, here);
        return true;
    }
    return false;
}

static void on_listener_closed(uv_handle_t *handle)
{
    let_go(handle->data);
}

void tls_relay_close(struct tls_relay *r)
{
    if (r == NULL || r->closing)
        return;
    r->closing = true;
    LIST_EACH(node, &r->links)
    link_close(LIST_ENTRY(node, struct relay_link, node));
    uv_close((uv_handle_t *)&r->listener, on_listener_closed);
}
