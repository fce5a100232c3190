/* net_tell.h -- why a job of several hosts is over: one reason for all of them, kept in the store.
 *
 *     ddp/<job>/<attempt>/over/<nonce>      "-5 rank 3 (pid 77 on node2) has ended while ..."
 *
 * The first host that gives up sets the key, all others take over its words. Then it shuts its connections, and
 * whoever sees the end of a connection looks into the store for the reason. The connection to the store is made for this
 * alone: the context's own may be in use by another thread, for minutes. */
#ifndef WORKER_NET_TELL_H
#define WORKER_NET_TELL_H

#include "cpu/shm_join.h"

struct net_tell {
    char key[BOOTSTRAP_KEY];
    ddp_status (*reconnect)(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err);
    void *user;
};

void net_tell_open(struct net_tell *tell, const struct bootstrap *bootstrap, const uint8_t nonce[SHM_NONCE]);

/* We give up because of `err`: it gets the words of who was first. Without a store it stays as it is. */
void net_tell(const struct net_tell *tell, struct ddp_err *err);

/* Has somebody given up? Asked through `store`, the context's, while nobody else can use it. */
ddp_status net_told(const struct net_tell *tell, struct ddp_store *store, struct ddp_err *err);

#endif
