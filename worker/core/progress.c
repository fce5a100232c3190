/* progress.c -- ddp_progress of include/ddp/context.h: how far this rank has come, as a key of the store.
 *
 * The launcher reads the keys of all ranks when an attempt has failed. A step may take microseconds, so not every one
 * is told; what is lost that way is less than a fifth of a second, and always the same for a job that fails at the
 * same step. A SET has no answer, so telling waits for nobody. */
#include "ddp/context.h"

#include "base/clock.h"
#include "base/progress_key.h"
#include "core/context.h"
#include "core/last_error.h"
#include "ddp/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TELL_EVERY_MS = 200 };

static ddp_status tell(struct ddp_ctx *ctx, uint64_t step, struct ddp_err *err)
{
    char key[64], digits[32];
    struct ddp_store *store;
    ddp_status status = ctx_any_store(ctx, &store, err);
    if (status != DDP_OK || store == NULL)
        return status;
    snprintf(key, sizeof(key), PROGRESS_KEY "%d", ctx->env.rank);
    snprintf(digits, sizeof(digits), "%" PRIu64, step);
    return ddp_store_set(store, key, digits, strlen(digits), err);
}

ddp_status ddp_progress(ddp_ctx *ctx, uint64_t step)
{
    NOT_NULL_KEPT(ctx);
    struct ddp_err err;
    recorder_step(&ctx->recorder, step);
    uint64_t now_ms = clock_ms();
    bool too_early = ctx->progress_told_ms != 0 && now_ms - ctx->progress_told_ms < TELL_EVERY_MS;
    if (!ctx->env.ddprun_store || too_early)
        return DDP_OK;
    ctx->progress_told_ms = now_ms;
    return tell(ctx, step, &err) == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}
