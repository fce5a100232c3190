/* ZeRO-1 with real processes: the result has the same bits as if every rank updated all parameters, for each rule,
 * world size and type. The ranks are real processes, because they exchange parts of the parameters. */
#include "core/half.h"
#include "ddp/zero1.h"
#include "ranks.h"
#include "train/sharded_update.h"
#include "train/train_options.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 5, MOST = 1000, STEPS = 4 };

/* Some sizes do not divide evenly among the ranks. One parameter has a single element, and one has no elements. */
static const size_t counts[PARAMS] = { 1000, 7, 1, 0, 513 };
static const char *const names[PARAMS] = { "fc1.weight", "fc1.bias", "scale", "empty", "fc2.weight" };

/* The same model twice: `zero` is updated with ZeRO, and `whole` is updated on every rank. */
struct twins {
    float zero[PARAMS][MOST], whole[PARAMS][MOST], grad[PARAMS][MOST], s0[PARAMS][MOST], s1[PARAMS][MOST];
};

static float gradient(int rank, int step, size_t p, size_t i)
{
    return sinf((float)(i * 31 + p * 7 + (size_t)step * 3 + (size_t)rank)) * (p == 1 ? 1e-4f : 2.0f);
}

static void begin(struct twins *t, ddp_param params[PARAMS], int rank)
{
    for (size_t p = 0; p < PARAMS; p++) {
        params[p] = (ddp_param){ .name = names[p], .data = t->zero[p], .count = counts[p] };
        for (size_t i = 0; i < counts[p]; i++) {
            t->whole[p][i] = cosf((float)(i + p));
            t->zero[p][i] = rank == 0 ? t->whole[p][i] : -1;
        }
    }
}

/* Update without ZeRO: average all gradients, clip, and update all parameters. Return the norm. */
static double update_whole(struct rank *me, ddp_ctx *ctx, ddp_optim *optim, struct twins *t, double max_norm)
{
    float *grads[PARAMS];
    for (size_t p = 0; p < PARAMS; p++) {
        grads[p] = t->grad[p];
        rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), t->grad[p], t->grad[p], counts[p], DDP_F32, DDP_AVG,
                                          NULL, NULL));
    }
    double norm = ddp_clip_grad_norm(grads, counts, PARAMS, max_norm);
    ddp_optim_begin(optim);
    for (size_t p = 0; p < PARAMS; p++)
        ddp_optim_update(optim, t->whole[p], t->grad[p], t->s0[p], t->s1[p], counts[p]);
    return norm;
}

static void write_gradients(ddp_zero1 *zero, struct twins *t, int rank, int step)
{
    for (size_t p = 0; p < PARAMS; p++) {
        float *flat = ddp_zero1_grad(zero, p);
        for (size_t i = 0; i < counts[p]; i++) {
            t->grad[p][i] = gradient(rank, step, p, i);
            flat[i] += t->grad[p][i];
        }
    }
}

static void train_twins(struct rank *me, ddp_ctx *ctx, const ddp_optim *optim, size_t bucket_bytes)
{
    struct twins *t = calloc(1, sizeof(*t));
    ddp_param params[PARAMS];
    ddp_zero1 *zero;
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    options.optim = *optim;
    options.bucket_bytes = bucket_bytes;
    ddp_optim whole = *optim;
    begin(t, params, me->rank);
    rank_expect_ok(me, ddp_zero1_create(ddp_world(ctx), params, PARAMS, &options, &zero));
    for (int step = 0; step < STEPS; step++) {
        double norm;
        write_gradients(zero, t, me->rank, step);
        rank_expect_ok(me, ddp_zero1_reduce(zero));
        rank_expect_ok(me, ddp_zero1_clip(zero, 1.5, &norm));
        rank_expect_ok(me, ddp_zero1_step(zero));
        ddp_zero1_zero_grad(zero);
        double must = update_whole(me, ctx, &whole, t, 1.5);
        rank_expect(me, norm == must, "%s step %d: norm %a, whole %a", ddp_rule_name(optim->rule), step, norm,
                    must);
        rank_expect(me, memcmp(t->zero, t->whole, sizeof(t->zero)) == 0, "%s step %d: other bits",
                    ddp_rule_name(optim->rule), step);
    }
    rank_expect_ok(me, ddp_zero1_free(zero));
    free(t);
}

static void all_rules(struct rank *me)
{
    const ddp_optim optims[] = {
        DDP_SGD_INIT,
        { .rule = DDP_SGD, .lr = 0.1, .momentum = 0.9, .nesterov = 1, .weight_decay = 1e-2 },
        { .rule = DDP_ADAM, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1 },
        DDP_ADAMW_INIT
    };
    ddp_ctx *ctx = rank_init(me, NULL);
    for (size_t i = 0; i < sizeof(optims) / sizeof(optims[0]); i++)
        train_twins(me, ctx, &optims[i], i % 2 == 0 ? 0 : 2048);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, has_the_bits_of_a_whole_update_for_each_rule_and_world)
{
    for (int world = 1; world <= 4; world++) {
        ranks_all_well(world, all_rules, RANKS_PLAIN_STORE, NULL);
    }
}

enum { HALVES = 300 };

static uint16_t half_param[HALVES];

static ddp_zero1 *make_half(struct rank *me, ddp_ctx *ctx, double momentum)
{
    const ddp_param param = { .name = "half", .data = half_param, .count = HALVES, .dtype = DDP_F16 };
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    ddp_zero1 *zero;
    options.optim = (ddp_optim){ .rule = DDP_SGD, .lr = 0x1p-6, .momentum = momentum };
    for (int i = 0; i < HALVES; i++)
        half_param[i] = f32_to_f16((float)i / 64);
    rank_expect_ok(me, ddp_zero1_create(ddp_world(ctx), &param, 1, &options, &zero));
    return zero;
}

/* Make one step in which every gradient is `value` times the scale. Return 0 if the scaler skips the step, else 1. */
static int half_step(struct rank *me, ddp_zero1 *zero, ddp_scaler *scaler, float value, int bad_rank)
{
    struct ddp_err err;
    int go;
    uint16_t *grad = ddp_zero1_grad(zero, 0);
    for (int i = 0; i < HALVES; i++)
        grad[i] = f32_to_f16(value * scaler->scale);
    if (me->rank == bad_rank)
        grad[HALVES - 1] = 0x7c00;
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect_ok(me, ddp_zero1_unscale(zero, scaler));
    rank_expect(me, ddp_scaler_step(scaler, &go, &err) == DDP_OK, "%s", err.msg);
    if (go)
        rank_expect_ok(me, ddp_zero1_step(zero));
    ddp_zero1_zero_grad(zero);
    rank_expect(me, ddp_scaler_update(scaler, &err) == DDP_OK, "%s", err.msg);
    return go;
}

/* Change a parameter of about 4 by updates of 2^-12. An f16 would lose each update, but the f32 master copy adds them
 * up. An infinity on one rank stops the step on all ranks. */
static void half_rank(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1 *zero = make_half(me, ctx, 0);
    ddp_scaler scaler = DDP_SCALER_INIT;
    scaler.scale = 1024;
    for (int step = 0; step < 16; step++)
        rank_expect(me, half_step(me, zero, &scaler, -0x1p-6f, -1) == 1, "step %d was left out", step);
    float is = f16_to_f32(half_param[256]);
    rank_expect(me, is == 4 + 0x1p-8f, "16 small steps from 4 lead to %.9g", (double)is);
    rank_expect(me, half_step(me, zero, &scaler, 1, me->world - 1) == 0, "a step with an infinity was made");
    rank_expect(me, scaler.scale == 512 && f16_to_f32(half_param[256]) == is, "scale %g",
                (double)scaler.scale);
    rank_expect_ok(me, ddp_zero1_free(zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, f16_has_a_master_copy_and_an_infinity_on_one_rank_stops_all)
{
    ranks_all_well(3, half_rank, RANKS_PLAIN_STORE, NULL);
}

/* Export the arrays of an optimizer and compute their hash, which must be the same for every world size. Import the
 * arrays into a second optimizer. The next step of both optimizers must give the same bits. */
static void export_rank(struct rank *me)
{
    static float master[HALVES], momentum[HALVES];
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1 *zero = make_half(me, ctx, 0.5), *other;
    ddp_scaler scaler = DDP_SCALER_INIT;
    float *outs[2] = { master, momentum };
    for (int step = 0; step < 3; step++)
        half_step(me, zero, &scaler, -0.5f, -1);
    for (int slot = 0; slot < 2; slot++)
        rank_expect_ok(me, ddp_zero1_export(zero, slot, me->rank == 0 ? &outs[slot] : NULL));
    rank_keep(me, ddp_zero1_export(zero, 2, NULL));
    for (int slot = 0; slot < 2; slot++) {
        rank_expect_ok(me, ddp_broadcast(ddp_world(ctx), outs[slot], HALVES, DDP_F32, 0, NULL, NULL));
        for (int i = 0; i < HALVES; i++)
            me->value = me->value * 31 + half_bits(outs[slot][i]);
    }
    other = make_half(me, ctx, 0.5);
    for (int slot = 0; slot < 2; slot++)
        rank_expect_ok(me, ddp_zero1_import(other, slot, (const float *const *)&outs[slot]));
    ddp_zero1_optim(other)->step = ddp_zero1_optim(zero)->step;
    uint16_t expected[HALVES];
    half_step(me, zero, &scaler, 0.25f, -1);
    memcpy(expected, half_param, sizeof(expected));
    half_step(me, other, &scaler, 0.25f, -1);
    rank_expect(me, memcmp(expected, half_param, sizeof(expected)) == 0, "goes on otherwise");
    rank_expect_ok(me, ddp_zero1_free(zero));
    rank_expect_ok(me, ddp_zero1_free(other));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, what_is_exported_depends_on_no_world_size_and_can_be_imported)
{
    static const char *const parts[] = { "slot=2: expected", NULL };
    uint64_t first = 0;
    for (int world = 1; world <= 3; world++) {
        struct ranks ranks = ranks_run(world, export_rank, RANKS_PLAIN_STORE, NULL);
        ranks_expect_ok(&ranks);
        ranks_expect_error(&ranks, 0, DDP_ERR_ARG, parts);
        first = world == 1 ? ranks.rank[0].value : first;
        for (int r = 0; r < world; r++)
            cr_expect_eq(ranks.rank[r].value, first, "world %d rank %d", world, r);
        ranks_free(&ranks);
    }
}

static void wrong_order(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1 *zero = make_half(me, ctx, 0);
    rank_expect(
        me, ddp_zero1_step(zero) == DDP_ERR_ARG && strstr(ddp_last_error(), "call ddp_zero1_reduce first"),
        "%s", ddp_last_error());
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect(me, ddp_zero1_reduce(zero) == DDP_ERR_ARG && strstr(ddp_last_error(), "been reduced"), "%s",
                ddp_last_error());
    rank_expect_ok(me, ddp_zero1_step(zero));
    rank_expect(me,
                ddp_zero1_reduce(zero) == DDP_ERR_ARG && strstr(ddp_last_error(), "call ddp_zero1_zero_grad"),
                "%s", ddp_last_error());
    rank_expect(me,
                ddp_zero1_step(zero) == DDP_ERR_ARG && strstr(ddp_last_error(), "call ddp_zero1_zero_grad"),
                "%s", ddp_last_error());
    ddp_zero1_zero_grad(zero);
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect(me, ddp_zero1_grad(zero, 1) == NULL, "a gradient of nothing");
    rank_expect_ok(me, ddp_zero1_free(zero));
    rank_expect_ok(me, ddp_zero1_free(NULL));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, calls_in_the_wrong_order_say_which_comes_first)
{
    ranks_all_well(2, wrong_order, RANKS_PLAIN_STORE, NULL);
}

/* Unscale twice, which must fail. Otherwise the gradients would be divided twice, and would be too small. */
static void unscaled_twice(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1 *zero = make_half(me, ctx, 0);
    ddp_scaler scaler = DDP_SCALER_INIT;
    double norm;
    ((uint16_t *)ddp_zero1_grad(zero, 0))[0] = f32_to_f16(1024);
    scaler.scale = 1024;
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect_ok(me, ddp_zero1_unscale(zero, &scaler));
    rank_expect(me,
                ddp_zero1_unscale(zero, &scaler) == DDP_ERR_ARG && strstr(ddp_last_error(), "been unscaled"),
                "%s", ddp_last_error());
    rank_expect_ok(me, ddp_zero1_clip(zero, 1e9, &norm));
    rank_expect(me, norm == 1, "norm %g", norm);
    rank_expect_ok(me, ddp_zero1_free(zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, gradients_are_not_unscaled_twice)
{
    ranks_all_well(2, unscaled_twice, RANKS_PLAIN_STORE, NULL);
}

static void late_momentum(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1 *zero = make_half(me, ctx, 0);
    ddp_zero1_optim(zero)->momentum = 0.9;
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect(me, ddp_zero1_step(zero) == DDP_ERR_ARG && strstr(ddp_last_error(), " only 0 "), "%s",
                ddp_last_error());
    ddp_zero1_optim(zero)->momentum = 0;
    rank_expect_ok(me, ddp_zero1_step(zero));
    rank_expect_ok(me, ddp_zero1_free(zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, a_momentum_that_comes_later_has_no_array)
{
    ranks_all_well(2, late_momentum, RANKS_PLAIN_STORE, NULL);
}

/* Use a different momentum on each rank, which must not fail, because AdamW has no momentum. Then use a different
 * learning rate on rank 2, which must fail. */
static void other_rate(struct rank *me)
{
    static float x[3];
    const ddp_param param = { .name = "x", .data = x, .count = 3 };
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    ddp_zero1 *zero;
    options.optim.momentum = me->rank;
    rank_expect_ok(me, ddp_zero1_create(ddp_world(ctx), &param, 1, &options, &zero));
    rank_expect_ok(me, ddp_zero1_free(zero));
    options.optim.lr = me->rank == 2 ? 0.25 : 0.5;
    rank_keep(me, ddp_zero1_create(ddp_world(ctx), &param, 1, &options, &zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, another_rate_on_one_rank_is_named_on_all)
{
    static const char *const parts[] = { "lr |rank 0 has 0.5, |2 has 0.25", NULL };
    struct ranks ranks = ranks_run(3, other_rate, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&ranks);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&ranks, r, DDP_ERR_MISMATCH, parts);
    ranks_free(&ranks);
}

/* Pass flags that are all 0 on rank 0, and NULL on rank 1. This call must not fail, because both arguments mean the
 * same. Then use different flags on rank 1, which must fail. */
static void other_decay(struct rank *me)
{
    static float x[2][3];
    const ddp_param params[] = { { .name = "x", .data = x[0], .count = 3 },
                                 { .name = "y", .data = x[1], .count = 3 } };
    const unsigned char none[] = { 0, 0 }, second[] = { 0, 1 };
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    ddp_zero1 *zero;
    options.no_decay = me->rank == 0 ? none : NULL;
    rank_expect_ok(me, ddp_zero1_create(ddp_world(ctx), params, 2, &options, &zero));
    rank_expect_ok(me, ddp_zero1_free(zero));
    options.no_decay = me->rank == 1 ? second : NULL;
    rank_keep(me, ddp_zero1_create(ddp_world(ctx), params, 2, &options, &zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(zero1, what_decays_on_one_rank_only_is_named_on_all)
{
    static const char *const parts[] = { "no_decay of parameter 1 \"y\"|rank 0 has 0, |1 has 1", NULL };
    struct ranks ranks = ranks_run(2, other_decay, RANKS_PLAIN_STORE, NULL);
    ranks_expect_ok(&ranks);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&ranks, r, DDP_ERR_MISMATCH, parts);
    ranks_free(&ranks);
}

static void refuse(struct rank *me, ddp_ctx *ctx, const ddp_param *param, size_t n, double lr,
                   const char *says)
{
    ddp_zero1 *zero;
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    options.optim.lr = lr;
    ddp_status status = ddp_zero1_create(ddp_world(ctx), param, n, &options, &zero);
    rank_expect(me, status == DDP_ERR_ARG && zero == NULL && strstr(ddp_last_error(), says), "%s: %s",
                ddp_status_name(status), ddp_last_error());
}

static void wrong_parameters(struct rank *me)
{
    static double d[1];
    ddp_ctx *ctx = rank_init(me, NULL);
    const ddp_param f64 = { .name = "d", .data = d, .count = 1, .dtype = DDP_F64 },
                    huge = { .name = "h", .data = d, .count = SIZE_MAX / 2 },
                    no_data = { .name = "x", .count = 1 }, good = { .name = "g", .data = d, .count = 1 };
    refuse(me, ctx, &f64, 1, 1e-3, "\"d\" is f64");
    refuse(me, ctx, &huge, 1, 1e-3, "address space");
    refuse(me, ctx, &no_data, 1, 1e-3, "no data");
    refuse(me, ctx, &good, 0, 1e-3, "no parameters");
    refuse(me, ctx, &good, 1, -1, "lr=-1");
    rank_expect_ok(me, ddp_finalize(ctx));
}

static void with_device(struct rank *me)
{
    static float x[1];
    const ddp_param param = { .name = "x", .data = x, .count = 1 };
    ddp_zero1 *zero;
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    rank_keep(me, ddp_zero1_create(ddp_world(ctx), &param, 1, NULL, &zero));
    rank_expect_ok(me, ddp_finalize(ctx));
}

/* Creating the optimizer in a group with a device must fail. In such a group the blocks are in device memory, and the
 * CPU cannot write to this memory. */
Test(zero1, a_group_with_a_device_is_refused)
{
    struct ranks run = ranks_run(2, with_device, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 2; r++)
        ranks_expect_error(&run, r, DDP_ERR_UNSUPPORTED,
                           (const char *const[]){ "zero1: ", "DDP_DEVICE_NONE", NULL });
    ranks_free(&run);
}

Test(zero1, unusable_parameters_are_named)
{
    ranks_all_well(1, wrong_parameters, RANKS_PLAIN_STORE, NULL);
}

/* Tests of worker/train/sharded_update.h with real ranks on the fake GPU. Sums, norms, updates and checkpoints have the
 * same bits for any number of ranks, through NCCL and through the host. The eight parts of a gradient are added as a
 * tree, by one rank or by eight ranks. */

enum { PARTS = 8, SHARDED_PARAMS = 6, SHARDED_STEPS = 2, ALL = 303049 };

/* Some of these parameters end in the middle of a bucket, and some span several buckets. One parameter is tiny, and one
 * parameter is empty. */
static const size_t sharded_counts[SHARDED_PARAMS] = { 20000, 33000, 0, 49, 200000, 50000 };
static const size_t order[SHARDED_PARAMS] = { 5, 4, 3, 1, 2, 0 };

struct how {
    int precision;
    bool staged;
};

struct job {
    struct rank *me;
    const struct how *how;
    ddp_ctx *ctx;
    struct compute *gpu;
    struct model_tensor each[SHARDED_PARAMS];
    struct model_tensors params;
    struct sharded_update *sharded;
    float *room[PARTS / 2 + 1]; /* arrays in host memory, each of `ALL` elements */
    float *flat;
};

static void check(struct job *j, ddp_status status, const struct ddp_err *err)
{
    rank_expect(j->me, status == DDP_OK, "%s", err->msg);
}

static float part_of_gradient(int step, size_t part, size_t i)
{
    return sinf((float)(i % 4099) * 0.37f + (float)part * 1.7f + (float)step) * (part == 3 ? 1e-5f : 1);
}

static void open_job(struct job *j, struct rank *me)
{
    struct ddp_err err = { 0 };
    size_t at = 0;
    *j = (struct job){ .me = me, .how = me->user };
    pretend_gpu();
    j->ctx = rank_init(me, j->how->staged ? &staged_options : &nccl_options);
    check(j, cuda_open(ddp_device(j->ctx), j->how->precision, &j->gpu, &err), &err);
    for (int i = 0; i <= PARTS / 2; i++)
        j->room[i] = calloc(ALL, sizeof(float));
    j->flat = calloc(ALL, sizeof(float));
    for (size_t i = 0; i < SHARDED_PARAMS; at += sharded_counts[i++])
        j->each[i] = (struct model_tensor){ .count = sharded_counts[i], .value = j->flat + at };
    for (size_t i = 0; i < ALL; i++)
        j->flat[i] = cosf((float)i);
    j->params =
        (struct model_tensors){ .each = j->each, .n = SHARDED_PARAMS, .values = j->flat, .count = ALL };
    check(j, j->gpu->ops->place(j->gpu, &j->params, sharded_multiple((size_t)me->world), &err), &err);
    const struct sharded_request request = { .group = ddp_world(j->ctx),
                                             .device = j->gpu,
                                             .params = &j->params,
                                             .count = sharded_counts,
                                             .world = me->world,
                                             .rank = me->rank,
                                             .reduces = true,
                                             .dtype =
                                                 j->how->precision == PRECISION_BF16 ? DDP_BF16 : DDP_F32,
                                             .any_world = true,
                                             .slots = 3 };
    check(j, sharded_open(&j->sharded, &request, &err), &err);
    check(j, sharded_import(j->sharded, 0, j->flat, &err), &err);
}

static void close_job(struct job *j)
{
    j->gpu->ops->wait(j->gpu);
    sharded_close(j->sharded);
    j->gpu->ops->close(j->gpu);
    for (int i = 0; i <= PARTS / 2; i++)
        free(j->room[i]);
    free(j->flat);
    rank_expect_ok(j->me, ddp_finalize(j->ctx));
}

/* Sum `parts` parts of the gradient, beginning with part `first`, as a binary tree. The sum is in room[depth]. */
static const float *tree_of(struct job *j, int step, size_t first, size_t parts, int depth)
{
    float *sum = j->room[depth];
    if (parts == 1) {
        for (size_t i = 0; i < ALL; i++)
            sum[i] = part_of_gradient(step, first, i);
        return sum;
    }
    tree_of(j, step, first, parts / 2, depth);
    const float *right = tree_of(j, step, first + parts / 2, parts / 2, depth + 1);
    for (size_t i = 0; i < ALL; i++)
        sum[i] += right[i];
    return sum;
}

static void add_up(struct job *j, int step)
{
    struct ddp_err err = { 0 };
    const size_t mine = PARTS / (size_t)j->me->world;
    const float *sum = tree_of(j, step, (size_t)j->me->rank * mine, mine, 0);
    sharded_start(j->sharded);
    for (size_t k = 0; k < SHARDED_PARAMS; k++) {
        const size_t i = order[k];
        check(j,
              j->gpu->ops->copy(j->gpu, sharded_grad(j->sharded, i), sum + (j->each[i].value - j->flat),
                                sharded_counts[i], &err),
              &err);
        check(j, sharded_ready(j->sharded, i, &err), &err);
    }
    check(j, sharded_average(j->sharded, &err), &err);
}

static void step(struct job *j, ddp_optim *rule, int number)
{
    struct ddp_err err = { 0 };
    add_up(j, number);
    check(j, sharded_norm(j->sharded, 0.5, 1, &err), &err);
    ddp_optim_begin(rule);
    for (size_t i = 0; i < SHARDED_PARAMS; i++)
        sharded_update(j->sharded, rule, i, sharded_grad(j->sharded, i));
    check(j, sharded_send(j->sharded, &err), &err);
}

static void hash(struct job *j, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        j->me->value = (j->me->value ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

/* Gather slot `slot` of the optimizer (the master weights or a state of the optimizer) from all ranks into the array
 * `flat` of rank 0. Before the call, each rank has one share of the slot. */
static void gather(struct job *j, int slot, float *flat)
{
    struct ddp_err err = { 0 };
    check(j, sharded_export(j->sharded, slot, j->me->rank == 0 ? flat : NULL, &err), &err);
}

/* Gather slot 1 and import its values to slot 2. Then gather slot 2, and expect the same values. */
static void there_and_back(struct job *j)
{
    struct ddp_err err = { 0 };
    gather(j, 1, j->room[0]);
    rank_expect_ok(j->me, ddp_broadcast(ddp_world(j->ctx), j->room[0], ALL, DDP_F32, 0, NULL, NULL));
    check(j, sharded_import(j->sharded, 2, j->room[0], &err), &err);
    gather(j, 2, j->room[1]);
    rank_expect(j->me, j->me->rank != 0 || memcmp(j->room[0], j->room[1], ALL * sizeof(float)) == 0,
                "what was imported is not what was exported");
}

static void steps(struct rank *me)
{
    struct job j;
    struct ddp_err err = { 0 };
    struct compute_report report;
    ddp_optim rule = DDP_ADAMW_INIT;
    open_job(&j, me);
    for (int number = 0; number < SHARDED_STEPS; number++)
        step(&j, &rule, number);
    check(&j, j.gpu->ops->fetch(j.gpu, &j.params, &err), &err);
    check(&j, j.gpu->ops->report(j.gpu, true, &report, &err), &err);
    rank_expect(me, report.norm > 100, "norm %g", report.norm);
    hash(&j, &report.norm, sizeof(report.norm));
    hash(&j, j.flat, ALL * sizeof(float));
    gather(&j, 2, j.room[0]);
    rank_expect_ok(me, ddp_broadcast(ddp_world(j.ctx), j.room[0], ALL, DDP_F32, 0, NULL, NULL));
    hash(&j, j.room[0], ALL * sizeof(float));
    there_and_back(&j);
    close_job(&j);
}

/* Run a job of `world` ranks. Return the hash at its end, which must be the same on each rank. */
static uint64_t run(int world, struct how how)
{
    struct ranks r = ranks_run(world, steps, RANKS_PLAIN_STORE, &how);
    const uint64_t first = r.rank[0].value;
    ranks_expect_ok(&r);
    for (int i = 1; i < world; i++)
        cr_expect_eq(r.rank[i].value, first, "rank %d of %d", i, world);
    ranks_free(&r);
    return first;
}

TestSuite(sharded_update, .timeout = 150);

Test(sharded_update, the_same_bits_for_any_number_of_ranks)
{
    const uint64_t one = run(1, (struct how){ PRECISION_FP32, false });
    cr_expect_eq(run(2, (struct how){ PRECISION_FP32, false }), one);
    cr_expect_eq(run(8, (struct how){ PRECISION_FP32, false }), one);
}

Test(sharded_update, the_same_bits_through_the_host)
{
    const uint64_t one = run(1, (struct how){ PRECISION_FP32, true });
    cr_expect_eq(run(2, (struct how){ PRECISION_FP32, true }), one);
    cr_expect_eq(run(4, (struct how){ PRECISION_FP32, true }), one);
}

Test(sharded_update, masters_of_16_bits_are_shared_out)
{
    const uint64_t one = run(1, (struct how){ PRECISION_BF16, false });
    cr_expect_eq(run(2, (struct how){ PRECISION_BF16, false }), one);
    cr_expect_eq(run(4, (struct how){ PRECISION_BF16, true }), one);
}
