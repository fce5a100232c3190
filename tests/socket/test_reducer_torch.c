/* The reducer's gradients beside those of PyTorch's DistributedDataParallel, which tests/interop/torch_reducer.py has
 * written down. PyTorch divides before it sums, so the last digit may differ. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { WORLD = 3, PARAMS = 3, VALUES = 7 };

struct torch_gradients {
    const char *name;
    float values[VALUES];
};

#include "torch_gradients.h"

static const size_t sizes[PARAMS] = { 3, 2, 2 };

static float wanted(int rank, int step, size_t p, size_t i)
{
    static const double first[PARAMS] = { 0.1, -0.7, 1.3 };
    return (float)(first[p] * (rank + 1) + 0.01 * (step + 1) * (double)(i + 1));
}

static ddp_reducer *open_reducer(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options)
{
    static float values[PARAMS][3];
    static const char *const names[PARAMS] = { "a", "b", "c" };
    ddp_param params[PARAMS];
    ddp_reducer *reducer = NULL;
    for (size_t p = 0; p < PARAMS; p++)
        params[p] = (ddp_param){ .name = names[p], .data = values[p], .count = sizes[p], .dtype = DDP_F32 };
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, PARAMS, options, &reducer));
    return reducer;
}

/* `used` parameters, from the first; `add` to what is there. */
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
    for (size_t p = 0; p < PARAMS; p++) {
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
    step(me, reducer, 0, PARAMS, false);
    expect_torch(me, reducer, "plain", 3e-7);
    reducer = open_reducer(me, ctx, NULL);
    ddp_reducer_set_sync(reducer, 0);
    step(me, reducer, 0, PARAMS, true);
    ddp_reducer_set_sync(reducer, 1);
    step(me, reducer, 1, PARAMS, true);
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
    step(me, reducer, 0, PARAMS, false);
    expect_torch(me, reducer, "half", 0x1p-9); /* PyTorch's sum is in f16, too */
}

static void joined(struct rank *me, ddp_ctx *ctx, ddp_uneven how, const char *name)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.uneven = how;
    ddp_reducer *reducer = open_reducer(me, ctx, &options);
    for (int number = 0; number < WORLD - me->rank; number++)
        step(me, reducer, number, PARAMS, false);
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
