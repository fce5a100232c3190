/* Steps of the reducer with real processes, on one host and on several, with and without a thread: each way to average, the
 * order of readiness, accumulation, buffers, unused parameters. */
#include "reducer_model.h"

#include <criterion/criterion.h>

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

/* Rank 0's order, for all; gradients keep their values on the way. */
static void rebuild(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    size_t in_head = ddp_reducer_bucket_of(reducer, 5), order[] = { 3, 0, 5, 1, 4, 2 };

    rank_expect(me, in_head == 0, "the head is in bucket %zu", in_head);
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    for (size_t k = 0; k < PARAMS; k++) {
        size_t p = me->rank == 0 ? order[k] : k;
        toy_accumulate(reducer, me->rank, 0, p);
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    }
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    rank_expect(me, ddp_reducer_bucket_of(reducer, 5) == in_head, "moved too early");
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    /* 3, 0 = 2000 bytes; 5 = 2000; 1, 4 and the doubles are left over. */
    for (size_t k = 0; k < PARAMS; k++) {
        static const size_t buckets[PARAMS] = { 0, 0, 1, 2, 2, 3 };
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

/* Sent at the start and at each forward, but not after a step without sync. */
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

/* Parameter 0: always used. 1: never. 2: by rank 0 only. 3: only in odd steps. The others: always. */
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

/* Marked or not, in half of the steps each. What nobody uses keeps what was in it, different on every rank. */
static void unused(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    ddp_reducer_options options = toy_options();
    options.find_unused = 1;
    options.overlap = DDP_OVERLAP_ON;
    ddp_reducer *reducer = toy_open(me, ctx, &options);
    for (int step = 0; step < STEPS; step++) {
        rank_expect_ok(me, ddp_reducer_forward(reducer));
        for (size_t p = PARAMS; p-- > 0;) {
            bool is_used = uses(me->rank, step, p);
            for (size_t e = 0; e < model_counts[p]; e++)
                toy_set(reducer, p, e, is_used ? toy_gradient(me->rank, step, p, e) : 1000.0 + me->rank);
            if (is_used)
                rank_expect_ok(me, ddp_reducer_ready(reducer, p));
            else if (step < 2)
                rank_expect_ok(me, ddp_reducer_unused(reducer, p));
        }
        rank_expect_ok(me, ddp_reducer_finish(reducer));
        for (size_t p = 0; p < PARAMS; p++)
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
