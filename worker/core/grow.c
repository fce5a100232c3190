/* grow.c -- ddp_grow_waiting and ddp_grow_agree of include/ddp/context.h: nodes that came late, and may they come in?
 *
 * Both are keys of the store, so that a program without libddp can do the same. The launcher acts when all ranks have
 * agreed: one that has not is in the middle of something. */
#include "ddp/context.h"

#include "base/grow_keys.h"
#include "core/context.h"
#include "core/last_error.h"
#include "ddp/store.h"

#include <stdio.h>
#include <stdlib.h>

enum { NODES_MAX = 1 << 20 }; /* more is no number of nodes */

/* Another launcher has no nodes that wait; a world of one may, and has no connection of its own yet. */
static ddp_status find_store(struct ddp_ctx *ctx, struct ddp_store **store, struct ddp_err *err)
{
    if (!ctx->env.ddprun_store)
        return ddp_fail(err, DDP_ERR_UNSUPPORTED, "this job cannot grow: ddprun has not started it");
    ddp_status status = ctx_any_store(ctx, store, err);
    return status == DDP_OK && *store == NULL ? ddp_fail(err, DDP_ERR_CLOSED, "the store cannot be reached")
                                              : status;
}

static ddp_status read_count(struct ddp_store *store, uint32_t *nodes, struct ddp_err *err)
{
    static const char *const key[] = { GROW_WAITING_KEY };
    void *text = NULL;
    size_t len;
    int there = 0;
    ddp_status status = ddp_store_check(store, key, 1, &there, err);
    if (status != DDP_OK || !there)
        return status;
    status = ddp_store_get(store, key[0], 0, &text, &len, err);
    const unsigned long count = status == DDP_OK ? strtoul(text, NULL, 10) : 0;
    *nodes = count <= NODES_MAX ? (uint32_t)count : 0;
    free(text);
    return status;
}

ddp_status ddp_grow_waiting(ddp_ctx *ctx, uint32_t *nodes)
{
    NOT_NULL_KEPT(ctx);
    NOT_NULL_KEPT(nodes);
    struct ddp_err err;
    struct ddp_store *store;
    *nodes = 0;
    ddp_status status = find_store(ctx, &store, &err);
    if (status == DDP_OK)
        status = read_count(store, nodes, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}

ddp_status ddp_grow_agree(ddp_ctx *ctx)
{
    NOT_NULL_KEPT(ctx);
    char key[64];
    struct ddp_err err;
    struct ddp_store *store;
    ddp_status status = find_store(ctx, &store, &err);
    snprintf(key, sizeof(key), GROW_AGREED_KEY "%d", ctx->env.rank);
    if (status == DDP_OK)
        status = ddp_store_set(store, key, "1", 1, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}
