/* net_door.h -- the port on which ranks of other hosts are let in, and nobody else.
 *
 * Who connects has to say a hello (net_wire.h) with the nonce of this run, which is only in the store. A stranger is
 * closed with the first byte that is no hello, a silent one after some seconds or when the table is full; a hello of an
 * older attempt or another job gets an answer that says so. The port is closed when all who are expected are there. */
#ifndef WORKER_NET_DOOR_H
#define WORKER_NET_DOOR_H

#include "cpu/net_link.h"

enum { NET_GUESTS = 32 };

struct net_guest {
    int fd; /* -1: a free place */
    uint64_t since_ms;
    size_t got;
    uint8_t bytes[NET_HELLO];
};

struct net_door {
    int fd;                       /* -1: closed */
    const struct net_hello *mine; /* borrowed */
    struct net_guest guests[NET_GUESTS];
};

void net_door_open(struct net_door *door, int fd, const struct net_hello *mine);
void net_door_close(struct net_door *door);

/* Entries for poll: the port and those who have not said their hello yet; returns how many, at most 1 + NET_GUESTS. */
int net_door_polls(const struct net_door *door, struct pollfd *polls);

/* Let in whom poll has announced: their links get their sockets. Returns how many. */
int net_door_serve(struct net_door *door, struct net_links *links);

#endif
