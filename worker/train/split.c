/* split.c -- see split.h.
 *
 * All of it follows from the size of the batch, of the set and of the world; ranks need not talk to agree. */
#include "split.h"

#include <inttypes.h>
#include <stdbool.h>

static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

/* World divides the batch already, so if it is a power of two up to the limit, it divides what comes out
 * here. */
static int shards_of(uint64_t global_batch, int world_size)
{
    if (!is_power_of_two(world_size) || world_size > SPLIT_MAX_SHARDS)
        return world_size;
    int shards = SPLIT_MAX_SHARDS;
    while (global_batch % (unsigned)shards != 0)
        shards /= 2;
    return shards;
}

static uint64_t divided_up(uint64_t n, uint64_t by)
{
    return n / by + (n % by != 0);
}

ddp_status split_make(struct split *split, uint64_t samples, uint64_t batch, uint64_t global_batch,
                      int world_size, int rank, struct ddp_err *err)
{
    uint64_t world = (uint64_t)world_size;
    if (global_batch == 0)
        global_batch = batch * world;
    if (global_batch % world != 0)
        return ddp_fail(err, DDP_ERR_ARG,
                        "--global_batch %" PRIu64
                        " cannot be shared evenly by %d workers; the nearest that can is %" PRIu64,
                        global_batch, world_size, divided_up(global_batch, world) * world);
    int shards = shards_of(global_batch, world_size);
    *split = (struct split){
        .samples = samples,
        .global_batch = global_batch,
        .world_size = world_size,
        .shards = shards,
        .shards_here = shards / world_size,
        .first_shard = rank * (shards / world_size),
        .steps = divided_up(samples, global_batch),
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
