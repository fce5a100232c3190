/* reducer_sync.c -- what one rank tells the others: see reducer_state.h. All of it is collective, and on the program's
 * thread; ranks come here in the same order, because reducer_core.c decides from what all of them know. */
#include "reducer/reducer_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const ddp_param *p)
{
    return p->count * ddp_dtype_size(p->dtype);
}

/* --- model ---------------------------------------------------------------------------------------------------- */

/* Once in a run, straight into the program's memory: what a barrier for each costs does not matter here. */
ddp_status sync_model(ddp_reducer *reducer, int root)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < reducer->n + reducer->options.buffer_count && status == DDP_OK; i++) {
        const ddp_param *p = &reducer->params[i];
        status =
            ddp_broadcast(reducer->group, p->data, p->count, p->dtype, root, reducer->options.stream, NULL);
    }
    return status;
}

/* Buffers are small and many: packing them costs less than a barrier for each. */
static ddp_status send_buffers(ddp_reducer *reducer, int root)
{
    bool mine = ddp_rank(reducer->group->ctx) == root;
    size_t n = reducer->options.buffer_count, total = 0;
    char *at = reducer->packed;

    if (at == NULL)
        return DDP_OK;
    for (size_t i = 0; i < n; at += bytes_of(&reducer->buffers[i++]))
        if (mine)
            reducer_copy(reducer, at, reducer->buffers[i].data, bytes_of(&reducer->buffers[i]));
    total = (size_t)(at - reducer->packed);
    ddp_status status =
        ddp_broadcast(reducer->group, reducer->packed, total, DDP_U8, root, reducer->options.stream, NULL);
    at = reducer->packed;
    for (size_t i = 0; i < n && status == DDP_OK; at += bytes_of(&reducer->buffers[i++]))
        if (!mine)
            reducer_copy(reducer, reducer->buffers[i].data, at, bytes_of(&reducer->buffers[i]));
    return status;
}

/* --- the order of readiness ----------------------------------------------------------------------------------- */

void sync_spare_close(struct sync_spare *spare)
{
    free(spare->sent);
    free(spare->order);
    free(spare->seen);
    free(spare->copy);
    *spare = (struct sync_spare){ NULL, NULL, NULL, NULL };
}

/* A rebuild there is once, or never. Large memory costs nothing before it is written to, and then this much is there for
 * one forward only. */
static bool get_spare(ddp_reducer *reducer)
{
    struct sync_spare *spare = &reducer->spare;
    if (reducer->core.keep_order || reducer->core.find_unused)
        return true;
    spare->sent = calloc(reducer->n, sizeof(*spare->sent));
    spare->order = calloc(reducer->n, sizeof(*spare->order));
    spare->seen = calloc(reducer->n, sizeof(*spare->seen));
    spare->copy = malloc(reducer->plan.arena_bytes + 1);
    return spare->sent != NULL && spare->order != NULL && spare->seen != NULL && spare->copy != NULL;
}

/* `kept` is of calloc, so that pages of parameters which are always used are never touched. */
ddp_status sync_get_memory(ddp_reducer *reducer, struct ddp_err *err)
{
    if (reducer->core.find_unused)
        reducer->kept = calloc(reducer->plan.arena_bytes + 1, 1);
    if ((reducer->core.find_unused && reducer->kept == NULL) || !get_spare(reducer))
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: no memory to keep %zu bytes of gradients",
                        reducer->plan.arena_bytes);
    return DDP_OK;
}

/* From equal orders equal plans; the order of another rank is looked at before anything is indexed with it. */
static ddp_status plan_anew(ddp_reducer *reducer, struct bucket_plan *plan, struct ddp_err *err)
{
    const struct sync_spare *r = &reducer->spare;
    const struct bucket_rule rule = { reducer->options.first_bucket_bytes, reducer->options.bucket_cap_bytes,
                                      r->order };
    if (!core_is_order(r->sent, reducer->n, r->seen))
        return ddp_fail(err, DDP_ERR_MISMATCH,
                        "reducer: rank %d sent an order that is not one of %zu parameters",
                        reducer->order_root, reducer->n);
    for (size_t k = 0; k < reducer->n; k++)
        r->order[k] = (size_t)r->sent[k];
    return bucket_plan_make(plan, reducer->params, reducer->n, &rule, err);
}

/* What gradients hold is the program's: it may be accumulating. */
static void move(ddp_reducer *reducer, const struct bucket_plan *to)
{
    char *copy = reducer->spare.copy;
    reducer_copy(reducer, copy, reducer->arena, to->arena_bytes);
    reducer_zero(reducer, reducer->arena, to->arena_bytes);
    for (size_t i = 0; i < reducer->n; i++)
        reducer_copy(reducer, reducer->arena + to->at[i], copy + reducer->plan.at[i],
                     bytes_of(&reducer->params[i]));
    reducer_settle(reducer);
    bucket_plan_free(&reducer->plan);
    reducer->plan = *to;
}

/* The arena stays: a plan in another order needs exactly as much of it. */
static ddp_status adopt_order(ddp_reducer *reducer)
{
    struct bucket_plan plan;
    struct ddp_err err = { 0 };
    int64_t *sent = reducer->spare.sent;

    for (size_t k = 0; k < reducer->n; k++)
        sent[k] = (int64_t)reducer->core.order[k];
    ddp_status status =
        ddp_broadcast(reducer->group, sent, reducer->n, DDP_I64, reducer->order_root, NULL, NULL);
    if (status != DDP_OK)
        return status;
    if (plan_anew(reducer, &plan, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    move(reducer, &plan);
    core_rebuilt(&reducer->core);
    return bucket_wire_open(reducer);
}

/* Half a rebuild is none to go on from, whatever the program does with the error. */
static ddp_status rebuild_buckets(ddp_reducer *reducer)
{
    ddp_status status = adopt_order(reducer);
    sync_spare_close(&reducer->spare);
    if (status != DDP_OK)
        ddp_fail(&reducer->failed, status, "%s", ddp_last_error());
    return status;
}

/* --- who used what -------------------------------------------------------------------------------------------- */

/* The copy lies where the gradient lies in the arena, so no second table of places is needed. */
void sync_blank(ddp_reducer *reducer, size_t i)
{
    size_t at = reducer->plan.at[i], bytes = bytes_of(&reducer->params[i]);
    reducer_copy(reducer, reducer->kept + at, reducer->arena + at, bytes);
    reducer_zero(reducer, reducer->arena + at, bytes);
    reducer->blank[i] = true;
}

/* A sum and not a maximum, as in PyTorch: 0 is what matters, and how many it was may help somebody who debugs. Behind the
 * last bucket, where nobody waits for it yet. */
static ddp_status share_used(ddp_reducer *reducer)
{
    for (size_t i = 0; i < reducer->n; i++)
        reducer->used[i] = reducer->core.used[i];
    ddp_status status = ddp_all_reduce(reducer->group, reducer->used, reducer->used, reducer->n, DDP_I32,
                                       DDP_SUM, NULL, NULL);
    for (size_t i = 0; i < reducer->n && status == DDP_OK; i++) {
        size_t at = reducer->plan.at[i];
        if (reducer->blank[i] && reducer->used[i] == 0)
            reducer_copy(reducer, reducer->arena + at, reducer->kept + at, bytes_of(&reducer->params[i]));
        reducer->blank[i] = false;
    }
    return status;
}

/* --- a step --------------------------------------------------------------------------------------------------- */

ddp_status sync_begin(ddp_reducer *reducer, const struct core_wish *wish)
{
    ddp_status status = wish->rebuild ? rebuild_buckets(reducer) : DDP_OK;
    if (status == DDP_OK && wish->send_buffers)
        status = send_buffers(reducer, reducer->roll.first);
    return status;
}

ddp_status sync_end(ddp_reducer *reducer)
{
    ddp_status status = bucket_wait(reducer);
    if (status == DDP_OK && reducer->core.sync && reducer->core.find_unused)
        status = share_used(reducer);
    if (status != DDP_OK)
        return status;
    if (!reducer->core.recorded)
        reducer->order_root = reducer->roll.first;
    core_end(&reducer->core);
    return DDP_OK;
}
