/* net_connect.h -- connections between ranks of different hosts: the address of this rank, connecting (dial), and
 * accepting (door). */
#ifndef WORKER_CPU_NET_CONNECT_H
#define WORKER_CPU_NET_CONNECT_H

#include "cpu/net_link.h"
#include "ddp/store.h"

#include <poll.h>
#include <stdbool.h>

enum { NET_ADDRESS = 64 };

/* Find the numeric address to offer: that of DDP_IFACE=`iface` (an interface's name or one of our addresses), or if
 * it is "" the one that leads to the store. DDP_ERR_ENV lists the available ones. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err);

/* Listen on `address`, on a port that DDP_PORT_RANGE=`range` allows. */
ddp_status net_listen(const char *address, const char *range, int local_rank, int *fd, int *port,
                      struct ddp_err *err);

/* Return a non-blocking socket that connects to address:port, from `source` unless that is "". 0, or -1 with errno. */
int net_connect(const char *address, int port, const char *source, int *fd);

/* --- dial: connect to a rank
 * ------------------------------------------------------------------------------------------- */

/* Connect one link to the rank at its other end.
 *
 *     connecting -> hello sent, answer awaited -> the link has its socket
 *         \________________ refused: again, for a second
 *
 * The other rank listens before it publishes its address, so a refusal means a firewall or a death, and silence means
 * a firewall or a wrong address: both are reported soon, with both addresses and the options that fix it. */

/* The address of a rank, which it publishes in the store. */
struct net_card {
    char address[NET_ADDRESS];
    char host[NET_HOST];
    int32_t port, pid;
};

enum { NET_CLOSED = 256 };

struct net_dial {
    struct net_link *link;         /* borrowed */
    const struct net_hello *hello; /* borrowed; `to` and `lane` are filled in for each */
    const char *address,
        *source; /* borrowed: the address that we offer, and the value of DDP_IFACE ("" = any) */
    struct net_card card;
    int fd;                    /* -1: between two tries, or done */
    int error;                 /* errno of a connection that failed at once, else 0 */
    bool said;                 /* the hello has been sent */
    uint64_t began_ms, try_ms; /* time of the first try; when to try again */
    size_t got;
    uint8_t answer[NET_ANSWER];
    char closed
        [NET_CLOSED]; /* text when the address cannot be reached: "cannot connect to rank 0 ..."; "" = no such error */
};

/* Begin. net_dial_serve reports errors. */
void net_dial_begin(struct net_dial *dial);
void net_dial_close(struct net_dial *dial);

bool net_dial_done(const struct net_dial *dial);

/* Fill the entry for poll; its fd is -1 when there is nothing to wait for except time. */
struct pollfd net_dial_poll(const struct net_dial *dial);

/* Go on as far as possible, whatever poll has reported. */
ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err);

/* --- door: accept ranks ----------------------------------------------------------------------------------- */

/* The port that accepts ranks of other hosts only.
 *
 * A peer has to send a hello (net_wire.h) with the nonce of this run, which is only in the store. A stranger is
 * closed at the first byte that does not belong to a hello, a silent one after some seconds or when the table is
 * full; a hello of an older attempt or another job gets an answer with that reason. The port is closed when all
 * expected ranks are connected. */

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

/* Fill the entries for poll: the port and the guests without a hello yet; return how many, at most 1 + NET_GUESTS. */
int net_door_polls(const struct net_door *door, struct pollfd *polls);

/* Accept the ranks that poll has announced: their links get their sockets. Return how many. */
int net_door_serve(struct net_door *door, struct net_links *links);

#endif
