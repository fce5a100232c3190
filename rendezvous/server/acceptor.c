/* acceptor.c -- see acceptor.h.
 *
 * The happy path: the socket becomes readable -> on_connectable -> accept4 until the queue is empty ->
 * on_client.
 *
 * It can go wrong when there is no descriptor for the next client: accept4 says EMFILE, or `max` is reached.
 * Then the client stays in the kernel's queue, we stop polling (a readable socket that nobody reads would
 * turn the loop into a spin) and try again when a client leaves, or after a pause. make_room may close clients that
 * have sent no request.
 *
 * Why not uv_listen: on EMFILE libuv opens its reserve descriptor, accepts and closes every waiting client,
 * and tells nobody. Why `max`: the store may live inside the launcher, which needs descriptors to start its
 * workers. */
#include "server/acceptor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PAUSE_MS = 100, AT_ONCE = 64, RESERVE = 64 };

static void on_connectable(uv_poll_t *poll, int status, int events);

/* On a listening socket the kernel reports its accept queue in this field. */
static unsigned waiting_clients(const struct acceptor *a)
{
    struct tcp_info info = { 0 };
    socklen_t len = sizeof(info);
    return getsockopt(a->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 ? info.tcpi_unacked : 0;
}

/* One report for each time we run out, not for each attempt, and only if there is somebody who has to wait. */
static void pause_for(struct acceptor *a, const char *why)
{
    unsigned waiting = waiting_clients(a);
    uv_poll_stop(&a->poll);
    a->resume_ms = uv_now(a->loop) + PAUSE_MS;
    a->make_room(a, waiting);
    if (!a->short_of_fds && waiting > 0) {
        a->short_of_fds = true;
        a->on_short(a, waiting, why);
    }
}

/* By on_client as well: the server's last deadline may pass with it. The number of the socket may be another's then. */
static bool is_closed(const struct acceptor *a)
{
    return uv_is_closing((const uv_handle_t *)&a->poll);
}

/* False when there is nobody left to accept, or nothing to accept with. */
static bool accept_one(struct acceptor *a)
{
    struct sockaddr_storage peer = { 0 };
    socklen_t len = sizeof(peer);
    if (a->open >= a->max) {
        pause_for(a, "the limit is reached");
        return false;
    }
    int fd = accept4(a->fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        a->open++;
        a->short_of_fds = false;
        a->on_client(a, fd, (struct sockaddr *)&peer);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        pause_for(a, strerror(errno));
    else if (errno != EAGAIN)
        return true; /* ECONNABORTED and the like: that client has gone, the next may be fine */
    return false;
}

static void on_connectable(uv_poll_t *poll, int status, int events)
{
    struct acceptor *a = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < AT_ONCE && !is_closed(a) && accept_one(a); i++)
        continue; /* whoever is left makes the socket readable again, after the clients had their turn */
}

/* The hard limit is ours to use: a store of a big job has two sockets for each torch 1.13 rank. */
static unsigned raise_limit(void)
{
    struct rlimit limit = { 1024, 1024 };
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    unsigned fds = limit.rlim_cur < 1u << 20 ? (unsigned)limit.rlim_cur : 1u << 20;
    unsigned reserve = fds / 4 < RESERVE ? fds / 4 : RESERVE;
    return fds - reserve;
}

int acceptor_open(struct acceptor *a, uv_loop_t *loop, int fd)
{
    a->loop = loop;
    a->fd = fd;
    a->open = 0;
    a->max = raise_limit();
    a->resume_ms = UINT64_MAX;
    a->short_of_fds = false;
    int rc = uv_poll_init(loop, &a->poll, fd);
    a->poll.data = a;
    return rc != 0 ? rc : uv_poll_start(&a->poll, UV_READABLE, on_connectable);
}

void acceptor_put_back(struct acceptor *a)
{
    a->open--;
    if (a->resume_ms != UINT64_MAX)
        acceptor_tick(a, a->resume_ms);
}

uint64_t acceptor_deadline(const struct acceptor *a)
{
    return a->resume_ms;
}

void acceptor_tick(struct acceptor *a, uint64_t now_ms)
{
    if (now_ms < a->resume_ms || is_closed(a))
        return;
    a->resume_ms = UINT64_MAX;
    uv_poll_start(&a->poll, UV_READABLE, on_connectable);
}

void acceptor_close(struct acceptor *a, uv_close_cb closed)
{
    a->resume_ms = UINT64_MAX;
    uv_close((uv_handle_t *)&a->poll, closed);
    close(a->fd);
}
