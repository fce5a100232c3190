/* Every collective with real processes: types, operations, sizes, roots, private and shared memory, exact values.
 * ranks.h has the comparisons. */
#include "ranks.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void all_types(struct rank *me)
{
    trials_of_all_types(me, 1);
}

Test(collectives, two_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(2, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, three_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(3, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, four_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(4, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, seven_ranks_agree_on_every_type_and_operation, .timeout = 180)
{
    ranks_all_well(7, all_types, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, a_world_of_one_needs_no_one, .timeout = 180)
{
    ranks_all_well(1, all_types, RANKS_PLAIN_STORE, NULL);
    ranks_all_well(1, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, three_ranks_move_large_counts, .timeout = 180)
{
    ranks_all_well(3, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

Test(collectives, four_ranks_move_large_counts, .timeout = 180)
{
    ranks_all_well(4, trials_of_large_counts, RANKS_PLAIN_STORE, NULL);
}

/* --- the same bits every time --------------------------------------------------------------------------- */

/* Values whose sum depends on the order of additions, through private and through shared memory. */
static void sum_noise(struct rank *me)
{
    enum { N = 70001 };
    struct trial_room room = room_open(me, N * 4);
    uint64_t hash[2] = { 0xcbf29ce484222325u, 0xcbf29ce484222325u };
    float *const in[2] = { (float *)room.private_in, room.shared_in };

    for (int memory = 0; memory < 2; memory++) {
        srand((unsigned)me->rank + 1);
        for (int i = 0; i < N; i++)
            in[memory][i] = (float)rand() / (float)(1 + rand() % 1000);
        rank_expect_ok(
            me, ddp_all_reduce(ddp_world(room.ctx), in[memory], in[memory], N, DDP_F32, DDP_AVG, NULL, NULL));
        hash[memory] = trial_hash(hash[memory], in[memory], N * 4);
    }
    rank_expect(me, hash[0] == hash[1], "the way through memory changes the bits");
    me->value = hash[0];
    room_close(&room);
}

Test(collectives, equal_runs_give_equal_bits_on_every_rank, .timeout = 180)
{
    uint64_t first = 0;
    for (int run = 0; run < 3; run++) {
        struct ranks ranks = ranks_run(4, sum_noise, RANKS_PLAIN_STORE, NULL);
        ranks_expect_ok(&ranks);
        if (run == 0)
            first = ranks.rank[0].value;
        for (int r = 0; r < 4; r++)
            cr_assert_eq(ranks.rank[r].value, first, "run %d rank %d", run, r);
        ranks_free(&ranks);
    }
}

/* --- arguments ------------------------------------------------------------------------------------------ */

static void refuse(struct rank *me, ddp_status status, const char *part)
{
    rank_expect(me, status == DDP_ERR_ARG && strstr(ddp_last_error(), part) != NULL,
                "%s expected, got %s: %s", part, ddp_status_name(status), ddp_last_error());
}

/* A wrong argument is found before any other rank is involved, so the job goes on. */
static void wrong_arguments(struct rank *me)
{
    float x[8] = { 0 }, one = 1;
    ddp_ctx *ctx = rank_init(me, NULL);
    ddp_group *g = ddp_world(ctx);

    refuse(me, ddp_all_reduce(g, NULL, x, 1, DDP_F32, DDP_SUM, NULL, NULL), "`in` is NULL");
    refuse(me, ddp_all_reduce(g, x, NULL, 1, DDP_F32, DDP_SUM, NULL, NULL), "`out` is NULL");
    refuse(me, ddp_all_reduce(g, x, x + 1, 4, DDP_F32, DDP_SUM, NULL, NULL), "overlap");
    refuse(me, ddp_all_reduce(g, x, x, 1, (ddp_dtype)40, DDP_SUM, NULL, NULL), "dtype 40");
    refuse(me, ddp_all_reduce(g, x, x, 1, DDP_F32, (ddp_op)9, NULL, NULL), "op 9");
    refuse(me, ddp_broadcast(g, x, 1, DDP_F32, me->world, NULL, NULL), "is not a rank");
    refuse(me, ddp_broadcast(g, x, SIZE_MAX / 4, DDP_F32, 0, NULL, NULL), "more than memory can hold");
    refuse(me, ddp_shared_free(g, x), "does not come from ddp_shared_alloc");
    rank_expect_ok(me, ddp_all_reduce(g, &one, &one, 1, DDP_F32, DDP_SUM, NULL, NULL));
    rank_expect(me, one == (float)me->world, "the job goes on");
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, wrong_arguments_are_refused_and_harm_nobody, .timeout = 180)
{
    ranks_all_well(2, wrong_arguments, RANKS_PLAIN_STORE, NULL);
}

static void work_handles(struct rank *me)
{
    int32_t x = me->rank + 1;
    ddp_work *work = NULL;
    ddp_ctx *ctx = rank_init(me, NULL);
    rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), &x, &x, 1, DDP_I32, DDP_SUM, NULL, &work));
    rank_expect(me, work != NULL, "there is a handle");
    rank_expect_ok(me, ddp_work_wait(work));
    rank_expect(me, x == me->world * (me->world + 1) / 2, "x is %d", x);
    ddp_work_free(work);
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, a_work_handle_is_waited_for_and_freed, .timeout = 180)
{
    ranks_all_well(3, work_handles, RANKS_PLAIN_STORE, NULL);
}

/* A ddprun store and a foreign one: keys of the first meeting do not disturb the next. */
static void three_contexts(struct rank *me)
{
    for (int round = 0; round < 3; round++) {
        int32_t x = me->rank + round;
        ddp_ctx *ctx = rank_init(me, NULL);
        rank_expect_ok(me, ddp_all_reduce(ddp_world(ctx), &x, &x, 1, DDP_I32, DDP_MAX, NULL, NULL));
        rank_expect(me, x == me->world - 1 + round, "round %d: x is %d", round, x);
        rank_expect_ok(me, ddp_finalize(ctx));
    }
}

Test(collectives, a_process_may_meet_the_others_again, .timeout = 180)
{
    ranks_all_well(3, three_contexts, RANKS_PLAIN_STORE, NULL);
    ranks_all_well(3, three_contexts, RANKS_DDPRUN_STORE, NULL);
}

/* Longer than what the others add to rank 0's time, so that it may tell them what went wrong. */
enum { LATER_THAN_SLACK_US = 700000 };

static void wait_as_long_as_can_be_said(struct rank *me)
{
    ddp_options options = DDP_OPTIONS_INIT;
    options.init_timeout_ms = options.step_timeout_ms = UINT32_MAX;
    if (me->rank == 0)
        usleep(LATER_THAN_SLACK_US);
    ddp_ctx *ctx = rank_init(me, &options);
    rank_expect_ok(me, ddp_barrier(ddp_world(ctx), UINT32_MAX));
    rank_expect_ok(me, ddp_barrier_named(ctx, "all", UINT32_MAX));
    rank_expect_ok(me, ddp_finalize(ctx));
}

Test(collectives, the_longest_time_out_is_long, .timeout = 180)
{
    ranks_all_well(2, wait_as_long_as_can_be_said, RANKS_PLAIN_STORE, NULL);
}
