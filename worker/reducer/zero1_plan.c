/* zero1_plan.c -- see zero1_plan.h.
 *
 * Parameters are taken in order; a bucket is closed as soon as it holds its limit, and types are filled
 * side by side, because a bucket is reduced in one call. Every rank computes the same plan from the same
 * list. */
#include "reducer/zero1_plan.h"

#include "reducer/norm.h"
#include "reducer/reducer_options.h"

#include <stdint.h>
#include <stdlib.h>

enum { NONE = -1, TYPES = DDP_U8 + 1 };

static size_t rounded_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* After this no sum can overflow: four float arrays of everything, padding included, fit the address
 * space. */
static ddp_status check(const ddp_param *params, size_t n, struct ddp_err *err)
{
    size_t left = SIZE_MAX / 64;
    for (size_t i = 0; i < n; i++) {
        const ddp_dtype dtype = params[i].dtype;
        if (dtype != DDP_F32 && dtype != DDP_F16 && dtype != DDP_BF16)
            return ddp_fail(err, DDP_ERR_ARG,
                            "zero1: parameter %zu \"%.100s\" is %s, expected f32, f16 or bf16", i,
                            params[i].name, ddp_dtype_name(dtype));
        if (params[i].count > left - NORM_LEAF)
            return ddp_fail(err, DDP_ERR_ARG,
                            "zero1: parameter %zu has %zu elements, more than memory can hold", i,
                            params[i].count);
        left -= rounded_up(params[i].count, NORM_LEAF);
        if (left <= NORM_LEAF)
            return ddp_fail(err, DDP_ERR_ARG, "zero1: %zu parameters are more than memory can hold", n);
    }
    return DDP_OK;
}

/* Buckets are numbered as they are opened; `elements` is what the parameters take so far. */
static void assign(struct zero1_plan *plan, const ddp_param *params, size_t n, size_t limit)
{
    long open[TYPES];
    for (int t = 0; t < TYPES; t++)
        open[t] = NONE;
    for (size_t i = 0; i < n; i++) {
        const ddp_dtype dtype = params[i].dtype;
        if (open[dtype] == NONE) {
            open[dtype] = (long)plan->count;
            plan->buckets[plan->count++] = (struct zero1_bucket){ .dtype = dtype };
        }
        struct zero1_bucket *b = &plan->buckets[open[dtype]];
        plan->bucket_of[i] = (size_t)open[dtype];
        plan->at[i] = b->elements;
        b->elements += rounded_up(params[i].count, NORM_LEAF);
        if (b->elements * ddp_dtype_size(dtype) >= limit)
            open[dtype] = NONE;
    }
}

/* Padding goes to the end of a bucket, where it is cut off nobody's parameter. */
static void lay_out(struct zero1_plan *plan, size_t world)
{
    for (size_t b = 0; b < plan->count; b++) {
        struct zero1_bucket *bucket = &plan->buckets[b];
        bucket->elements = rounded_up(bucket->elements, NORM_LEAF * world);
        bucket->share = bucket->elements / world;
        bucket->at = plan->bytes;
        bucket->shard_at = plan->shard;
        plan->bytes += bucket->elements * ddp_dtype_size(bucket->dtype);
        plan->shard += bucket->share;
        if (bucket->elements > plan->widest)
            plan->widest = bucket->elements;
    }
}

/* As many buckets as parameters are enough. */
ddp_status zero1_plan_make(struct zero1_plan *plan, const ddp_param *params, size_t n, size_t limit,
                           int world, struct ddp_err *err)
{
    *plan = (struct zero1_plan){ 0 };
    if (params == NULL || n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "zero1: no parameters");
    ddp_status status = reducer_check_list("parameter", params, n, err);
    if (status == DDP_OK)
        status = check(params, n, err);
    if (status != DDP_OK)
        return status;
    plan->buckets = calloc(n, sizeof(*plan->buckets));
    plan->bucket_of = calloc(n, sizeof(*plan->bucket_of));
    plan->at = calloc(n, sizeof(*plan->at));
    if (plan->buckets == NULL || plan->bucket_of == NULL || plan->at == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "zero1: no memory for %zu parameters", n);
    assign(plan, params, n, limit);
    lay_out(plan, (size_t)world);
    return DDP_OK;
}

void zero1_plan_free(struct zero1_plan *plan)
{
    free(plan->buckets);
    free(plan->bucket_of);
    free(plan->at);
    *plan = (struct zero1_plan){ 0 };
}

/* Ranks' leaves stand one rank after the other, and those of a rank in the order of its shard. */
size_t zero1_leaf(const struct zero1_plan *plan, size_t b, size_t k)
{
    const struct zero1_bucket *bucket = &plan->buckets[b];
    const size_t per_rank = bucket->share / NORM_LEAF;
    return k / per_rank * (plan->shard / NORM_LEAF) + bucket->shard_at / NORM_LEAF + k % per_rank;
}
