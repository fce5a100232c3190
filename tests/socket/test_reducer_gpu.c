/* The reducer with gradients in the memory of a device (tests/fake/fake_gpu.h): averages, also after the buckets were rebuilt;
 * buffers; unused parameters; and that nothing waits on the host before it must. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PARAMS = 5, COUNT = 3000 };

struct model {
    struct rank *me;
    ddp_ctx *ctx;
    float *memory; /* of the device: parameters, then a buffer */
    ddp_param params[PARAMS + 1];
    ddp_reducer *reducer;
};

static void *block(struct rank *me, ddp_ctx *ctx, size_t bytes)
{
    void *memory;
    rank_expect_ok(me, ddp_shared_alloc(ddp_world(ctx), bytes, &memory));
    return memory;
}

/* Parameters of different values on the ranks: all must get those of rank 0. */
static struct model model_open(struct rank *me, const ddp_options *context, ddp_reducer_options options)
{
    static const char *const names[] = { "a", "b", "c", "d", "e", "mean" };
    pretend_gpu();
    struct model m = { .me = me, .ctx = rank_init(me, context) };
    m.memory = block(me, m.ctx, (PARAMS + 1) * COUNT * sizeof(float));
    for (int i = 0; i <= PARAMS; i++) {
        m.params[i] =
            (ddp_param){ .name = names[i], .data = m.memory + i * COUNT, .count = COUNT, .dtype = DDP_F32 };
        m.memory[i * COUNT] = (float)(10 * me->rank + i);
    }
    options.first_bucket_bytes = 8000;
    options.bucket_cap_bytes = 20000;
    options.buffers = &m.params[PARAMS];
    options.buffer_count = 1;
    rank_expect_ok(me, ddp_reducer_create(ddp_world(m.ctx), m.params, PARAMS, &options, &m.reducer));
    return m;
}

static void model_close(struct model *m)
{
    rank_expect_ok(m->me, ddp_reducer_free(m->reducer));
    rank_expect_ok(m->me, ddp_finalize(m->ctx));
}

/* A value of device memory, when the stream is so far. */
static float value(struct model *m, const float *at)
{
    float x = -1;
    rank_expect_ok(m->me, ddp_copy(ddp_world(m->ctx), &x, at, sizeof(x), NULL));
    return x;
}

/* One step: the last parameter is ready first, but in the order that the first step records c comes last. Parameter `unused`
 * takes no part. */
static void step(struct model *m, int number, int unused)
{
    static const int order[] = { 4, 3, 1, 0, 2 };
    rank_expect_ok(m->me, ddp_reducer_forward(m->reducer));
    for (int k = 0; k < PARAMS; k++) {
        int i = order[k];
        float *grad = ddp_reducer_grad(m->reducer, (size_t)i), values[COUNT];
        if (i == unused)
            continue;
        for (int j = 0; j < COUNT; j++)
            values[j] = (float)(number * 100 + i + m->me->rank * 2);
        rank_expect_ok(m->me, ddp_copy(ddp_world(m->ctx), grad, values, sizeof(values), NULL));
        rank_expect_ok(m->me, ddp_reducer_ready(m->reducer, (size_t)i));
    }
    rank_expect_ok(m->me, ddp_reducer_finish(m->reducer));
}

static void expect_average(struct model *m, int number, int i)
{
    const float *grad = ddp_reducer_grad(m->reducer, (size_t)i);
    float want = (float)(number * 100 + i) + (float)(m->me->world - 1);
    float first = value(m, grad), last = value(m, grad + COUNT - 1);
    rank_expect(m->me, first == want && last == want, "step %d, %s: %g and %g, %g expected", number,
                m->params[i].name, (double)first, (double)last, (double)want);
}

static void averages(struct rank *me)
{
    struct model m = model_open(me, me->user, (ddp_reducer_options)DDP_REDUCER_OPTIONS_INIT);
    rank_expect(me, ddp_reducer_buckets(m.reducer) > 2, "%zu buckets", ddp_reducer_buckets(m.reducer));
    for (int i = 0; i <= PARAMS; i++)
        rank_expect(me, value(&m, m.params[i].data) == (float)i, "parameter %d is not rank 0's", i);
    for (int number = 1; number <= 3; number++) {
        float mean = (float)(number + me->rank);
        rank_expect_ok(me, ddp_copy(ddp_world(m.ctx), m.params[PARAMS].data, &mean, sizeof(mean), NULL));
        step(&m, number, -1);
        for (int i = 0; i < PARAMS; i++)
            expect_average(&m, number, i);
        rank_expect(me, value(&m, m.params[PARAMS].data) == (float)number, "the buffer is not rank 0's");
    }
    model_close(&m);
}

static void run(int n, rank_main main, const ddp_options *options)
{
    struct ranks ranks = ranks_run(n, main, RANKS_PLAIN_STORE, options);
    ranks_expect_ok(&ranks);
    ranks_free(&ranks);
}

Test(reducer_gpu, averages_are_there_when_the_stream_is_so_far, .timeout = 120)
{
    run(2, averages, &nccl_options);
}

Test(reducer_gpu, a_world_of_one_averages_with_itself, .timeout = 120)
{
    run(1, averages, &nccl_options);
}

Test(reducer_gpu, device_gradients_go_through_the_cpu_backend, .timeout = 120)
{
    run(3, averages, &staged_options);
}

static void unused(struct rank *me)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.find_unused = 1;
    struct model m = model_open(me, me->user, options);
    step(&m, 1, -1);
    step(&m, 2, 1); /* no rank uses b: its gradient stays */
    expect_average(&m, 1, 1);
    expect_average(&m, 2, 0);
    rank_expect(me, !ddp_reducer_used(m.reducer, 1) && ddp_reducer_used(m.reducer, 0), "who used what");
    model_close(&m);
}

Test(reducer_gpu, what_nobody_uses_keeps_its_gradient, .timeout = 120)
{
    run(2, unused, &nccl_options);
}

/* No all-reduce has begun, and the program's thread is through. */
static void goes_on(struct rank *me)
{
    setenv("FAKE_NCCL_SHUT", "0", 1); /* there from the start: threads look at it */
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.keep_buffers = 1; /* a broadcast that the stream would wait for */
    struct model m = model_open(me, &nccl_options, options);
    const float *grad = ddp_reducer_grad(m.reducer, 4); /* of the first bucket */
    setenv("FAKE_NCCL_SHUT", "1", 1);
    step(&m, 1, -1);
    rank_expect(me, *grad == (float)(100 + 4 + me->rank * 2), "the first bucket was waited for");
    setenv("FAKE_NCCL_SHUT", "0", 1);
    expect_average(&m, 1, 4);
    model_close(&m);
}

Test(reducer_gpu, the_host_waits_for_no_bucket, .timeout = 120)
{
    run(2, goes_on, NULL);
}

static void not_there(struct rank *me)
{
    pretend_gpu();
    ddp_ctx *ctx = rank_init(me, &nccl_options);
    float x = 0;
    const ddp_param p = { .name = "x", .data = &x, .count = 1, .dtype = DDP_F32 };
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    ddp_reducer *reducer;
    options.predivide = 2;
    rank_expect(me, ddp_reducer_create(ddp_world(ctx), &p, 1, &options, &reducer) == DDP_ERR_UNSUPPORTED,
                "created");
    rank_expect(me, strstr(ddp_last_error(), "predivide is not there for gradients on a device") != NULL,
                "%s", ddp_last_error());
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(reducer_gpu, an_option_that_needs_the_host_is_named, .timeout = 120)
{
    run(1, not_there, NULL);
}
