/* stream.c -- see stream.h.
 *
 * It can go wrong when: the peer closes or resets (DDP_ERR_CLOSED), is silent or does not read
 * (DDP_ERR_TIMEOUT), the network says so (DDP_ERR_IO). No signal is ever raised: MSG_NOSIGNAL, because the
 * program around us is not ours. */
#include "client/stream.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int client_remaining_ms(uint64_t deadline_ms)
{
    uint64_t now = clock_ms();
    if (deadline_ms <= now)
        return 0;
    return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

/* The socket is the stream's from here on; what an earlier one has left in the buffer is dropped. */
void client_stream_attach(struct client_stream *s, int fd)
{
    s->fd = fd;
    s->at = s->len = 0;
}

void client_stream_close(struct client_stream *s)
{
    if (s->fd >= 0)
        close(s->fd);
    client_stream_attach(s, -1);
}

/* ECONNRESET and EPIPE are ends of the connection like EOF: the peer has gone, only less politely. */
static ddp_status broken(int error, struct ddp_err *err)
{
    if (error == 0)
        return ddp_fail(err, DDP_ERR_CLOSED, "the other end has closed the connection");
    if (error == ECONNRESET || error == EPIPE)
        return ddp_fail(err, DDP_ERR_CLOSED, "the other end has reset the connection");
    return ddp_fail(err, DDP_ERR_IO, "the connection has failed: %s", strerror(error));
}

/* Wait until the socket can be read (written) or the deadline passes. */
static ddp_status await(const struct client_stream *s, short events, uint64_t deadline_ms,
                        struct ddp_err *err)
{
    struct pollfd p = { s->fd, events, 0 };
    for (;;) {
        int n = poll(&p, 1, client_remaining_ms(deadline_ms));
        if (n > 0)
            return DDP_OK;
        if (n < 0 && errno != EINTR)
            return broken(errno, err);
        if (clock_ms() >= deadline_ms)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "no answer in time");
    }
}

/* The call would have blocked, or a signal handler of the program came in between. */
static bool try_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

ddp_status client_stream_send(struct client_stream *s, struct slice bytes, uint64_t deadline_ms,
                              struct ddp_err *err)
{
    const uint8_t *from = bytes.data;
    for (size_t sent = 0; sent < bytes.len;) {
        ssize_t n = send(s->fd, from + sent, bytes.len - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (!try_again(n))
            return broken(errno, err);
        else if (await(s, POLLOUT, deadline_ms, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* Refill the empty input buffer. Polls first: right after a request there is nothing to read yet. */
static ddp_status stream_fill(struct client_stream *s, uint64_t deadline_ms, struct ddp_err *err)
{
    ssize_t n;
    do {
        if (await(s, POLLIN, deadline_ms, err) != DDP_OK)
            return err->code;
        n = recv(s->fd, s->in, sizeof(s->in), 0);
    } while (try_again(n));
    if (n <= 0)
        return broken(n == 0 ? 0 : errno, err);
    s->at = 0;
    s->len = (size_t)n;
    return DDP_OK;
}

/* From the buffer first; a big value is taken through it in pieces, which costs a copy and spares a second
 * path. */
ddp_status client_stream_read(struct client_stream *s, void *to, size_t len, uint64_t deadline_ms,
                              struct ddp_err *err)
{
    for (size_t have = 0; have < len;) {
        if (s->at == s->len && stream_fill(s, deadline_ms, err) != DDP_OK)
            return err->code;
        size_t n = s->len - s->at < len - have ? s->len - s->at : len - have;
        memcpy((uint8_t *)to + have, s->in + s->at, n);
        s->at += n;
        have += n;
    }
    return DDP_OK;
}

ddp_status client_stream_check_quiet(struct client_stream *s, struct ddp_err *err)
{
    if (s->at == s->len) {
        ssize_t n = recv(s->fd, s->in, sizeof(s->in), MSG_DONTWAIT);
        if (try_again(n))
            return DDP_OK;
        if (n <= 0)
            return broken(n == 0 ? 0 : errno, err);
        s->at = 0;
        s->len = (size_t)n;
    }
    return ddp_fail(err, DDP_ERR_CORRUPT, "%zu bytes came in that nobody asked for", s->len - s->at);
}
