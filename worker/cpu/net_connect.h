/* net_connect.h -- connections between ranks of different hosts: the address of this rank, connecting (dial), and
 * accepting (door). */
#ifndef WORKER_CPU_NET_CONNECT_H
#define WORKER_CPU_NET_CONNECT_H

#include "cpu/net_link.h"
#include "ddp/store.h"

#include <poll.h>
#include <stdbool.h>

enum { NET_ADDRESS = 64 };

/* Choose the numeric address to publish. `iface` is DDP_IFACE: an interface's name or an address of this host. If
 * `iface` is "", choose the address of the connection to the store. DDP_ERR_ENV lists the available interfaces. */
ddp_status net_address_choose(const char *iface, const struct ddp_store *store, char address[NET_ADDRESS],
                              struct ddp_err *err);

/* Listen on `address`, on a port of `range` (DDP_PORT_RANGE; "" = any). */
ddp_status net_listen(const char *address, const char *range, int local_rank, int *fd, int *port,
                      struct ddp_err *err);

/* Open a non-blocking socket that connects to address:port, from the address `source` unless `source` is "". Return
 * 0, or -1 with errno. */
int net_connect(const char *address, int port, const char *source, int *fd);

/* --- dial: connect to a rank
 * ------------------------------------------------------------------------------------------- */

/* Connect one link to the rank at its other end.
 *
 *     connecting -> hello sent, waiting for the answer -> the link has its socket
 *         \________________ refused: again, for a second
 *
 * The other rank listens before it publishes its address. So a refusal means a firewall or a dead rank, and silence
 * means a firewall or a wrong address. The dial reports both cases soon, with both addresses and the options that
 * help. */

/* The address of a rank, which the rank publishes in the store. */
struct net_card {
    char address[NET_ADDRESS];
    char host[NET_HOST];
    int32_t port, pid;
};

enum { NET_CLOSED = 256 };

struct net_dial {
    struct net_link *link;         /* borrowed */
    const struct net_hello *hello; /* borrowed; `to` and `lane` are set for each dial */
    const char *address, *source;  /* borrowed: this rank's address, if DDP_IFACE is set; otherwise "" */
    struct net_card card;
    int fd;                    /* -1: between two tries, or done */
    int error;                 /* errno of a connect that failed at once, else 0 */
    bool said;                 /* the hello was sent */
    uint64_t began_ms, try_ms; /* when the first try began; when to try again */
    size_t got;
    uint8_t answer[NET_ANSWER];
    char closed
        [NET_CLOSED]; /* why the address cannot be reached: "cannot connect to rank 0 ..."; "" = no such error */
};

/* Begin to connect. net_dial_serve reports errors. */
void net_dial_begin(struct net_dial *dial);
void net_dial_close(struct net_dial *dial);

bool net_dial_done(const struct net_dial *dial);

/* Return the entry for poll. Its fd is -1 if only time must pass. */
struct pollfd net_dial_poll(const struct net_dial *dial);

/* Continue as far as possible without waiting, whatever poll has reported. */
ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err);

/* --- door: accept ranks ----------------------------------------------------------------------------------- */

/* The port that accepts ranks of other hosts. A connected peer whose hello is not complete yet is a guest.
 *
 * A peer must send a hello (net_wire.h) with the nonce of this run, which is only in the store. The door closes a
 * guest at the first byte that does not belong to a hello. The door closes a silent guest after some seconds, or when
 * the table is full. A hello of an older attempt or another job gets an answer with the reason. The port is closed
 * when all expected ranks are connected. */

enum { NET_GUESTS = 32 };

struct net_guest {
    int fd; /* -1: the place is free */
    uint64_t since_ms;
    size_t got;
    uint8_t bytes[NET_HELLO];
};

struct net_door {
    int fd;                       /* -1: the port is closed */
    const struct net_hello *mine; /* borrowed */
    struct net_guest guests[NET_GUESTS];
};

void net_door_open(struct net_door *door, int fd, const struct net_hello *mine);
void net_door_close(struct net_door *door);

/* Fill the entries for poll: the port, and the guests. Return the number of entries, at most 1 + NET_GUESTS. */
int net_door_polls(const struct net_door *door, struct pollfd *polls);

/* Accept ranks, and pass their sockets to their links. Return the number of accepted ranks. */
int net_door_serve(struct net_door *door, struct net_links *links);

#endif
