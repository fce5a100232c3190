/* reducer_model.c -- see reducer_model.h. */
#include "reducer_model.h"

#include "core/half.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

const size_t model_counts[PARAMS] = { 300, 7, 9, 200, 64, 500 };
const size_t model_fc2_shape[2] = { 20, 10 };
float model_w[PARAMS][500];
double model_scale[9];
float model_mean[33], model_seen[1];

void toy_params(ddp_param params[PARAMS])
{
    static const char *const names[PARAMS] = { "fc1.weight", "fc1.bias", "scale",
                                               "fc2.weight", "fc2.bias", "head" };
    for (size_t i = 0; i < PARAMS; i++)
        params[i] =
            (ddp_param){ .name = names[i], .data = model_w[i], .count = model_counts[i], .dtype = DDP_F32 };
    params[2].data = model_scale;
    params[2].dtype = DDP_F64;
    params[3].shape = model_fc2_shape;
    params[3].dims = 2;
}

ddp_reducer_options toy_options(void)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.first_bucket_bytes = 1200;
    options.bucket_cap_bytes = 1000;
    return options;
}

/* Hosts are letters, one for each rank. */
ddp_ctx *toy_join(struct rank *me)
{
    const char name[] = { ((const char *)me->user)[me->rank], '\0' };
    setenv("DDP_TEST_HOST", name, 1);
    return rank_init(me, NULL);
}

void model_run_on(const char *hosts, rank_main main)
{
    ranks_all_well((int)strlen(hosts), main, RANKS_PLAIN_STORE, hosts);
}

ddp_reducer *toy_open(struct rank *me, ddp_ctx *ctx, const ddp_reducer_options *options)
{
    ddp_param params[PARAMS];
    ddp_reducer *reducer = NULL;
    toy_params(params);
    rank_expect_ok(me, ddp_reducer_create(ddp_world(ctx), params, PARAMS, options, &reducer));
    return reducer;
}

/* --- gradients ------------------------------------------------------------------------------------------------- */

double toy_gradient(int rank, int step, size_t p, size_t e)
{
    return (double)(((size_t)rank * 7 + (size_t)step * 11 + p * 3 + e * 5) % 41) - 20;
}

double toy_get(ddp_reducer *reducer, size_t p, size_t e)
{
    const void *grad = ddp_reducer_grad(reducer, p);
    return p == 2 ? ((const double *)grad)[e] : (double)((const float *)grad)[e];
}

void toy_set(ddp_reducer *reducer, size_t p, size_t e, double value)
{
    void *grad = ddp_reducer_grad(reducer, p);
    if (p == 2)
        ((double *)grad)[e] = value;
    else
        ((float *)grad)[e] = (float)value;
}

void toy_clear(ddp_reducer *reducer)
{
    for (size_t p = 0; p < PARAMS; p++)
        memset(ddp_reducer_grad(reducer, p), 0, model_counts[p] * (p == 2 ? 8 : 4));
}

void toy_accumulate(ddp_reducer *reducer, int rank, int step, size_t p)
{
    for (size_t e = 0; e < model_counts[p]; e++)
        toy_set(reducer, p, e, toy_get(reducer, p, e) + toy_gradient(rank, step, p, e));
}

/* The backward pass, in an order that differs from rank to rank and from step to step. */
void toy_backward(struct rank *me, ddp_reducer *reducer, int step)
{
    for (size_t k = 0; k < PARAMS; k++) {
        size_t p = (5 * k + (size_t)me->rank + (size_t)step) % PARAMS;
        toy_accumulate(reducer, me->rank, step, p);
        rank_expect_ok(me, ddp_reducer_ready(reducer, p));
    }
}

/* The result of the reducer's options for a sum. */
double toy_averaged(const ddp_reducer_options *o, size_t p, double sum, double divisor)
{
    bool small = p != 2;
    if (o->predivide > 0)
        sum = sum / o->predivide * (o->predivide / divisor);
    else
        sum = small ? (double)((float)sum / (float)divisor) : sum / divisor;
    if (small && o->compress && o->predivide == 0)
        return (double)(o->wire == DDP_F16 ? f16_to_f32(f32_to_f16((float)sum))
                                           : bf16_to_f32(f32_to_bf16((float)sum)));
    return small ? (double)(float)sum : sum;
}

void model_expect_average(struct rank *me, ddp_reducer *reducer, const ddp_reducer_options *o, int first,
                          int last)
{
    for (size_t p = 0; p < PARAMS; p++) {
        for (size_t e = 0; e < model_counts[p]; e++) {
            double sum = 0;
            for (int step = first; step <= last; step++)
                for (int r = 0; r < me->world; r++)
                    sum += toy_gradient(r, step, p, e);
            double must = toy_averaged(o, p, sum, me->world), is = toy_get(reducer, p, e);
            rank_expect(me, is == must, "step %d parameter %zu element %zu: %.9g, %.9g expected", last, p, e,
                        is, must);
        }
    }
}
