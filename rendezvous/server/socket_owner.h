/* socket_owner.h -- finds the user who owns a TCP socket of this host, and rejects connections of other users. The
 * module asks sock_diag, which needs no privilege and finds any socket of this network namespace in 3 to 15 us. If the
 * kernel has no sock_diag (gVisor), /proc/net/tcp and tcp6 are read. */
#ifndef RENDEZVOUS_SERVER_SOCKET_OWNER_H
#define RENDEZVOUS_SERVER_SOCKET_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* A netlink socket. sock_diag is a netlink protocol of Linux (sock_diag(7)). */
struct netlink {
    bool is_open;
    int fd; /* owned; valid if `is_open` */
};

/* Two netlink sockets, which are opened when they are first needed. Set all bytes to zero before the first use. Only
 * one thread may use the struct at a time. */
struct socket_owners {
    struct netlink diag, route; /* `diag` is for sock_diag; `route` finds routes to an address */
    bool is_answered; /* sock_diag found a socket, so tcp_diag is loaded, and ENOENT means "not found" */
};

/* The owner of a socket: a user, not a process. */
struct socket_owner {
    uint32_t uid;
    uint64_t inode; /* never 0 */
};

/* The result of a search. For a closed socket the kernel reports uid 0 and inode 0. The result is then SOCKET_CLOSED,
 * because otherwise every closed socket would seem to belong to root. */
enum socket_state {
    SOCKET_OPEN,   /* a process has the socket open */
    SOCKET_CLOSED, /* no process of this network namespace has the socket open */
    SOCKET_UNKNOWN /* the kernel does not answer */
};

/* Find the owner of the socket with the local address `near` and the remote address `far`. An IPv4-mapped IPv6 address
 * counts as the IPv4 address. `owner` is set only for SOCKET_OPEN. */
enum socket_state socket_owner_find(struct socket_owners *o, const struct sockaddr *near,
                                    const struct sockaddr *far, struct socket_owner *owner);

/* Find a socket that listens on `port` at any address. Return SOCKET_UNKNOWN if the kernel has no sock_diag. If several
 * sockets match, prefer a socket whose user is not `uid`, because the caller looks for processes of other users. */
enum socket_state socket_listener_find(struct socket_owners *o, int port, uint32_t uid,
                                       struct socket_owner *owner);

void socket_owners_close(struct socket_owners *o);

/* --- uid gate --------------------------------------------------------------------------------------------- */

/* The uid gate rejects connections of other users of this host except root, because a PyTorch client cannot
 * authenticate itself. The hub decides about connections from other hosts. */

enum { UID_GATE_WHY_MAX = 160, UID_GATE_SERVED_MAX = 32 }; /* sizes of the texts in bytes, with the NUL */

/* Zero the struct before its first use. */
struct uid_gate {
    struct socket_owners owners;
    bool insecure; /* accept every user */
};

/* Check the connection `fd` from `peer`. Set *uid to the user of the peer, or to -1 if the user is unknown. Return
 * false if the caller must close the connection; `why` then contains the reason and the remedy. */
bool uid_gate_admits(struct uid_gate *g, int fd, const struct sockaddr *peer, int64_t *uid,
                     char why[static UID_GATE_WHY_MAX]);

/* Return the users that the gate accepts: "root", or "uid 1000 and root" written to `out`. */
const char *uid_gate_served(char out[static UID_GATE_SERVED_MAX]);

void uid_gate_close(struct uid_gate *g);

#endif
