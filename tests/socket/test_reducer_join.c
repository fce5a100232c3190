/* Ranks with different numbers of batches. */
#include "reducer_model.h"

#include <criterion/criterion.h>
#include <string.h>

static void uneven_step(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int step)
{
    int active = 0;
    for (int r = 0; r < me->world; r++)
        active += step < 2 * (me->world - r);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    toy_clear(reducer);
    toy_backward(me, reducer, step);
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    for (size_t p = 0; p < PARAMS; p++) {
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

/* The later the rank, the fewer batches: rank 0 is alone in the end, and its model is everybody's. A second epoch shows
 * that all are in step again. */
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
                status == DDP_ERR_ARG &&
                    strstr(ddp_last_error(), "rank 1 has no more batches, and 2 of 3 ranks have"),
                "%s: %s", ddp_status_name(status), ddp_last_error());
    rank_expect_ok(me, ddp_reducer_free(reducer));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_join, an_early_end_can_be_an_error_on_all_ranks, .timeout = 30)
{
    model_run_on("aaa", stop_early);
}

/* The forward that an early end breaks off is no step: whether buffers are sent in the next is what it was before, on the rank that
 * was in it as on the one that was not. */
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
