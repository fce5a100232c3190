/* The reducer with real processes: rank 0's parameters, averages, order of buckets, and what it says about
 * misuse. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 5 };

/* A small model: four buckets with the limits below: one parameter of another type, one without elements. */
static float w1[300], b1[7], w2[200], empty[1];
static double scale[9];

static void make_params(ddp_param params[PARAMS], int rank)
{
    const ddp_param model[PARAMS] = {
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
    ddp_param params[PARAMS];
    ddp_reducer *reducer = NULL;
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.first_bucket_bytes = 1200;
    options.bucket_cap_bytes = 800;
    make_params(params, me->rank);
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, PARAMS, &options, &reducer));
    return reducer;
}

/* Gradient of parameter p on `rank` in `step`: one number for all elements, exact in every sum. */
static double gradient(int rank, size_t p, int step)
{
    return (double)(rank + 1) * (double)(p + 1) + step;
}

static void write_gradient(ddp_reducer *reducer, size_t p, int rank, int step)
{
    static const size_t counts[PARAMS] = { 300, 7, 9, 200, 0 };
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
    /* Backward order in the first step, other orders later: buckets are launched in plan order anyway. */
    static const size_t orders[3][PARAMS] = { { 4, 3, 2, 1, 0 }, { 0, 1, 2, 3, 4 }, { 2, 0, 4, 1, 3 } };
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_reducer *reducer = make_reducer(me, ctx);

    rank_expect(me, w1[299] == 299 && scale[8] == 8, "rank 0's parameters: %g %g", (double)w1[299], scale[8]);
    rank_expect(me, ddp_reducer_buckets(reducer) == 4, "%zu buckets", ddp_reducer_buckets(reducer));
    rank_expect(me, ddp_reducer_bucket_bytes(reducer, 3) == 1200, "%zu bytes",
                ddp_reducer_bucket_bytes(reducer, 3));
    for (int step = 0; step < 3; step++) {
        for (size_t i = 0; i < PARAMS; i++) {
            write_gradient(reducer, orders[step][i], me->rank, step);
            rank_expect_ok(me, ddp_reducer_ready(reducer, orders[step][i]));
        }
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        for (size_t p = 0; p < PARAMS - 1; p++)
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

/* Mistakes are local, name the parameter, and can be repaired. */
static void misuse(struct rank *me)
{
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_reducer *reducer = make_reducer(me, ctx);

    expect_refused(me, ddp_reducer_ready(reducer, 5), "there is no parameter 5, 0 to 4 was expected");
    expect_refused(me, ddp_reducer_finish(reducer),
                   "5 of 5 parameters were not marked ready: 0 \"fc1.weight\"");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 1));
    expect_refused(me, ddp_reducer_ready(reducer, 1),
                   "parameter 1 \"fc1.bias\" (bucket 2) is marked ready twice");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 0));
    rank_expect_ok(me, ddp_reducer_ready(reducer, 2));
    rank_expect_ok(me, ddp_reducer_ready(reducer, 4));
    expect_refused(me, ddp_reducer_finish(reducer),
                   "1 of 5 parameters were not marked ready: 3 \"fc2.weight\"");
    rank_expect_ok(me, ddp_reducer_ready(reducer, 3));
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer, mistakes_are_named_and_can_be_repaired, .timeout = 30)
{
    ranks_all_well(2, misuse, RANKS_PLAIN_STORE, NULL);
}

/* `user` says how rank 2's model differs. */
static void different_models(struct rank *me)
{
    const char *how = me->user;
    ddp_param params[PARAMS];
    ddp_reducer *reducer = NULL;
    size_t n = PARAMS;
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
    /* All ranks know, so all are still in step. */
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
    expect_difference("size", "parameter 3 differs: rank 0 has \"fc2.weight\" (f32 x 200), rank 2 has "
                              "\"fc2.weight\" (f32 x 199)");
    expect_difference("name",
                      "parameter 1 differs: rank 0 has \"fc1.bias\" (f32 x 7), rank 2 has \"fc1.bais\"");
    expect_difference("fewer",
                      "parameter 3 differs: rank 0 has \"fc2.weight\" (f32 x 200), rank 2 has no such "
                      "parameter");
    expect_difference("more",
                      "parameter 4 differs: rank 0 has no such parameter, rank 2 has \"empty\" (f32 x 0)");
}
