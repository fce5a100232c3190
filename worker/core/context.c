/* context.c -- see ddp/context.h: the start, the calls and the end of a worker. After an error that leaves the ranks at
 * different calls, the context is broken: every further collective returns the same error without waiting. Otherwise a
 * program that ignores one error would hang in the next call. */
#include "ddp/context.h"

#include "base/clock.h"
#include "base/limits.h"
#include "core/backend.h"
#include "core/context.h"
#include "core/error.h"
#include "core/flush_subnormals.h"
#include "ddp/store.h"

#include <inttypes.h>
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

/* --- connections to the store ----------------------------------------------------------------------------- */

/* Connect to the store. Send the role "worker" only to a ddprun store, because TCPStore closes the connection at an
 * unknown request. If a timeout's text has no remedy (no semicolon), append a remedy that names MASTER_ADDR and
 * MASTER_PORT. */
static ddp_status ctx_connect(const struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err)
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
    const ddp_status status =
        ddp_store_connect(ctx->env.master_addr, ctx->env.master_port, &options, out, err);
    const size_t n = strlen(err->msg);
    if (status == DDP_ERR_TIMEOUT && strstr(err->msg, "; ") == NULL)
        snprintf(err->msg + n, sizeof(err->msg) - n,
                 "; check MASTER_ADDR and MASTER_PORT, and that the process of the store runs there");
    return status;
}

/* Open another connection. Any thread may call this function. The connection needs no role, because it is only used to
 * read and write keys. */
static ddp_status ctx_reconnect(void *user, uint32_t timeout_ms, struct ddp_store **out, struct ddp_err *err)
{
    const struct ddp_ctx *ctx = user;
    ddp_store_options options = DDP_STORE_OPTIONS_INIT;
    options.connect_timeout_ms = timeout_ms;
    options.timeout_ms = timeout_ms;
    return ddp_store_connect(ctx->env.master_addr, ctx->env.master_port, &options, out, err);
}

/* Set *out to the connection of this context. In a world of one rank, the first call opens this connection. If this
 * connection fails, the first call returns the error. After such a failure, later calls do not try again, because a try
 * in each step would be slow. These later calls set *out to NULL and return DDP_OK. */
static ddp_status ctx_any_store(struct ddp_ctx *ctx, struct ddp_store **out, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (ctx->store == NULL && !ctx->late_tried) {
        ctx->late_tried = true;
        status = ctx_connect(ctx, &ctx->late_store, err);
    }
    *out = ctx->store != NULL ? ctx->store : ctx->late_store;
    return status;
}

/* --- start ---------------------------------------------------------------------------------------------- */

/* The usual order: read the environment -> connect to the store -> the backend connects the ranks -> calls ->
 * ddp_finalize runs a last barrier and frees everything.
 *
 * A failed start frees everything. Its errors:
 *
 *     DDP_ERR_ENV           the environment is incomplete
 *     DDP_ERR_TIMEOUT       no store answers, or a rank is late
 *     DDP_ERR_UNSUPPORTED   the backend is not available, or does not support these ranks or this device */

/* Return a variable of the environment. No other function of libddp reads the environment. */
static const char *lookup(void *user, const char *name)
{
    (void)user;
    return getenv(name);
}

/* Copy the options of the program. If the program was compiled with an older header, its struct is shorter, and the
 * missing members get their defaults. */
static ddp_status read_ddp_options(const ddp_options *given, ddp_options *out, struct ddp_err *err)
{
    *out = (ddp_options)DDP_OPTIONS_INIT;
    if (given == NULL)
        return DDP_OK;
    if (given->size < sizeof(given->size) || given->size > sizeof(*out))
        return ddp_fail(err, DDP_ERR_ARG, "ddp_options.size=%zu: initialize the struct with DDP_OPTIONS_INIT",
                        given->size);
    memcpy(out, given, given->size);
    return DDP_OK;
}

/* Open the backend, which waits for all ranks. Record this call in the flight recorder, because the call hangs if a
 * rank is missing. */
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

/* Connect all ranks, and open the backend of the group of all ranks. A world of one needs no store. */
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
        .reconnect = ctx_reconnect,
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

/* Do the part of the start that needs no other process. An option has precedence over the environment. */
static ddp_status prepare_context(struct ddp_ctx *ctx, const ddp_options *given, struct backend *backend,
                                  struct ddp_err *err)
{
    ddp_options options;
    ddp_status status = read_ddp_options(given, &options, err);
    if (status == DDP_OK)
        status = worker_env_read(&ctx->env, lookup, NULL, err);
    if (status == DDP_OK)
        status = collective_check_open(&ctx->check, &ctx->env, err);
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

/* Free a context. End the communication thread first, because its jobs use the communicator. If a signal handler still
 * uses the recorder, do not free the context itself. */
static void ctx_free(struct ddp_ctx *ctx)
{
    comm_thread_close(ctx->thread);
    if (ctx->world.comm != NULL)
        ctx->world.comm->ops->close(ctx->world.comm);
    ddp_store_close(ctx->store);
    ddp_store_close(ctx->late_store);
    collective_check_close(&ctx->check);
    if (recorder_close(&ctx->recorder))
        free(ctx);
}

ddp_status ddp_init_from_env(const ddp_options *options, ddp_ctx **out)
{
    NOT_NULL(out, NULL);
    struct ddp_err err = { 0 };
    struct backend backend = { 0 };
    struct ddp_ctx *ctx = calloc(1, sizeof(*ctx));

    *out = NULL;
    if (ctx == NULL)
        ddp_fail(&err, DDP_ERR_NOMEM, "out of memory for a context");
    else if (prepare_context(ctx, options, &backend, &err) == DDP_OK &&
             open_world(ctx, &backend, &err) != DDP_OK)
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

/* Return true if `status` means that the ranks may be at different calls. Wrong arguments and a lack of memory are
 * found before other ranks take part. */
static bool breaks(ddp_status status)
{
    return status == DDP_ERR_PEER_LOST || status == DDP_ERR_TIMEOUT || status == DDP_ERR_ABORTED ||
           status == DDP_ERR_MISMATCH || status == DDP_ERR_NCCL || status == DDP_ERR_CUDA;
}

ddp_status ctx_finish(struct ddp_ctx *ctx, ddp_status status, struct ddp_err *err)
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
    comm_thread_drain(ctx->thread);
    return ctx->broken;
}

ddp_status ctx_start_thread(struct ddp_ctx *ctx, struct ddp_err *err)
{
    if (ctx->thread != NULL || !ctx->world.comm->ops->blocks)
        return DDP_OK;
    return comm_thread_open(&ctx->thread, err);
}

static ddp_status run_call(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    if (call->kind == CALL_SHARED_ALLOC)
        return comm->ops->shared_alloc(comm, call->n, call->out, err);
    if (call->kind == CALL_SHARED_FREE)
        return comm->ops->shared_free(comm, call->out, err);
    return comm->ops->run(comm, call, err);
}

/* Compare the call with the calls of the other ranks, if DDPRUN_DEBUG=detail. */
static ddp_status check_before(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err)
{
    struct collective_check *check = &ctx->check;
    ddp_status status = DDP_OK;
    if (!check->on || ctx->env.world_size == 1)
        return DDP_OK;
    if (check->store == NULL)
        status = ctx_reconnect(ctx, ctx->init_timeout_ms, &check->store, err);
    return status == DDP_OK ? collective_check_enter(ctx, call, ctx->calls, err)
                            : ddp_wrap(err, "DDPRUN_DEBUG=detail");
}

/* Run a call. If the backend counts calls, use its number, so that the recorder and the backend's messages show the
 * same number. Record the beginning of the call before check_before(), which waits for missing ranks. So the flight
 * record shows the call even during this wait. */
ddp_status ctx_call(struct ddp_ctx *ctx, const struct call *call, struct ddp_err *err)
{
    struct comm *comm = ctx->world.comm;
    const bool blocks = comm->ops->blocks;
    ctx->calls = comm->seq != 0 ? comm->seq + 1 : ctx->calls + 1;
    recorder_begin(&ctx->recorder, call, ctx->calls, ctx->step_timeout_ms, blocks);
    ddp_status status = check_before(ctx, call, err);
    if (status == DDP_OK)
        status = run_call(comm, call, err);
    if (status == DDP_OK)
        collective_check_leave(ctx, call, ctx->calls);
    recorder_end(&ctx->recorder, status, blocks ? 0 : comm->ticket);
    return status;
}

ddp_status ctx_run(struct ddp_ctx *ctx, const struct call *call)
{
    struct ddp_err err = ctx_enter(ctx);
    if (err.code != DDP_OK)
        return ctx_fail(ctx, &err);
    return ctx_finish(ctx, ctx_call(ctx, call, &err), &err);
}

/* --- end ------------------------------------------------------------------------------------------------ */

/* End the context with a last barrier, after which no other rank reports the end of this rank as a failure. */
ddp_status ddp_finalize(ddp_ctx *ctx)
{
    if (ctx == NULL)
        return DDP_OK;
    const struct call call = { .kind = CALL_FINALIZE };
    ddp_status status = ctx_run(ctx, &call);
    ctx_free(ctx);
    return status;
}

/* Make the calls of all ranks fail. Write the error file and the flight record first, because the launcher may kill
 * this process when the peers have failed. Any thread may call this function, so it takes no lock and changes no data
 * of the thread that runs collectives. */
void ddp_abort(ddp_ctx *ctx, int code, const char *why)
{
    struct ddp_err reason;
    if (ctx == NULL)
        return;
    if (why == NULL || why[0] == '\0')
        why = "no reason was given";
    ddp_fail(&reason, DDP_ERR_ABORTED, "rank %d gave up: %.850s", ctx->env.rank, why);
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

void ddp_flush_subnormals(void)
{
    flush_subnormals_set(FLUSH_SUBNORMALS_BITS);
}

/* --- progress --------------------------------------------------------------------------------------------- */

/* Publish the step of this rank in a key for the launcher. A step may take microseconds, so set the key at most every
 * 200 ms. */

enum { PROGRESS_EVERY_MS = 200 };

/* Store the step in this rank's progress key. Without a store, do nothing. */
static ddp_status set_progress(struct ddp_ctx *ctx, uint64_t step, struct ddp_err *err)
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
    NOT_NULL(ctx, NULL);
    struct ddp_err err;
    recorder_step(&ctx->recorder, step);
    uint64_t now_ms = clock_ms();
    bool too_early = ctx->progress_set_ms != 0 && now_ms - ctx->progress_set_ms < PROGRESS_EVERY_MS;
    if (!ctx->env.ddprun_store || too_early)
        return DDP_OK;
    ctx->progress_set_ms = now_ms;
    return set_progress(ctx, step, &err) == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}

/* --- a job that grows ------------------------------------------------------------------------------------- */

/* The store has a key for the number of waiting nodes, and a key for each rank that agrees to a restart with these
 * nodes. Programs without libddp can also use these keys. With --grow=agreed, ddprun waits until every rank has agreed,
 * because a restart within a step would lose work. */

enum { NODES_MAX = 1 << 20 }; /* more waiting nodes count as 0 */

/* Set *store to the connection for ddp_grow_waiting and ddp_grow_agree. Fail without DDPRUN_STORE=1, because only
 * ddprun has waiting nodes. */
static ddp_status find_grow_store(struct ddp_ctx *ctx, struct ddp_store **store, struct ddp_err *err)
{
    if (!ctx->env.ddprun_store)
        return ddp_fail(
            err, DDP_ERR_UNSUPPORTED,
            "this job cannot grow, because ddprun did not start the job; start the job with ddprun");
    ddp_status status = ctx_any_store(ctx, store, err);
    return status == DDP_OK && *store == NULL
               ? ddp_fail(err, DDP_ERR_CLOSED, "cannot reach the store: the first connection failed")
               : status;
}

/* Read the number of waiting nodes. A missing key or an invalid number counts as 0, because the job can continue
 * without more nodes. */
static ddp_status read_waiting_nodes(struct ddp_store *store, uint32_t *nodes, struct ddp_err *err)
{
    static const char *const key[] = { GROW_WAITING_KEY };
    void *text = NULL;
    size_t len;
    int there = 0;
    ddp_status status = ddp_store_check(store, key, 1, &there, err);
    if (status != DDP_OK || !there)
        return status;
    status = ddp_store_get(store, key[0], 0, &text, &len, err);
    char *end = NULL;
    const unsigned long count = status == DDP_OK ? strtoul(text, &end, 10) : 0;
    *nodes = count <= NODES_MAX && end != NULL && *end == '\0' ? (uint32_t)count : 0;
    free(text);
    return status;
}

ddp_status ddp_grow_waiting(ddp_ctx *ctx, uint32_t *nodes)
{
    NOT_NULL(ctx, NULL);
    NOT_NULL(nodes, NULL);
    struct ddp_err err;
    struct ddp_store *store;
    *nodes = 0;
    ddp_status status = find_grow_store(ctx, &store, &err);
    if (status == DDP_OK)
        status = read_waiting_nodes(store, nodes, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}

ddp_status ddp_grow_agree(ddp_ctx *ctx)
{
    NOT_NULL(ctx, NULL);
    char key[64];
    struct ddp_err err;
    struct ddp_store *store;
    ddp_status status = find_grow_store(ctx, &store, &err);
    snprintf(key, sizeof(key), GROW_AGREED_KEY "%d", ctx->env.rank);
    if (status == DDP_OK)
        status = ddp_store_set(store, key, "1", 1, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(ctx, &err);
}
