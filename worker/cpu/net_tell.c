/* net_tell.c -- see net_tell.h.
 *
 * The first reason stands: compare_set lets one rank write, and whoever comes later reads what it says. A
 * thousand ranks that give up because of one another then name the one cause. A connection of its own is
 * made for it, since the rank's usual one may be in the middle of a request that does not end. */
#include "cpu/net_tell.h"

#include "cpu/net_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Peers are to know within a second; a store that takes longer than this will not bring us together. */
enum { STORE_MS = 500 };

/* With the nonce of this meeting in the key, the end of another one under the same prefix is not taken for
 * ours. */
void net_tell_open(struct net_tell *tell, const struct bootstrap *bootstrap, const uint8_t nonce[SHM_NONCE])
{
    char *to = tell->key;
    to += snprintf(to, BOOTSTRAP_KEY - 2 * SHM_NONCE - 1, "%s/over/", bootstrap->prefix);
    for (int i = 0; i < SHM_NONCE; i++)
        to += sprintf(to, "%02x", nonce[i]);
    tell->reconnect = bootstrap->reconnect;
    tell->user = bootstrap->user;
}

void net_tell(const struct net_tell *tell, struct ddp_err *err)
{
    struct ddp_store *store;
    struct ddp_err ignored;
    char reason[CALL_REASON];
    void *first = NULL;
    size_t len = call_encode_reason(reason, err), found;

    if (tell->reconnect(tell->user, STORE_MS, &store, &ignored) != DDP_OK)
        return;
    if (ddp_store_compare_set(store, tell->key, "", 0, reason, len, &first, &found, &ignored) == DDP_OK)
        call_decode_reason(first, err);
    free(first);
    ddp_store_close(store);
}

ddp_status net_told(const struct net_tell *tell, struct ddp_store *store, struct ddp_err *err)
{
    const char *const keys[] = { tell->key };
    void *reason = NULL;
    size_t len;
    int there = 0;

    if (ddp_store_check(store, keys, 1, &there, NULL) != DDP_OK || !there)
        return DDP_OK;
    ddp_status status = ddp_store_get(store, tell->key, STORE_MS, &reason, &len, err);
    if (status == DDP_OK)
        call_decode_reason(reason, err);
    free(reason);
    return err->code;
}
