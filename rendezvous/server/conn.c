/* conn.c -- see conn.h. A reply is usually one write(2) without an allocation; only bytes that the socket does not
 * accept are queued (struct outbox). Input is discarded before a close, because the kernel sends a reset if close(2)
 * finds unread input. */
#include "server/conn.h"

#include "base/buf.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SPARE_MAX = 1 << 20 }; /* a larger piece is freed and not kept as outbox.spare */

/* A part of the queue: the bytes that one call of uv_write sends. */
struct piece {
    struct piece *next;    /* NULL = this is the last piece */
    struct shared *holder; /* reference to the block that contains `held`; NULL = the bytes are in `own` */
    struct slice held;     /* valid if `holder` is not NULL */
    struct buf own;
};

/* The bytes that the socket has not accepted, in pieces. libuv writes the first piece. Small replies are appended to
 * the last piece. Long values are not copied: the piece holds a reference. */
struct outbox {
    uv_write_t req;    /* the write of the piece `first`; the piece must not change until the write ends */
    struct conn *conn; /* borrowed */
    struct piece *first, *last; /* owned list; NULL = the queue is empty */
    struct piece *spare; /* owned, or NULL: an empty piece for reuse, so that small replies need no malloc */
    size_t bytes;        /* number of bytes in all pieces */
};

/* --- outbox -------------------------------------------------------------------------------------------- */

static struct slice bytes_of(const struct piece *p)
{
    return p->holder != NULL ? p->held : buf_slice(&p->own);
}

/* Return how many bytes a piece adds to the sum that max_queued_bytes limits. A piece that refers to a shared block
 * adds the size of the whole block, because the reference keeps the whole block in memory. */
static size_t cost_of(const struct piece *p)
{
    return p->holder != NULL ? p->holder->size : p->own.len;
}

static void piece_free(struct piece *p)
{
    if (p == NULL)
        return;
    shared_release(p->holder);
    buf_free(&p->own);
    free(p);
}

/* Remove the first piece of the queue. Keep it for reuse (`spare`), or free it. */
static void drop_first(struct outbox *box)
{
    struct piece *p = box->first;
    box->first = p->next;
    box->bytes -= bytes_of(p).len;
    box->conn->host->queued_bytes -= cost_of(p);
    if (box->spare == NULL && p->holder == NULL && p->own.cap <= SPARE_MAX) {
        p->own.len = 0;
        box->spare = p;
    } else {
        piece_free(p);
    }
}

/* Free the outbox and its remaining pieces. The outbox is freed as soon as it is empty. A store may have thousands of
 * connections, and most of them are idle. An idle connection then needs no memory for an outbox. */
static void outbox_free(struct conn *c)
{
    struct outbox *box = c->outbox;
    if (box == NULL)
        return;
    while (box->first != NULL)
        drop_first(box);
    piece_free(box->spare);
    free(box);
    c->outbox = NULL;
}

/* Append an empty piece to the queue. Return false if memory is short. */
static bool add_piece(struct outbox *box)
{
    struct piece *p = box->spare != NULL ? box->spare : calloc(1, sizeof(*p));
    if (p == NULL)
        return false;
    box->spare = NULL;
    p->next = NULL;
    if (box->first == NULL)
        box->first = p;
    else
        box->last->next = p;
    box->last = p;
    return true;
}

/* Append bytes to the last piece, or add a new piece. Return false if memory is short; the connection must then be
 * closed. */
static bool append_piece(struct outbox *box, struct slice bytes, struct shared *holder)
{
    /* libuv is writing the first piece, which must not grow. */
    const bool gathers = box->first != NULL && box->last != box->first && box->last->holder == NULL;
    if ((holder != NULL || !gathers) && !add_piece(box))
        return false;
    if (holder != NULL) {
        box->last->holder = shared_hold(holder);
        box->last->held = bytes;
    } else if (!buf_append(&box->last->own, bytes.data, bytes.len)) {
        return false;
    }
    box->bytes += bytes.len;
    box->conn->host->queued_bytes += holder != NULL ? holder->size : bytes.len;
    return true;
}

/* --- close --------------------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    outbox_free(c);
    c->host->on_closed(c);
}

/* Return the descriptor of the handle, or -1 if it has no descriptor. */
static int conn_fd(const struct conn *c)
{
    uv_os_fd_t fd = -1;
    uv_fileno((const uv_handle_t *)&c->tcp, &fd);
    return fd;
}

/* Discard unread input. Otherwise the kernel would send a reset instead of the FIN. A reset makes a torch 1.13 client
 * abort its process. */
static void discard_input(const struct conn *c)
{
    /* A peer that keeps sending must not block the loop, so stop after 8 MiB. */
    enum { AT_ONCE = 1 << 20, ROUNDS = 8 };
    int fd = conn_fd(c);
    /* With MSG_TRUNC, TCP discards the bytes without a copy (tcp(7)). */
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

/* Continue to close a connection after its queue was written. If the peer has already sent its FIN, or if conn_finish
 * was called with `wait_fin` = false, close the connection now. Otherwise send a FIN and wait for the peer's FIN. */
static void flushed(struct conn *c)
{
    if (c->peer_ended || !c->wait_fin) {
        conn_abort(c);
        return;
    }
    shutdown(conn_fd(c), SHUT_WR);
    c->state = CONN_WAIT_FIN;
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

void conn_finish(struct conn *c, bool wait_fin)
{
    if (c->state == CONN_CLOSING)
        return;
    if (c->state == CONN_OPEN || !wait_fin)
        c->wait_fin = wait_fin;
    if (c->state == CONN_OPEN)
        c->state = CONN_FLUSHING;
    conn_start_reading(c); /* read until the peer's FIN */
    if (c->outbox == NULL)
        flushed(c); /* closes at once, or waits for the peer's FIN */
}

/* Return true for an error that a fault of the network may cause. EPIPE does not count: the kernel reports EPIPE after
 * a FIN, so the peer itself has closed the connection. */
static bool is_cut_by(int status)
{
    return status == UV_ECONNRESET || status == UV_ETIMEDOUT || status == UV_EHOSTUNREACH ||
           status == UV_ENETUNREACH;
}

/* Process a FIN of the peer, or an error of a read or write. If the connection is open, call host->on_end first. After
 * a FIN, write the queue, because the peer may have closed only its sending side. After an error, close at once. */
static void ended(struct conn *c, int status)
{
    c->is_cut = is_cut_by(status);
    if (c->state == CONN_OPEN)
        c->host->on_end(c, status == UV_EOF ? "closed by the peer" : uv_strerror(status));
    if (status == UV_EOF)
        conn_finish(c, false);
    else
        conn_abort(c);
}

/* --- write --------------------------------------------------------------------------------------------- */

static bool write_first(struct outbox *box);

/* Drop the piece that libuv has written or failed to write. Then write the next piece, or end the connection after a
 * failure. */
static void on_written(uv_write_t *req, int status)
{
    struct outbox *box = req->data;
    struct conn *c = box->conn;
    drop_first(box);
    if (c->state == CONN_CLOSING)
        return; /* libuv has cancelled the write; on_handle_closed frees the outbox */
    if (status < 0 || (box->first != NULL && !write_first(box))) {
        ended(c, status < 0 ? status : UV_ENOMEM);
        return;
    }
    if (box->first == NULL) {
        outbox_free(c);
        if (c->state == CONN_FLUSHING)
            flushed(c);
    }
    c->host->on_drained(c);
}

/* Let libuv write the first piece and then call on_written. Return false if libuv rejects the write. */
static bool write_first(struct outbox *box)
{
    const struct slice all = bytes_of(box->first);
    uv_buf_t bytes = uv_buf_init((char *)(uintptr_t)all.data, (unsigned)all.len);
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

/* Return the number of unsent bytes. Ask libuv for the unwritten rest of the first piece, and add all later pieces. */
size_t conn_queued(const struct conn *c)
{
    const struct outbox *box = c->outbox;
    const size_t waiting = box != NULL && box->first != NULL ? box->bytes - bytes_of(box->first).len : 0;
    return uv_stream_get_write_queue_size((const uv_stream_t *)&c->tcp) + waiting;
}

/* Queue bytes. If the queue would exceed max_queue_bytes, return CONN_SLOW; the owner then calls conn_abort. Only
 * unsent bytes count for max_queue_bytes, so a peer stays connected while it reads as fast as replies are queued. */
static enum conn_sent queue(struct conn *c, struct slice bytes, struct shared *holder)
{
    const struct conn_host *host = c->host;
    const size_t queued = conn_queued(c);
    if (bytes.len > host->max_queue_bytes || queued > host->max_queue_bytes - bytes.len)
        return CONN_SLOW;
    const size_t room = host->max_queued_bytes - host->queued_bytes;
    if (bytes.len > room)
        return CONN_NO_ROOM;
    if (holder != NULL && (holder->size > room || holder->size / 2 > bytes.len))
        holder = NULL; /* Copy the bytes. The reference would keep the whole block in memory, and the block is
                        * larger than `room`, or more than twice as large as the bytes. */
    if (c->outbox == NULL && !outbox_new(c))
        return CONN_BROKEN;
    const bool is_writing = c->outbox->first != NULL;
    if (!append_piece(c->outbox, bytes, holder) || (!is_writing && !write_first(c->outbox)))
        return CONN_BROKEN;
    return CONN_SENT;
}

/* Write the bytes directly if no bytes are queued. This is cheaper than uv_write, which needs memory for the outbox and
 * a callback. */
enum conn_sent conn_send(struct conn *c, struct slice bytes, struct shared *holder)
{
    if (c->state != CONN_OPEN || bytes.len == 0)
        return CONN_SENT;
    if (c->outbox != NULL)
        return queue(c, bytes, holder); /* keep the order of the bytes */
    uv_buf_t all = uv_buf_init((char *)(uintptr_t)bytes.data, (unsigned)bytes.len);
    int n = uv_try_write((uv_stream_t *)&c->tcp, &all, 1);
    c->is_cut = is_cut_by(n);
    if (n == UV_EPIPE || n == UV_ECONNRESET)
        return CONN_GONE;
    if (n < 0 && n != UV_EAGAIN)
        return CONN_BROKEN;
    size_t done = n > 0 ? (size_t)n : 0;
    if (done == bytes.len)
        return CONN_SENT;
    return queue(c, slice_of((const char *)bytes.data + done, bytes.len - done), holder);
}

/* --- read ---------------------------------------------------------------------------------------------- */

/* The calls without failures, which allocate no memory:
 *
 *     conn_open -> on_read -> host.on_bytes -> the owner calls conn_send -> one write(2) -> on_read ...
 *     on_read with EOF -> host.on_end -> uv_close -> on_handle_closed -> host.on_closed */

/* Handle received bytes or, if `n` is below 0, the end of the connection. In CONN_FLUSHING and CONN_WAIT_FIN,
 * discard the bytes. */
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
    else if (c->state == CONN_WAIT_FIN)
        conn_abort(c);
}

/* Provide the read buffer. All connections share the buffer, because on_bytes uses all bytes before the next read. */
static void on_need_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn_host *host = ((struct conn *)handle->data)->host;
    *buf = uv_buf_init(host->read_buffer, CONN_READ_BYTES);
}

/* Set the socket options. Ignore failures, because the connection also works without the options. With TCP_NODELAY,
 * replies are sent at once. The other options detect a peer whose host has disappeared. Agents and the hub detect lost
 * nodes sooner, by heartbeats. */
static void tune(int fd)
{
    /* The kernel closes a connection after 120 s without an answer (60 s + 4 * 15 s). */
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
