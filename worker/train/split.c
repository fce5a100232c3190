/* split.c -- see split.h.
 *
 * All of it follows from the size of the batch, of the set and of the world; ranks need not talk to agree. */
#include "train/split.h"

#include <inttypes.h>

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* World divides the batch already, so if it is a power of two up to the limit, it divides what comes out
 * here. */
static int shards_of(uint64_t global_batch, int world_size)
{
    if (!is_power_of_two(world_size) || world_size > SPLIT_SHARDS)
        return world_size;
    int shards = SPLIT_SHARDS;
    while (global_batch % (unsigned)shards != 0)
        shards /= 2;
    return shards;
}

static uint64_t divided_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

/* The same number of shards whatever the world: it and the batch must fit. */
static ddp_status check_world(uint64_t global_batch, uint64_t accumulate, int world_size, struct ddp_err *err)
{
    uint64_t parts = SPLIT_WORLD_SHARDS * accumulate;
    if (!is_power_of_two(world_size) || world_size > SPLIT_WORLD_SHARDS)
        return ddp_fail(err, DDP_ERR_ARG, "--determinism world: %d workers; there can be 1, 2, 4 or %d",
                        world_size, SPLIT_WORLD_SHARDS);
    if (global_batch % parts != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--determinism world: a global batch of %" PRIu64 " cannot be cut into %" PRIu64
                        " equal parts (%d shards, --accumulate %" PRIu64 "); %" PRIu64 " can",
                        global_batch, parts, SPLIT_WORLD_SHARDS, accumulate,
                        divided_up(global_batch, parts) * parts);
    return DDP_OK;
}

/* A worker that accumulates has said into how many parts its share is cut; nothing is cut further then. */
static ddp_status count_shards(const struct split_wish *wish, uint64_t global_batch, int world_size,
                               int *shards, struct ddp_err *err)
{
    uint64_t accumulate = wish->accumulate > 0 ? wish->accumulate : 1, world = (uint64_t)world_size;
    if (wish->any_world) {
        *shards = (int)(SPLIT_WORLD_SHARDS * accumulate);
        return check_world(global_batch, accumulate, world_size, err);
    }
    if (global_batch % (world * accumulate) != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--global_batch %" PRIu64
                        " cannot be shared evenly by %d workers%s; the nearest that can is %" PRIu64,
                        global_batch, world_size, accumulate > 1 ? " with --accumulate" : "",
                        divided_up(global_batch, world * accumulate) * world * accumulate);
    *shards =
        accumulate > 1 || wish->together ? (int)(world * accumulate) : shards_of(global_batch, world_size);
    return DDP_OK;
}

ddp_status split_make(struct split *split, const struct split_wish *wish, int world_size, int rank,
                      struct ddp_err *err)
{
    uint64_t global_batch = wish->global_batch;
    int shards = 1;
    if (global_batch == 0)
        global_batch = wish->batch * (uint64_t)world_size * (wish->accumulate > 0 ? wish->accumulate : 1);
    ddp_status status = count_shards(wish, global_batch, world_size, &shards, err);
    if (status != DDP_OK)
        return status;
    *split = (struct split){
        .samples = wish->samples,
        .global_batch = global_batch,
        .world_size = world_size,
        .shards = shards,
        .shards_here = shards / world_size,
        .first_shard = rank * (shards / world_size),
        .steps = divided_up(wish->samples, global_batch),
    };
    return DDP_OK;
}

/* What is left at the end of an epoch may be less than a batch, but never nothing: steps are counted so. */
uint64_t split_samples(const struct split *split, uint64_t step)
{
    uint64_t left = split->samples - step * split->global_batch;
    return left < split->global_batch ? left : split->global_batch;
}

/* Rounded up: where the shards do not come out even, the sampler pads, and the padding weighs nothing. */
size_t split_rows(const struct split *split, uint64_t step)
{
    return divided_up(split_samples(split, step), (uint64_t)split->shards);
}
