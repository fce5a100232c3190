/* net_dial.c -- see net_dial.h.
 *
 * A refusal is tried again for a second, silence is waited for once: who refuses is up, and may only be on
 * its way out or in, but a second try at a silent address would meet the same firewall. */
#include "cpu/net_dial.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    REFUSED_MS = 1000, /* as long as those who know of a death may take to say so */
    PAUSE_MS = 100,
    SILENT_MS = 10000 /* no network needs that long; TCP has tried four times by then */
};

/* Both hosts and the direction are named, since the user has to open a port on one of them; a loopback
 * address of another host is the one case in which no firewall is to blame. */
static ddp_status unreachable(const struct net_dial *d, const char *how, struct ddp_err *err)
{
    char where[ENDPOINT_TEXT_MAX];
    bool lost = net_is_loopback(d->card.address) && strcmp(d->card.host, d->hello->host) != 0;

    return ddp_fail(
        err, DDP_ERR_IO,
        "rank %d on %s (%s) cannot connect to rank %d on %s at %s: %s. %s Open the ports between the "
        "two hosts in this direction, or name some that are open by DDP_PORT_RANGE=LOW-HIGH on all hosts; "
        "another network: DDP_IFACE=NAME or ADDRESS (without it, the one that leads to the store)",
        d->hello->from, d->hello->host, d->address, d->link->rank, d->card.host,
        endpoint_print(d->card.address, d->card.port, where), how,
        lost ? "That address is good within one host only." : "The store answers, so the hosts are up.");
}

static ddp_status closed(struct net_dial *d, const char *how, struct ddp_err *err)
{
    char where[ENDPOINT_TEXT_MAX];
    snprintf(d->closed, sizeof(d->closed), "cannot connect to rank %d on %.63s at %s: %.80s", d->link->rank,
             d->card.host, endpoint_print(d->card.address, d->card.port, where), how);
    return unreachable(d, how, err);
}

void net_dial_close(struct net_dial *dial)
{
    if (dial->fd >= 0)
        close(dial->fd);
    dial->fd = -1;
}

/* `source` binds our end to the network that the user has chosen, else the kernel would go out through the
 * default route. */
static void start(struct net_dial *d)
{
    d->try_ms = clock_ms();
    d->said = false;
    d->got = 0;
    d->error = net_connect(d->card.address, d->card.port, d->source, &d->fd) == 0 ? 0 : errno;
}

void net_dial_begin(struct net_dial *dial)
{
    dial->began_ms = clock_ms();
    start(dial);
}

/* The link has the socket from then on. */
bool net_dial_done(const struct net_dial *dial)
{
    return dial->link->fd >= 0;
}

struct pollfd net_dial_poll(const struct net_dial *dial)
{
    return (struct pollfd){ .fd = dial->fd, .events = dial->said ? POLLIN : POLLOUT };
}

/* A peer that is being killed refuses before anybody has said that it is dead. */
static ddp_status try_again(struct net_dial *d, int error, struct ddp_err *err)
{
    net_dial_close(d);
    if (clock_ms() - d->began_ms >= REFUSED_MS)
        return closed(d, strerror(error), err);
    d->try_ms = clock_ms() + PAUSE_MS;
    return DDP_OK;
}

/* What has failed on the spot leaves no trace on the socket. SO_ERROR is 0 while the connection is being made, too:
 * then there is no peer yet. */
static ddp_status look_at_connection(struct net_dial *d, struct ddp_err *err)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(int), peer_len = sizeof(peer);
    int error = d->error;
    uint8_t bytes[NET_HELLO];
    struct net_hello hello = *d->hello;

    if (error == 0 && getsockopt(d->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error != 0)
        return try_again(d, error, err);
    if (getpeername(d->fd, (struct sockaddr *)&peer, &peer_len) != 0)
        return clock_ms() - d->try_ms < SILENT_MS ? DDP_OK : closed(d, "no answer for 10 s", err);
    hello.to = d->link->rank;
    hello.lane = d->link->lane;
    net_put_hello(bytes, &hello);
    /* A fresh connection has room for it. */
    if (send(d->fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != sizeof(bytes))
        return try_again(d, errno, err);
    d->said = true;
    return DDP_OK;
}

/* The other rank answers when it has come as far as we have: there is no hurry. So there is no limit here:
 * look_around in net_join.c has the time of the whole. Exactly the answer is read, for what follows belongs
 * to the link. */
static ddp_status read_answer(struct net_dial *d, struct ddp_err *err)
{
    ssize_t n = recv(d->fd, d->answer + d->got, NET_ANSWER - d->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return DDP_OK;
    if (n <= 0)
        return try_again(d, n == 0 ? ECONNRESET : errno, err);
    d->got += (size_t)n;
    if (d->got < NET_ANSWER)
        return DDP_OK;
    enum net_answer answer = net_take_answer(d->answer);
    if (answer != NET_WELCOME)
        return unreachable(d, net_answer_words(answer), err);
    memcpy(d->link->name, d->card.host, NET_HOST);
    d->link->pid = d->card.pid;
    endpoint_print(d->card.address, d->card.port, d->link->where);
    net_link_attach(d->link, d->fd);
    d->fd = -1;
    return DDP_OK;
}

ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err)
{
    if (net_dial_done(dial))
        return DDP_OK;
    if (dial->fd < 0 && clock_ms() < dial->try_ms)
        return DDP_OK;
    if (dial->fd < 0)
        start(dial);
    if (!dial->said)
        return look_at_connection(dial, err);
    return read_answer(dial, err);
}
