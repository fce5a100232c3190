/* collectives.c -- the collectives of include/ddp/group.h. Each function fills a struct call, and run_checked checks
 * and runs this call. The table in call.h describes the buffers of each kind of call. */
#include "ddp/group.h"

#include "core/context.h"
#include "core/error.h"

#include <stdlib.h>
#include <string.h>

/* A call that runs on a stream. The ticket is 0 if the call is done. */
struct ddp_work {
    ddp_group *group;
    uint64_t ticket;
    void *stream;
};

ddp_group *ddp_world(ddp_ctx *ctx)
{
    return ctx != NULL ? &ctx->world : NULL;
}

/* Let `stream` run later operations only after the call with this ticket is done. Ticket 0 means that the call is
 * already done. */
static ddp_status follow_call(ddp_group *group, uint64_t ticket, void *stream)
{
    struct ddp_err err = { 0 };
    if (ticket == 0)
        return DDP_OK;
    return ctx_finish(group->ctx, group->comm->ops->follow(group->comm, ticket, stream, &err), &err);
}

/* Check and run a call. The check comes before other ranks take part. So a wrong argument is an error only on this
 * rank, and the program may repeat the call. */
static ddp_status run_checked(ddp_group *group, const struct call *call, ddp_work **work)
{
    struct ddp_err err = { 0 };

    if (work != NULL)
        *work = NULL;
    if (group == NULL)
        return null_argument(NULL, call_rules[call->kind].word, "group");
    const struct ddp_ctx *ctx = group->ctx;
    if (call_check(call, ctx->env.rank, ctx->env.world_size, &err) != DDP_OK)
        return ctx_fail(ctx, &err);
    /* Allocate the handle before the call. If malloc failed after the call, this rank would return an error while the
     * other ranks go on. */
    ddp_work *handle = work != NULL ? malloc(sizeof(*handle)) : NULL;
    if (work != NULL && handle == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "out of memory for a work handle");
        return ctx_fail(ctx, &err);
    }
    ddp_status status = ctx_run(group->ctx, call);
    if (work == NULL)
        return status == DDP_OK ? follow_call(group, group->comm->ticket, call->stream) : status;
    if (status != DDP_OK) {
        free(handle);
        return status;
    }
    *handle = (ddp_work){ group, group->comm->ticket, call->stream };
    *work = handle;
    return DDP_OK;
}

ddp_status ddp_all_reduce(ddp_group *group, const void *in, void *out, size_t n, ddp_dtype dtype, ddp_op op,
                          void *stream, ddp_work **work)
{
    const struct call call = { CALL_ALL_REDUCE, in, out, n, dtype, op, 0, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_reduce(ddp_group *group, const void *in, void *out, size_t n, ddp_dtype dtype, ddp_op op,
                      int root, void *stream, ddp_work **work)
{
    const struct call call = { CALL_REDUCE, in, out, n, dtype, op, root, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_broadcast(ddp_group *group, void *buf, size_t n, ddp_dtype dtype, int root, void *stream,
                         ddp_work **work)
{
    const struct call call = { CALL_BROADCAST, buf, buf, n, dtype, DDP_SUM, root, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_all_gather(ddp_group *group, const void *in, void *out, size_t n_per_rank, ddp_dtype dtype,
                          void *stream, ddp_work **work)
{
    const struct call call = { CALL_ALL_GATHER, in, out, n_per_rank, dtype, DDP_SUM, 0, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_gather(ddp_group *group, const void *in, void *out, size_t n_per_rank, ddp_dtype dtype,
                      int root, void *stream, ddp_work **work)
{
    const struct call call = { CALL_GATHER, in, out, n_per_rank, dtype, DDP_SUM, root, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_scatter(ddp_group *group, const void *in, void *out, size_t n_per_rank, ddp_dtype dtype,
                       int root, void *stream, ddp_work **work)
{
    const struct call call = { CALL_SCATTER, in, out, n_per_rank, dtype, DDP_SUM, root, stream, 0 };
    return run_checked(group, &call, work);
}

ddp_status ddp_reduce_scatter(ddp_group *group, const void *in, void *out, size_t n_per_rank, ddp_dtype dtype,
                              ddp_op op, void *stream, ddp_work **work)
{
    const struct call call = { CALL_REDUCE_SCATTER, in, out, n_per_rank, dtype, op, 0, stream, 0 };
    return run_checked(group, &call, work);
}

/* Run a barrier without call_check, because a barrier has no buffers. */
ddp_status ddp_barrier(ddp_group *group, uint32_t timeout_ms)
{
    NOT_NULL(group, NULL);
    const struct call call = { .kind = CALL_BARRIER, .timeout_ms = timeout_ms };
    return ctx_run(group->ctx, &call);
}

/* Allocate shared memory. All ranks must call this function. If the group is broken, return the error of the group at
 * once, because other ranks may be gone. */
ddp_status ddp_shared_alloc(ddp_group *group, size_t bytes, void **out)
{
    NOT_NULL(group, NULL);
    NOT_NULL(out, NULL);
    struct ddp_err err = ctx_enter(group->ctx);
    *out = NULL;
    if (err.code != DDP_OK)
        return ctx_fail(group->ctx, &err);
    const struct call call = { .kind = CALL_SHARED_ALLOC, .n = bytes, .out = out };
    return ctx_finish(group->ctx, ctx_call(group->ctx, &call, &err), &err);
}

/* Free a shared block. All ranks must call this function. `block` may be NULL if all ranks pass NULL. */
ddp_status ddp_shared_free(ddp_group *group, void *block)
{
    NOT_NULL(group, NULL);
    struct ddp_err err = ctx_enter(group->ctx);
    if (block == NULL)
        return DDP_OK;
    if (err.code != DDP_OK)
        return ctx_fail(group->ctx, &err);
    const struct call call = { .kind = CALL_SHARED_FREE, .out = block };
    return ctx_finish(group->ctx, ctx_call(group->ctx, &call, &err), &err);
}

ddp_status ddp_copy(ddp_group *group, void *to, const void *from, size_t bytes, void *stream)
{
    NOT_NULL(group, NULL);
    if (bytes > 0 && (to == NULL || from == NULL))
        return null_argument(NULL, __func__, to == NULL ? "to" : "from");
    struct ddp_err err = { 0 };
    struct comm *comm = group->comm;
    if (comm->ops->copy == NULL) {
        if (bytes > 0)
            memmove(to, from, bytes);
        return DDP_OK;
    }
    ddp_status status = comm->ops->copy(comm, to, from, bytes, stream, &err);
    if (status == DDP_OK)
        status = comm->ops->finish(comm, stream, &err);
    return status == DDP_OK ? DDP_OK : ctx_fail(group->ctx, &err);
}

ddp_status ddp_work_wait(ddp_work *work)
{
    NOT_NULL(work, NULL);
    return follow_call(work->group, work->ticket, work->stream);
}

/* Block the host thread until the collective of `work` ends, or return DDP_IN_PROGRESS after `timeout_ms`. After this
 * timeout the group stays usable, because the collective has its own deadline. */
ddp_status ddp_work_sync(ddp_work *work, uint32_t timeout_ms)
{
    NOT_NULL(work, NULL);
    struct ddp_err err = { 0 };
    struct comm *comm = work->group->comm;
    const struct ddp_ctx *ctx = work->group->ctx;
    if (work->ticket == 0)
        return DDP_OK;
    uint32_t limit = timeout_ms > 0 ? timeout_ms : UINT32_MAX;
    ddp_status status = comm->ops->await(comm, work->ticket, limit, &err);
    if (status != DDP_IN_PROGRESS)
        return ctx_finish(work->group->ctx, status, &err);
    ddp_fail(&err, DDP_IN_PROGRESS, "the call is still running after %g s", limit / 1000.0);
    return ctx_fail(ctx, &err);
}

int ddp_work_done(const ddp_work *work)
{
    struct ddp_err ignored;
    struct comm *comm = work->group->comm;
    return work->ticket == 0 || comm->ops->await(comm, work->ticket, 0, &ignored) != DDP_IN_PROGRESS;
}

void ddp_work_free(ddp_work *work)
{
    free(work);
}
