/* uid_gate.h -- accept connections from this host only when their owner is this process's user or root.
 *
 * A PyTorch client cannot authenticate itself, but the kernel knows which user owns its socket. Connections from other hosts
 * pass, because their kernel cannot be asked. */
#ifndef RENDEZVOUS_UID_GATE_H
#define RENDEZVOUS_UID_GATE_H

#include "server/socket_owner.h"

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
