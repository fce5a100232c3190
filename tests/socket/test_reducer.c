/* Tests of the reducer with real processes. All ranks must get the parameters of rank 0 and the averages of the
 * gradients, for any order of readiness. Misuse must return an error. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_PARAMS = 5 };

/* A small model with four buckets, with the limits below. One parameter has another type, and one has no elements. */
static float w1[300], b1[7], w2[200], empty[1];
static double scale[9];

static void make_params(ddp_param params[SMALL_PARAMS], int rank)
{
    const ddp_param model[SMALL_PARAMS] = {
        { .name = "fc1.weight", .data = w1, .count = 300, .dtype = DDP_F32 },
        { .name = "fc1.bias", .data = b1, .count = 7, .dtype = DDP_F32 },
        { .name = "scale", .data = scale, .count = 9, .dtype = DDP_F64 },
        { .name = "fc2.weight", .data = w2, .count = 200, .dtype = DDP_F32 },
        { .name = "empty", .data = empty, .count = 0, .dtype = DDP_F32 },
    };
    memcpy(params, model, sizeof(model));
    for (int i = 0; i < 300; i++)
        w1[i] = (float)(i + 1000 * rank);
    for (int i = 0; i < 9; i++)
        scale[i] = i + 0.5 * rank;
}

static ddp_reducer *make_reducer(struct rank *me, ddp_ctx *ctx)
{
    ddp_param params[SMALL_PARAMS];
    ddp_reducer *reducer = NULL;
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.first_bucket_bytes = 1200;
    options.bucket_cap_bytes = 800;
    make_params(params, me->rank);
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, SMALL_PARAMS, &options, &reducer));
    return reducer;
}

/* Return the gradient of parameter p on `rank` in `step`: one number for all elements, exact in every sum. */
static double gradient(int rank, size_t p, int step)
{
    return (double)(rank + 1) * (double)(p + 1) + step;
}

static void write_gradient(ddp_reducer *reducer, size_t p, int rank, int step)
{
    static const size_t counts[SMALL_PARAMS] = { 300, 7, 9, 200, 0 };
    for (size_t i = 0; i < counts[p]; i++) {
        if (p == 2)
            ((double *)ddp_reducer_grad(reducer, p))[i] = gradient(rank, p, step);
        else
            ((float *)ddp_reducer_grad(reducer, p))[i] = (float)gradient(rank, p, step);
    }
}

static void expect_average(struct rank *me, ddp_reducer *reducer, size_t p, int step)
{
    double sum = 0;
    for (int r = 0; r < me->world; r++)
        sum += gradient(r, p, step);
    const void *grad = ddp_reducer_grad(reducer, p);
    double first = p == 2 ? *(const double *)grad : (double)*(const float *)grad;
    double must = p == 2 ? sum / me->world : (double)((float)sum / (float)me->world);
    rank_expect(me, first == must, "step %d parameter %zu: %g, %g expected", step, p, first, must);
}

static void train_three_steps(struct rank *me)
{
    /* The first step has the backward order. Later steps have other orders, but buckets are still launched in the
     * order of the plan. */
    static const size_t orders[3][SMALL_PARAMS] = { { 4, 3, 2, 1, 0 }, { 0, 1, 2, 3, 4 }, { 2, 0, 4, 1, 3 } };
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_reducer *reducer = make_reducer(me, ctx);

    rank_expect(me, w1[299] == 299 && scale[8] == 8, "rank 0's parameters: %g %g", (double)w1[299], scale[8]);
    rank_expect(me, ddp_reducer_buckets(reducer) == 4, "%zu buckets", ddp_reducer_buckets(reducer));
    rank_expect(me, ddp_reducer_bucket_bytes(reducer, 3) == 1200, "%zu bytes",
                ddp_reducer_bucket_bytes(reducer, 3));
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < SMALL_PARAMS; i++) {
            write_gradient(reducer, orders[step][i], me->rank, step);
            rank_expect_ok(me, ddp_reducer_ready(reducer, orders[step][i]));
        }
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        for (size_t p = 0; p < SMALL_PARAMS - 1; p++)
            expect_average(me, reducer, p, step);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer, averages_gradients_in_any_order_of_readiness, .timeout = 30)
{
    for (int world = 1; world <= 4; world++) {
        ranks_all_well(world, train_three_steps, RANKS_PLAIN_STORE, NULL);
    }
}

static void expect_refused(struct rank *me, ddp_status status, const char *part)
{
    rank_expect(me, status == DDP_ERR_ARG && strstr(ddp_last_error(), part) != NULL,
                "%s expected, got %s: %s", part, ddp_status_name(status), ddp_last_error());
}

/* Make mistakes. Each error is detected without other ranks, names the parameter, and leaves the reducer usable. */
static void misuse(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_reducer *reducer = make_reducer(me, ctx);

    expect_refused(me, ddp_reducer_ready(reducer, 5), "parameter 5: ");
    expect_refused(me, ddp_reducer_finish(reducer), "5 of 5 parameters");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 1));
    expect_refused(me, ddp_reducer_ready(reducer, 1), "parameter 1 \"fc1.bias\" (bucket 2)");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 0));
    rank_expect_ok(me, ddp_reducer_ready(reducer, 2));
    rank_expect_ok(me, ddp_reducer_ready(reducer, 4));
    expect_refused(me, ddp_reducer_finish(reducer), "#3 \"fc2.weight\"");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 3));
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer, mistakes_are_named_and_can_be_repaired, .timeout = 30)
{
    ranks_all_well(2, misuse, RANKS_PLAIN_STORE, NULL);
}

/* Create a reducer with a model that differs on rank 2. `user` selects the difference. */
static void different_models(struct rank *me)
{
    const char *how = me->user;
    ddp_param params[SMALL_PARAMS];
    ddp_reducer *reducer = NULL;
    size_t n = SMALL_PARAMS;
    ddp_ctx *ctx = rank_init(me, NULL);

    make_params(params, me->rank);
    if (me->rank == 2 && strcmp(how, "size") == 0)
        params[3].count = 199;
    if (me->rank == 2 && strcmp(how, "name") == 0)
        params[1].name = "fc1.bais";
    if (me->rank == 2 && strcmp(how, "fewer") == 0)
        n = 3;
    if (me->rank != 2 && strcmp(how, "more") == 0)
        n = 4;
    rank_keep(me, ddp_reducer_create(ddp_world(ctx), params, n, NULL, &reducer));
    /* all ranks have got the error, so all ranks still make the same calls */
    rank_expect_ok(me, ddp_finalize(ctx));
}

static void expect_difference(const char *how, const char *part)
{
    struct ranks run = ranks_run(4, different_models, RANKS_PLAIN_STORE, how);
    for (int r = 0; r < 4; r++)
        ranks_expect_error(&run, r, DDP_ERR_MISMATCH, (const char *const[]){ part, NULL });
    ranks_free(&run);
}

Test(reducer, a_model_that_differs_is_named_on_every_rank, .timeout = 30)
{
    expect_difference("size", "parameter 3 |rank 0 has \"fc2.weight\" (f32 x 200)|"
                              "rank 2 has \"fc2.weight\" (f32 x 199)");
    expect_difference("name", "parameter 1 |rank 0 has \"fc1.bias\" (f32 x 7)|rank 2 has \"fc1.bais\"");
    expect_difference("fewer", "parameter 3 |rank 0 has \"fc2.weight\" (f32 x 200)|2 has no");
    expect_difference("more", "rank 2 has \"empty\" (f32 x 0)");
}

/* Tests of the reducer's steps with real processes, on one host and on several, with and without a thread. The tests
 * check each way to average, the order of readiness, accumulation, buffers, and unused parameters. */

enum { STEPS = 4 };

/* --- plain steps ------------------------------------------------------------------------------------------------ */

static void plain_steps(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options)
{
    ddp_reducer *reducer = toy_open(me, ctx, options);
    for (int step = 0; step < STEPS; step++) {
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        toy_clear(reducer);
        toy_backward(me, reducer, step);
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        model_expect_average(me, reducer, options, step, step);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
}

static void each_mode(struct rank *me)
{
    static const struct {
        int compress;
        ddp_dtype wire;
        double predivide;
        int keep_order;
    } modes[] = { { 0, DDP_F32, 0, 0 }, { 0, DDP_F32, 0, 1 }, { 1, DDP_F16, 0, 0 }, { 1, DDP_BF16, 0, 0 },
                  { 0, DDP_F32, 2, 0 }, { 1, DDP_F16, 2, 0 }, { 1, DDP_BF16, 4, 1 } };
    ddp_ctx *ctx = toy_join(me);
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        for (int thread = DDP_OVERLAP_AUTO; thread <= DDP_OVERLAP_ON; thread++) {
            ddp_reducer_options options = toy_options();
            options.overlap = (ddp_overlap)thread;
            options.compress = modes[m].compress;
            options.wire = modes[m].wire;
            options.predivide = modes[m].predivide;
            options.keep_order = modes[m].keep_order;
            plain_steps(me, ctx, &options);
        }
    }
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_modes, averages_are_exact_in_each_mode, .timeout = 120)
{
    model_run_on("a", each_mode);
    model_run_on("aa", each_mode);
    model_run_on("aaaa", each_mode);
    model_run_on("aab", each_mode);
}

/* Rebuild the buckets in rank 0's order on all ranks. Gradients keep their values. */
static void rebuild(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    size_t in_head = ddp_reducer_bucket_of(reducer, 5), order[] = { 3, 0, 5, 1, 4, 2 };

    rank_expect(me, in_head == 0, "the head is in bucket %zu", in_head);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    for (size_t k = 0; k < MODEL_PARAMS; k++) {
        size_t p = me->rank == 0 ? order[k] : k;
        toy_accumulate(reducer, me->rank, 0, p);
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    }
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect(me, ddp_reducer_bucket_of(reducer, 5) == in_head, "moved too early");
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    /* Bucket 0 has parameters 3 and 0 (2000 bytes), bucket 1 has parameter 5 (2000), bucket 2 has 1 and 4. */
    for (size_t k = 0; k < MODEL_PARAMS; k++) {
        static const size_t buckets[MODEL_PARAMS] = { 0, 0, 1, 2, 2, 3 };
        rank_expect(me, ddp_reducer_bucket_of(reducer, order[k]) == buckets[k], "%zu is in bucket %zu",
                    order[k], ddp_reducer_bucket_of(reducer, order[k]));
    }
    model_expect_average(me, reducer, &options, 0, 0);
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_modes, buckets_are_rebuilt_once_in_rank_0s_order, .timeout = 60)
{
    model_run_on("aaa", rebuild);
    model_run_on("ab", rebuild);
}

/* --- accumulation and buffers ------------------------------------------------------------------------------------ */

static void accumulation(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.overlap = DDP_OVERLAP_ON;
    ddp_reducer *reducer = toy_open(me, ctx, &options);

    for (int step = 0; step < 6; step++) {
        ddp_reducer_set_sync(reducer, step % 3 == 2);
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        if (step % 3 == 0)
            toy_clear(reducer);
        toy_backward(me, reducer, step);
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        if (step % 3 == 2)
            model_expect_average(me, reducer, &options, step - 2, step);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_modes, steps_without_sync_accumulate, .timeout = 60)
{
    model_run_on("a", accumulation);
    model_run_on("aaa", accumulation);
    model_run_on("ab", accumulation);
}

static void fill_buffers(int rank, int step)
{
    for (int i = 0; i < 33; i++)
        model_mean[i] = (float)(100 * rank + 10 * step + i);
    model_seen[0] = (float)rank;
}

static void expect_buffers(struct rank *me, int rank, int step)
{
    rank_expect(me, model_mean[32] == (float)(100 * rank + 10 * step + 32) && model_seen[0] == (float)rank,
                "rank %d's buffers of step %d expected, got %g, %g", rank, step, (double)model_mean[32],
                (double)model_seen[0]);
}

/* Expect the buffers of rank 0 on all ranks after the start, and after each forward except one. The forward after a
 * step without sync sends no buffers. */
static void buffers(struct rank *me)
{
    const ddp_param list[] = { { .name = "bn.mean", .data = model_mean, .count = 33, .dtype = DDP_F32 },
                               { .name = "bn.seen", .data = model_seen, .count = 1, .dtype = DDP_F32 } };
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.buffers = list;
    options.buffer_count = 2;
    fill_buffers(me->rank, 0);
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    expect_buffers(me, 0, 0);
    for (int step = 1; step < 5; step++) {
        ddp_reducer_set_sync(reducer, step != 2);
        fill_buffers(me->rank, step);
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        expect_buffers(me, step == 3 ? me->rank : 0, step);
        toy_backward(me, reducer, step);
        rank_expect_ok(me, ddp_reducer_finish(reducer));
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_modes, buffers_are_rank_0s, .timeout = 60)
{
    model_run_on("aaa", buffers);
    model_run_on("ab", buffers);
}

/* --- unused parameters ------------------------------------------------------------------------------------------- */

/* Return true if a rank uses parameter `p` in a step:
 * parameter 1: no rank uses it
 * parameter 2: only rank 0 uses it
 * parameter 3: all ranks use it, but only in steps with an odd number
 * any other parameter: all ranks use it in every step */
static bool uses(int rank, int step, size_t p)
{
    return p == 1 ? false : p == 2 ? rank == 0 : p == 3 ? step % 2 == 1 : true;
}

static void expect_used(struct rank *me, ddp_reducer *reducer, int step, size_t p)
{
    bool by_any = uses(0, step, p);
    rank_expect(me, ddp_reducer_used(reducer, p) == by_any, "parameter %zu, step %d", p, step);
    for (size_t e = 0; e < model_counts[p]; e++) {
        double sum = 0, is = toy_get(reducer, p, e);
        for (int r = 0; r < me->world; r++)
            sum += uses(r, step, p) ? toy_gradient(r, step, p, e) : 0;
        const ddp_reducer_options plain = { 0 };
        double must = by_any ? toy_averaged(&plain, p, sum, me->world) : 1000.0 + me->rank;
        rank_expect(me, is == must, "step %d parameter %zu: %g, %g expected", step, p, is, must);
    }
}

/* Leave parameters unused. In half of the steps, also mark them as unused. An unused parameter keeps its gradient,
 * which differs between ranks. */
static void unused(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.find_unused = 1;
    options.overlap = DDP_OVERLAP_ON;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    for (int step = 0; step < STEPS; step++) {
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        for (size_t p = MODEL_PARAMS; p-- > 0;) {
            bool is_used = uses(me->rank, step, p);
            for (size_t e = 0; e < model_counts[p]; e++)
                toy_set(reducer, p, e, is_used ? toy_gradient(me->rank, step, p, e) : 1000.0 + me->rank);
            if (is_used)
                rank_expect_ok(me, ddp_reducer_ready(reducer, p));
            else if (step < 2)
                rank_expect_ok(me, ddp_reducer_unused(reducer, p));
        }
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        for (size_t p = 0; p < MODEL_PARAMS; p++)
            expect_used(me, reducer, step, p);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_modes, unused_parameters_count_as_zero_and_keep_their_gradient_if_nobody_uses_them,
     .timeout = 60)
{
    model_run_on("a", unused);
    model_run_on("aaa", unused);
    model_run_on("ab", unused);
}

/* Tests in which the ranks have different numbers of batches. */

static void uneven_step(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int step)
{
    int active = 0;
    for (int r = 0; r < me->world; r++)
        active += step < 2 * (me->world - r);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    toy_clear(reducer);
    toy_backward(me, reducer, step);
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    for (size_t p = 0; p < MODEL_PARAMS; p++) {
        double sum = 0, is = toy_get(reducer, p, 3);
        for (int r = 0; r < active; r++)
            sum += toy_gradient(r, step, p, 3);
        double all = sum / me->world, some = sum / active;
        double must = o->uneven == DDP_UNEVEN_ACTIVE ? some : all;
        rank_expect(me, is - must < 1e-5 && must - is < 1e-5, "step %d parameter %zu: %g, %g expected", step,
                    p, is, must);
    }
    model_w[0][0] = (float)(step + 100 * me->rank);
    model_mean[7] = (float)(step + 1000 * me->rank);
}

/* Run ranks with different numbers of batches. A higher rank has fewer batches, so only rank 0 trains at the end, and
 * all ranks then get the model of rank 0. A second epoch shows that all ranks are in step again. */
static void uneven(struct rank *me, ddp_uneven how)
{
    const ddp_param list[] = { { .name = "bn.mean", .data = model_mean, .count = 33, .dtype = DDP_F32 } };
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.uneven = how;
    options.overlap = DDP_OVERLAP_ON;
    options.buffers = list;
    options.buffer_count = 1;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    for (int epoch = 0; epoch < 2; epoch++) {
        int batches = 2 * (me->world - me->rank), last = 2 * me->world - 1;
        for (int step = 0; step < batches; step++)
            uneven_step(me, reducer, &options, step);
        rank_expect_ok(me, ddp_reducer_join(reducer));
        rank_expect(me, model_w[0][0] == (float)last && model_mean[7] == (float)last,
                    "rank 0's model expected, got %g, %g", (double)model_w[0][0], (double)model_mean[7]);
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

static void uneven_by_world(struct rank *me)
{
    uneven(me, DDP_UNEVEN_WORLD);
}

static void uneven_by_active(struct rank *me)
{
    uneven(me, DDP_UNEVEN_ACTIVE);
}

Test(reducer_join, ranks_without_batches_shadow_the_others, .timeout = 60)
{
    model_run_on("a", uneven_by_world);
    model_run_on("aaa", uneven_by_world);
    model_run_on("aaa", uneven_by_active);
    model_run_on("abab", uneven_by_active);
}

static void stop_early(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.uneven = DDP_UNEVEN_STOP;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    ddp_status status = me->rank == 1 ? ddp_reducer_join(reducer) : ddp_reducer_forward(reducer);
    rank_expect(me,
                status == DDP_ERR_ARG && strstr(ddp_last_error(), "rank 1 has") &&
                    strstr(ddp_last_error(), "but 2 of 3"),
                "%s: %s", ddp_status_name(status), ddp_last_error());
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_join, an_early_end_can_be_an_error_on_all_ranks, .timeout = 30)
{
    model_run_on("aaa", stop_early);
}

/* End early on one rank, while the other rank is in a forward without sync. This forward is not a step, so the next
 * forward must still send the buffers, on both ranks. */
static void stop_between_syncs(struct rank *me)
{
    const ddp_param list[] = { { .name = "bn.mean", .data = model_mean, .count = 33, .dtype = DDP_F32 } };
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.uneven = DDP_UNEVEN_STOP;
    options.buffers = list;
    options.buffer_count = 1;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    uneven_step(me, reducer, &options, 0);
    ddp_reducer_set_sync(reducer, 0);
    ddp_status status = me->rank == 1 ? ddp_reducer_join(reducer) : ddp_reducer_forward(reducer);
    rank_expect(me, status == DDP_ERR_ARG, "%s: %s", ddp_status_name(status), ddp_last_error());
    ddp_reducer_set_sync(reducer, 1);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    rank_expect(me, model_mean[7] == 0, "rank 0's buffer expected, got %g", (double)model_mean[7]);
    toy_backward(me, reducer, 0);
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_join, a_new_epoch_follows_an_early_end, .timeout = 30)
{
    model_run_on("aa", stop_between_syncs);
}

/* The reducer's gradients are compared with those of PyTorch DistributedDataParallel, which
 * tests/interop/torch_reducer.py has recorded. PyTorch divides before it sums, so the last digit may differ. */

enum { WORLD = 3, TORCH_PARAMS = 3, VALUES = 7 };

struct torch_gradients {
    const char *name;
    float values[VALUES];
};

#include "torch_gradients.h"

static const size_t sizes[TORCH_PARAMS] = { 3, 2, 2 };

static float wanted(int rank, int step, size_t p, size_t i)
{
    static const double first[TORCH_PARAMS] = { 0.1, -0.7, 1.3 };
    return (float)(first[p] * (rank + 1) + 0.01 * (step + 1) * (double)(i + 1));
}

static ddp_reducer *open_reducer(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options)
{
    static float values[TORCH_PARAMS][3];
    static const char *const names[TORCH_PARAMS] = { "a", "b", "c" };
    ddp_param params[TORCH_PARAMS];
    ddp_reducer *reducer = NULL;
    for (size_t p = 0; p < TORCH_PARAMS; p++)
        params[p] = (ddp_param){ .name = names[p], .data = values[p], .count = sizes[p], .dtype = DDP_F32 };
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, TORCH_PARAMS, options, &reducer));
    return reducer;
}

/* Make a step with the first `used` parameters. If `add` is true, add to the present gradients; otherwise replace
 * them. */
static void step(struct rank *me, ddp_reducer *reducer, int number, size_t used, bool add)
{
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    for (size_t p = used; p-- > 0;) {
        float *grad = ddp_reducer_grad(reducer, p);
        for (size_t i = 0; i < sizes[p]; i++)
            grad[i] = wanted(me->rank, number, p, i) + (add ? grad[i] : 0);
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    }
    rank_expect_ok(me, ddp_reducer_finish(reducer));
}

static void expect_torch(struct rank *me, ddp_reducer *reducer, const char *name, double tolerance)
{
    const struct torch_gradients *t = torch_gradients;
    size_t v = 0;
    while (strcmp(t->name, name) != 0)
        t++;
    for (size_t p = 0; p < TORCH_PARAMS; p++) {
        for (size_t i = 0; i < sizes[p]; i++, v++) {
            double is = ((const float *)ddp_reducer_grad(reducer, p))[i], must = t->values[v];
            bool none = !ddp_reducer_used(reducer, p);
            rank_expect(me, isnan(must) ? none : !none && fabs(is - must) <= tolerance * fabs(must),
                        "%s: gradient %zu[%zu] is %.9g, PyTorch has %.9g", name, p, i, is, must);
        }
    }
    rank_expect_ok(me, ddp_reducer_free(reducer));
}

static void plain_and_accumulated(struct rank *me, ddp_ctx *ctx)
{
    ddp_reducer *reducer = open_reducer(me, ctx, NULL);
    step(me, reducer, 0, TORCH_PARAMS, false);
    expect_torch(me, reducer, "plain", 3e-7);
    reducer = open_reducer(me, ctx, NULL);
    ddp_reducer_set_sync(reducer, 0);
    step(me, reducer, 0, TORCH_PARAMS, true);
    ddp_reducer_set_sync(reducer, 1);
    step(me, reducer, 1, TORCH_PARAMS, true);
    expect_torch(me, reducer, "accumulate", 5e-7);
}

static void unused_and_half(struct rank *me, ddp_ctx *ctx)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.find_unused = 1;
    ddp_reducer *reducer = open_reducer(me, ctx, &options);
    step(me, reducer, 0, me->rank == 0 ? 2 : 1, false);
    expect_torch(me, reducer, "unused", 3e-7);
    options.find_unused = 0;
    options.compress = 1;
    options.wire = DDP_F16;
    reducer = open_reducer(me, ctx, &options);
    step(me, reducer, 0, TORCH_PARAMS, false);
    expect_torch(me, reducer, "half", 0x1p-9); /* PyTorch also sums in f16 */
}

static void joined(struct rank *me, ddp_ctx *ctx, ddp_uneven how, const char *name)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.uneven = how;
    ddp_reducer *reducer = open_reducer(me, ctx, &options);
    for (int number = 0; number < WORLD - me->rank; number++)
        step(me, reducer, number, TORCH_PARAMS, false);
    rank_expect_ok(me, ddp_reducer_join(reducer));
    expect_torch(me, reducer, name, 3e-7);
}

static void all_scenarios(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    plain_and_accumulated(me, ctx);
    unused_and_half(me, ctx);
    joined(me, ctx, DDP_UNEVEN_WORLD, "join_world");
    joined(me, ctx, DDP_UNEVEN_ACTIVE, "join_active");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_torch, gradients_are_those_of_distributed_data_parallel, .timeout = 60)
{
    ranks_all_well(WORLD, all_scenarios, RANKS_PLAIN_STORE, NULL);
}
