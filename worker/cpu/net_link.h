/* net_link.h -- connections between hosts that exchange the values of a call. A call queues ranges of memory to send
 * and to receive, which net_transfer and net_finish move. A rank compares the head of the peer's call (net_wire.h) when
 * the head arrives, because the values of a different call may never arrive. */
#ifndef WORKER_CPU_NET_LINK_H
#define WORKER_CPU_NET_LINK_H

#include "base/endpoint.h"
#include "cpu/net_wire.h"

#include <sys/uio.h>

struct shm_barrier;
struct pollfd;

struct net_queue {
    struct iovec *list; /* room for `most` ranges, owned by net_links */
    size_t next, count; /* the ranges list[next .. count) have not been moved yet */
};

/* A connection of one lane (net_plan.h) to the rank that serves this lane on another host. */
struct net_link {
    int fd;                        /* -1 if not connected; always -1 in the entry of this host */
    int rank, lane, host;          /* rank of the peer, lane of the connection, number of the peer's host */
    int32_t pid;                   /* pid of the peer rank */
    char name[NET_HOST];           /* name of the peer's host */
    char where[ENDPOINT_TEXT_MAX]; /* address and port of the peer */
    struct net_queue out, in;
    uint8_t head_out[NET_HEAD], head_in[NET_HEAD];
    bool head_due; /* true until the head of the peer's call has arrived */
};

struct net_links {
    struct net_link *list; /* owned */
    int count;
    int rank;             /* number of this rank in the group */
    struct call call;     /* the call in progress, for error texts */
    uint64_t seq;         /* sequence number of `call` */
    struct pollfd *polls; /* owned; `count` entries */
    struct iovec *room;   /* owned; memory of all queues */
    int64_t moved;        /* number of bytes sent and received; net_finish detects progress by this number */
};

/* Create `count` links that are not connected yet. Each queue has room for `most` ranges. */
ddp_status net_links_open(struct net_links *links, int count, size_t most, int rank, struct ddp_err *err);

/* Close all sockets and free the links. */
void net_links_close(struct net_links *links);

/* Make the link the owner of a connected socket. */
void net_link_attach(struct net_link *link, int fd);

/* Begin a call. Each side sends its head before all other bytes. So queue a copy of `head` to send, and room for the
 * peer's head to receive. */
void net_link_begin(struct net_link *link, const uint8_t head[NET_HEAD]);

/* Queue `n` bytes to send, or room for `n` bytes to receive. The caller must neither write to the memory nor free it
 * until net_finish returns. */
void net_link_send(struct net_link *link, const void *from, size_t n);
void net_link_receive(struct net_link *link, void *to, size_t n);

/* Move as many bytes as possible without waiting. Fail if the peer has closed or reset the connection, or if the heads
 * differ. */
ddp_status net_transfer(struct net_links *links, struct ddp_err *err);

/* Move bytes, and wait until all queues are empty. Fail in any of these cases:
 *
 *     the peer closes or resets the connection
 *     the heads differ
 *     the peer's host acknowledges nothing for 15 s
 *     the deadline of the call (the timeout of `barrier`) has passed
 *     a rank on this host has ended or given up */
ddp_status net_finish(struct net_links *links, struct shm_barrier *barrier, struct ddp_err *err);

/* Return an error if a peer has closed its connection. This function never waits. */
ddp_status net_links_check(struct net_links *links, struct ddp_err *err);

/* End the sending direction of all connections. Any thread may call this function any number of times. */
void net_links_shut(const struct net_links *links);

#endif
