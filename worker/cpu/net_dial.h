/* net_dial.h -- connect one link to the rank at its other end.
 *
 *     connecting -> hello sent, answer awaited -> the link has its socket
 *         \________________ refused: again, for a second
 *
 * The other rank listens before it says where, so a refusal is a firewall or a death, and silence is a firewall or a
 * wrong address: both are reported soon, with everything that one needs to know to mend it. */
#ifndef WORKER_NET_DIAL_H
#define WORKER_NET_DIAL_H

#include "cpu/net_address.h"
#include "cpu/net_link.h"

#include <poll.h>

/* Where a rank can be reached: what it leaves in the store. */
struct net_card {
    char address[NET_ADDRESS];
    char host[NET_HOST];
    int32_t port, pid;
};

enum { NET_CLOSED = 256 };

struct net_dial {
    struct net_link *link;         /* borrowed */
    const struct net_hello *hello; /* borrowed; `to` and `lane` are filled in for each */
    const char *address, *source;  /* borrowed: what we offer, and what DDP_IFACE asks for ("" = any) */
    struct net_card card;
    int fd;                    /* -1: between two tries, or done */
    int error;                 /* errno of a connection that could not even be begun, else 0 */
    bool said;                 /* the hello is out */
    uint64_t began_ms, try_ms; /* the first try; when to try again */
    size_t got;
    uint8_t answer[NET_ANSWER];
    char closed
        [NET_CLOSED]; /* nobody can be reached there: "cannot connect to rank 0 ..."; "" = it is not so */
};

/* Begin. What is wrong shows in net_dial_serve. */
void net_dial_begin(struct net_dial *dial);
void net_dial_close(struct net_dial *dial);

bool net_dial_done(const struct net_dial *dial);

/* The entry for poll; its fd is -1 when there is nothing to wait for but time. */
struct pollfd net_dial_poll(const struct net_dial *dial);

/* Go on as far as it goes, whatever poll has said. */
ddp_status net_dial_serve(struct net_dial *dial, struct ddp_err *err);

#endif
