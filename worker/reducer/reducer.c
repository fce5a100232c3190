/* reducer.c -- see include/ddp/reducer.h; which file does what is in reducer_state.h.
 *
 * Gradients are never copied: ddp_reducer_grad points into the arena, and the reduction works there on all ranks' arenas at
 * once. What may be called when, and which bucket is next, reducer_core.c decides; here its wishes are carried out. */
#include "core/thread_util.h"
#include "core/error.h"
#include "reducer/reducer_memory.h"
#include "reducer/reducer_options.h"
#include "reducer/reducer_verify.h"

#include <stdlib.h>
#include <string.h>

/* --- create and free ------------------------------------------------------------------------------------ */

/* The one place that frees a reducer; shared memory belongs to the backend. */
static void release(ddp_reducer *reducer)
{
    ddp_work_free(reducer->last);
    bucket_plan_free(&reducer->plan);
    core_close(&reducer->core);
    free(reducer->params);
    free(reducer->jobs);
    free(reducer->used);
    free(reducer->kept);
    sync_spare_close(&reducer->spare);
    free(reducer->blank);
    free(reducer->answers);
    free(reducer);
}

static ddp_status check(const ddp_reducer *reducer, const ddp_param *params, size_t n, struct ddp_err *err)
{
    const ddp_reducer_options *o = &reducer->options;
    if (n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: no parameters");
    ddp_status status = reducer_check_list("parameter", params, n, err);
    if (status == DDP_OK)
        status = reducer_check_list("buffer", o->buffers, o->buffer_count, err);
    if (status == DDP_OK && reducer_on_device(reducer))
        status = reducer_check_device(o, err);
    return status == DDP_OK ? reducer_check_types(params, n, o, err) : status;
}

/* All of it now: a step must not fail for want of memory on one rank of many. */
static ddp_status get_memory(ddp_reducer *reducer, const ddp_param *params, size_t n, struct ddp_err *err)
{
    size_t buffers = reducer->options.buffer_count;
    reducer->n = n;
    reducer->params = calloc(n + buffers, sizeof(*params));
    reducer->jobs = calloc(n, sizeof(*reducer->jobs));
    reducer->used = calloc(n, sizeof(*reducer->used));
    reducer->blank = calloc(n, sizeof(*reducer->blank));
    reducer->answers = calloc((size_t)ddp_world_size(reducer->group->ctx), sizeof(*reducer->answers));
    if (!reducer->params || !reducer->jobs || !reducer->used || !reducer->blank || !reducer->answers)
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: no memory for %zu parameters", n);
    memcpy(reducer->params, params, n * sizeof(*params));
    reducer->buffers = reducer->params + n;
    if (buffers > 0)
        memcpy(reducer->buffers, reducer->options.buffers, buffers * sizeof(*params));
    return DDP_OK;
}

/* A thread pays when every rank of the host can have a core for it: else it only takes time from the backward pass. */
static bool wants_thread(const ddp_reducer *reducer)
{
    const ddp_ctx *ctx = reducer->group->ctx;
    if (reducer->options.overlap != DDP_OVERLAP_AUTO)
        return reducer->options.overlap == DDP_OVERLAP_ON;
    return ddp_world_size(ctx) > 1 && cores_allowed() >= 2 * ddp_local_world_size(ctx);
}

/* A backend that does not block makes none, whatever was asked for. Where nothing was, one that cannot be had is no error:
 * the same is done without. */
static ddp_status get_thread(ddp_reducer *reducer, struct ddp_err *err)
{
    ddp_status status = wants_thread(reducer) ? ctx_start_thread(reducer->group->ctx, err) : DDP_OK;
    reducer->threaded = wants_thread(reducer) && reducer->group->ctx->thread != NULL;
    return reducer->options.overlap == DDP_OVERLAP_AUTO ? DDP_OK : status;
}

/* Everything that needs no other rank. On an error `reducer` is to be released. */
static ddp_status build(ddp_reducer *reducer, const ddp_param *params, size_t n,
                        const ddp_reducer_options *given, struct ddp_err *err)
{
    ddp_reducer_options *o = &reducer->options;
    ddp_status status = reducer_options_read(given, o, err);
    if (status == DDP_OK)
        status = check(reducer, params, n, err);
    if (status == DDP_OK)
        status = get_memory(reducer, params, n, err);
    const struct bucket_rule rule = { o->first_bucket_bytes, o->bucket_cap_bytes, NULL };
    if (status == DDP_OK)
        status = bucket_plan_make(&reducer->plan, reducer->params, n, &rule, err);
    if (status == DDP_OK)
        status = core_open(&reducer->core, &reducer->plan, reducer->params, n, err);
    if (status != DDP_OK)
        return status;
    reducer->core.find_unused = o->find_unused;
    reducer->core.keep_order = o->keep_order;
    reducer->core.uneven = o->uneven != DDP_UNEVEN_NO;
    status = sync_get_memory(reducer, err);
    return status == DDP_OK ? get_thread(reducer, err) : status;
}

/* In shared memory, where a broadcast is one copy. */
static ddp_status alloc_packed(ddp_reducer *reducer)
{
    size_t bytes = 0;
    void *block = NULL;
    for (size_t i = 0; i < reducer->options.buffer_count; i++)
        bytes += reducer->buffers[i].count * ddp_dtype_size(reducer->buffers[i].dtype);
    if (bytes == 0 || reducer->options.keep_buffers)
        return DDP_OK;
    ddp_status status = ddp_shared_alloc(reducer->group, bytes, &block);
    reducer->packed = block;
    return status;
}

/* All blocks, the last one first. */
static ddp_status free_shared(ddp_reducer *reducer)
{
    ddp_status status = ddp_shared_free(reducer->group, reducer->wire);
    if (status == DDP_OK)
        status = ddp_shared_free(reducer->group, reducer->packed);
    return status == DDP_OK ? ddp_shared_free(reducer->group, reducer->arena) : status;
}

/* Memory for the gradients and what travels beside them. All ranks hear whether all have got theirs, so on an error all are
 * here to give back what there is; the error's words are kept over that. */
static ddp_status alloc_shared(ddp_reducer *reducer)
{
    void *arena = NULL;
    size_t bytes = reducer->plan.arena_bytes > 0 ? reducer->plan.arena_bytes : BUCKET_ALIGN;
    ddp_status status = ddp_shared_alloc(reducer->group, bytes, &arena);
    reducer->arena = arena;
    if (status == DDP_OK)
        status = alloc_packed(reducer);
    if (status == DDP_OK)
        status = bucket_wire_open(reducer);
    if (status == DDP_OK)
        return DDP_OK;
    struct ddp_err why = { 0 };
    ddp_fail(&why, status, "%s", ddp_last_error());
    free_shared(reducer);
    return last_error_keep(&why);
}

/* The collective part: the same model everywhere, rank 0's values, memory for the gradients. */
static ddp_status unite(ddp_reducer *reducer)
{
    int world = ddp_world_size(reducer->group->ctx);
    reducer->roll = (struct roll){ world, 0, 0, true };
    const struct model model = { { reducer->params, reducer->buffers },
                                 { reducer->n, reducer->options.buffer_count },
                                 &reducer->options };
    ddp_status status = reducer_verify(reducer->group, &model);
    if (status == DDP_OK)
        status = sync_model(reducer, 0);
    return status == DDP_OK ? alloc_shared(reducer) : status;
}

ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                              const ddp_reducer_options *options, ddp_reducer **out)
{
    NOT_NULL_KEPT(group);
    NOT_NULL_KEPT(out);
    struct ddp_err err = { 0 };
    ddp_reducer *reducer = calloc(1, sizeof(*reducer));

    *out = NULL;
    if (reducer == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "no memory for a reducer");
        return ctx_fail(group->ctx, &err);
    }
    reducer->group = group;
    ddp_status status = build(reducer, params, n, options, &err);
    if (status != DDP_OK)
        reducer_fail(reducer, &err);
    else
        status = unite(reducer);
    if (status != DDP_OK) {
        release(reducer);
        return status;
    }
    *out = reducer;
    return DDP_OK;
}

/* Collective, because the shared memory is: a rank that frees alone waits for the others. */
ddp_status ddp_reducer_free(ddp_reducer *reducer)
{
    if (reducer == NULL)
        return DDP_OK;
    comm_thread_drain(reducer->group->ctx->thread);
    ddp_status status = free_shared(reducer);
    release(reducer);
    return status;
}

/* --- a step --------------------------------------------------------------------------------------------- */

void *ddp_reducer_grad(ddp_reducer *reducer, size_t i)
{
    return i < reducer->n ? reducer->arena + reducer->plan.at[i] : NULL;
}

void ddp_reducer_set_sync(ddp_reducer *reducer, int on)
{
    reducer->core.next_sync = on != 0;
}

/* Misuse is looked for before the roll call, which would make the others wait for a step that does not come. */
ddp_status ddp_reducer_forward(ddp_reducer *reducer)
{
    NOT_NULL_KEPT(reducer);
    struct core_wish wish;
    struct ddp_err err;
    ddp_status status = bucket_wait(reducer);

    if (status != DDP_OK)
        return status;
    if (core_forward(&reducer->core, &wish, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    if (reducer->core.uneven)
        status = join_answer(reducer);
    if (status == DDP_OK)
        status = sync_begin(reducer, &wish);
    if (status != DDP_OK)
        core_cancel(&reducer->core);
    return status;
}

ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i)
{
    NOT_NULL_KEPT(reducer);
    struct ddp_err err;
    if (core_ready(&reducer->core, i, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    return bucket_launch(reducer);
}

ddp_status ddp_reducer_unused(ddp_reducer *reducer, size_t i)
{
    NOT_NULL_KEPT(reducer);
    struct ddp_err err;
    bool blank;
    if (core_unused(&reducer->core, i, &blank, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    if (blank)
        sync_blank(reducer, i);
    return bucket_launch(reducer);
}

/* What was not marked is taken for unused, one after the other, so that its buckets are launched as if it had been said. */
ddp_status ddp_reducer_finish(ddp_reducer *reducer)
{
    NOT_NULL_KEPT(reducer);
    struct ddp_err err;
    size_t i;
    ddp_status status = DDP_OK;

    if (core_finish(&reducer->core, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    while (status == DDP_OK && core_missing(&reducer->core, &i))
        status = ddp_reducer_unused(reducer, i);
    return status == DDP_OK ? sync_end(reducer) : status;
}

/* --- questions ------------------------------------------------------------------------------------------- */

int ddp_reducer_used(const ddp_reducer *reducer, size_t i)
{
    return i < reducer->n && (!reducer->core.find_unused || reducer->used[i] > 0);
}

size_t ddp_reducer_buckets(const ddp_reducer *reducer)
{
    return reducer->plan.count;
}

size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b)
{
    return b < reducer->plan.count ? reducer->plan.buckets[b].bytes : 0;
}

size_t ddp_reducer_bucket_of(const ddp_reducer *reducer, size_t i)
{
    return i < reducer->n ? reducer->plan.bucket_of[i] : reducer->plan.count;
}
