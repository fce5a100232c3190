/* socket_owner.h -- find the user who owns a TCP socket of this host.
 *
 * sock_diag answers for any socket of this network namespace without privilege, in 3 to 15 us for one connection. If
 * the kernel has no sock_diag (gVisor), /proc/net/tcp and tcp6 are used.
 *
 * The owning process cannot be found in this way. A closed socket has no owner. For such a socket the kernel reports
 * uid 0 and inode 0, and the result is SOCKET_CLOSED, never root. */
#ifndef RENDEZVOUS_SERVER_SOCKET_OWNER_H
#define RENDEZVOUS_SERVER_SOCKET_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct netlink {
    bool is_open;
    int fd; /* valid if `is_open` */
};

/* Two netlink sockets and what is known about the kernel's answers. Set to zeros before first use. The first request
 * opens a socket; socket_owners_close closes both. Use from one thread at a time. */
struct socket_owners {
    struct netlink diag, route;
    bool is_answered; /* sock_diag has found a socket, so "not found" is reliable */
};

struct socket_owner {
    uint32_t uid;
    uint64_t inode; /* never 0 */
};

enum socket_state {
    SOCKET_OPEN,   /* a process holds the socket, so the owner is known */
    SOCKET_CLOSED, /* no process of this network namespace holds the socket, or its owner has closed it */
    SOCKET_UNKNOWN /* neither sock_diag nor /proc/net/tcp answers */
};

/* Find the owner of the socket that is bound to `near` and connected to `far`. An IPv4 address inside an IPv6 address
 * is treated as IPv4. `owner` is set only for SOCKET_OPEN. */
enum socket_state socket_owner_find(struct socket_owners *o, const struct sockaddr *near,
                                    const struct sockaddr *far, struct socket_owner *owner);

/* Find a socket that listens on `port` at any address. A socket of another user than `uid` is preferred. Uses only
 * sock_diag. */
enum socket_state socket_listener_find(struct socket_owners *o, int port, uint32_t uid,
                                       struct socket_owner *owner);

enum socket_place { THIS_HOST, OTHER_HOST, PLACE_UNKNOWN /* the kernel does not answer */ };

/* Find on which host the process runs that connected from `peer` to the local end `here`. A connection to a loopback
 * address always begins on this host. No packet is sent. */
enum socket_place socket_peer_place(struct socket_owners *o, const struct sockaddr *peer,
                                    const struct sockaddr *here);

void socket_owners_close(struct socket_owners *o);

/* --- uid gate --------------------------------------------------------------------------------------------- */

/* The uid gate accepts a connection from this host only if its owner is this process's user or root.
 *
 * A PyTorch client cannot authenticate itself, but the kernel knows which user owns its socket. Connections from other
 * hosts are accepted, because their kernel cannot be asked. */

enum { UID_GATE_WHY_MAX = 160 };

/* Set to zeros before first use. */
struct uid_gate {
    struct socket_owners owners;
    bool insecure; /* accept every user */
};

/* Check the connection that was accepted as `fd` from `peer`. Set `*uid` to the owner, or to -1 if the owner is
 * unknown. Return false if the caller must close the connection; `why` has the reason and the remedy. */
bool uid_gate_admits(struct uid_gate *g, int fd, const struct sockaddr *peer, int64_t *uid,
                     char why[static UID_GATE_WHY_MAX]);

void uid_gate_close(struct uid_gate *g);

#endif
