/* client_identify.c -- say who we are: the first request to a ddprun store.
 *
 *     -> 0x80 blob {"role":"worker","job":"mnist","attempt":0,"rank":3,"world_size":4,"host":"n1","pid":77}
 *     <- 0 blob ""                                    welcome
 *     <- 1 blob "the world has 8 ranks, not 4"        refused, and the store hangs up
 *
 * A genuine TCPStore knows no 0x80: it hangs up without a word, which tells the two kinds apart. So whoever
 * gives a role must know that the store is ddprun's (DDPRUN_STORE=1). */
#include "client/client.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

/* Host and pid are for the diagnosis: "rank 3 (n1, pid 77) waits for ...". Malloc'ed text, NULL when memory
 * is short. */
static char *identity_text(const ddp_store_options *who)
{
    char host[256] = "";
    cJSON *json = cJSON_CreateObject();
    gethostname(host, sizeof(host) - 1);
    cJSON_AddStringToObject(json, "role", who->role);
    cJSON_AddStringToObject(json, "job", who->job != NULL ? who->job : "none");
    cJSON_AddNumberToObject(json, "attempt", who->attempt);
    if (who->rank >= 0)
        cJSON_AddNumberToObject(json, "rank", who->rank);
    if (who->world_size > 0)
        cJSON_AddNumberToObject(json, "world_size", who->world_size);
    cJSON_AddStringToObject(json, "host", host);
    cJSON_AddNumberToObject(json, "pid", getpid());
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

/* The store may know us already by our agent; it compares. That is why it can say no: this rank is outside
 * the world, this job is not the one that runs here, this attempt is over. */
ddp_status client_identify(struct ddp_store *store, const ddp_store_options *who, uint64_t deadline_ms,
                           struct ddp_err *err)
{
    struct client_call c = { .store = store, .deadline_ms = deadline_ms };
    char *identity = identity_text(who);
    size_t len;
    if (identity == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory");
    client_put_op(&c, OP_IDENTIFY);
    client_put_blob(&c, FIELD_JSON, slice_str(identity));
    free(identity);
    client_send(&c);
    uint8_t status = client_take_u8(&c);
    char *why = client_take_blob(&c, WIRE_MAX_JSON, &len);
    if (c.err.code == DDP_ERR_CLOSED)
        ddp_fail(&c.err, DDP_ERR_UNSUPPORTED,
                 "it is a store, but not one of ddprun's: it hung up when we said who we are (DDPRUN_STORE=1 "
                 "is only for "
                 "the store of ddprun or ddp-rendezvous)");
    if (status != 0)
        client_fail(&c, DDP_ERR_MISMATCH, "the store refuses this %s: %s", who->role, why);
    free(why);
    store->ours = client_ok(&c);
    if (!client_ok(&c))
        *err = c.err;
    return c.err.code;
}
