/* reducer.c -- see include/ddp/reducer.h. The plan is made in buckets.c; here gradients are counted in
 * and full buckets reduced, strictly in the plan's order, which is what keeps ranks from ever meeting in
 * different buckets.
 *
 * A step: every parameter goes from "not ready" to "ready" once; a bucket is reduced when all of its
 * parameters are ready and all buckets before it are reduced; finish wants all of them reduced, and
 * begins the next step. Gradients are never copied: ddp_reducer_grad points into the arena, and the
 * reduction works there on all ranks' arenas at once. */
#include "ddp/reducer.h"

#include "buckets.h"
#include "ctx.h"
#include "reducer_verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's defaults. A small first bucket, because it is full before the others and its reduction can begin soonest; 25
 * MiB, where the cost of a call no longer shows beside that of moving the bytes. */
enum { FIRST_BUCKET = 1 << 20, BUCKET_CAP = 25 << 20 };

struct ddp_reducer {
    ddp_group *group;
    ddp_param *params; /* owned copy; names and data are the caller's */
    size_t n;
    struct bucket_plan plan;
    char *arena;     /* shared block: the gradients, bucket after bucket */
    bool *ready;     /* of each parameter, in this step */
    size_t *pending; /* of each bucket: parameters that are not ready yet */
    size_t next;     /* first bucket that is not reduced yet in this step */
};

static ddp_status fail(const ddp_reducer *reducer, struct ddp_err *err)
{
    return ctx_fail(reducer->group->ctx, err);
}

/* Nothing is ready, nothing is reduced. */
static void begin_step(ddp_reducer *reducer)
{
    memset(reducer->ready, 0, reducer->n * sizeof(*reducer->ready));
    for (size_t b = 0; b < reducer->plan.count; b++)
        reducer->pending[b] = reducer->plan.buckets[b].params;
    reducer->next = 0;
}

/* --- create and free ------------------------------------------------------------------------------------ */

/* The one place that frees a reducer; the arena belongs to the backend. */
static void release(ddp_reducer *reducer)
{
    bucket_plan_free(&reducer->plan);
    free(reducer->params);
    free(reducer->ready);
    free(reducer->pending);
    free(reducer);
}

/* Before anything collective: a mistake here is this rank's alone. */
static ddp_status check_params(const ddp_param *params, size_t n, struct ddp_err *err)
{
    if (params == NULL || n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: no parameters");
    for (size_t i = 0; i < n; i++) {
        if (params[i].name == NULL || (params[i].data == NULL && params[i].count > 0))
            return ddp_fail(err, DDP_ERR_ARG, "reducer: parameter %zu has no %s", i,
                            params[i].name == NULL ? "name" : "data");
    }
    return DDP_OK;
}

/* `size` says how much of the struct the caller's header knew: a program built with an older one keeps working,
 * and what it does not know has its default. */
static ddp_status read_options(const ddp_reducer_options *given, ddp_reducer_options *out,
                               struct ddp_err *err)
{
    *out = (ddp_reducer_options)DDP_REDUCER_OPTIONS_INIT;
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(*out)))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_reducer_options.size is %zu: begin with DDP_REDUCER_OPTIONS_INIT", given->size);
    if (given != NULL)
        memcpy(out, given, given->size);
    if (out->first_bucket_bytes == 0)
        out->first_bucket_bytes = FIRST_BUCKET;
    if (out->bucket_cap_bytes == 0)
        out->bucket_cap_bytes = BUCKET_CAP;
    return DDP_OK;
}

/* Everything that needs no other rank. On an error `reducer` is to be released. */
static ddp_status build(ddp_reducer *reducer, const ddp_param *params, size_t n,
                        const ddp_reducer_options *given, struct ddp_err *err)
{
    ddp_reducer_options options;
    ddp_status status = check_params(params, n, err);
    if (status == DDP_OK)
        status = read_options(given, &options, err);
    if (status == DDP_OK)
        status = bucket_plan_make(&reducer->plan, params, n, options.first_bucket_bytes,
                                  options.bucket_cap_bytes, err);
    if (status != DDP_OK)
        return status;
    reducer->n = n;
    reducer->params = calloc(n, sizeof(*params));
    reducer->ready = calloc(n, sizeof(*reducer->ready));
    reducer->pending = calloc(reducer->plan.count, sizeof(*reducer->pending));
    if (reducer->params == NULL || reducer->ready == NULL || reducer->pending == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: no memory for %zu parameters", n);
    memcpy(reducer->params, params, n * sizeof(*params));
    return DDP_OK;
}

/* The collective part: same parameters everywhere, rank 0's values, memory for the gradients. */
static ddp_status unite(ddp_reducer *reducer)
{
    void *arena = NULL;
    size_t bytes = reducer->plan.arena_bytes > 0 ? reducer->plan.arena_bytes : BUCKET_ALIGN;
    ddp_status status = reducer_verify(reducer->group, reducer->params, reducer->n);

    for (size_t i = 0; i < reducer->n && status == DDP_OK; i++)
        status = ddp_broadcast(reducer->group, reducer->params[i].data, reducer->params[i].count,
                               reducer->params[i].dtype, 0, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_shared_alloc(reducer->group, bytes, &arena);
    reducer->arena = arena;
    return status;
}

ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                              const ddp_reducer_options *options, ddp_reducer **out)
{
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
        fail(reducer, &err);
    else
        status = unite(reducer);
    if (status != DDP_OK) {
        release(reducer);
        return status;
    }
    begin_step(reducer);
    *out = reducer;
    return DDP_OK;
}

/* Collective, because the arena is: a rank that frees alone waits for the others. */
ddp_status ddp_reducer_free(ddp_reducer *reducer)
{
    if (reducer == NULL)
        return DDP_OK;
    ddp_status status = ddp_shared_free(reducer->group, reducer->arena);
    release(reducer);
    return status;
}

/* --- a step --------------------------------------------------------------------------------------------- */

void *ddp_reducer_grad(ddp_reducer *reducer, size_t i)
{
    return i < reducer->n ? reducer->arena + reducer->plan.at[i] : NULL;
}

/* Only the bucket whose turn it is, and then the next: bucket 3 waits for bucket 2 even when it is full
 * already, because the order in which gradients become ready may differ between ranks, and the order of
 * the collectives must not. The gaps between gradients are reduced along; they are zero on all ranks and
 * stay so. */
static ddp_status reduce_full_buckets(ddp_reducer *reducer)
{
    while (reducer->next < reducer->plan.count && reducer->pending[reducer->next] == 0) {
        const struct bucket *b = &reducer->plan.buckets[reducer->next];
        void *grads = reducer->arena + b->at;
        ddp_status status = ddp_all_reduce(reducer->group, grads, grads, b->span / ddp_dtype_size(b->dtype),
                                           b->dtype, DDP_AVG, NULL, NULL);
        if (status != DDP_OK)
            return status;
        reducer->next++;
    }
    return DDP_OK;
}

/* Twice in one step would reduce a half-written bucket; it mostly means that the last step was not
 * finished. */
static ddp_status check_ready(const ddp_reducer *reducer, size_t i, struct ddp_err *err)
{
    if (i >= reducer->n)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: there is no parameter %zu, 0 to %zu was expected", i,
                        reducer->n - 1);
    if (reducer->ready[i])
        return ddp_fail(
            err, DDP_ERR_ARG,
            "reducer: parameter %zu \"%.100s\" (bucket %zu) is marked ready twice in one step; was "
            "ddp_reducer_finish left out?",
            i, reducer->params[i].name, reducer->plan.bucket_of[i]);
    return DDP_OK;
}

ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i)
{
    struct ddp_err err;
    if (check_ready(reducer, i, &err) != DDP_OK)
        return fail(reducer, &err);
    reducer->ready[i] = true;
    reducer->pending[reducer->plan.bucket_of[i]]--;
    return reduce_full_buckets(reducer);
}

static void list_param(const ddp_reducer *reducer, size_t i, char *list, size_t room)
{
    size_t used = strlen(list);
    snprintf(list + used, room - used, "%s%zu \"%.40s\" (bucket %zu)", used ? ", " : "", i,
             reducer->params[i].name, reducer->plan.bucket_of[i]);
}

/* A layer that took no part in the loss is the usual cause; its parameters are named, since nobody knows them by
 * number. */
static ddp_status name_unready(const ddp_reducer *reducer)
{
    enum { LISTED = 8 };
    char list[700] = "";
    size_t missing = 0;
    struct ddp_err err;

    for (size_t i = 0; i < reducer->n; i++)
        if (!reducer->ready[i] && missing++ < LISTED)
            list_param(reducer, i, list, sizeof(list));
    ddp_fail(&err, DDP_ERR_ARG, "reducer: finish, but %zu of %zu parameters were not marked ready: %s%s",
             missing, reducer->n, list, missing > LISTED ? ", and others" : "");
    return fail(reducer, &err);
}

/* Normally all buckets are reduced by now, and only the step is to be ended. */
ddp_status ddp_reducer_finish(ddp_reducer *reducer)
{
    if (reducer->next < reducer->plan.count) {
        for (size_t b = reducer->next; b < reducer->plan.count; b++)
            if (reducer->pending[b] > 0)
                return name_unready(reducer);
        /* A bucket failed to be reduced in ddp_reducer_ready; say why again. */
        ddp_status status = reduce_full_buckets(reducer);
        if (status != DDP_OK)
            return status;
    }
    begin_step(reducer);
    return DDP_OK;
}

size_t ddp_reducer_buckets(const ddp_reducer *reducer)
{
    return reducer->plan.count;
}

size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b)
{
    return b < reducer->plan.count ? reducer->plan.buckets[b].bytes : 0;
}
