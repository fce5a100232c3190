/* socket_owner.h -- ask the kernel which user owns a TCP socket of this host.
 *
 * sock_diag answers for any socket of this network namespace without privilege, in 3 to 15 us for one
 * connection. /proc/net/tcp and tcp6 serve where the kernel has no sock_diag (gVisor).
 *
 * The owning process is not available this way. A socket that its owner has closed has no owner, and the
 * kernel shows it with uid 0 and inode 0. Such a socket counts as SOCKET_CLOSED, never as root's. */
#ifndef RENDEZVOUS_SERVER_SOCKET_OWNER_H
#define RENDEZVOUS_SERVER_SOCKET_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct netlink {
    bool is_open;
    int fd; /* valid if `is_open` */
};

/* Two netlink sockets and the state of the kernel's answers. Zeroed before first use. The first question
 * opens a socket; socket_owners_close closes both. One thread at a time. */
struct socket_owners {
    struct netlink diag, route;
    bool is_answered; /* sock_diag has found a socket, so "not found" is reliable */
};

struct socket_owner {
    uint32_t uid;
    uint64_t inode; /* never 0 */
};

enum socket_state {
    SOCKET_OPEN,   /* a process holds it; the owner is known */
    SOCKET_CLOSED, /* no process of this network namespace holds such a socket, or its owner has closed it */
    SOCKET_UNKNOWN /* the kernel does not answer: neither sock_diag nor /proc/net/tcp */
};

/* Find the owner of the socket that is bound to `near` and connected to `far`. An IPv4 address inside an IPv6 one counts
 * as IPv4. `owner` is filled for SOCKET_OPEN only. */
enum socket_state socket_owner_find(struct socket_owners *o, const struct sockaddr *near,
                                    const struct sockaddr *far, struct socket_owner *owner);

/* Find a socket that listens on `port` at any address, one of another user than `uid` first. By sock_diag only. */
enum socket_state socket_listener_find(struct socket_owners *o, int port, uint32_t uid,
                                       struct socket_owner *owner);

enum socket_place { THIS_HOST, OTHER_HOST, PLACE_UNKNOWN /* the kernel does not answer */ };

/* Find the place of the process that connected from `peer` to the local end `here`. A connection to a
 * loopback address began on this host. No packet is sent. */
enum socket_place socket_peer_place(struct socket_owners *o, const struct sockaddr *peer,
                                    const struct sockaddr *here);

void socket_owners_close(struct socket_owners *o);

/* --- uid gate --------------------------------------------------------------------------------------------- */

/* Accept connections from this host only when their owner is this process's user or root.
 *
 * A PyTorch client cannot authenticate itself, but the kernel knows which user owns its socket. Connections from other hosts
 * pass, because their kernel cannot be asked. */

enum { UID_GATE_WHY_MAX = 160 };

/* Zeroed before first use. */
struct uid_gate {
    struct socket_owners owners;
    bool insecure; /* accept every user */
};

/* Check the connection that was accepted as `fd` from `peer`. `*uid` is the owner, -1 = not known. False: close it;
 * `why` names the reason and the remedy. */
bool uid_gate_admits(struct uid_gate *g, int fd, const struct sockaddr *peer, int64_t *uid,
                     char why[static UID_GATE_WHY_MAX]);

void uid_gate_close(struct uid_gate *g);

#endif
