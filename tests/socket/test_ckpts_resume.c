/* A run that is stopped in the middle of an epoch and goes on with another number of ranks: each sample
 * still comes once, and the state is what it was. The "model" is a sum over samples of exact numbers, so
 * it is the same however they are dealt out. */
#include "ranks.h"
#include "run.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SAMPLES = 60,
    EPOCHS = 2,
    BATCH = 12
}; /* 5 steps of an epoch; 12 can be shared by 1, 2, 3 and 4 ranks */

static char dir[] = "/tmp/ddp-resume-XXXXXX";

static void make_dir(void)
{
    temp_dir_make(dir);
}

static void remove_dir(void)
{
    temp_dir_remove(dir);
}

TestSuite(ckpts_resume, .init = make_dir, .fini = remove_dir);

/* All that a step changes. `sums` depends on which samples came in which step. */
struct model {
    double sums[EPOCHS * SAMPLES / BATCH];
    int64_t seen[SAMPLES];
};

struct run {
    struct rank *me;
    ddp_ctx *ctx;
    ddp_ckpts *ckpts; /* rank 0's */
    ddp_sampler *sampler;
    struct model model;
    ddp_ckpt_point point;
};

static void start(struct run *run, struct rank *me)
{
    struct ddp_err err;
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    int found;
    options.dir = dir;
    memset(run, 0, sizeof(*run));
    run->me = me;
    run->ctx = rank_init(me, NULL);
    if (me->rank == 0)
        rank_expect(me, ddp_ckpts_open(&options, &run->ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect(me,
                ddp_sampler_create(SAMPLES, me->world, me->rank, 3, DDP_SAMPLER_SHUFFLE, &run->sampler,
                                   &err) == DDP_OK,
                "%s", err.msg);
    const ddp_ckpt_block blocks[2] = { { "sums", run->model.sums, sizeof(run->model.sums) },
                                       { "seen", run->model.seen, sizeof(run->model.seen) } };
    rank_expect_ok(me, ddp_ckpts_resume(run->ckpts, ddp_world(run->ctx), blocks, 2, &run->point, &found));
    ddp_sampler_resume(run->sampler, run->point.epoch, run->point.samples);
}

static void train_step(struct run *run)
{
    struct model part = { .sums = { 0 } };
    uint64_t index;
    for (int i = 0; i < BATCH / run->me->world; i++) {
        rank_expect(run->me, ddp_sampler_next(run->sampler, &index, NULL), "no sample is left");
        part.sums[run->point.step] += (double)(index * index);
        part.seen[index]++;
    }
    rank_expect_ok(run->me, ddp_all_reduce(ddp_world(run->ctx), part.sums, part.sums,
                                           EPOCHS * SAMPLES / BATCH, DDP_F64, DDP_SUM, NULL, NULL));
    rank_expect_ok(run->me, ddp_all_reduce(ddp_world(run->ctx), part.seen, part.seen, SAMPLES, DDP_I64,
                                           DDP_SUM, NULL, NULL));
    for (int i = 0; i < EPOCHS * SAMPLES / BATCH; i++)
        run->model.sums[i] += part.sums[i];
    for (int i = 0; i < SAMPLES; i++)
        run->model.seen[i] += part.seen[i];
    run->point.step++;
    run->point.samples += BATCH;
    if (run->point.samples == SAMPLES) {
        run->point.samples = 0;
        ddp_sampler_set_epoch(run->sampler, ++run->point.epoch);
    }
}

static void save(struct run *run)
{
    struct ddp_err err;
    const ddp_ckpt_block blocks[2] = { { "sums", run->model.sums, sizeof(run->model.sums) },
                                       { "seen", run->model.seen, sizeof(run->model.seen) } };
    if (run->ckpts == NULL)
        return;
    run->point.world_size = (uint64_t)run->me->world;
    rank_expect(run->me, ddp_ckpts_save(run->ckpts, &run->point, blocks, 2, &err) == DDP_OK, "%s", err.msg);
}

/* Three steps, then the end of this world; the last finishes what is left. */
static void some_steps(struct rank *me)
{
    struct run run;
    struct ddp_err err;
    uint64_t limit = *(const uint64_t *)me->user;
    start(&run, me);
    while (run.point.step < limit) {
        train_step(&run);
        save(&run);
    }
    for (size_t i = 0; i < sizeof(run.model); i++)
        me->value = me->value * 31 + ((const unsigned char *)&run.model)[i];
    for (int i = 0; i < SAMPLES && limit == 10; i++)
        rank_expect(me, run.model.seen[i] == EPOCHS, "sample %d came %d times", i, (int)run.model.seen[i]);
    ddp_sampler_free(run.sampler);
    rank_expect(me, ddp_ckpts_close(run.ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect_ok(me, ddp_finalize(run.ctx));
}

static uint64_t run_until(int world, uint64_t step)
{
    struct ranks ranks = ranks_run(world, some_steps, RANKS_PLAIN_STORE, &step);
    ranks_expect_ok(&ranks);
    uint64_t value = ranks.rank[0].value;
    for (int r = 1; r < world; r++)
        cr_expect_eq(ranks.rank[r].value, value, "rank %d has another model", r);
    ranks_free(&ranks);
    return value;
}

Test(ckpts_resume, other_worlds_go_on_in_the_middle_of_an_epoch_with_the_same_bits)
{
    char command[64];
    uint64_t straight = run_until(2, 10);
    snprintf(command, sizeof(command), "rm -rf %s/step-*", dir);
    cr_assert_eq(system(command), 0);
    run_until(1, 3);
    run_until(3, 4);
    run_until(2, 7);
    cr_expect_eq(run_until(4, 10), straight);
}

/* --- errors reach all ranks ----------------------------------------------------------------------------- */

static void refused(struct rank *me)
{
    char small[8];
    struct ddp_err err;
    ddp_ckpts *ckpts = NULL;
    ddp_ckpts_options options = DDP_CKPTS_OPTIONS_INIT;
    ddp_ckpt_point point;
    int found;
    const ddp_ckpt_block blocks[2] = { { "sums", small, sizeof(small) }, { "seen", small, sizeof(small) } };
    ddp_ctx *ctx = rank_init(me, NULL);
    options.dir = dir;
    if (me->rank == 0)
        rank_expect(me, ddp_ckpts_open(&options, &ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_keep(me, ddp_ckpts_resume(ckpts, ddp_world(ctx), blocks, 2, &point, &found));
    rank_expect(me, !found && ddp_ckpts_close(ckpts, &err) == DDP_OK, "%s", err.msg);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(ckpts_resume, what_rank_0_cannot_load_is_an_error_on_all)
{
    static const char *const parts[] = { "step-00000001/tensors.bin", "'sums' of 80 bytes, 8 are expected",
                                         NULL };
    run_until(1, 1);
    struct ranks ranks = ranks_run(3, refused, RANKS_PLAIN_STORE, NULL);
    for (int r = 0; r < 3; r++)
        ranks_expect_error(&ranks, r, DDP_ERR_MISMATCH, parts);
    ranks_free(&ranks);
}
