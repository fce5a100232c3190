/* Compare batch normalization over ranks with torch's BatchNorm on the whole batch (tests/data/torch_batchnorm.json).
 * The parts of the ranks have different sizes, and some are empty. The tolerance is relative to the largest value in
 * the array: 1e-6 for y and for the running mean and variance, 1e-5 for gradients. */
#include "numbers.h"
#include "ranks.h"

#include "ddp/syncbn.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

enum { ROOM = 256, CHANNELS = 3 };

/* One case of torch_batchnorm.json, and how its samples are distributed among the ranks. */
struct scene {
    const cJSON *row;
    size_t channels, spatial;
    const size_t *parts; /* number of samples of each rank */
};

/* The data of a rank: its part of each array of the whole batch, from index `first` on. */
struct part {
    ddp_syncbn bn;
    size_t n, first, values;
    float weight[CHANNELS], bias[CHANNELS], mean[CHANNELS], var[CHANNELS];
    double saved[2 * CHANNELS];
    float x[ROOM], dy[ROOM], y[ROOM], dx[ROOM];
};

static void expect_near(struct rank *me, const char *what, const float *ours, const float *torchs, size_t n,
                        float tolerance)
{
    float largest = 1;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(torchs[i]));
    for (size_t i = 0; i < n; i++)
        rank_expect(me, fabsf(ours[i] - torchs[i]) <= tolerance * largest, "%s[%zu] is %.9g, torch has %.9g",
                    what, i, (double)ours[i], (double)torchs[i]);
}

static void torchs(const cJSON *row, const char *key, float to[ROOM])
{
    numbers_floats(cJSON_GetObjectItem(row, key), to, ROOM);
}

static void begin(struct part *p, const struct scene *s, int rank)
{
    memset(p, 0, sizeof(*p));
    p->bn = (ddp_syncbn)DDP_SYNCBN_INIT;
    p->bn.channels = s->channels;
    p->bn.spatial = s->spatial;
    p->bn.saved = p->saved;
    p->bn.weight = p->weight;
    p->bn.bias = p->bias;
    p->bn.running_mean = p->mean;
    p->bn.running_var = p->var;
    numbers_floats(cJSON_GetObjectItem(s->row, "weight"), p->weight, CHANNELS);
    numbers_floats(cJSON_GetObjectItem(s->row, "bias"), p->bias, CHANNELS);
    for (size_t c = 0; c < s->channels; c++)
        p->var[c] = 1;
    for (int r = 0; r < rank; r++)
        p->first += s->parts[r] * s->channels * s->spatial;
    p->n = s->parts[rank];
    p->values = p->n * s->channels * s->spatial;
}

/* Return this rank's rows of an array of the whole batch. */
static void mine(const struct part *p, const cJSON *step, const char *key, float to[ROOM])
{
    float all[ROOM];
    torchs(step, key, all);
    memcpy(to, all + p->first, p->values * sizeof(float));
}

static void one_step(struct rank *me, ddp_group *group, struct part *p, const cJSON *step)
{
    float must[ROOM], dweight[CHANNELS], dbias[CHANNELS];
    const size_t channels = p->bn.channels;
    mine(p, step, "x", p->x);
    mine(p, step, "dy", p->dy);
    rank_expect_ok(me, ddp_syncbn_forward(group, &p->bn, p->x, p->n, p->y));
    mine(p, step, "y", must);
    expect_near(me, "y", p->y, must, p->values, 1e-6f);
    torchs(step, "running_mean", must);
    expect_near(me, "running_mean", p->mean, must, channels, 1e-6f);
    torchs(step, "running_var", must);
    expect_near(me, "running_var", p->var, must, channels, 1e-6f);
    rank_expect_ok(me, ddp_syncbn_backward(group, &p->bn, p->x, p->dy, p->n, p->dx, dweight, dbias));
    mine(p, step, "dx", must);
    expect_near(me, "dx", p->dx, must, p->values, 1e-5f);
    rank_expect_ok(me, ddp_all_reduce(group, dweight, dweight, channels, DDP_F32, DDP_SUM, NULL, NULL));
    rank_expect_ok(me, ddp_all_reduce(group, dbias, dbias, channels, DDP_F32, DDP_SUM, NULL, NULL));
    torchs(step, "dweight", must);
    expect_near(me, "dweight", dweight, must, channels, 1e-5f);
    torchs(step, "dbias", must);
    expect_near(me, "dbias", dbias, must, channels, 1e-5f);
}

static void follow(struct rank *me)
{
    const struct scene *s = me->user;
    struct part p;
    float must[ROOM];
    const cJSON *step;
    ddp_ctx *ctx = rank_init(me, NULL);
    begin(&p, s, me->rank);
    cJSON_ArrayForEach(step, cJSON_GetObjectItem(s->row, "steps"))
    {
        one_step(me, ddp_world(ctx), &p, step);
    }
    mine(&p, s->row, "evaluated", must);
    rank_expect_ok(me, ddp_syncbn_infer(&p.bn, p.x, p.n, p.y));
    expect_near(me, "evaluated", p.y, must, p.values, 1e-6f);
    rank_expect_ok(me, ddp_finalize(ctx));
}

static void run_case(int number, int world, const size_t *parts)
{
    cJSON *json = numbers_read("batchnorm");
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "cases"), number);
    const struct scene scene = { row, (size_t)numbers_get(row, "channels", 0),
                                 (size_t)numbers_get(row, "spatial", 0), parts };
    ranks_all_well(world, follow, RANKS_PLAIN_STORE, &scene);
    cJSON_Delete(json);
}

Test(syncbn, one_rank_is_torchs_batch_norm)
{
    run_case(0, 1, (size_t[]){ 7 });
    run_case(1, 1, (size_t[]){ 9 });
    run_case(2, 1, (size_t[]){ 8 });
}

Test(syncbn, even_and_uneven_parts_are_one_big_batch)
{
    run_case(0, 2, (size_t[]){ 4, 3 });
    run_case(1, 3, (size_t[]){ 3, 3, 3 });
    run_case(2, 4, (size_t[]){ 5, 1, 1, 1 });
}

Test(syncbn, empty_parts_join_in)
{
    run_case(0, 4, (size_t[]){ 0, 3, 0, 4 });
    run_case(1, 2, (size_t[]){ 9, 0 });
    run_case(2, 3, (size_t[]){ 0, 0, 8 });
}

static void nothing_at_all(struct rank *me)
{
    double saved[2] = { 4, INFINITY };
    float mean[1] = { 3 }, var[1] = { 5 }, dweight[1] = { 7 };
    ddp_syncbn bn = DDP_SYNCBN_INIT;
    ddp_ctx *ctx = rank_init(me, NULL);
    bn.channels = 1;
    bn.saved = saved;
    bn.count = 9;
    bn.running_mean = mean;
    bn.running_var = var;
    rank_expect_ok(me, ddp_syncbn_forward(ddp_world(ctx), &bn, NULL, 0, NULL));
    rank_expect_ok(me, ddp_syncbn_backward(ddp_world(ctx), &bn, NULL, NULL, 0, NULL, dweight, NULL));
    rank_expect(me, mean[0] == 3 && var[0] == 5 && dweight[0] == 0, "an empty batch has moved something");
    rank_expect(me, saved[0] == 4 && isinf(saved[1]) && bn.count == 9, "it has changed the saved values");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(syncbn, a_batch_that_is_empty_everywhere_moves_nothing)
{
    ranks_all_well(2, nothing_at_all, RANKS_PLAIN_STORE, NULL);
}

static void a_single_value(struct rank *me)
{
    double saved[2];
    float x[1] = { 3 };
    ddp_syncbn bn = DDP_SYNCBN_INIT;
    ddp_ctx *ctx = rank_init(me, NULL);
    bn.channels = 1;
    bn.saved = saved;
    rank_keep(me, ddp_syncbn_forward(ddp_world(ctx), &bn, x, me->rank == 1, x));
    rank_expect(me, x[0] == 3, "x has changed");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(syncbn, one_value_over_all_ranks_is_refused_on_all)
{
    static const char *const parts[] = { "per channel", NULL };
    struct ranks ranks = ranks_run(2, a_single_value, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&ranks, 0, DDP_ERR_ARG, parts);
    ranks_expect_error(&ranks, 1, DDP_ERR_ARG, parts);
    ranks_free(&ranks);
}

static void other_channels(struct rank *me)
{
    double saved[4];
    float x[4] = { 1, 2, 3, 4 };
    ddp_syncbn bn = DDP_SYNCBN_INIT;
    ddp_ctx *ctx = rank_init(me, NULL);
    bn.channels = me->rank == 0 ? 1 : 2;
    bn.saved = saved;
    rank_keep(me, ddp_syncbn_forward(ddp_world(ctx), &bn, x, 2, x));
    ddp_finalize(ctx);
}

Test(syncbn, ranks_with_other_channels_are_a_mismatch)
{
    static const char *const parts[] = { "all_gather", NULL };
    struct ranks ranks = ranks_run(2, other_channels, RANKS_PLAIN_STORE, NULL);
    ranks_expect_error(&ranks, 0, DDP_ERR_MISMATCH, parts);
    ranks_free(&ranks);
}

Test(syncbn, unusable_descriptions_are_refused_with_words)
{
    double saved[2];
    float x[2] = { 1, 2 };
    const ddp_syncbn good = { .channels = 1, .spatial = 1, .eps = 1e-5, .momentum = 0.1, .saved = saved };
    ddp_syncbn bad[5] = { good, good, good, good, good };
    static const char *const says[5] = { "0 channels", "of 0 elements", "`saved` is NULL", "eps=nan",
                                         "address space" };
    bad[0].channels = 0;
    bad[1].spatial = 0;
    bad[2].saved = NULL;
    bad[3].eps = NAN;
    bad[4].channels = SIZE_MAX / 2;
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(ddp_syncbn_forward(NULL, &bad[i], x, 2, x), DDP_ERR_ARG);
        cr_expect(strstr(ddp_last_error(), says[i]), "%s", ddp_last_error());
    }
    ddp_syncbn bn = good;
    cr_expect_eq(ddp_syncbn_forward(NULL, &bn, NULL, 2, x), DDP_ERR_ARG);
    cr_expect_eq(ddp_syncbn_infer(&bn, x, 2, x), DDP_ERR_ARG);
    cr_expect_eq(ddp_syncbn_forward(NULL, &bn, x, 2, x), DDP_OK); /* without a group, this process is alone */
    cr_expect_float_eq(x[0], -1, 1e-4);
}
