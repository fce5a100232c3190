/* reducer_roll.c -- see reducer_roll.h. All ranks read the same answers, so all decide the same. */
#include "reducer/reducer_roll.h"

/* The first rank that answers otherwise than rank `first`, of those that have a batch; -1 = none. */
static int other_mind(const int32_t *answers, int world, int first)
{
    for (int r = first + 1; r < world; r++)
        if (answers[r] != ROLL_NONE && answers[r] != answers[first])
            return r;
    return -1;
}

static int first_without(const int32_t *answers, int world)
{
    int r = 0;
    while (r < world && answers[r] != ROLL_NONE)
        r++;
    return r;
}

/* Which of the two forgot something nobody can tell, so both are named. */
static ddp_status differ(const struct roll *roll, int other, struct ddp_err *err)
{
    int syncs = roll->sync ? roll->first : other, does_not = roll->sync ? other : roll->first;
    return ddp_fail(err, DDP_ERR_MISMATCH,
                    "reducer: forward: rank %d synchronises in this step, rank %d only accumulates; "
                    "ddp_reducer_set_sync must be the same on all ranks",
                    syncs, does_not);
}

ddp_status roll_read(struct roll *out, const int32_t *answers, int world, ddp_uneven uneven,
                     struct ddp_err *err)
{
    struct roll roll = { 0, 0, 0, false };
    for (int r = 0; r < world; r++) {
        if (answers[r] == ROLL_NONE)
            continue;
        roll.first = roll.active++ == 0 ? r : roll.first;
        roll.last = r;
    }
    roll.sync = roll.active > 0 && answers[roll.first] == ROLL_SYNC;
    int other = roll.active > 0 ? other_mind(answers, world, roll.first) : -1;
    if (other >= 0)
        return differ(&roll, other, err);
    if (uneven == DDP_UNEVEN_STOP && roll.active > 0 && roll.active < world)
        return ddp_fail(
            err, DDP_ERR_ARG,
            "reducer: rank %d has no more batches, and %d of %d ranks have; DDP_UNEVEN_WORLD would go on",
            first_without(answers, world), roll.active, world);
    *out = roll;
    return DDP_OK;
}
