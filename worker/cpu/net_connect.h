/* net_connect.h -- connections between ranks of different hosts: the address of this rank, connecting (dial), and
 * accepting (door). No function waits, because the loops in net_join.c serve all dials and the door, and also check
 * whether a rank has given up. When a connection is ready, its link owns the socket. */
#ifndef WORKER_CPU_NET_CONNECT_H
#define WORKER_CPU_NET_CONNECT_H

#include "cpu/net_link.h"
#include "ddp/store.h"

#include <poll.h>
#include <stdbool.h>

enum { NET_ADDRESS = 64 };

/* Choose the numeric address to publish. `iface` is DDP_IFACE: an interface's name or an address of this host. If
 * `iface` is "", choose this host's address in the connection to the store. The text of DDP_ERR_ENV lists the
 * available interfaces. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err);

/* Listen on `address`, on a port of `range`, the value of DDP_PORT_RANGE. If `range` is "", use any port. */
ddp_status net_listen(const char *address, const char *range, int local_rank, int *fd, int *port,
                      struct ddp_err *err);

/* --- dial: connect to a rank -------------------------------------------------------------------------- */

/* A dial connects one link to its peer rank.
 *
 *     connecting -> hello sent, waiting for the answer -> the link owns the socket
 *         \________________ refused or another error: retry for 1 s
 *
 * The peer listens before it publishes its address. So a refusal means a firewall or a dead rank, and silence means
 * a firewall or a wrong address. */

/* The address of a rank, which the rank publishes in the store. */
struct net_card {
    char address[NET_ADDRESS];
    char host[NET_HOST];
    int32_t port, pid;
};

enum { NET_CLOSED = 256 };

struct net_dial {
    struct net_link *link;         /* borrowed */
    const struct net_hello *hello; /* borrowed; the copy that is sent has its own `to` and `lane` */
    const char *address;           /* borrowed: this rank's address, for error texts */
    /* borrowed: the address to connect from; "": the kernel chooses */
    const char *source;
    struct net_card card;
    /* -1 while the dial waits for its next try, and after the link has become the owner of the socket */
    int fd;
    int error;                 /* errno of a connect that failed at once, else 0 */
    bool hello_sent;           /* true if the hello was sent */
    uint64_t began_ms, try_ms; /* start of the first try (began_ms) and of the current or next try (try_ms) */
    size_t got;                /* bytes of `answer` that have arrived */
    uint8_t answer[NET_ANSWER];
    char closed[NET_CLOSED]; /* why the address cannot be reached; "" before a failure */
};

/* Begin to connect. net_dial_serve reports errors. */
void net_dial_begin(struct net_dial *dial);
void net_dial_close(struct net_dial *dial);

bool net_dial_done(const struct net_dial *dial);

/* Return the entry for poll. Its fd is -1 while the dial waits for its next try. */
struct pollfd net_dial_poll(const struct net_dial *dial);

/* Continue the dial as far as possible without waiting. Call this function after each poll, also if poll reported
 * nothing. */
ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err);

/* --- door: accept ranks ------------------------------------------------------------------------------- */

/* The door is the port that accepts ranks of other hosts. A connected peer whose hello is not complete yet is a guest.
 *
 * A peer must send a hello (net_wire.h) with this run's nonce, which only ranks can read in the store. The door
 * closes a guest's connection at the first wrong byte, or after 5 s without a complete hello. If the table is full
 * when another peer connects, the door may close the oldest connection earlier. The door answers a hello of an
 * older attempt or another job with the reason for the rejection. The port is closed when all expected ranks are
 * connected. */

enum { NET_GUESTS = 32 };

struct net_guest {
    int fd;            /* -1 if the entry is unused */
    uint64_t since_ms; /* when the guest connected */
    size_t got;        /* bytes of the hello that have arrived */
    uint8_t bytes[NET_HELLO];
};

struct net_door {
    int fd;                       /* -1 if the port is closed */
    bool is_starved;              /* true if descriptors or memory were short, or the table was full */
    const struct net_hello *mine; /* borrowed */
    struct net_guest guests[NET_GUESTS];
};

void net_door_open(struct net_door *door, int fd, const struct net_hello *mine);
void net_door_close(struct net_door *door);

/* Write the poll entries of the port and of each guest (a connected peer whose hello is not complete). Return the
 * number of entries, at most 1 + NET_GUESTS. */
int net_door_polls(const struct net_door *door, struct pollfd *polls);

/* Accept ranks without waiting, and attach their sockets to their links. Return the number of accepted ranks. */
int net_door_serve(struct net_door *door, struct net_links *links);

#endif
