/* Subnormal gradients between real ranks. The results must not depend on the floating-point modes of the calling
 * threads. The results must also not depend on which thread computes: the caller's, or a thread of the library. No call
 * may change the caller's mode. The tests use one host, several hosts, private memory and shared memory. */
#include "ranks.h"
#include "numbers.h"

#include <criterion/criterion.h>
#include <stdlib.h>

static void need_mode(void)
{
    if (FLUSH_SUBNORMALS_BITS == 0)
        cr_skip_test("skipped, because this processor cannot flush subnormals");
}

TestSuite(subnormals, .init = need_mode, .timeout = 120);

enum { N = 5000, LARGE = 200000 };

/* The rounds: no rank flushes subnormal numbers, all ranks flush them, or only ranks with odd numbers. */
enum { NO_RANK, ALL_RANKS, ODD_RANKS, ROUNDS };

static uint64_t mode_of(const struct rank *me, int round)
{
    return round == ALL_RANKS || (round == ODD_RANKS && me->rank % 2 == 1) ? FLUSH : KEEP;
}

typedef uint64_t (*job)(struct rank *me, ddp_ctx *ctx); /* returns a hash of its results */

static void same_in_each_round(struct rank *me, ddp_ctx *ctx, job run, const char *name)
{
    uint64_t first = 0;
    for (int round = NO_RANK; round < ROUNDS; round++) {
        flush_subnormals_set(mode_of(me, round));
        const uint64_t hash = run(me, ctx), mode = subnormals_mode();
        flush_subnormals_set(KEEP);
        rank_expect(me, mode == mode_of(me, round), "%s, round %d: the mode became %#lx", name, round, mode);
        first = round == NO_RANK ? hash : first;
        rank_expect(me, hash == first, "%s: round %d has other bits than round 0", name, round);
    }
}

static uint64_t reduce_in(struct rank *me, ddp_ctx *ctx, void *in, void *out, size_t n)
{
    static const ddp_dtype types[] = { DDP_F32, DDP_F64, DDP_F16, DDP_BF16 };
    uint64_t hash = 0;
    for (int t = 0; t < 4; t++) {
        for (int op = DDP_SUM; op <= DDP_PROD; op++) {
            const size_t size = ddp_dtype_size(types[t]), part = n / (size_t)me->world;
            subnormals_fill(in, types[t], n, (uint32_t)me->rank);
            rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), in, out, n, types[t], (ddp_op)op, NULL, NULL));
            hash = trial_hash(hash, out, n * size);
            rank_expect_ok(
                me, ddp_reduce_scatter(ddp_world(ctx), in, out, part, types[t], (ddp_op)op, NULL, NULL));
            hash = trial_hash(hash, out, part * size);
        }
    }
    return hash;
}

static uint64_t private_memory(struct rank *me, ddp_ctx *ctx)
{
    void *in = malloc(N * 8), *out = malloc(N * 8);
    const uint64_t hash = reduce_in(me, ctx, in, out, N);
    free(in);
    free(out);
    return hash;
}

static uint64_t shared_memory(struct rank *me, ddp_ctx *ctx)
{
    void *in, *out;
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), N * 8, &in));
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), N * 8, &out));
    const uint64_t hash = reduce_in(me, ctx, in, out, N);
    rank_expect_ok(me, ddp_shared_free(ddp_world(ctx), out));
    rank_expect_ok(me, ddp_shared_free(ddp_world(ctx), in));
    return hash;
}

/* Reduce more memory than a slot has, so that the memory is moved in steps. */
static uint64_t large_memory(struct rank *me, ddp_ctx *ctx)
{
    float *x = malloc(LARGE * sizeof(*x));
    subnormals_fill(x, DDP_F32, LARGE, (uint32_t)me->rank);
    rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), x, x, LARGE, DDP_F32, DDP_SUM, NULL, NULL));
    const uint64_t hash = trial_hash(0, x, LARGE * sizeof(*x));
    free(x);
    return hash;
}

/* Expect zeros, because all operands are subnormal. */
static void expect_zeros(struct rank *me, ddp_ctx *ctx)
{
    uint32_t x[100];
    for (uint32_t i = 0; i < 100; i++)
        x[i] = 1000 + i;
    rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), x, x, 100, DDP_F32, DDP_SUM, NULL, NULL));
    for (int i = 0; i < 100; i++)
        rank_expect(me, x[i] == 0, "element %d: subnormals add up to %08x", i, x[i]);
}

static void collectives(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    same_in_each_round(me, ctx, private_memory, "private memory");
    same_in_each_round(me, ctx, shared_memory, "shared memory");
    same_in_each_round(me, ctx, large_memory, "large arrays");
    expect_zeros(me, ctx);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(subnormals, collectives_do_not_depend_on_the_callers_mode)
{
    model_run_on("aa", collectives);
    model_run_on("aaa", collectives);
    model_run_on("aaaa", collectives);
    model_run_on("ab", collectives);
    model_run_on("aab", collectives);
}

/* Halve the values in a user's own reduction. Count the calls in which subnormals were kept. */
static ddp_status halve(void *user, ddp_group *group, const ddp_bucket *bucket)
{
    float *grads = bucket->grads;
    *(int *)user += !subnormals_vanish();
    for (size_t i = 0; i < bucket->count; i++)
        grads[i] *= 0.5f;
    return ddp_all_reduce(group, grads, grads, bucket->count, bucket->dtype, DDP_SUM, NULL, NULL);
}

static int kept_in_hook;

static const ddp_reducer_options modes[] = {
    { .size = sizeof(ddp_reducer_options) },
    { .size = sizeof(ddp_reducer_options), .predivide = 2 },
    { .size = sizeof(ddp_reducer_options), .compress = 1, .wire = DDP_F16 },
    { .size = sizeof(ddp_reducer_options), .compress = 1, .wire = DDP_BF16, .predivide = 2 },
    { .size = sizeof(ddp_reducer_options), .hook = halve, .hook_user = &kept_in_hook },
};
enum { MODES = 5 };

static uint64_t reduce_step(struct rank *me, ddp_ctx *ctx, int mode, ddp_overlap overlap)
{
    static float w[N];
    const ddp_param param = { .name = "w", .data = w, .count = N, .dtype = DDP_F32 };
    ddp_reducer_options options = modes[mode];
    ddp_reducer *reducer;
    options.overlap = overlap;
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), &param, 1, &options, &reducer));
    rank_expect_ok(me, ddp_reducer_forward(reducer));
    subnormals_fill(ddp_reducer_grad(reducer, 0), DDP_F32, N, (uint32_t)me->rank);
    rank_expect_ok(me, ddp_reducer_ready(reducer, 0));
    rank_expect_ok(me, ddp_reducer_finish(reducer));
    const uint64_t hash = trial_hash(0, ddp_reducer_grad(reducer, 0), N * sizeof(float));
    rank_expect_ok(me, ddp_reducer_free(reducer));
    return hash;
}

static uint64_t reduce_steps(struct rank *me, ddp_ctx *ctx)
{
    uint64_t hash = 0;
    for (int mode = 0; mode < MODES; mode++) {
        const uint64_t here = reduce_step(me, ctx, mode, DDP_OVERLAP_OFF);
        const uint64_t there = reduce_step(me, ctx, mode, DDP_OVERLAP_ON);
        rank_expect(me, here == there, "mode %d: other bits with a thread", mode);
        hash = trial_hash(hash, &here, sizeof(here));
    }
    rank_expect(me, kept_in_hook == 0, "a hook has seen subnormals %d times", kept_in_hook);
    return hash;
}

static void reducers(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    same_in_each_round(me, ctx, reduce_steps, "reducer");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(subnormals, the_reducer_does_not_depend_on_the_callers_mode)
{
    model_run_on("aa", reducers);
    model_run_on("aaa", reducers);
    model_run_on("ab", reducers);
}

static uint64_t update_step(struct rank *me, ddp_ctx *ctx)
{
    static float w[N];
    const ddp_param param = { .name = "w", .data = w, .count = N, .dtype = DDP_F32 };
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    ddp_scaler scaler = DDP_SCALER_INIT;
    ddp_zero1 *zero;
    double norm;
    options.optim = (ddp_optim)DDP_ADAM_INIT;
    subnormals_fill(w, DDP_F32, N, 9);
    rank_expect_ok(me, ddp_zero1_create(ddp_world(ctx), &param, 1, &options, &zero));
    subnormals_fill(ddp_zero1_grad(zero, 0), DDP_F32, N, (uint32_t)me->rank);
    rank_expect_ok(me, ddp_zero1_reduce(zero));
    rank_expect_ok(me, ddp_zero1_unscale(zero, &scaler));
    rank_expect_ok(me, ddp_zero1_clip(zero, 0.1, &norm));
    rank_expect_ok(me, ddp_zero1_step(zero));
    const uint64_t hash = trial_hash(trial_hash(0, &norm, sizeof(norm)), w, sizeof(w));
    rank_expect_ok(me, ddp_zero1_free(zero));
    return hash;
}

static uint64_t normalize(struct rank *me, ddp_ctx *ctx)
{
    enum { CHANNELS = 2, SPATIAL = 25, ROWS = 4, VALUES = CHANNELS * SPATIAL * ROWS };
    float x[VALUES], dy[VALUES], y[VALUES], dx[VALUES], weight[CHANNELS], bias[CHANNELS];
    double saved[2 * CHANNELS];
    ddp_syncbn bn = DDP_SYNCBN_INIT;
    bn.channels = CHANNELS;
    bn.spatial = SPATIAL;
    bn.saved = saved;
    subnormals_fill(x, DDP_F32, VALUES, (uint32_t)me->rank);
    subnormals_fill(dy, DDP_F32, VALUES, (uint32_t)me->rank + 5);
    rank_expect_ok(me, ddp_syncbn_forward(ddp_world(ctx), &bn, x, ROWS, y));
    rank_expect_ok(me, ddp_syncbn_backward(ddp_world(ctx), &bn, x, dy, ROWS, dx, weight, bias));
    return trial_hash(trial_hash(0, y, sizeof(y)), dx, sizeof(dx));
}

static void updates(struct rank *me)
{
    ddp_ctx *ctx = toy_join(me);
    same_in_each_round(me, ctx, update_step, "zero1");
    same_in_each_round(me, ctx, normalize, "batch normalization");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(subnormals, updates_do_not_depend_on_the_callers_mode)
{
    model_run_on("a", updates);
    model_run_on("aa", updates);
    model_run_on("aab", updates);
}

static ddp_status fill(void *user, ddp_loader_row *row, struct ddp_err *err)
{
    (void)user;
    (void)err;
    *(unsigned char *)row->to[0] = subnormals_vanish() ? 1 : 2;
    return DDP_OK;
}

static void expect_flushed_batches(int threads)
{
    ddp_loader_options options = DDP_LOADER_OPTIONS_INIT;
    const ddp_batch *batch;
    ddp_loader *loader;
    int rows = 0, flushed = 0;
    options.samples = 40;
    options.world_size = 1;
    options.batch = 4;
    options.arrays = 1;
    options.row_bytes[0] = 1;
    options.fill = fill;
    options.threads = threads;
    cr_assert_eq(ddp_loader_create(&options, &loader), DDP_OK, "%s", ddp_last_error());
    cr_assert_eq(ddp_loader_start(loader, 0, 0), DDP_OK, "%s", ddp_last_error());
    while (ddp_loader_next(loader, &batch) == DDP_OK && batch != NULL) {
        rows += (int)batch->rows;
        for (size_t i = 0; i < batch->rows; i++)
            flushed += ((const unsigned char *)batch->array[0])[i] == 1;
    }
    cr_expect(rows == 40 && flushed == 40, "%d threads: %d rows, %d of them flushed", threads, rows, flushed);
    cr_assert_eq(ddp_loader_free(loader), DDP_OK, "%s", ddp_last_error());
}

Test(subnormals, samples_are_made_in_one_mode_with_threads_and_without)
{
    for (int mode = 0; mode < 2; mode++) {
        for (int threads = 0; threads <= 2; threads += 2) {
            flush_subnormals_set(mode ? FLUSH : KEEP);
            expect_flushed_batches(threads);
            const bool after = subnormals_vanish();
            flush_subnormals_set(KEEP);
            cr_expect_eq(after, mode, "the caller's mode changed, %d threads", threads);
        }
    }
}
