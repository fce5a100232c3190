/* net_link.c -- see net_link.h. Only net_finish waits; all other functions fill queues, or move as many bytes as the
 * sockets accept. The kernel reads and writes the callers' memory directly, so a range must stay unchanged until its
 * queue is done. One loop sends and receives on all links, because two hosts that first sent all their data would both
 * block on full socket buffers. */
#include "cpu/net_link.h"

#include "cpu/barrier.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    AT_ONCE = 64,   /* maximum number of ranges in one system call */
    YIELDS = 32,    /* calls of sched_yield before poll, because sleeping takes longer */
    IDLE_S = 5,     /* seconds of silence after which a peer is probed */
    LOST_MS = 15000 /* ms without an acknowledgement after which the peer's host is lost */
};

/* --- links ---------------------------------------------------------------------------------------------- */

/* Open the links. The extra entry avoids calloc(0), which may return NULL. */
ddp_status net_links_open(struct net_links *links, int count, size_t most, int rank, struct ddp_err *err)
{
    size_t n = (size_t)count;

    *links = (struct net_links){ .count = count, .rank = rank };
    links->list = calloc(n + 1, sizeof(*links->list));
    links->polls = calloc(n + 1, sizeof(*links->polls));
    links->room = calloc((n + 1) * 2 * most, sizeof(*links->room));
    if (links->list == NULL || links->polls == NULL || links->room == NULL) {
        links->count = 0;
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %d connections", count);
    }
    for (size_t i = 0; i < n; i++)
        links->list[i] = (struct net_link){ .fd = -1,
                                            .out = { .list = links->room + 2 * i * most },
                                            .in = { .list = links->room + (2 * i + 1) * most } };
    return DDP_OK;
}

void net_links_close(struct net_links *links)
{
    for (int i = 0; i < links->count; i++)
        if (links->list[i].fd >= 0)
            close(links->list[i].fd);
    free(links->list);
    free(links->polls);
    free(links->room);
    *links = (struct net_links){ 0 };
}

/* Attach a socket, and set its options. TCP_NODELAY sends small messages at once. Keep-alive detects a host that has
 * lost power, because such a host never closes its connections. TCP_USER_TIMEOUT is not used, because this option would
 * also end a connection to a slow rank: the kernel counts the time for which the slow rank's receive buffer is full. */
void net_link_attach(struct net_link *link, int fd)
{
    const int on = 1, idle = IDLE_S, times = 2;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* SO_KEEPALIVE detects a host without power while this rank only receives. While this rank sends, is_lost() detects
     * such a host. */
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    link->fd = fd;
}

/* Append a range. The queue has room only for the ranges of one call, so begin at its front again when all ranges are
 * done. */
static void queue_range(struct net_queue *q, void *at, size_t n)
{
    if (n == 0)
        return;
    if (q->next == q->count)
        q->next = q->count = 0;
    q->list[q->count++] = (struct iovec){ at, n };
}

void net_link_send(struct net_link *link, const void *from, size_t n)
{
    queue_range(&link->out, (void *)(uintptr_t)from, n);
}

void net_link_receive(struct net_link *link, void *to, size_t n)
{
    queue_range(&link->in, to, n);
}

void net_link_begin(struct net_link *link, const uint8_t head[NET_HEAD])
{
    memcpy(link->head_out, head, NET_HEAD);
    link->head_due = true;
    net_link_send(link, link->head_out, NET_HEAD);
    net_link_receive(link, link->head_in, NET_HEAD);
}

/* --- moving --------------------------------------------------------------------------------------------- */

static bool is_done(const struct net_queue *q)
{
    return q->next == q->count;
}

static void advance(struct net_queue *q, size_t n)
{
    while (n > 0 && n >= q->list[q->next].iov_len)
        n -= q->list[q->next++].iov_len;
    if (n > 0) {
        q->list[q->next].iov_base = (char *)q->list[q->next].iov_base + n;
        q->list[q->next].iov_len -= n;
    }
}

/* Report a lost connection. The peer is often not the first rank that failed. ddprun determines the first failure. */
static ddp_status link_lost(const struct net_links *links, const struct net_link *link, const char *how,
                            struct ddp_err *err)
{
    char text[CALL_TEXT];
    return ddp_fail(err, DDP_ERR_PEER_LOST,
                    "rank %d (pid %d on %s) has ended or given up while rank %d waited in %s; the connection "
                    "to %s failed: %s",
                    link->rank, link->pid, link->name, links->rank, call_text(text, &links->call, links->seq),
                    link->where, how);
}

/* Move bytes of one queue with one system call. Return 1 if bytes were moved, 0 if the socket is not ready, or -1
 * with *err if the connection is over. */
static int move_bytes(struct net_links *links, struct net_link *link, struct net_queue *q, bool out,
                      struct ddp_err *err)
{
    size_t left = q->count - q->next;
    struct msghdr message = { .msg_iov = q->list + q->next, .msg_iovlen = left < AT_ONCE ? left : AT_ONCE };
    ssize_t n = out ? sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : recvmsg(link->fd, &message, MSG_DONTWAIT);

    if (n > 0) {
        advance(q, (size_t)n);
        links->moved += n;
        return 1;
    }
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    link_lost(links, link, n == 0 ? "closed by the peer" : strerror(errno), err);
    return -1;
}

/* Compare the peer's head with this rank's head, as soon as the peer's head has arrived. The head is the first range of
 * a call. in.next is the index of the range in progress. So the head has arrived if in.next is not 0, or if all ranges
 * are done. */
static ddp_status check_head(struct net_link *link, struct ddp_err *err)
{
    if (!link->head_due || (link->in.next == 0 && !is_done(&link->in)))
        return DDP_OK;
    link->head_due = false;
    return net_compare_heads(link->head_out, link->head_in, err);
}

/* Move bytes of one link in both directions. A peer that makes a different call may close the connection after its last
 * message. A send could then fail before this rank has read that message, which has the head of the peer's call. So
 * receive before sending. */
static ddp_status transfer_link(struct net_links *links, struct net_link *link, struct ddp_err *err)
{
    int moved = 1;
    /* Receive first (see above). */
    while (moved > 0 && !is_done(&link->in)) {
        moved = move_bytes(links, link, &link->in, false, err);
        if (moved > 0 && check_head(link, err) != DDP_OK)
            return err->code;
    }
    while (moved >= 0 && !is_done(&link->out)) {
        moved = move_bytes(links, link, &link->out, true, err);
        if (moved == 0)
            break;
    }
    return err->code;
}

ddp_status net_transfer(struct net_links *links, struct ddp_err *err)
{
    err->code = DDP_OK;
    for (int i = 0; i < links->count; i++) {
        struct net_link *link = &links->list[i];
        if (is_done(&link->out) && is_done(&link->in))
            continue;
        if (transfer_link(links, link, err) != DDP_OK)
            return err->code;
    }
    return DDP_OK;
}

/* --- waiting -------------------------------------------------------------------------------------------- */

/* Fill `polls` with the links whose queues are not empty, and return their number. */
static int list_waits(struct net_links *links)
{
    int waits = 0;
    for (int i = 0; i < links->count; i++) {
        const struct net_link *link = &links->list[i];
        short events = (short)((is_done(&link->in) ? 0 : POLLIN) | (is_done(&link->out) ? 0 : POLLOUT));
        links->polls[i] = (struct pollfd){ .fd = events ? link->fd : -1, .events = events };
        waits += events != 0;
    }
    return waits;
}

/* Report the late peers and the state of each. A peer that has not made this call usually hangs in its program. If a
 * peer has sent only a part, the network is usually slow or blocked. A peer that does not receive is usually in
 * another call. */
static ddp_status links_late(const struct net_links *links, uint32_t timeout_ms, struct ddp_err *err)
{
    enum { LISTED = 3 };
    char list[640] = "", text[CALL_TEXT];
    int waits = 0;

    for (int i = 0; i < links->count; i++) {
        const struct net_link *link = &links->list[i];
        size_t used = strlen(list);
        bool in = !is_done(&link->in);
        if ((!in && is_done(&link->out)) || waits++ >= LISTED)
            continue;
        snprintf(list + used, sizeof(list) - used, "%srank %d (pid %d on %.63s, %.64s) %s", used ? ", " : "",
                 link->rank, link->pid, link->name, link->where,
                 !in              ? "does not receive the values of this call"
                 : link->head_due ? "has not made this call"
                                  : "has sent only a part of its values");
    }
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "rank %d waited %g s in %s for other hosts: %s%s; %s sets the default time limit",
                    links->rank, timeout_ms / 1000.0, call_text(text, &links->call, links->seq), list,
                    waits > LISTED ? ", and others" : "",
                    links->call.kind == CALL_INIT ? "--timeout of ddprun or DDPRUN_INIT_TIMEOUT_MS"
                                                  : "DDPRUN_STEP_TIMEOUT_MS");
}

/* Return true if the host of the peer no longer acknowledges anything, although the kernel repeats a segment or a
 * probe. A host whose rank is only late still acknowledges the probes. */
static bool is_lost(const struct net_link *link)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    return getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           (info.tcpi_retransmits > 1 || info.tcpi_probes > 1) && info.tcpi_last_ack_recv > LOST_MS;
}

/* Fail if a peer that this rank waits for is lost. list_waits has filled `polls`. */
static ddp_status find_lost(const struct net_links *links, struct ddp_err *err)
{
    for (int i = 0; i < links->count; i++)
        if (links->polls[i].fd >= 0 && is_lost(&links->list[i]))
            return link_lost(links, &links->list[i], strerror(ETIMEDOUT), err);
    return DDP_OK;
}

/* Wait in poll for a short time only, because a rank of this host that gives up cannot wake this rank. */
static ddp_status wait_once(struct net_links *links, struct shm_barrier *barrier, struct ddp_err *err)
{
    uint32_t slice_ms = 0;
    if (!barrier_has_time(barrier, &slice_ms))
        return links_late(links, barrier->timeout_ms, err);
    if (poll(links->polls, (nfds_t)links->count, (int)slice_ms) > 0)
        return DDP_OK;
    const ddp_status status = barrier_check(barrier, true, err);
    return status == DDP_OK ? find_lost(links, err) : status;
}

ddp_status net_finish(struct net_links *links, struct shm_barrier *barrier, struct ddp_err *err)
{
    for (int yields = 0;; yields++) {
        int64_t moved = links->moved;
        ddp_status status = net_transfer(links, err);
        if (status != DDP_OK || list_waits(links) == 0)
            return status;
        if (links->moved != moved)
            yields = 0;
        if (yields < YIELDS)
            sched_yield();
        else if ((status = wait_once(links, barrier, err)) != DDP_OK)
            return status;
    }
}

ddp_status net_links_check(struct net_links *links, struct ddp_err *err)
{
    for (int i = 0; i < links->count; i++)
        links->polls[i] = (struct pollfd){ .fd = links->list[i].fd, .events = POLLRDHUP };
    if (poll(links->polls, (nfds_t)links->count, 0) <= 0)
        return DDP_OK;
    for (int i = 0; i < links->count; i++)
        if (links->polls[i].revents != 0)
            return link_lost(links, &links->list[i], "closed by the peer", err);
    return DDP_OK;
}

void net_links_shut(const struct net_links *links)
{
    for (int i = 0; i < links->count; i++)
        if (links->list[i].fd >= 0)
            shutdown(links->list[i].fd, SHUT_WR);
}
