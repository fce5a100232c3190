/* ctx_store.c -- see context.h: connections to the store. */
#include "core/context.h"
#include "ddp/store.h"

/* We only say who we are to a store of ours: a genuine TCPStore hangs up on an opcode that it does not
 * know. */
ddp_status ctx_connect(const struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.connect_timeout_ms = ctx->init_timeout_ms;
    options.timeout_ms = ctx->init_timeout_ms;
    if (ctx->env.ddprun_store)
        options.role = "worker";
    options.job = ctx->env.run_id;
    options.rank = ctx->env.rank;
    options.world_size = ctx->env.world_size;
    options.attempt = env_attempt(&ctx->env);
    return ddp_store_connect(ctx->env.master_addr, ctx->env.master_port, &options, out, err);
}

ddp_status ctx_reconnect(const struct ddp_ctx *ctx, uint32_t timeout_ms, struct ddp_store **out,
                         struct ddp_err *err)
{
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.connect_timeout_ms = timeout_ms;
    options.timeout_ms = timeout_ms;
    return ddp_store_connect(ctx->env.master_addr, ctx->env.master_port, &options, out, err);
}

ddp_status ctx_any_store(struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (ctx->store == NULL && !ctx->late_tried) {
        ctx->late_tried = true;
        status = ctx_connect(ctx, &ctx->late_store, err);
    }
    *out = ctx->store != NULL ? ctx->store : ctx->late_store;
    return status;
}
