/* collective_check.c -- see collective_check.h. */
#include "core/collective_check.h"

#include "base/clock.h"
#include "core/bootstrap.h"
#include "core/crc32c.h"
#include "core/context.h"
#include "ddp/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = CTX_PREFIX + 64, SLICE_MS = 100 };

ddp_status detail_open(struct detail *detail, const struct worker_env *env, struct ddp_err *err)
{
    detail->on = strcmp(env->debug, "detail") == 0;
    if (!detail->on && strcmp(env->debug, "off") != 0)
        return ddp_fail(err, DDP_ERR_ENV, "DDPRUN_DEBUG=%s: off or detail was expected", env->debug);
    return DDP_OK;
}

void detail_close(struct detail *detail)
{
    ddp_store_close(detail->store);
    detail->store = NULL;
}

static void key_of(char key[KEY], const struct ddp_ctx *ctx, uint64_t seq, const char *what)
{
    snprintf(key, KEY, "%s/detail/%" PRIu64 "/%s", ctx->prefix, seq, what);
}

/* --- the verdict ---------------------------------------------------------------------------------------- */

/* All ranks have come to this call, so nobody asks for the one before any more. */
static void clear(struct ddp_ctx *ctx, uint64_t seq)
{
    static const char *const whats[] = { "first", "count", "go" };
    char key[KEY];
    for (size_t i = 0; i < sizeof(whats) / sizeof(*whats); i++) {
        key_of(key, ctx, seq, whats[i]);
        ddp_store_delete(ctx->detail.store, key, NULL, NULL);
    }
}

/* What has been said about the call: "+", or why not. */
static ddp_status take_go(const char *go, struct ddp_err *err)
{
    if (go[0] != '-')
        return DDP_OK;
    call_decode_reason(go, err);
    return err->code;
}

/* The first that says anything is right: a rank that differs may come while another one gives up, and the last one while a
 * rank's time runs out. DDP_OK when all are told to go on, else *err is what they are told; ours when the store is gone. */
static ddp_status say_no(struct ddp_ctx *ctx, uint64_t seq, struct ddp_err *err)
{
    char key[KEY], reason[CALL_REASON];
    struct ddp_err ignored;
    void *go = NULL;
    size_t len = call_encode_reason(reason, err);
    ddp_status status = err->code;
    key_of(key, ctx, seq, "go");
    if (ddp_store_compare_set(ctx->detail.store, key, "", 0, reason, len, &go, &len, &ignored) == DDP_OK)
        status = take_go(go, err);
    free(go);
    return status;
}

/* The last to come; one that came in time may have given up just before. */
static ddp_status say_yes(struct ddp_ctx *ctx, uint64_t seq, struct ddp_err *err)
{
    char key[KEY];
    void *go = NULL;
    size_t len;
    key_of(key, ctx, seq, "go");
    ddp_status status = ddp_store_compare_set(ctx->detail.store, key, "", 0, "+", 1, &go, &len, err);
    if (status == DDP_OK)
        status = take_go(go, err);
    free(go);
    if (status == DDP_OK && seq > 1)
        clear(ctx, seq - 1);
    return status;
}

static ddp_status too_late(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, uint32_t waited_ms,
                           struct ddp_err *err)
{
    char key[KEY], text[CALL_TEXT];
    int64_t came = 0;
    key_of(key, ctx, seq, "count");
    ddp_store_add(ctx->detail.store, key, 0, &came, NULL);
    ddp_fail(err, DDP_ERR_TIMEOUT,
             "waited %u ms for all ranks to come to %s: %lld of %d have (DDPRUN_DEBUG=detail)", waited_ms,
             call_text(text, call, seq), (long long)came, ctx->env.world_size);
    return say_no(ctx, seq, err);
}

/* In slices, because the store of another launcher does not know of the ranks' ends, and the backend does. */
static ddp_status wait_for_go(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    struct comm *comm = ctx->world.comm;
    const uint32_t timeout_ms = call->timeout_ms ? call->timeout_ms : ctx->step_timeout_ms;
    const uint64_t deadline_ms = clock_ms() + timeout_ms;
    char key[KEY], text[CALL_TEXT];
    void *go = NULL;
    size_t len;
    key_of(key, ctx, seq, "go");
    ddp_status status = ddp_store_get(ctx->detail.store, key, SLICE_MS, &go, &len, err);
    while (status == DDP_ERR_TIMEOUT) {
        if (comm->ops->check(comm, err) != DDP_OK)
            return ddp_wrap(err, "before %s", call_text(text, call, seq));
        if (clock_ms() >= deadline_ms)
            return too_late(ctx, call, seq, timeout_ms, err);
        status = ddp_store_get(ctx->detail.store, key, SLICE_MS, &go, &len, err);
    }
    if (status == DDP_OK)
        status = take_go(go, err);
    free(go);
    return status;
}

/* --- a call --------------------------------------------------------------------------------------------- */

static void say(const struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct detail_said *said)
{
    char text[CALL_TEXT];
    said->rank = ctx->env.rank;
    snprintf(said->call, sizeof(said->call), "%s", call_text(text, call, seq));
    snprintf(said->what, sizeof(said->what), "%s", ctx->detail.what);
    snprintf(said->before, sizeof(said->before), "%s", ctx->detail.before);
}

/* Ours is compared with that of the first, who may be ourselves. A difference is told here even if another rank has said no for
 * a reason of its own. */
static ddp_status compare(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    char key[KEY], text[DETAIL_TEXT];
    struct detail_said mine, theirs;
    struct ddp_err told;
    void *first = NULL;
    size_t len;
    say(ctx, call, seq, &mine);
    const size_t n = detail_put(text, &mine);
    key_of(key, ctx, seq, "first");
    ddp_status status = ddp_store_compare_set(ctx->detail.store, key, "", 0, text, n, &first, &len, err);
    if (status != DDP_OK)
        return status;
    if (!detail_take(first, &theirs))
        status = ddp_fail(err, DDP_ERR_CORRUPT, "the store's key %s holds no call", key);
    else
        status = detail_compare(&mine, &theirs, err);
    if (status == DDP_ERR_MISMATCH) {
        told = *err;
        say_no(ctx, seq, &told);
    }
    free(first);
    return status;
}

static ddp_status meet(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    char key[KEY];
    int64_t came;
    ddp_status status = compare(ctx, call, seq, err);
    if (status != DDP_OK)
        return status;
    key_of(key, ctx, seq, "count");
    status = ddp_store_add(ctx->detail.store, key, 1, &came, err);
    if (status == DDP_OK && came == ctx->env.world_size)
        return say_yes(ctx, seq, err);
    return status == DDP_OK ? wait_for_go(ctx, call, seq, err) : status;
}

ddp_status detail_meet(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err)
{
    struct detail *detail = &ctx->detail;
    ddp_status status = DDP_OK;
    if (!detail->on || ctx->env.world_size == 1)
        return DDP_OK;
    if (detail->store == NULL)
        status = ctx_reconnect(ctx, ctx->init_timeout_ms, &detail->store, err);
    if (status == DDP_OK)
        status = meet(ctx, call, seq, err);
    detail->what[0] = detail->before[0] = '\0';
    return status == DDP_OK ? DDP_OK : ddp_wrap(err, "DDPRUN_DEBUG=detail");
}

/* Of memory that this process may read: other backends than the cpu's have it on a device. Behind the last call of all nobody comes
 * who would clear up, and all have passed. */
void detail_left(struct ddp_ctx *ctx, const struct call *call, uint64_t seq)
{
    if (ctx->detail.store != NULL && call->kind == CALL_FINALIZE && ctx->env.rank == 0)
        clear(ctx, seq);
    if (!ctx->detail.on || ctx->world.comm->ops != &cpu_comm_ops || !detail_leaves_same(call->kind))
        return;
    const size_t bytes = call_out_bytes(call, ctx->env.rank, ctx->env.world_size);
    snprintf(ctx->detail.before, sizeof(ctx->detail.before), "%s #%" PRIu64 " gave %08x",
             call_rules[call->kind].word, seq, bytes > 0 ? crc32c(0, call->out, bytes) : 0);
}
