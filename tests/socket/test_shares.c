/* worker/train/shares.h with real ranks on the fake GPU: sums, norms, updates and what is saved have the same bits for any number of
 * ranks, with shares and without, through NCCL and through the host. Eight parts of a gradient are added up as a tree, by one rank or by
 * eight. */
#include "ranks.h"

#include "train/cuda/cuda.h"
#include "train/shares.h"
#include "train/shares_plan.h"
#include "train/train_options.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 8, PARAMS = 6, STEPS = 2, ALL = 303049 };

/* Parameters that end in the middle of a bucket, go over several, are tiny, or are not there at all. */
static const size_t counts[PARAMS] = { 20000, 33000, 0, 49, 200000, 50000 };
static const size_t order[PARAMS] = { 5, 4, 3, 1, 2, 0 };

struct how {
    int precision;
    bool zero1, staged;
};

struct job {
    struct rank *me;
    const struct how *how;
    ddp_ctx *ctx;
    struct compute *gpu;
    struct model_tensor each[PARAMS];
    struct model_tensors params;
    struct shares *shares;
    float *m, *v;               /* of the device, without shares */
    float *room[PARTS / 2 + 1]; /* of the host, ALL each */
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
    for (size_t i = 0; i < PARAMS; at += counts[i++])
        j->each[i] = (struct model_tensor){ .count = counts[i], .value = j->flat + at };
    for (size_t i = 0; i < ALL; i++)
        j->flat[i] = cosf((float)i);
    j->params = (struct model_tensors){ .each = j->each, .n = PARAMS, .values = j->flat, .count = ALL };
    check(j, j->gpu->ops->place(j->gpu, &j->params, shares_multiple((size_t)me->world), !j->how->zero1, &err),
          &err);
    const struct shares_wish wish = { .group = ddp_world(j->ctx),
                                      .device = j->gpu,
                                      .params = &j->params,
                                      .count = counts,
                                      .world = me->world,
                                      .rank = me->rank,
                                      .dtype = j->how->precision == PRECISION_BF16 ? DDP_BF16 : DDP_F32,
                                      .zero1 = j->how->zero1,
                                      .any_world = true,
                                      .slots = 3 };
    check(j, shares_open(&j->shares, &wish, &err), &err);
    if (j->how->zero1)
        check(j, shares_import(j->shares, 0, j->flat, &err), &err);
    j->m = j->gpu->ops->alloc(j->gpu, ALL * sizeof(float));
    j->v = j->gpu->ops->alloc(j->gpu, ALL * sizeof(float));
}

static void close_job(struct job *j)
{
    j->gpu->ops->wait(j->gpu);
    shares_close(j->shares);
    j->gpu->ops->release(j->gpu, j->m);
    j->gpu->ops->release(j->gpu, j->v);
    j->gpu->ops->close(j->gpu);
    for (int i = 0; i <= PARTS / 2; i++)
        free(j->room[i]);
    free(j->flat);
    rank_expect_ok(j->me, ddp_finalize(j->ctx));
}

/* Parts from `first` on, as a tree, into room[depth]. */
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
    shares_start(j->shares);
    for (size_t k = 0; k < PARAMS; k++) {
        const size_t i = order[k];
        check(j,
              j->gpu->ops->copy(j->gpu, shares_grad(j->shares, i), sum + (j->each[i].value - j->flat),
                                counts[i], &err),
              &err);
        check(j, shares_ready(j->shares, i, &err), &err);
    }
    check(j, shares_average(j->shares, &err), &err);
}

static void update_whole(struct job *j, const ddp_optim *rule, size_t i)
{
    const struct model_tensor *t = &j->each[i];
    const struct compute_update u = { .p = t->master,
                                      .w = t->at != t->master ? (void *)(uintptr_t)t->at : NULL,
                                      .g = shares_grad(j->shares, i),
                                      .m = j->m + (t->value - j->flat),
                                      .v = j->v + (t->value - j->flat),
                                      .n = t->count };
    j->gpu->ops->update(j->gpu, rule, &u);
}

static void step(struct job *j, ddp_optim *rule, int number)
{
    struct ddp_err err = { 0 };
    add_up(j, number);
    check(j, shares_norm(j->shares, 0.5, 1, &err), &err);
    ddp_optim_begin(rule);
    for (size_t i = 0; i < PARAMS; i++) {
        if (j->how->zero1)
            shares_update(j->shares, rule, i);
        else
            update_whole(j, rule, i);
    }
    if (j->how->zero1)
        check(j, shares_send(j->shares, &err), &err);
}

static void hash(struct job *j, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        j->me->value = (j->me->value ^ ((const unsigned char *)data)[i]) * 1099511628211u;
}

/* Rank 0 has all of slot `slot` in its room. */
static void gather(struct job *j, int slot, float *flat)
{
    struct ddp_err err = { 0 };
    if (j->how->zero1)
        check(j, shares_export(j->shares, slot, j->me->rank == 0 ? flat : NULL, &err), &err);
    else
        check(j, j->gpu->ops->copy(j->gpu, flat, slot == 1 ? j->m : j->v, ALL, &err), &err);
}

/* What is gathered and goes back to those that have it is what it was. */
static void there_and_back(struct job *j)
{
    struct ddp_err err = { 0 };
    gather(j, 1, j->room[0]);
    rank_expect_ok(j->me, ddp_broadcast(ddp_world(j->ctx), j->room[0], ALL, DDP_F32, 0, NULL, NULL));
    if (j->how->zero1)
        check(j, shares_import(j->shares, 2, j->room[0], &err), &err);
    gather(j, j->how->zero1 ? 2 : 1, j->room[1]);
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
    for (int number = 0; number < STEPS; number++)
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

/* The hash that all ranks have come to. */
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

TestSuite(shares, .timeout = 150);

Test(shares, the_same_bits_for_any_number_of_ranks)
{
    const uint64_t one = run(1, (struct how){ PRECISION_FP32, false, false });
    cr_expect_eq(run(2, (struct how){ PRECISION_FP32, false, false }), one);
    cr_expect_eq(run(2, (struct how){ PRECISION_FP32, true, false }), one);
    cr_expect_eq(run(8, (struct how){ PRECISION_FP32, true, false }), one);
}

Test(shares, the_same_bits_through_the_host)
{
    const uint64_t one = run(1, (struct how){ PRECISION_FP32, true, true });
    cr_expect_eq(run(2, (struct how){ PRECISION_FP32, true, true }), one);
    cr_expect_eq(run(4, (struct how){ PRECISION_FP32, false, true }), one);
}

Test(shares, masters_of_16_bits_are_shared_out)
{
    const uint64_t one = run(1, (struct how){ PRECISION_BF16, false, false });
    cr_expect_eq(run(1, (struct how){ PRECISION_BF16, true, false }), one);
    cr_expect_eq(run(2, (struct how){ PRECISION_BF16, true, false }), one);
    cr_expect_eq(run(4, (struct how){ PRECISION_BF16, true, true }), one);
}
