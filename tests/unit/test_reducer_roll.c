/* The roll call of ranks with different numbers of batches. */
#include "reducer/reducer_roll.h"

#include <criterion/criterion.h>
#include <string.h>

static struct roll roll;
static struct ddp_err err;

static ddp_status read_four(int a, int b, int c, int d, ddp_uneven uneven)
{
    const int32_t answers[] = { a, b, c, d };
    return roll_read(&roll, answers, 4, uneven, &err);
}

Test(reducer_roll, counts_those_that_have_a_batch)
{
    cr_assert_eq(read_four(ROLL_NONE, ROLL_SYNC, ROLL_SYNC, ROLL_NONE, DDP_UNEVEN_WORLD), DDP_OK);
    cr_assert_eq(roll.active, 2);
    cr_assert_eq(roll.first, 1);
    cr_assert_eq(roll.last, 2);
    cr_assert(roll.sync);
    cr_assert_eq(read_four(ROLL_NONE, ROLL_NONE, ROLL_NONE, ROLL_LOCAL, DDP_UNEVEN_WORLD), DDP_OK);
    cr_assert_eq(roll.first, 3);
    cr_assert_not(roll.sync);
}

Test(reducer_roll, nobody_has_one_at_the_end)
{
    cr_assert_eq(read_four(ROLL_NONE, ROLL_NONE, ROLL_NONE, ROLL_NONE, DDP_UNEVEN_STOP), DDP_OK);
    cr_assert_eq(roll.active, 0);
}

Test(reducer_roll, ranks_that_disagree_about_sync_are_named)
{
    cr_assert_eq(read_four(ROLL_NONE, ROLL_LOCAL, ROLL_LOCAL, ROLL_SYNC, DDP_UNEVEN_WORLD), DDP_ERR_MISMATCH);
    cr_assert_str_eq(err.msg, "reducer: forward: rank 3 synchronises in this step, rank 1 only accumulates; "
                              "ddp_reducer_set_sync must be the same on all ranks");
}

Test(reducer_roll, an_early_end_is_an_error_if_asked_for)
{
    cr_assert_eq(read_four(ROLL_SYNC, ROLL_SYNC, ROLL_NONE, ROLL_SYNC, DDP_UNEVEN_STOP), DDP_ERR_ARG);
    cr_assert_str_eq(
        err.msg, "reducer: rank 2 has no more batches, and 3 of 4 ranks have; DDP_UNEVEN_WORLD would go on");
}
