/* conn.c -- see conn.h.
 *
 * The happy path: conn_open -> on_read -> host.on_bytes -> (owner) conn_send -> one write(2) -> on_read ...
 * -> EOF -> host.on_end -> uv_close -> on_handle_closed -> host.on_closed. On this path nothing is allocated.
 *
 * It can go wrong when
 *   - the socket does not take all bytes: the rest goes to an outbox (one uv_write in flight, everything else
 * behind it in one buffer), which is freed as soon as it is empty;
 *   - the peer never reads: conn_send answers CONN_SLOW at max_queue_bytes, and the owner aborts;
 *   - reading or writing fails: host.on_end, then close;
 *   - the owner wants it gone: conn_finish flushes, sends FIN and discards input until the peer's FIN.
 *
 * Why so careful at the end: close(2) with unread input, or input after close, makes the kernel send a reset,
 * and a torch 1.13 client that gets one aborts its whole process. */
#include "server/conn.h"

#include "base/buf.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { FLYING_KEPT = 1 << 20 };

struct outbox {
    uv_write_t req;
    struct conn *conn;
    struct buf flying;  /* handed to uv_write, must not move */
    struct buf waiting; /* next */
};

/* --- close --------------------------------------------------------------------------------------------- */

/* An idle connection must not keep the buffers of its busiest moment: there may be thousands of them. */
static void outbox_free(struct conn *c)
{
    if (c->outbox == NULL)
        return;
    c->host->queued_bytes -= c->outbox->flying.len + c->outbox->waiting.len;
    buf_free(&c->outbox->flying);
    buf_free(&c->outbox->waiting);
    free(c->outbox);
    c->outbox = NULL;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    outbox_free(c);
    c->host->on_closed(c);
}

static int conn_fd(const struct conn *c)
{
    uv_os_fd_t fd = -1;
    uv_fileno((const uv_handle_t *)&c->tcp, &fd);
    return fd;
}

/* Take what has arrived out of the kernel, without copying it: unread input would turn our FIN into a reset.
 */
static void discard_input(const struct conn *c)
{
    enum { AT_ONCE = 1 << 20, ROUNDS = 8 };
    int fd = conn_fd(c);
    for (int i = 0; i < ROUNDS && fd >= 0; i++)
        if (recv(fd, NULL, AT_ONCE, MSG_TRUNC | MSG_DONTWAIT) <= 0)
            break;
}

void conn_abort(struct conn *c)
{
    if (c->state == CONN_CLOSING)
        return;
    c->state = CONN_CLOSING;
    discard_input(c);
    uv_close((uv_handle_t *)&c->tcp, on_handle_closed);
}

/* The queue is out (or was empty). */
static void flushed(struct conn *c)
{
    if (c->peer_ended || !c->linger) {
        conn_abort(c);
        return;
    }
    shutdown(conn_fd(c), SHUT_WR);
    c->state = CONN_LINGERING;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf);
static void on_need_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf);

void conn_stop_reading(struct conn *c)
{
    if (c->state != CONN_OPEN || c->is_stopped)
        return;
    c->is_stopped = true;
    uv_read_stop((uv_stream_t *)&c->tcp);
}

void conn_start_reading(struct conn *c)
{
    if (c->state == CONN_CLOSING || !c->is_stopped)
        return;
    c->is_stopped = false;
    uv_read_start((uv_stream_t *)&c->tcp, on_need_buffer, on_read);
}

void conn_finish(struct conn *c, bool linger)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->state == CONN_OPEN || !linger)
        c->linger = linger;
    if (c->state == CONN_OPEN)
        c->state = CONN_FLUSHING;
    conn_start_reading(c); /* for the peer's FIN */
    if (c->outbox == NULL)
        flushed(c); /* closes now, unless it lingers (already) */
}

/* The peer has closed its side, or the connection is broken. After a FIN the peer may still be reading (it has only
 * said all it wanted), so what is queued goes out first; no lingering then, its own FIN is here already. */
static void ended(struct conn *c, int status)
{
    if (c->state == CONN_OPEN)
        c->host->on_end(c, status == UV_EOF ? "closed by the peer" : uv_strerror(status));
    if (status == UV_EOF)
        conn_finish(c, false);
    else
        conn_abort(c);
}

/* --- write --------------------------------------------------------------------------------------------- */

static bool fly(struct outbox *box);

/* One uv_write at a time keeps the number of allocations at two, however many small replies pile up. */
static void on_written(uv_write_t *req, int status)
{
    struct outbox *box = req->data;
    struct conn *c = box->conn;
    c->host->queued_bytes -= box->flying.len;
    box->flying.len = 0;
    if (c->state == CONN_CLOSING)
        return; /* UV_ECANCELED; on_handle_closed frees the outbox */
    if (status < 0 || (box->waiting.len > 0 && !fly(box))) {
        ended(c, status < 0 ? status : UV_ENOMEM);
        return;
    }
    if (box->flying.len == 0) {
        outbox_free(c);
        if (c->state == CONN_FLUSHING)
            flushed(c);
    }
    c->host->on_drained(c);
}

/* Send what waits: the two buffers change places, so that both keep their memory for the next turn, unless it is much. */
static bool fly(struct outbox *box)
{
    struct buf empty = box->flying;
    if (empty.cap > FLYING_KEPT)
        buf_free(&empty);
    box->flying = box->waiting;
    box->waiting = empty;
    uv_buf_t bytes = uv_buf_init((char *)box->flying.data, (unsigned)box->flying.len);
    return uv_write(&box->req, (uv_stream_t *)&box->conn->tcp, &bytes, 1, on_written) == 0;
}

static bool outbox_new(struct conn *c)
{
    c->outbox = calloc(1, sizeof(*c->outbox));
    if (c->outbox == NULL)
        return false;
    c->outbox->conn = c;
    c->outbox->req.data = c->outbox;
    return true;
}

size_t conn_queued(const struct conn *c)
{
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp) +
           (c->outbox != NULL ? c->outbox->waiting.len : 0);
}

/* What libuv still has to send is counted by libuv; of the flying buffer that is only the part not sent yet. So a
 * slow but reading peer is never cut off, however much it is sent in total. */
static enum conn_sent queue(struct conn *c, struct slice bytes)
{
    struct conn_host *host = c->host;
    const size_t queued = conn_queued(c);
    if (bytes.len > host->max_queue_bytes || queued > host->max_queue_bytes - bytes.len)
        return CONN_SLOW;
    if (bytes.len > host->max_queued_bytes - host->queued_bytes)
        return CONN_NO_ROOM;
    if (c->outbox == NULL && !outbox_new(c))
        return CONN_BROKEN;
    if (!buf_append(&c->outbox->waiting, bytes.data, bytes.len))
        return CONN_BROKEN;
    host->queued_bytes += bytes.len;
    if (c->outbox->flying.len == 0 && !fly(c->outbox))
        return CONN_BROKEN;
    return CONN_SENT;
}

enum conn_sent conn_send(struct conn *c, struct slice bytes)
{
    if (c->state != CONN_OPEN || bytes.len == 0)
        return CONN_SENT;
    if (c->outbox != NULL)
        return queue(c, bytes); /* keep the order */
    uv_buf_t all = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
    int n = uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    if (n == UV_EPIPE || n == UV_ECONNRESET)
        return CONN_GONE;
    if (n < 0 && n != UV_EAGAIN)
        return CONN_BROKEN;
    size_t done = n > 0 ? (size_t)n : 0;
    if (done == bytes.len)
        return CONN_SENT;
    return queue(c, slice_of((const char *)bytes.data + done, bytes.len - done));
}

/* --- read ---------------------------------------------------------------------------------------------- */

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (n > 0 && c->state == CONN_OPEN)
        c->host->on_bytes(c, slice_of(buf->base, (size_t)n));
    if (n >= 0)
        return;
    c->peer_ended = true;
    if (c->state == CONN_OPEN || n != UV_EOF)
        ended(c, (int)n);
    else if (c->state == CONN_LINGERING)
        conn_abort(c);
}

/* One buffer for all connections: on_bytes consumes everything before libuv asks again. */
static void on_need_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn_host *host = ((struct conn *)handle->data)->host;
    *buf = uv_buf_init(host->read_buffer, CONN_READ_BYTES);
}

/* Both keep-alive and the user timeout are needed to notice a host that vanished: the first works on an idle
 * connection only, the second only while we have something to send. They merely give the descriptor back; who
 * is alive in the job is decided by what members say. */
static void tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },   { SOL_SOCKET, SO_KEEPALIVE, 1 },
        { IPPROTO_TCP, TCP_KEEPIDLE, 60 }, { IPPROTO_TCP, TCP_KEEPINTVL, 15 },
        { IPPROTO_TCP, TCP_KEEPCNT, 4 },   { IPPROTO_TCP, TCP_USER_TIMEOUT, 120 * 1000 },
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

bool conn_open(struct conn *c, struct conn_host *host, int fd)
{
    *c = (struct conn){ .host = host };
    uv_tcp_init(host->loop, &c->tcp);
    c->tcp.data = c;
    tune(fd);
    if (uv_tcp_open(&c->tcp, fd) != 0)
        close(fd);
    else if (uv_read_start((uv_stream_t *)&c->tcp, on_need_buffer, on_read) == 0)
        return true;
    conn_abort(c);
    return false;
}
