/* zero1.c -- see ddp/zero1.h. The new parameters are gathered in the gradients' memory, which is free after the
 * reduction, so the all-gather needs no other memory. Padding is zero and stays zero. */

/* The memory in a step:
 *
 *     all gradients            | bucket 0: share 0, share 1 ... | bucket 1: ...     shared memory of the host
 *       reduce-scatter, in place: each rank gets the average of its share of a bucket
 *     shard of a rank          | its share of bucket 0 | of bucket 1 ...            float32: grad, master, states
 *       update, as on one flat array
 *     gradients' memory        rounded master -> share of each bucket; all-gather in place; copy to parameters */

#include "ddp/zero1.h"

#include "base/buf.h"
#include "core/context.h"
#include "core/flush_subnormals.h"
#include "core/error.h"
#include "reducer/optim.h"
#include "reducer/verify.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- the plan: the place of each parameter ---------------------------------------------------------------- */

/* A bucket has one share for each rank, and all shares of a bucket have the same size. The shares of a rank in all
 * buckets form one array, which is called the shard of the rank.
 *
 * Parameters and shares begin at multiples of NORM_LEAF elements, so a leaf of the norm never contains elements of two
 * parameters or of two shares. */
struct zero1_bucket {
    ddp_dtype dtype;
    size_t elements; /* padding included */
    size_t share;    /* elements / world */
    size_t at;       /* offset in the gradients' memory, in bytes */
    size_t shard_at; /* offset in the shard, in elements */
};

struct zero1_plan {
    struct zero1_bucket *buckets; /* owned, like the two arrays below */
    size_t count;
    size_t *bucket_of;
    size_t *at;    /* for each parameter: offset in its bucket, in elements */
    size_t bytes;  /* bytes of all buckets */
    size_t shard;  /* elements of one rank's shard */
    size_t widest; /* elements of the largest bucket */
};

enum { NONE = -1, TYPES = DDP_U8 + 1 };

/* Check the type of each parameter, and limit the elements of the model so that sums of sizes cannot overflow. */
static ddp_status check_params(const ddp_param *params, size_t n, struct ddp_err *err)
{
    size_t left = SIZE_MAX / 64;
    for (size_t i = 0; i < n; i++) {
        const ddp_dtype dtype = params[i].dtype;
        if (dtype != DDP_F32 && dtype != DDP_F16 && dtype != DDP_BF16)
            return ddp_fail(err, DDP_ERR_ARG,
                            "zero1: parameter %zu \"%.100s\" is %s: expected f32, f16 or bf16", i,
                            params[i].name, ddp_dtype_name(dtype));
        if (params[i].count > left - NORM_LEAF)
            return ddp_fail(err, DDP_ERR_ARG,
                            "zero1: parameter %zu: %zu elements do not fit into the address space", i,
                            params[i].count);
        left -= round_up(params[i].count, NORM_LEAF);
        if (left <= NORM_LEAF)
            return ddp_fail(err, DDP_ERR_ARG, "zero1: %zu parameters do not fit into the address space", n);
    }
    return DDP_OK;
}

/* Assign each parameter to a bucket. Buckets are numbered in the order of opening. Here `elements` includes the padding
 * after each parameter; lay_out_shares adds the padding at the end of the bucket. */
static void assign_buckets(struct zero1_plan *plan, const ddp_param *params, size_t n, size_t limit)
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
        b->elements += round_up(params[i].count, NORM_LEAF);
        if (b->elements * ddp_dtype_size(dtype) >= limit)
            open[dtype] = NONE;
    }
}

/* Compute shares and offsets. Add padding at the end of each bucket, so that all ranks get shares of equal size. */
static void lay_out_shares(struct zero1_plan *plan, size_t world)
{
    for (size_t b = 0; b < plan->count; b++) {
        struct zero1_bucket *bucket = &plan->buckets[b];
        bucket->elements = round_up(bucket->elements, NORM_LEAF * world);
        bucket->share = bucket->elements / world;
        bucket->at = plan->bytes;
        bucket->shard_at = plan->shard;
        plan->bytes += bucket->elements * ddp_dtype_size(bucket->dtype);
        plan->shard += bucket->share;
        if (bucket->elements > plan->widest)
            plan->widest = bucket->elements;
    }
}

/* Make a plan. There are at most as many buckets as parameters. */
static ddp_status zero1_plan_make(struct zero1_plan *plan, const ddp_param *params, size_t n, size_t limit,
                                  int world, struct ddp_err *err)
{
    *plan = (struct zero1_plan){ 0 };
    if (params == NULL || n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "zero1: no parameters");
    ddp_status status = reducer_check_list("parameter", params, n, err);
    if (status == DDP_OK)
        status = check_params(params, n, err);
    if (status != DDP_OK)
        return status;
    plan->buckets = calloc(n, sizeof(*plan->buckets));
    plan->bucket_of = calloc(n, sizeof(*plan->bucket_of));
    plan->at = calloc(n, sizeof(*plan->at));
    if (plan->buckets == NULL || plan->bucket_of == NULL || plan->at == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "zero1: out of memory for %zu parameters", n);
    assign_buckets(plan, params, n, limit);
    lay_out_shares(plan, (size_t)world);
    return DDP_OK;
}

static void zero1_plan_free(struct zero1_plan *plan)
{
    free(plan->buckets);
    free(plan->bucket_of);
    free(plan->at);
    *plan = (struct zero1_plan){ 0 };
}

/* Return the index of leaf k of bucket b in zero->leaves. Leaves are sorted by rank, then by position in the shard. */
static size_t zero1_leaf(const struct zero1_plan *plan, size_t b, size_t k)
{
    const struct zero1_bucket *bucket = &plan->buckets[b];
    const size_t per_rank = bucket->share / NORM_LEAF;
    return k / per_rank * (plan->shard / NORM_LEAF) + bucket->shard_at / NORM_LEAF + k % per_rank;
}

/* BUCKET_BYTES: the default limit of a bucket, as in PyTorch's reducer. SLOTS: the number of arrays for the master copy
 * and up to two states. ALIGN: bytes of the shared block if no parameter has elements, because an empty block is not
 * allowed. */
enum { BUCKET_BYTES = 25 << 20, SLOTS = 3, ALIGN = 256 };

/* The contents of the gradients' memory. ADDING: gradients of this rank. REDUCED: averages in this rank's shares.
 * STEPPED: the new parameters. */
enum stage { ADDING, REDUCED, STEPPED };

struct ddp_zero1 {
    ddp_group *group;
    ddp_param *params; /* owned; names and data are borrowed */
    size_t n;          /* number of parameters */
    size_t rank, world;
    struct zero1_plan plan;
    ddp_optim optim;
    size_t bucket_bytes;
    unsigned char *no_decay; /* 1 for a parameter without weight decay; NULL if all have weight decay */
    char *grads;             /* all buckets; a block of ddp_shared_alloc */
    float *slot[SLOTS];      /* arrays of the shard: master, then states; NULL if unused */
    int states;              /* number of state arrays that were allocated */
    float *grad;             /* array of the shard: gradients as float32 */
    double *leaves;          /* for each leaf (NORM_LEAF gradients) of each rank: the sum of squares */
    enum stage stage;
};

static ddp_status zero1_fail(const ddp_zero1 *zero, struct ddp_err *err)
{
    return ctx_fail(zero->group->ctx, err);
}

/* Return the address of this rank's share of bucket b. */
static char *my_share(const ddp_zero1 *zero, const struct zero1_bucket *b)
{
    return zero->grads + b->at + zero->rank * b->share * ddp_dtype_size(b->dtype);
}

/* Return the address of parameter i in the buckets: its gradient, or after a step its new value. */
static char *flat_of(const ddp_zero1 *zero, size_t i)
{
    const struct zero1_bucket *b = &zero->plan.buckets[zero->plan.bucket_of[i]];
    return zero->grads + b->at + zero->plan.at[i] * ddp_dtype_size(b->dtype);
}

/* Return how many elements of parameter i are in this rank's share. For the first such element, set *first to the
 * index in the parameter and *shard_at to the index in the shard. */
static size_t overlap(const ddp_zero1 *zero, size_t i, size_t *first, size_t *shard_at)
{
    const struct zero1_bucket *b = &zero->plan.buckets[zero->plan.bucket_of[i]];
    const size_t begin = zero->plan.at[i], end = begin + zero->params[i].count;
    const size_t mine = zero->rank * b->share, mine_end = mine + b->share;
    const size_t from = begin > mine ? begin : mine, to = end < mine_end ? end : mine_end;
    if (from >= to)
        return 0;
    *first = from - begin;
    *shard_at = b->shard_at + from - mine;
    return to - from;
}

/* --- create and free ------------------------------------------------------------------------------------ */

/* Free the optimizer, but not its shared block. */
static void zero1_release(ddp_zero1 *zero)
{
    zero1_plan_free(&zero->plan);
    for (int s = 0; s < SLOTS; s++)
        free(zero->slot[s]);
    free(zero->grad);
    free(zero->leaves);
    free(zero->no_decay);
    free(zero->params);
    free(zero);
}

/* Read the options. `size` is the size of the struct in the caller's header. With an older header the newer options
 * get their defaults. */
static ddp_status read_zero1_options(const ddp_zero1_options *given, ddp_zero1_options *out,
                                     struct ddp_err *err)
{
    *out = (ddp_zero1_options)DDP_ZERO1_OPTIONS_INIT;
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(*out)))
        return ddp_fail(err, DDP_ERR_ARG,
                        "ddp_zero1_options.size=%zu: initialize the struct with DDP_ZERO1_OPTIONS_INIT",
                        given->size);
    if (given != NULL)
        memcpy(out, given, given->size);
    if (out->bucket_bytes == 0)
        out->bucket_bytes = BUCKET_BYTES;
    return ddp_optim_check(&out->optim, err);
}

/* Allocate all memory now, because a step must not fail for lack of memory on only one rank. Use calloc, because
 * padding must be zero. */
static ddp_status zero1_allocate(ddp_zero1 *zero, const ddp_param *params, const unsigned char *no_decay,
                                 struct ddp_err *err)
{
    const size_t shard = zero->plan.shard > 0 ? zero->plan.shard : 1;
    bool ok = (zero->params = calloc(zero->n, sizeof(*params))) != NULL;
    ok = ok && (zero->grad = calloc(shard, sizeof(float))) != NULL;
    ok = ok && (zero->leaves = calloc(zero->world, (shard / NORM_LEAF + 1) * sizeof(double))) != NULL;
    zero->states = ddp_optim_states(&zero->optim);
    for (int s = 0; s <= zero->states; s++)
        ok = ok && (zero->slot[s] = calloc(shard, sizeof(float))) != NULL;
    ok = ok && (no_decay == NULL || (zero->no_decay = malloc(zero->n + 1)) != NULL);
    if (!ok)
        return ddp_fail(err, DDP_ERR_NOMEM, "zero1: out of memory for a shard of %zu elements", shard);
    memcpy(zero->params, params, zero->n * sizeof(*params));
    if (no_decay != NULL)
        memcpy(zero->no_decay, no_decay, zero->n);
    return DDP_OK;
}

/* Reject a group with a device. The shared blocks of such a group are in device memory, where the CPU cannot
 * compute. */
static ddp_status check_place(const ddp_zero1 *zero, struct ddp_err *err)
{
    if (zero->group->comm->ops->copy == NULL)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_UNSUPPORTED,
                    "zero1: parameters must be in host memory, but this group uses GPU %d; create the "
                    "context without a GPU (ddp_options.device = DDP_DEVICE_NONE)",
                    ddp_device(zero->group->ctx));
}

/* Do the part of ddp_zero1_create that needs no other rank. */
static ddp_status zero1_build(ddp_zero1 *zero, const ddp_param *params, size_t n,
                              const ddp_zero1_options *given, struct ddp_err *err)
{
    ddp_zero1_options options;
    ddp_status status = check_place(zero, err);
    if (status == DDP_OK)
        status = read_zero1_options(given, &options, err);
    if (status != DDP_OK)
        return status;
    zero->optim = options.optim;
    zero->bucket_bytes = options.bucket_bytes;
    zero->n = n;
    status = zero1_plan_make(&zero->plan, params, n, options.bucket_bytes, (int)zero->world, err);
    return status == DDP_OK ? zero1_allocate(zero, params, options.no_decay, err) : status;
}

/* Initialize the float32 master copy of this rank's shard from the parameters. */
static void copy_masters(ddp_zero1 *zero)
{
    size_t first, at;
    for (size_t i = 0; i < zero->n; i++) {
        const ddp_param *p = &zero->params[i];
        const size_t n = overlap(zero, i, &first, &at);
        if (n > 0)
            ddp_widen_f32((const char *)p->data + first * ddp_dtype_size(p->dtype), p->dtype,
                          zero->slot[0] + at, n, NULL);
    }
}

/* Do the collective part of ddp_zero1_create: compare the models and the optimizers, send rank 0's parameters, and
 * allocate the gradients. Compare bucket sizes too, because they determine the sizes of the collectives. */
static ddp_status zero1_unite(ddp_zero1 *zero)
{
    void *block = NULL;
    ddp_reducer_options same = DDP_REDUCER_OPTIONS_INIT;
    same.bucket_cap_bytes = zero->bucket_bytes;
    const struct model model = { { zero->params, NULL }, { zero->n, 0 }, &same };
    ddp_status status = reducer_verify(zero->group, &model);
    if (status == DDP_OK)
        status = zero1_same_optim(zero->group, &zero->optim);
    if (status == DDP_OK)
        status = zero1_same_decay(zero->group, zero->no_decay, zero->params, zero->n);
    for (size_t i = 0; i < zero->n && status == DDP_OK; i++)
        status = ddp_broadcast(zero->group, zero->params[i].data, zero->params[i].count,
                               zero->params[i].dtype, 0, NULL, NULL);
    if (status == DDP_OK)
        status = ddp_shared_alloc(zero->group, zero->plan.bytes > 0 ? zero->plan.bytes : ALIGN, &block);
    zero->grads = block;
    if (status == DDP_OK)
        copy_masters(zero);
    return status;
}

/* Create the optimizer. Report mistakes of this rank before any collective. */
ddp_status ddp_zero1_create(ddp_group *group, const ddp_param *params, size_t n,
                            const ddp_zero1_options *options, ddp_zero1 **out)
{
    NOT_NULL(group, NULL);
    NOT_NULL(out, NULL);
    struct ddp_err err = { 0 };
    ddp_zero1 *zero = calloc(1, sizeof(*zero));
    *out = NULL;
    if (zero == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: out of memory");
        return ctx_fail(group->ctx, &err);
    }
    zero->group = group;
    zero->rank = (size_t)ddp_rank(group->ctx);
    zero->world = (size_t)ddp_world_size(group->ctx);
    ddp_status status = zero1_build(zero, params, n, options, &err);
    status = status != DDP_OK ? zero1_fail(zero, &err) : zero1_unite(zero);
    if (status != DDP_OK) {
        zero1_release(zero);
        return status;
    }
    *out = zero;
    return DDP_OK;
}

/* Free the optimizer; collective, because freeing shared memory is collective. */
ddp_status ddp_zero1_free(ddp_zero1 *zero)
{
    if (zero == NULL)
        return DDP_OK;
    ddp_status status = ddp_shared_free(zero->group, zero->grads);
    zero1_release(zero);
    return status;
}

/* --- a step --------------------------------------------------------------------------------------------- */

void *ddp_zero1_grad(ddp_zero1 *zero, size_t i)
{
    return i < zero->n ? flat_of(zero, i) : NULL;
}

ddp_optim *ddp_zero1_optim(ddp_zero1 *zero)
{
    return &zero->optim;
}

/* Set all gradients to zero, and begin a step. A step in progress is abandoned. */
void ddp_zero1_zero_grad(ddp_zero1 *zero)
{
    memset(zero->grads, 0, zero->plan.bytes);
    zero->stage = ADDING;
}

/* Check that the step is at `stage`. Otherwise report what the program must call first. */
static ddp_status expect_stage(const ddp_zero1 *zero, enum stage stage, const char *call)
{
    static const char *const is[] = {
        [ADDING] = "the gradients of this step have not been reduced; call ddp_zero1_reduce first",
        [REDUCED] =
            "the gradients have already been reduced; call ddp_zero1_step and ddp_zero1_zero_grad first",
        [STEPPED] = "this step is done; call ddp_zero1_zero_grad to begin the next step",
    };
    struct ddp_err err;
    if (zero->stage == stage)
        return DDP_OK;
    ddp_fail(&err, DDP_ERR_ARG, "%s: %s", call, is[zero->stage]);
    return zero1_fail(zero, &err);
}

/* Average the gradients; collective. DDP_AVG sums and divides in float32 and rounds once. */
ddp_status ddp_zero1_reduce(ddp_zero1 *zero)
{
    NOT_NULL(zero, NULL);
    ddp_status status = expect_stage(zero, ADDING, "ddp_zero1_reduce");
    for (size_t k = 0; k < zero->plan.count && status == DDP_OK; k++) {
        const struct zero1_bucket *b = &zero->plan.buckets[k];
        status = ddp_reduce_scatter(zero->group, zero->grads + b->at, my_share(zero, b), b->share, b->dtype,
                                    DDP_AVG, NULL, NULL);
        if (status == DDP_OK)
            ddp_widen_f32(my_share(zero, b), b->dtype, zero->grad + b->shard_at, b->share, NULL);
    }
    if (status == DDP_OK)
        zero->stage = REDUCED;
    return status;
}

/* Divide the gradients by the scale; collective. Each rank checks its own share for infinite values, and then all
 * ranks exchange the result. Before the division, this function calls ddp_scaler_unscaled on a copy of the scaler.
 * If the scaler is in the wrong stage, that call fails before the gradients change. */
ddp_status ddp_zero1_unscale(ddp_zero1 *zero, ddp_scaler *scaler)
{
    NOT_NULL(zero, NULL);
    NOT_NULL(scaler, NULL);
    FLUSH_SUBNORMALS(true);
    struct ddp_err err;
    ddp_scaler trial = *scaler;
    ddp_status status = expect_stage(zero, REDUCED, "ddp_zero1_unscale");
    if (status == DDP_OK && ddp_scaler_unscaled(&trial, 0, &err) != DDP_OK)
        status = zero1_fail(zero, &err);
    if (status != DDP_OK)
        return status;
    int32_t found = ddp_unscale(zero->grad, DDP_F32, scaler->scale, zero->grad, zero->plan.shard);
    status = ddp_all_reduce(zero->group, &found, &found, 1, DDP_I32, DDP_MAX, NULL, NULL);
    if (status == DDP_OK && ddp_scaler_unscaled(scaler, found, &err) != DDP_OK)
        status = zero1_fail(zero, &err);
    return status;
}

/* Return the norm of the gradients. `leaves` has sums of squares (optim.h). Add the sums in the order of ddp_grad_norm:
 * parameter after parameter, without padding. */
static double norm_of(const ddp_zero1 *zero, const double *leaves)
{
    struct norm_tree tree = { .leaves = 0 };
    for (size_t i = 0; i < zero->n; i++) {
        const size_t b = zero->plan.bucket_of[i], first = zero->plan.at[i] / NORM_LEAF;
        const size_t n = (zero->params[i].count + NORM_LEAF - 1) / NORM_LEAF;
        for (size_t k = 0; k < n; k++)
            norm_push(&tree, leaves[zero1_leaf(&zero->plan, b, first + k)]);
    }
    return sqrt(norm_root(&tree));
}

/* Clip the gradients; collective. Ranks exchange all leaves of the tree of sums (norm_leaf), so that every rank
 * computes the same norm. */
ddp_status ddp_zero1_clip(ddp_zero1 *zero, double max_norm, double *norm)
{
    NOT_NULL(zero, NULL);
    FLUSH_SUBNORMALS(true);
    const size_t mine = zero->plan.shard / NORM_LEAF;
    double *leaves = zero->leaves;
    ddp_status status = expect_stage(zero, REDUCED, "ddp_zero1_clip");
    if (status != DDP_OK)
        return status;
    for (size_t k = 0; k < mine; k++)
        leaves[zero->rank * mine + k] = norm_leaf(zero->grad + k * NORM_LEAF, NORM_LEAF);
    status = ddp_all_gather(zero->group, leaves + zero->rank * mine, leaves, mine, DDP_F64, NULL, NULL);
    if (status != DDP_OK)
        return status;
    double total = norm_of(zero, leaves);
    norm_multiply(zero->grad, norm_clip_factor(total, max_norm), zero->plan.shard);
    if (norm != NULL)
        *norm = total;
    return DDP_OK;
}

/* Round the master copies and gather them as the new parameters; collective. Round before sending, because 16-bit
 * values have only half the bytes of float32. */
static ddp_status gather_params(ddp_zero1 *zero)
{
    ddp_status status = DDP_OK;
    for (size_t k = 0; k < zero->plan.count && status == DDP_OK; k++) {
        const struct zero1_bucket *b = &zero->plan.buckets[k];
        ddp_round_f32(zero->slot[0] + b->shard_at, my_share(zero, b), b->dtype, b->share, NULL);
        status = ddp_all_gather(zero->group, my_share(zero, b), zero->grads + b->at, b->share, b->dtype, NULL,
                                NULL);
    }
    for (size_t i = 0; i < zero->n && status == DDP_OK; i++) {
        const ddp_param *p = &zero->params[i];
        if (p->count > 0)
            memcpy(p->data, flat_of(zero, i), p->count * ddp_dtype_size(p->dtype));
    }
    return status;
}

/* Check that there are enough state arrays. The program may have changed the optimizer since ddp_zero1_create, for
 * example from a momentum of 0 to 0.9. */
static ddp_status check_states(const ddp_zero1 *zero)
{
    struct ddp_err err;
    const int needs = ddp_optim_states(&zero->optim);
    if (needs <= zero->states)
        return DDP_OK;
    ddp_fail(
        &err, DDP_ERR_ARG,
        "ddp_zero1_step: the optimizer was changed after ddp_zero1_create and now needs %d state arrays, "
        "but only %d are allocated; pass the new rule and momentum to ddp_zero1_create",
        needs, zero->states);
    return zero1_fail(zero, &err);
}

/* Update the shard as one array. If no_decay is set, update parameter by parameter, because some parameters have
 * no weight decay. */
static void update_shard(ddp_zero1 *zero)
{
    ddp_optim without = zero->optim;
    size_t first, at;
    without.weight_decay = 0;
    if (zero->no_decay == NULL) {
        ddp_optim_update(&zero->optim, zero->slot[0], zero->grad, zero->slot[1], zero->slot[2],
                         zero->plan.shard);
        return;
    }
    for (size_t i = 0; i < zero->n; i++) {
        const size_t n = overlap(zero, i, &first, &at);
        float *s0 = zero->slot[1] != NULL ? zero->slot[1] + at : NULL;
        float *s1 = zero->slot[2] != NULL ? zero->slot[2] + at : NULL;
        if (n > 0)
            ddp_optim_update(zero->no_decay[i] ? &without : &zero->optim, zero->slot[0] + at, zero->grad + at,
                             s0, s1, n);
    }
}

ddp_status ddp_zero1_step(ddp_zero1 *zero)
{
    NOT_NULL(zero, NULL);
    ddp_status status = expect_stage(zero, REDUCED, "ddp_zero1_step");
    if (status == DDP_OK)
        status = check_states(zero);
    if (status != DDP_OK)
        return status;
    zero->stage = STEPPED;
    ddp_optim_begin(&zero->optim);
    update_shard(zero);
    return gather_params(zero);
}

/* --- checkpoints ---------------------------------------------------------------------------------------- */

/* Check the number of a slot. Slot 0 is the master copy; slots 1 and 2 are the states of the optimizer. */
static ddp_status check_slot(const ddp_zero1 *zero, int slot)
{
    struct ddp_err err;
    if (slot >= 0 && slot < SLOTS && zero->slot[slot] != NULL)
        return DDP_OK;
    ddp_fail(&err, DDP_ERR_ARG, "zero1: slot=%d: expected a number from 0 to %d", slot, zero->states);
    return zero1_fail(zero, &err);
}

/* Export one bucket. Exporting buckets one by one needs no memory for a whole model. */
static ddp_status export_bucket(ddp_zero1 *zero, size_t k, const float *shard, float *room,
                                float *const out[])
{
    const struct zero1_bucket *b = &zero->plan.buckets[k];
    ddp_status status = ddp_all_gather(zero->group, shard + b->shard_at, room, b->share, DDP_F32, NULL, NULL);
    for (size_t i = 0; i < zero->n && status == DDP_OK && out != NULL; i++) {
        if (zero->plan.bucket_of[i] == k && zero->params[i].count > 0)
            memcpy(out[i], room + zero->plan.at[i], zero->params[i].count * sizeof(float));
    }
    return status;
}

/* Export a slot; collective, because every rank has a share of the slot. */
ddp_status ddp_zero1_export(ddp_zero1 *zero, int slot, float *const out[])
{
    NOT_NULL(zero, NULL);
    ddp_status status = check_slot(zero, slot);
    if (status != DDP_OK)
        return status;
    float *room = malloc((zero->plan.widest + 1) * sizeof(*room));
    if (room == NULL) {
        struct ddp_err err;
        ddp_fail(&err, DDP_ERR_NOMEM, "zero1: out of memory for a bucket of %zu elements", zero->plan.widest);
        return zero1_fail(zero, &err);
    }
    for (size_t k = 0; k < zero->plan.count && status == DDP_OK; k++)
        status = export_bucket(zero, k, zero->slot[slot], room, out);
    free(room);
    return status;
}

/* Import a slot; not collective. `in` has whole arrays, of which each rank copies its share. */
ddp_status ddp_zero1_import(ddp_zero1 *zero, int slot, const float *const in[])
{
    NOT_NULL(zero, NULL);
    NOT_NULL(in, NULL);
    size_t first, at;
    ddp_status status = check_slot(zero, slot);
    for (size_t i = 0; i < zero->n && status == DDP_OK; i++) {
        const size_t n = overlap(zero, i, &first, &at);
        if (n > 0)
            memcpy(zero->slot[slot] + at, in[i] + first, n * sizeof(float));
    }
    return status;
}
