/* buckets.c -- see buckets.h. Planning has three passes: assign each parameter to a bucket, reverse the order of the
 * buckets, and place the buckets in the arena. The order is reversed, because the gradients of the last parameters are
 * ready first. */
#include "reducer/buckets.h"

#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

enum { TYPES = DDP_U8 + 1, NONE = -1 };

/* The open bucket of one type. */
struct open_bucket {
    long number;   /* number of the bucket in the order of opening; NONE if the type has no open bucket */
    size_t closed; /* number of closed buckets of this type */
};

static size_t bytes_of(const ddp_param *param)
{
    return param->count * ddp_dtype_size(param->dtype);
}

static size_t aligned(size_t bytes)
{
    return round_up(bytes, BUCKET_ALIGN);
}

/* Check the parameters. After this check no sum of sizes and gaps can overflow. */
static ddp_status check(const ddp_param *params, size_t n, struct ddp_err *err)
{
    size_t left = SIZE_MAX / 4;
    for (size_t i = 0; i < n; i++) {
        size_t size = ddp_dtype_size(params[i].dtype);
        if (size == 0)
            return ddp_fail(err, DDP_ERR_ARG, "parameter %zu: dtype=%d: expected a value of ddp_dtype", i,
                            (int)params[i].dtype);
        if (params[i].count > left / size || aligned(bytes_of(&params[i])) > left)
            return ddp_fail(err, DDP_ERR_ARG, "parameter %zu: %zu elements do not fit into the address space",
                            i, params[i].count);
        left -= aligned(bytes_of(&params[i]));
    }
    return DDP_OK;
}

/* Return the k-th parameter in the order of assignment. */
static size_t nth(const struct bucket_rule *rule, size_t k)
{
    return rule->order != NULL ? rule->order[k] : k;
}

/* Return the open bucket of a type. If the type has no open bucket, open a new one. A bucket gets its number when it
 * gets its first parameter, so buckets are sorted by their first parameter. */
static size_t open_for(struct bucket_plan *plan, struct open_bucket *open, ddp_dtype dtype)
{
    if (open->number == NONE) {
        open->number = (long)plan->count;
        plan->buckets[plan->count++] = (struct bucket){ .dtype = dtype };
    }
    return (size_t)open->number;
}

/* Assign each parameter to a bucket. Set bucket_of[] to the number of the bucket in the order of opening. Set
 * closed[] to the buckets in the order of closing, followed by the buckets that are still open. One call reduces a
 * whole bucket, so a bucket has only one type, and each type has its own open bucket. */
static void assign(struct bucket_plan *plan, size_t *closed, const ddp_param *params, size_t n,
                   const struct bucket_rule *rule)
{
    struct open_bucket open[TYPES];
    size_t closings = 0;

    for (int t = 0; t < TYPES; t++)
        open[t] = (struct open_bucket){ NONE, 0 };
    for (size_t k = 0; k < n; k++) {
        size_t i = nth(rule, k);
        struct open_bucket *o = &open[params[i].dtype];
        size_t number = plan->bucket_of[i] = open_for(plan, o, params[i].dtype);
        struct bucket *b = &plan->buckets[number];
        b->params++;
        b->bytes += bytes_of(&params[i]);
        if (b->bytes >= (o->closed > 0 ? rule->limit : rule->first_limit)) {
            closed[closings++] = number;
            b->closed = true;
            o->number = NONE;
            o->closed++;
        }
    }
    for (size_t b = 0; b < plan->count; b++)
        if (!plan->buckets[b].closed)
            closed[closings++] = b;
}

/* Sort the buckets by the time when their gradients are ready. If the order of readiness is unknown, reverse the
 * list, because the gradients of the last parameters are ready first. Set place[b] to the new number of bucket b. */
static void renumber(struct bucket_plan *plan, const size_t *closed, size_t n, const struct bucket_rule *rule,
                     struct bucket *old, size_t *place)
{
    memcpy(old, plan->buckets, plan->count * sizeof(*old));
    for (size_t b = 0; b < plan->count; b++) {
        size_t was = rule->order != NULL ? closed[b] : plan->count - 1 - b;
        plan->buckets[b] = old[was];
        place[was] = b;
    }
    for (size_t i = 0; i < n; i++)
        plan->bucket_of[i] = place[plan->bucket_of[i]];
}

/* Place the buckets one after another in the arena, and the parameters of each bucket in the order of assignment. */
static void lay_out(struct bucket_plan *plan, const ddp_param *params, size_t n,
                    const struct bucket_rule *rule)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = nth(rule, k);
        struct bucket *b = &plan->buckets[plan->bucket_of[i]];
        plan->at[i] = b->span;
        b->span += aligned(bytes_of(&params[i]));
    }
    for (size_t b = 0; b < plan->count; b++) {
        plan->buckets[b].at = plan->arena_bytes;
        plan->arena_bytes += plan->buckets[b].span;
    }
    for (size_t i = 0; i < n; i++)
        plan->at[i] += plan->buckets[plan->bucket_of[i]].at;
}

static ddp_status no_memory(size_t n, struct ddp_err *err)
{
    return ddp_fail(err, DDP_ERR_NOMEM, "out of memory to plan %zu parameters", n);
}

/* Assign the parameters to buckets, number the buckets and lay out the arena. An example with one type and limits of 1
 * and 25 MiB:
 *
 *     parameter   0: 0.6   1: 0.5   2: 20   3: 6   4: 0.1 MiB
 *     assigned    [ 0, 1 ] closed   [ 2, 3 ] closed  [ 4 ]
 *     reversed    bucket 0 = 4      bucket 1 = 2, 3  bucket 2 = 0, 1
 *     arena       | 4 | 2 | 3 | 0 | 1 |      each parameter at a multiple of BUCKET_ALIGN
 *
 * If the order of readiness is known, assign() uses that order, and renumber() sorts the buckets by the time of
 * closing. */
static ddp_status fill(struct bucket_plan *plan, const ddp_param *params, size_t n,
                       const struct bucket_rule *rule, struct ddp_err *err)
{
    size_t *numbers = calloc(2 * n + 1, sizeof(*numbers));
    struct bucket *old = calloc(n + 1, sizeof(*old));
    bool enough = numbers != NULL && old != NULL;

    if (enough) {
        assign(plan, numbers, params, n, rule);
        renumber(plan, numbers, n, rule, old, numbers + n);
        lay_out(plan, params, n, rule);
    }
    free(numbers);
    free(old);
    return enough ? DDP_OK : no_memory(n, err);
}

/* Make a plan. Allocate one element more than needed, because calloc(0) may return NULL. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n,
                            const struct bucket_rule *rule, struct ddp_err *err)
{
    *out = (struct bucket_plan){ 0 };
    ddp_status status = check(params, n, err);
    if (status != DDP_OK)
        return status;
    out->buckets = calloc(n + 1, sizeof(*out->buckets));
    out->bucket_of = calloc(n + 1, sizeof(*out->bucket_of));
    out->at = calloc(n + 1, sizeof(*out->at));
    if (out->buckets == NULL || out->bucket_of == NULL || out->at == NULL)
        status = no_memory(n, err);
    else
        status = fill(out, params, n, rule, err);
    if (status != DDP_OK)
        bucket_plan_free(out);
    return status;
}

void bucket_plan_free(struct bucket_plan *plan)
{
    free(plan->buckets);
    free(plan->bucket_of);
    free(plan->at);
    *plan = (struct bucket_plan){ 0 };
}
