/* buckets.c -- see buckets.h.
 *
 * Three passes: put each parameter into a bucket, turn the order round, lay the buckets out in the arena. With
 * limits of 1 and 25 MiB and one type:
 *
 *     parameter   0: 0.6   1: 0.5   2: 20   3: 6   4: 0.1 MiB
 *     assigned    [ 0, 1 ] closed   [ 2, 3 ] closed  [ 4 ]
 *     reversed    bucket 0 = 4      bucket 1 = 2, 3  bucket 2 = 0, 1
 *     arena       | 4 | 2 | 3 | 0 | 1 |      each parameter at a multiple of BUCKET_ALIGN
 *
 * The small bucket ends up last on purpose: it is what is left to reduce when the backward pass is over, and
 * nothing hides that time. A bucket gets its number when its first parameter opens it, so numbers are sorted by first
 * parameter by themselves. Every rank computes the same plan from the same list; none is ever sent. */
#include "buckets.h"

#include <stdlib.h>

enum { TYPES = DDP_U8 + 1, NONE = -1 };

/* The bucket of a type that is being filled. */
struct open_bucket {
    long number;   /* NONE */
    size_t closed; /* buckets of this type that are full */
};

static size_t bytes_of(const ddp_param *param)
{
    return param->count * ddp_dtype_size(param->dtype);
}

static size_t aligned(size_t bytes)
{
    return (bytes + BUCKET_ALIGN - 1) / BUCKET_ALIGN * BUCKET_ALIGN;
}

/* After this no sum of sizes can overflow, gaps included. */
static ddp_status check(const ddp_param *params, size_t n, struct ddp_err *err)
{
    size_t left = SIZE_MAX / 4;
    for (size_t i = 0; i < n; i++) {
        size_t size = ddp_dtype_size(params[i].dtype);
        if (size == 0)
            return ddp_fail(err, DDP_ERR_ARG, "parameter %zu has dtype %d, which is not one of ddp_dtype", i,
                            (int)params[i].dtype);
        if (params[i].count > left / size || aligned(bytes_of(&params[i])) > left)
            return ddp_fail(err, DDP_ERR_ARG, "parameter %zu has %zu elements, more than memory can hold", i,
                            params[i].count);
        left -= aligned(bytes_of(&params[i]));
    }
    return DDP_OK;
}

/* bucket_of[] gets numbers in order of opening; returns how many buckets there are. Types are filled side by
 * side, as a bucket is reduced in one call and so holds one type; each type's first bucket has the small limit. */
static size_t assign(size_t *bucket_of, struct bucket *buckets, const ddp_param *params, size_t n,
                     const size_t limits[2])
{
    struct open_bucket open[TYPES];
    size_t count = 0;

    for (int t = 0; t < TYPES; t++)
        open[t] = (struct open_bucket){ NONE, 0 };
    for (size_t i = 0; i < n; i++) {
        struct open_bucket *o = &open[params[i].dtype];
        if (o->number == NONE) {
            o->number = (long)count;
            buckets[count++] = (struct bucket){ .dtype = params[i].dtype };
        }
        struct bucket *b = &buckets[o->number];
        bucket_of[i] = (size_t)o->number;
        b->params++;
        b->bytes += bytes_of(&params[i]);
        if (b->bytes >= limits[o->closed > 0]) {
            o->number = NONE;
            o->closed++;
        }
    }
    return count;
}

/* The last parameters' gradients are ready first, so their bucket comes first. */
static void reverse(struct bucket_plan *plan, size_t n)
{
    for (size_t b = 0; b < plan->count / 2; b++) {
        struct bucket other = plan->buckets[b];
        plan->buckets[b] = plan->buckets[plan->count - 1 - b];
        plan->buckets[plan->count - 1 - b] = other;
    }
    for (size_t i = 0; i < n; i++)
        plan->bucket_of[i] = plan->count - 1 - plan->bucket_of[i];
}

/* Bucket after bucket; inside a bucket in the order of the parameters. */
static void lay_out(struct bucket_plan *plan, const ddp_param *params, size_t n)
{
    for (size_t i = 0; i < n; i++) {
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

/* One element more than needed: calloc(0) may be NULL, which would look like a lack of memory. */
ddp_status bucket_plan_make(struct bucket_plan *out, const ddp_param *params, size_t n, size_t first_limit,
                            size_t limit, struct ddp_err *err)
{
    const size_t limits[2] = { first_limit, limit };
    *out = (struct bucket_plan){ 0 };
    ddp_status status = check(params, n, err);
    if (status != DDP_OK)
        return status;
    out->buckets = calloc(n + 1, sizeof(*out->buckets));
    out->bucket_of = calloc(n + 1, sizeof(*out->bucket_of));
    out->at = calloc(n + 1, sizeof(*out->at));
    if (out->buckets == NULL || out->bucket_of == NULL || out->at == NULL) {
        bucket_plan_free(out);
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory to plan %zu parameters", n);
    }
    out->count = assign(out->bucket_of, out->buckets, params, n, limits);
    reverse(out, n);
    lay_out(out, params, n);
    return DDP_OK;
}

void bucket_plan_free(struct bucket_plan *plan)
{
    free(plan->buckets);
    free(plan->bucket_of);
    free(plan->at);
    *plan = (struct bucket_plan){ 0 };
}
