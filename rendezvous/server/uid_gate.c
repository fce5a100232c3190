/* uid_gate.c -- see uid_gate.h.
 *
 * A socket that its owner has closed before it was accepted is refused, too: its user is not known any more, and a
 * stranger could otherwise send a request and close. After a reset the addresses are free again: the kernel may then name
 * the user of a newer connection that has the same ones. */
#include "server/uid_gate.h"

#include <stdio.h>
#include <unistd.h>

static bool is_ours(int64_t uid)
{
    return uid == 0 || uid == (int64_t)geteuid();
}

/* The kernel has no peer for a connection that was reset. While this one is not reset, no other has its addresses, so
 * an answer from before this check is about this one. */
static bool is_reset(int fd)
{
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);
    return getpeername(fd, (struct sockaddr *)&peer, &len) != 0;
}

bool uid_gate_admits(struct uid_gate *g, int fd, const struct sockaddr *peer, int64_t *uid,
                     char why[static UID_GATE_WHY_MAX])
{
    struct sockaddr_storage at = { 0 };
    const struct sockaddr *here = (const struct sockaddr *)&at;
    struct socket_owner owner;
    socklen_t len = sizeof(at);
    *uid = -1;
    getsockname(fd, (struct sockaddr *)&at, &len);
    const enum socket_place place = socket_peer_place(&g->owners, peer, here);
    if (place == OTHER_HOST)
        return true;
    enum socket_state state = socket_owner_find(&g->owners, peer, here, &owner);
    if (state == SOCKET_OPEN && is_reset(fd))
        state = SOCKET_CLOSED;
    if (state == SOCKET_OPEN)
        *uid = owner.uid;
    if (g->insecure || (state == SOCKET_OPEN && is_ours(owner.uid)))
        return true;
    if (state == SOCKET_OPEN)
        snprintf(why, UID_GATE_WHY_MAX,
                 "its owner is uid %u, this store serves uid %u and root; --insecure serves every user",
                 owner.uid, (unsigned)geteuid());
    else if (state == SOCKET_CLOSED && place == THIS_HOST)
        snprintf(why, UID_GATE_WHY_MAX,
                 "its owner is not known, because it was closed before it was accepted");
    else if (place == THIS_HOST)
        snprintf(why, UID_GATE_WHY_MAX,
                 "its owner is not known: neither sock_diag nor /proc/net/tcp answers; --insecure serves "
                 "every user");
    else
        snprintf(why, UID_GATE_WHY_MAX,
                 "the kernel does not tell whether it comes from this host (netlink does not answer); "
                 "--insecure serves every user");
    return false;
}

void uid_gate_close(struct uid_gate *g)
{
    socket_owners_close(&g->owners);
}
