/* client_dial.c -- the addresses of a name race each other.
 *
 * A name may have several addresses of which some lead nowhere: an IPv6 address on a machine without an IPv6
 * route, a network card that is down. They are tried in the resolver's order with the families in turn; each
 * gets a short head start, then the next one starts beside it, and the first that connects wins. So a dead
 * address costs a quarter of a second and not a connect time-out of two minutes. */
#include "client/client_dial.h"

#include "base/clock.h"
#include "client/client_stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_ADDRESSES = 8, HEAD_START_MS = 250 };

struct race {
    const struct addrinfo *to[MAX_ADDRESSES]; /* borrowed from the resolver's list */
    struct pollfd runner[MAX_ADDRESSES];      /* fd -1: has failed */
    size_t addresses, started, running;
    int error; /* what the last failure was; "refused" is not overwritten, it says most */
};

/* What the user reads; a bare errno text leaves open what to look at. */
static const char *words_for(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "the connection is refused, nothing listens there";
    case ETIMEDOUT:
        return "no answer from that address (is the machine up? does a firewall drop packets?)";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to that address";
    default:
        return strerror(error);
    }
}

/* The list with its two families in turn, beginning with the family that the resolver prefers. */
static void line_up(struct race *r, const struct addrinfo *list)
{
    const struct addrinfo *same = list, *other = list;
    while (r->addresses < MAX_ADDRESSES && (same != NULL || other != NULL)) {
        while (same != NULL && same->ai_family != list->ai_family)
            same = same->ai_next;
        while (other != NULL && other->ai_family == list->ai_family)
            other = other->ai_next;
        if (same != NULL) {
            r->to[r->addresses++] = same;
            same = same->ai_next;
        }
        if (other != NULL && r->addresses < MAX_ADDRESSES) {
            r->to[r->addresses++] = other;
            other = other->ai_next;
        }
    }
}

/* Runner `i` has failed with `error` (errno). */
static void drop_out(struct race *r, size_t i, int error)
{
    close(r->runner[i].fd);
    r->runner[i].fd = -1;
    r->running--;
    if (r->error != ECONNREFUSED)
        r->error = error;
}

/* A connect that fails on the spot (no route) drops out like one that fails later. False only when we
 * ourselves cannot go on: out of descriptors or memory. */
static bool start_next(struct race *r)
{
    const struct addrinfo *to = r->to[r->started];
    int on = 1;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    r->runner[r->started] = (struct pollfd){ fd, POLLOUT, 0 };
    if (fd < 0) {
        r->started++;
        r->error = errno;
        return errno == EAFNOSUPPORT;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    r->running++;
    if (connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS)
        drop_out(r, r->started, errno);
    r->started++;
    return true;
}

/* On loopback a connect to a free port in the ephemeral range may meet itself (simultaneous open). It looks
 * like a connection, echoes all that we say, and takes the port from the store that wants to listen there. */
static bool is_connected_to_itself(int fd)
{
    struct sockaddr_storage here = { 0 }, there = { 0 };
    socklen_t here_len = sizeof(here), there_len = sizeof(there);
    return getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
           getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 && here_len == there_len &&
           memcmp(&here, &there, here_len) == 0;
}

/* The number of a runner that has arrived; those that have failed drop out. -1: nobody yet. */
static int look_for_winner(struct race *r)
{
    for (size_t i = 0; i < r->started; i++) {
        int error = 0;
        socklen_t len = sizeof(error);
        if (r->runner[i].fd < 0 || r->runner[i].revents == 0)
            continue;
        getsockopt(r->runner[i].fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error == 0 && is_connected_to_itself(r->runner[i].fd))
            error = ECONNREFUSED;
        if (error == 0)
            return (int)i;
        drop_out(r, i, error);
    }
    return -1;
}

static ddp_status lost(const struct race *r, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_CLOSED, "%s", words_for(r->error));
}

/* Events are three: a runner becomes writable (arrived or failed), the head start of the last one is over,
 * the deadline. The next runner also starts at once when nobody is running any more, so that a refusal costs
 * no time. Run until one has arrived (its number in *winner), all have failed, or the deadline passes. */
static ddp_status run(struct race *r, uint64_t deadline_ms, int *winner, struct ddp_err *err)
{
    uint64_t next_start_ms = 0;
    for (;;) {
        uint64_t now = clock_ms();
        if (r->started < r->addresses && (now >= next_start_ms || r->running == 0)) {
            if (!start_next(r))
                return ddp_fail(err, DDP_ERR_IO, "cannot open a socket: %s", strerror(r->error));
            next_start_ms = now + HEAD_START_MS;
        }
        if (r->running == 0 && r->started == r->addresses)
            return lost(r, err);
        uint64_t until =
            r->started < r->addresses && next_start_ms < deadline_ms ? next_start_ms : deadline_ms;
        if (r->running > 0)
            poll(r->runner, r->started, client_remaining_ms(until));
        *winner = look_for_winner(r);
        if (*winner >= 0)
            return DDP_OK;
        if (clock_ms() >= deadline_ms && r->running > 0)
            return ddp_fail(err, DDP_ERR_TIMEOUT, "%s", words_for(ETIMEDOUT));
    }
}

/* Whoever is still under way when the winner arrives is closed here, in the one place that knows all of
 * them. */
ddp_status client_dial(const char *host, int port, uint64_t deadline_ms, int *fd, struct ddp_err *err)
{
    struct race race = { 0 };
    struct addrinfo *found;
    int winner = -1;
    ddp_status status = client_resolve(host, port, deadline_ms, &found, err);
    if (status != DDP_OK)
        return status;
    line_up(&race, found);
    status = run(&race, deadline_ms, &winner, err);
    for (size_t i = 0; i < race.started; i++)
        if ((int)i != winner && race.runner[i].fd >= 0)
            close(race.runner[i].fd);
    freeaddrinfo(found);
    *fd = winner >= 0 ? race.runner[winner].fd : -1;
    return status;
}
