/* barrier.c -- ddp_barrier_named of include/ddp/context.h, a barrier of all ranks through the store. ddprun's store has
 * named barriers, which report missing ranks. With PyTorch's TCPStore, which has no barriers, the ranks count their
 * arrivals in a key. */
#include "base/clock.h"
#include "core/context.h"
#include "core/error.h"
#include "ddp/store.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KEY = CTX_PREFIX + 320, FIRST_PAUSE_MS = 1, LONGEST_PAUSE_MS = 64 };

static void pause_ms(uint32_t ms)
{
    const struct timespec time = { .tv_nsec = (long)ms * 1000000 };
    nanosleep(&time, NULL);
}

/* Report a timeout and the number of ranks that have arrived. Read the counter again, because ranks may have arrived
 * after this rank. */
static ddp_status barrier_late(struct ddp_ctx *ctx, const char *key, const char *name, uint32_t timeout_ms,
                               struct ddp_err *err)
{
    int64_t came = 0;
    ddp_status status = ddp_store_add(ctx->store, key, 0, &came, err);
    if (status != DDP_OK)
        return status;
    return ddp_fail(err, DDP_ERR_TIMEOUT,
                    "barrier \"%.100s\": %lld of %d ranks arrived within %g s (only a ddprun store can "
                    "report which ranks are missing)",
                    name, (long long)came, ctx->env.world_size, timeout_ms / 1000.0);
}

/* Poll until the last rank has set the key `go`. Also check in each round whether a rank has died, because TCPStore
 * does not report a dead rank. The pauses between two rounds grow from 1 to 64 ms, to limit the load. */
static ddp_status poll_until_open(struct ddp_ctx *ctx, const char *key, const char *go, const char *name,
                                  uint32_t timeout_ms, struct ddp_err *err)
{
    const char *const keys[] = { go };
    uint64_t deadline = clock_ms() + timeout_ms;
    uint32_t pause = FIRST_PAUSE_MS;

    for (;;) {
        int open = 0;
        ddp_status status = ddp_store_check(ctx->store, keys, 1, &open, err);
        if (status != DDP_OK || open)
            return status;
        if (ctx->world.comm->ops->check(ctx->world.comm, err) != DDP_OK)
            return ddp_wrap(err, "barrier \"%.100s\"", name);
        if (clock_ms() >= deadline)
            return barrier_late(ctx, key, name, timeout_ms, err);
        pause_ms(pause);
        pause = pause * 2 < LONGEST_PAUSE_MS ? pause * 2 : LONGEST_PAUSE_MS;
    }
}

/* Wait at a barrier of two keys. <prefix>/barrier/<name> is the counter, to which each rank adds 1. The last rank sets
 * <prefix>/barrier/<name>/go. A counter above the world size means that the name was used before. */
static ddp_status counted_barrier(struct ddp_ctx *ctx, const char *name, uint32_t timeout_ms,
                                  struct ddp_err *err)
{
    char key[KEY], go[KEY + 8];
    int64_t came;

    snprintf(key, sizeof(key), "%s/barrier/%s", ctx->prefix, name);
    snprintf(go, sizeof(go), "%s/go", key);
    ddp_status status = ddp_store_add(ctx->store, key, 1, &came, err);
    if (status != DDP_OK)
        return status;
    if (came > ctx->env.world_size)
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "barrier \"%.100s\": the name has been used before; use a new name for each barrier",
                        name);
    if (came == ctx->env.world_size)
        return ddp_store_set(ctx->store, go, "1", 1, err);
    return poll_until_open(ctx, key, go, name, timeout_ms, err);
}

ddp_status ddp_barrier_named(ddp_ctx *ctx, const char *name, uint32_t timeout_ms)
{
    NOT_NULL(ctx, NULL);
    struct ddp_err err = ctx_enter(ctx);
    ddp_status status;

    if (timeout_ms == 0)
        timeout_ms = ctx->step_timeout_ms;
    if (err.code == DDP_OK && (name == NULL || name[0] == '\0' || strlen(name) > 255))
        ddp_fail(&err, DDP_ERR_ARG, "the name of a barrier must have 1 to 255 bytes");
    if (err.code != DDP_OK)
        return ctx_fail(ctx, &err);
    if (ctx->store == NULL)
        return DDP_OK;
    if (ctx->env.ddprun_store)
        status = ddp_store_barrier(ctx->store, name, NULL, 0, timeout_ms, &err);
    else
        status = counted_barrier(ctx, name, timeout_ms, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}
