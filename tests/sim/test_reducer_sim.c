/* The reducers of several ranks in one process. Each rank marks its gradients in a different order. Some ranks do not
 * use all gradients, and some ranks run out of batches. Like a collective, a bucket is reduced when all ranks have
 * launched it. The tests check the property that keeps a job from hanging: all ranks launch the same buckets in the
 * same order. */
#include "reducer/step.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 4, PARAMS = 12, STEPS = 6, JOBS = 300, TRACE = 4096 };

struct sim_rank {
    struct reducer_step step;
    struct bucket_plan plan;
    size_t order[PARAMS]; /* order of this step's gradients */
    size_t given;         /* number of this step's gradients that are marked */
    char launched[TRACE]; /* launched buckets in order; "|" ends a step: "0 1 2 | 0 1 2 | " */
    bool batch;           /* the rank has a batch in this step */
};

static struct sim_rank ranks[RANKS];
static ddp_param params[PARAMS];
static uint32_t seed;
static struct ddp_err err;

/* Return a random number less than `below`. The number depends only on the seed, so the same seed repeats a failure. */
static uint32_t any(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

static void plan_for(struct sim_rank *r, const size_t *order)
{
    const struct bucket_rule rule = { 300, 600, order };
    bucket_plan_free(&r->plan);
    cr_assert_eq(bucket_plan_make(&r->plan, params, PARAMS, &rule, &err), DDP_OK);
}

static void open_ranks(bool find_unused, bool uneven)
{
    static const char *const names[PARAMS] = { "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l" };
    for (int p = 0; p < PARAMS; p++)
        params[p] =
            (ddp_param){ .name = names[p], .count = any(100), .dtype = any(4) == 0 ? DDP_F64 : DDP_F32 };
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct sim_rank){ .given = 0 };
        plan_for(&ranks[r], NULL);
        cr_assert_eq(step_open(&ranks[r].step, &ranks[r].plan, params, PARAMS, &err), DDP_OK);
        ranks[r].step.find_unused = find_unused;
        ranks[r].step.uneven = uneven;
    }
}

static void close_ranks(void)
{
    for (int r = 0; r < RANKS; r++) {
        step_close(&ranks[r].step);
        bucket_plan_free(&ranks[r].plan);
    }
}

static void shuffle(struct sim_rank *r)
{
    for (size_t p = 0; p < PARAMS; p++)
        r->order[p] = p;
    for (size_t p = PARAMS; p-- > 1;) {
        size_t other = any((uint32_t)p + 1), was = r->order[p];
        r->order[p] = r->order[other];
        r->order[other] = was;
    }
    r->given = 0;
}

static void note_launches(struct sim_rank *r)
{
    size_t b;
    while (step_launch(&r->step, &b)) {
        size_t used = strlen(r->launched);
        cr_assert_eq(r->step.pending[b], 0, "bucket %zu is not full", b);
        snprintf(r->launched + used, sizeof(r->launched) - used, "%zu ", b);
    }
}

/* Begin a step on every rank. If `sync` is true, the step averages the gradients. A rank without a batch then marks all
 * its gradients as ready at once. If the buckets are rebuilt, their plan follows the order in which the gradients
 * became ready on rank `root`. */
static void begin_step(bool sync, int root)
{
    for (int i = 0; i < RANKS; i++) {
        struct sim_rank *r = &ranks[i];
        struct step_effects effects;
        size_t order[PARAMS];
        r->step.next_sync = sync;
        cr_assert_eq(step_forward(&r->step, &effects, &err), DDP_OK, "%s", err.msg);
        memcpy(order, ranks[root].step.order, sizeof(order));
        if (effects.rebuild) {
            plan_for(r, order);
            step_rebuilt(&r->step);
        }
        if (!r->batch)
            step_shadow(&r->step, sync);
        shuffle(r);
    }
}

/* Mark the next gradient of a rank as ready. If `find_unused` is true, mark some gradients as unused instead. */
static void give_one(struct sim_rank *r)
{
    size_t p = r->order[r->given++];
    bool blank;
    ddp_status status = r->step.find_unused && any(3) == 0 ? step_unused(&r->step, p, &blank, &err)
                                                           : step_ready(&r->step, p, &err);
    cr_assert_eq(status, DDP_OK, "%s", err.msg);
    note_launches(r);
}

/* End the step. Some ranks leave the last gradients to step_finish(). */
static void end_step(struct sim_rank *r)
{
    size_t i;
    bool blank;
    cr_assert_eq(step_finish(&r->step, &err), DDP_OK, "%s", err.msg);
    note_launches(r);
    while (step_missing(&r->step, &i)) {
        cr_assert_eq(step_unused(&r->step, i, &blank, &err), DDP_OK, "%s", err.msg);
        note_launches(r);
    }
    cr_assert(!r->step.sync || r->step.launched == r->plan.count, "a bucket is left over");
    step_end(&r->step);
    strcat(r->launched, "| ");
}

/* Run a step. Mark one gradient at a time, on a random rank that has a batch. If `find_unused` is true, leave up to
 * three gradients of each rank to end_step(). */
static void run_step(void)
{
    size_t stop = ranks[0].step.find_unused ? PARAMS - any(4) : PARAMS;
    for (size_t left = RANKS * PARAMS * 4; left-- > 0;) {
        struct sim_rank *r = &ranks[any(RANKS)];
        if (r->batch && r->given < stop)
            give_one(r);
    }
    for (int i = 0; i < RANKS; i++) {
        while (ranks[i].batch && ranks[i].given < stop)
            give_one(&ranks[i]);
        end_step(&ranks[i]);
    }
}

static void expect_same_launches(uint32_t first_seed)
{
    for (int r = 1; r < RANKS; r++)
        cr_assert_str_eq(ranks[r].launched, ranks[0].launched, "seed %u: rank %d launches\n%s\nrank 0\n%s",
                         first_seed, r, ranks[r].launched, ranks[0].launched);
}

/* Run a job. If `uneven` is true, the ranks run out of batches one after the other, except rank `last`. */
static void run_job(uint32_t number, bool find_unused, bool uneven)
{
    int last = 0, root = 0;
    seed = number;
    open_ranks(find_unused, uneven);
    last = (int)any(RANKS);
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < RANKS; r++)
            ranks[r].batch = !uneven || r == last || (step == 0 ? any(2) == 0 : ranks[r].batch && any(3) > 0);
        bool first = !ranks[0].step.recorded;
        begin_step(any(4) > 0, root);
        for (int r = RANKS; first && r-- > 0;)
            root = ranks[r].batch ? r : root;
        run_step();
    }
    expect_same_launches(number);
    close_ranks();
}

Test(reducer_sim, ranks_launch_the_same_buckets_in_the_same_order)
{
    for (uint32_t number = 0; number < JOBS; number++) {
        run_job(number, false, false);
        run_job(number, true, false);
        run_job(number, false, true);
        run_job(number, true, true);
    }
}

/* Rank 1 fills bucket 0 last. The other buckets of rank 1 wait until bucket 0 is full. */
Test(reducer_sim, who_is_ahead_waits_in_the_first_bucket_that_is_not_full)
{
    seed = 4;
    open_ranks(false, false);
    for (int r = 0; r < RANKS; r++)
        ranks[r].batch = true;
    begin_step(true, 0);
    size_t first = ranks[1].plan.count;
    for (size_t p = 0; p < PARAMS; p++)
        if (ranks[1].plan.bucket_of[p] != 0)
            cr_assert_eq(step_ready(&ranks[1].step, p, &err), DDP_OK);
    note_launches(&ranks[1]);
    cr_assert_str_empty(ranks[1].launched, "%zu buckets", first);
    for (size_t p = 0; p < PARAMS; p++)
        if (ranks[1].plan.bucket_of[p] == 0)
            cr_assert_eq(step_ready(&ranks[1].step, p, &err), DDP_OK);
    note_launches(&ranks[1]);
    cr_assert_eq(strncmp(ranks[1].launched, "0 1 ", 4), 0, "%s", ranks[1].launched);
    close_ranks();
}
