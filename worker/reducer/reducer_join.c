/* reducer_join.c -- ranks with different numbers of batches: see reducer_state.h.
 *
 *     rank with a batch      answers the roll call in ddp_reducer_forward, then computes
 *     rank without           answers it in ddp_reducer_join, again and again, and does what a step does among ranks, with
 *                            zeros for gradients, until nobody has a batch
 *
 * All know the answers of all, so nothing else need be asked: whether the step has sync, who broadcasts buffers (the first
 * rank that still computes), what to divide by, and whose parameters count in the end. */
#include "core/error.h"
#include "reducer/reducer_memory.h"

#include <string.h>

/* One number from each rank; the smallest collective there is, as every forward pays for it. */
static ddp_status call_roll(ddp_reducer *reducer, enum roll_answer answer)
{
    int32_t mine = (int32_t)answer;
    struct ddp_err err;
    ddp_status status = ddp_all_gather(reducer->group, &mine, reducer->answers, 1, DDP_I32, NULL, NULL);
    if (status != DDP_OK)
        return status;
    struct roll roll;
    status = roll_read(&roll, reducer->answers, ddp_world_size(reducer->group->ctx), reducer->options.uneven,
                       &err);
    if (status != DDP_OK)
        return reducer_fail(reducer, &err);
    if (roll.active == 0)
        roll.last = reducer->roll.last; /* of the last step: it is they who came last */
    reducer->roll = roll;
    return DDP_OK;
}

ddp_status join_answer(ddp_reducer *reducer)
{
    return call_roll(reducer, reducer->core.sync ? ROLL_SYNC : ROLL_LOCAL);
}

/* A step of the others, in the same order of collectives as theirs: rebuild, buffers, buckets, who used what. */
static ddp_status shadow(ddp_reducer *reducer)
{
    struct core_wish wish;
    struct ddp_err err;

    if (core_forward(&reducer->core, &wish, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    ddp_status status = sync_begin(reducer, &wish);
    if (status != DDP_OK)
        return status;
    core_shadow(&reducer->core, reducer->roll.sync);
    reducer_zero(reducer, reducer->arena, reducer->plan.arena_bytes);
    status = bucket_launch(reducer);
    return status == DDP_OK ? sync_end(reducer) : status;
}

/* Before the roll call, as after it the others would count on us. */
static ddp_status check(const ddp_reducer *reducer)
{
    struct ddp_err err;
    if (reducer->options.uneven == DDP_UNEVEN_NO)
        ddp_fail(&err, DDP_ERR_ARG, "reducer: join, but ddp_reducer_options.uneven was not set");
    else if (reducer->core.phase != CORE_IDLE)
        ddp_fail(&err, DDP_ERR_ARG, "reducer: join in the middle of a step; call ddp_reducer_finish before");
    else
        return DDP_OK;
    return reducer_fail(reducer, &err);
}

/* Ends when all the others have ended, too: their batches are finite, and each wait for them has the step's time-out. */
ddp_status ddp_reducer_join(ddp_reducer *reducer)
{
    NOT_NULL_KEPT(reducer);
    ddp_status status = bucket_wait(reducer);
    if (status == DDP_OK)
        status = check(reducer);
    while (status == DDP_OK) {
        status = call_roll(reducer, ROLL_NONE);
        if (status == DDP_OK && reducer->roll.active == 0)
            return sync_model(reducer, reducer->roll.last);
        if (status == DDP_OK)
            status = shadow(reducer);
    }
    return status;
}
