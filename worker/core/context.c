/* context.c -- the start and the end of a worker's life in a group, include/ddp/context.h.
 *
 * Happy path: read the environment -> connect to the store -> the backend brings the ranks together ->
 * calls -> finalize, a last barrier, and everything is freed. A world of one skips the store.
 *
 * It goes wrong when: the environment is incomplete (DDP_ERR_ENV), nobody answers or a rank does not come
 * in time (DDP_ERR_TIMEOUT), or the ranks cannot share memory (DDP_ERR_UNSUPPORTED). Then nothing is left
 * behind and the words are in ddp_last_error(). Later, an error that means "ranks are out of step" is
 * kept in the context, and every further collective returns it without waiting, so a program that
 * overlooks one error does not hang in the next call. */
#include "ddp/context.h"

#include "base/clock.h"
#include "core/backend.h"
#include "core/bootstrap.h"
#include "core/context.h"
#include "core/error_file.h"
#include "core/last_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ddp_version(void)
{
    return DDP_VERSION;
}

ddp_status ctx_fail(const struct ddp_ctx *ctx, struct ddp_err *err)
{
    ddp_wrap(err, "rank %d", ctx->env.rank);
    return last_error_keep(err);
}

/* --- start ---------------------------------------------------------------------------------------------- */

/* The one place of the library that reads the process's environment. */
static const char *lookup(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* A program that was compiled against an older header passes a shorter struct; what it does not know is
 * 0. */
static ddp_status read_options(const ddp_options *given, ddp_options *out, struct ddp_err *err)
{
    *out = (ddp_options)DDP_OPTIONS_INIT;
    if (given == NULL)
        return DDP_OK;
    if (given->size < sizeof(given->size) || given->size > sizeof(*out))
        return ddp_fail(err, DDP_ERR_ARG, "ddp_options.size is %zu: begin with DDP_OPTIONS_INIT",
                        given->size);
    memcpy(out, given, given->size);
    return DDP_OK;
}

static ddp_status reconnect(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err)
{
    return ctx_reconnect(user, timeout_ms, out, err);
}

/* Where ranks that start meet is a call like others, and the first one that can hang. */
static ddp_status open_backend(struct ddp_ctx *ctx, const struct backend *backend, struct comm_setup *setup,
                               struct ddp_err *err)
{
    const struct call call = { .kind = CALL_INIT };
    const struct recorder_setup recorder = { .rank = ctx->env.rank,
                                             .world_size = ctx->env.world_size,
                                             .attempt = env_attempt(&ctx->env),
                                             .job = ctx->env.run_id,
                                             .backend = backend->ops->name,
                                             .page = ctx->env.page,
                                             .pattern = ctx->env.flight_recorder };
    recorder_open(&ctx->recorder, &recorder);
    ctx->calls = 1;
    recorder_begin(&ctx->recorder, &call, ctx->calls, ctx->init_timeout_ms, true);
    setup->recorder = &ctx->recorder;
    ddp_status status = backend->ops->open(setup, &ctx->world.comm, err);
    recorder_end(&ctx->recorder, status, 0);
    if (status != DDP_OK)
        recorder_write(&ctx->recorder, err->msg);
    return status;
}

static ddp_status open_world(struct ddp_ctx *ctx, const struct backend *backend, struct ddp_err *err)
{
    const struct bootstrap bootstrap = {
        .prefix = ctx->prefix,
        .rank = ctx->env.rank,
        .world_size = ctx->env.world_size,
        .ddprun_store = ctx->env.ddprun_store,
        .timeout_ms = ctx->init_timeout_ms,
        .deadline_ms = clock_ms() + ctx->init_timeout_ms,
        .test_host = ctx->env.test_host,
        .store = NULL,
        .reconnect = reconnect,
        .user = ctx,
    };
    struct bootstrap meeting = bootstrap;
    struct comm_setup setup = { .rank = ctx->env.rank,
                                .world_size = ctx->env.world_size,
                                .step_timeout_ms = ctx->step_timeout_ms,
                                .iface = ctx->env.iface,
                                .port_range = ctx->env.port_range,
                                .device = backend->device,
                                .share_gpu = ctx->env.share_gpu,
                                .paths = backend_paths(&ctx->env),
                                .host = &backend_host };

    if (ctx->env.world_size > 1) {
        ddp_status status = ctx_connect(ctx, &ctx->store, err);
        if (status != DDP_OK)
            return status;
        meeting.store = ctx->store;
        setup.bootstrap = &meeting;
    }
    ctx->world.ctx = ctx;
    ctx->device = backend->device;
    return open_backend(ctx, backend, &setup, err);
}

/* What needs no other process. An option that is given wins over the environment, which wins over the
 * default. */
static ddp_status prepare(struct ddp_ctx *ctx, const ddp_options *given, struct backend *backend,
                          struct ddp_err *err)
{
    ddp_options options;
    ddp_status status = read_options(given, &options, err);
    if (status == DDP_OK)
        status = worker_env_read(&ctx->env, lookup, NULL, err);
    if (status == DDP_OK)
        status = detail_open(&ctx->detail, &ctx->env, err);
    if (status == DDP_OK)
        status = backend_find(options.backend, options.device, &ctx->env, backend, err);
    if (status != DDP_OK)
        return status;
    ctx->init_timeout_ms =
        options.init_timeout_ms ? options.init_timeout_ms : (uint32_t)ctx->env.init_timeout_ms;
    ctx->step_timeout_ms =
        options.step_timeout_ms ? options.step_timeout_ms : (uint32_t)ctx->env.step_timeout_ms;
    snprintf(ctx->prefix, sizeof(ctx->prefix), "ddp/%s/%d", ctx->env.run_id, env_attempt(&ctx->env));
    return DDP_OK;
}

/* The one place that frees a context; one that a signal handler still writes from stays. */
static void ctx_free(struct ddp_ctx *ctx)
{
    lane_close(ctx->lane);
    if (ctx->world.comm != NULL)
        ctx->world.comm->ops->close(ctx->world.comm);
    ddp_store_close(ctx->store);
    ddp_store_close(ctx->late_store);
    detail_close(&ctx->detail);
    if (recorder_close(&ctx->recorder))
        free(ctx);
}

ddp_status ddp_init_from_env(const ddp_options *options, ddp_ctx **out)
{
    NOT_NULL_KEPT(out);
    struct ddp_err err = { 0 };
    struct backend backend = { 0 };
    struct ddp_ctx *ctx = calloc(1, sizeof(*ctx));

    *out = NULL;
    if (ctx == NULL)
        ddp_fail(&err, DDP_ERR_NOMEM, "no memory for a context");
    else if (prepare(ctx, options, &backend, &err) == DDP_OK && open_world(ctx, &backend, &err) != DDP_OK)
        ddp_wrap(&err, "rank %d of %d: init", ctx->env.rank, ctx->env.world_size);
    if (err.code == DDP_OK) {
        *out = ctx;
        return DDP_OK;
    }
    if (ctx != NULL)
        ctx_free(ctx);
    return last_error_keep(&err);
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* After these, ranks may be at different points of the program: nothing that is collective can be right
 * any more. Wrong arguments or a lack of memory are found before ranks depend on each other, and break
 * nothing. */
static bool breaks(ddp_status status)
{
    return status == DDP_ERR_PEER_LOST || status == DDP_ERR_TIMEOUT || status == DDP_ERR_ABORTED ||
           status == DDP_ERR_MISMATCH;
}

ddp_status ctx_settle(struct ddp_ctx *ctx, ddp_status status, struct ddp_err *err)
{
    if (status == DDP_OK)
        return DDP_OK;
    if (breaks(status) && ctx->broken.code == DDP_OK) {
        ctx->broken = *err;
        recorder_write(&ctx->recorder, err->msg);
    }
    return ctx_fail(ctx, err);
}

struct ddp_err ctx_enter(struct ddp_ctx *ctx)
{
    lane_drain(ctx->lane);
    return ctx->broken;
}

ddp_status ctx_want_lane(struct ddp_ctx *ctx, struct ddp_err *err)
{
    if (ctx->lane != NULL || !ctx->world.comm->ops->blocks)
        return DDP_OK;
    return lane_open(&ctx->lane, err);
}

/* Allocations in shared memory are calls of a kind of their own to the backend. */
static ddp_status give(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    if (call->kind == CALL_SHARED_ALLOC)
        return comm->ops->shared_alloc(comm, call->n, call->out, err);
    if (call->kind == CALL_SHARED_FREE)
        return comm->ops->shared_free(comm, call->out, err);
    return comm->ops->run(comm, call, err);
}

ddp_status ctx_call(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err)
{
    struct comm *comm = ctx->world.comm;
    const bool blocks = comm->ops->blocks;
    ctx->calls = comm->seq != 0 ? comm->seq + 1 : ctx->calls + 1;
    recorder_begin(&ctx->recorder, call, ctx->calls, ctx->step_timeout_ms, blocks);
    ddp_status status = detail_meet(ctx, call, ctx->calls, err);
    if (status == DDP_OK)
        status = give(comm, call, err);
    if (status == DDP_OK)
        detail_left(ctx, call, ctx->calls);
    recorder_end(&ctx->recorder, status, blocks ? 0 : comm->ticket);
    return status;
}

ddp_status ctx_run(struct ddp_ctx *ctx, const struct call *call)
{
    struct ddp_err err = ctx_enter(ctx);
    if (err.code != DDP_OK)
        return ctx_fail(ctx, &err);
    return ctx_settle(ctx, ctx_call(ctx, call, &err), &err);
}

/* --- end ------------------------------------------------------------------------------------------------ */

/* The last barrier lets nobody leave while another could still take its absence for a death. */
ddp_status ddp_finalize(ddp_ctx *ctx)
{
    if (ctx == NULL)
        return DDP_OK;
    const struct call call = { .kind = CALL_FINALIZE };
    ddp_status status = ctx_run(ctx, &call);
    ctx_free(ctx);
    return status;
}

/* The file is written first: once the peers are free, the launcher may be quicker with its SIGKILL than
 * we are. Nothing here takes a lock or touches what the owning thread writes. */
void ddp_abort(ddp_ctx *ctx, int code, const char *why)
{
    struct ddp_err reason;
    if (ctx == NULL)
        return;
    if (why == NULL || why[0] == '\0')
        why = "no reason was given";
    ddp_fail(&reason, DDP_ERR_ABORTED, "rank %d has given up: %.850s", ctx->env.rank, why);
    if (ctx->env.error_file[0] != '\0')
        error_file_write(ctx->env.error_file, code, why);
    recorder_write(&ctx->recorder, reason.msg);
    ctx->world.comm->ops->give_up(ctx->world.comm, &reason);
}

int ddp_rank(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->env.rank : -1;
}

int ddp_world_size(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->env.world_size : -1;
}

int ddp_local_rank(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->env.local_rank : -1;
}

int ddp_local_world_size(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->env.local_world_size : -1;
}

int ddp_device(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->device : -1;
}

int ddp_restart_count(const ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->env.restart_count : -1;
}

struct ddp_store *ddp_context_store(ddp_ctx *ctx)
{
    return ctx != NULL ? ctx->store : NULL;
}
