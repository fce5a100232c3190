/* cpu_shared.c -- making and giving back blocks of shared memory, together. Each host has its own.
 *
 * The host's first rank makes the memory file and describes it in the control page; barrier; the others map it and vote
 * whether they could; barrier; only when all could, the block exists. So lack of memory on one rank is an
 * ordinary error on all of them, after which the job may go on. */
#include "cpu/net.h"

#include <string.h>

/* Rank 0, or the only rank, makes the memory; the others have nothing to do yet. */
static ddp_status make(struct cpu_comm *cpu, struct region *region, size_t bytes, struct ddp_err *err)
{
    if (cpu->world == 1)
        return segment_create_private(&region->segment, bytes, err);
    if (cpu->rank != 0)
        return DDP_OK;
    ddp_status status = segment_create(&region->segment, bytes, err);
    if (status == DDP_OK)
        status = segment_describe(&region->segment, &cpu->control->offer, err);
    return status;
}

/* After the first barrier: did rank 0 make anything to attach? */
static ddp_status attach(struct cpu_comm *cpu, struct region *region, size_t bytes, struct ddp_err *err)
{
    struct shm_control *control = cpu->control;
    if (cpu->rank == 0 || control->ranks[0].made != DDP_OK)
        return (ddp_status)control->ranks[0].made;
    return segment_attach(&region->segment, &control->offer, bytes, err);
}

/* Our own words stay when we have failed ourselves. */
static ddp_status count_votes(const struct cpu_comm *cpu, size_t bytes, struct ddp_err *err)
{
    for (int r = 0; r < cpu->world; r++) {
        ddp_status vote = (ddp_status)cpu->control->ranks[r].mapped;
        if (vote != DDP_OK && err->code == DDP_OK)
            return ddp_fail(err, vote, "rank %d could not provide or map %zu bytes of shared memory",
                            cpu->control->ranks[r].rank, bytes);
    }
    return err->code;
}

/* Hosts may differ, too: the worst of all of them counts. */
static ddp_status agree_abroad(struct cpu_comm *cpu, size_t bytes, struct ddp_err *err)
{
    int32_t ours = (int32_t)err->code, worst = ours;
    struct ddp_err reason = *err;
    const struct call call = { CALL_ALL_REDUCE, &ours, &worst, 1, DDP_I32, DDP_MAX, 0, NULL, 0 };

    cpu_begin(cpu, &call);
    ddp_status status = net_run(cpu->net, &call, err);
    if (status != DDP_OK)
        return status;
    *err = reason;
    if (err->code != DDP_OK || worst == DDP_OK)
        return err->code;
    return ddp_fail(err, (ddp_status)worst,
                    "another host could not provide or map %zu bytes of shared memory", bytes);
}

/* The collective part: `region` is this rank's new one; on an error it is to be closed. The two votes have
 * places of their own, so that a rank which is already in the next call does not overwrite what others
 * still count. */
static ddp_status agree(struct cpu_comm *cpu, struct region *region, size_t bytes, struct ddp_err *err)
{
    const struct call call = { .kind = CALL_SHARED_ALLOC, .n = region->bytes };
    struct shm_rank *self = &cpu->control->ranks[cpu->rank];
    struct ddp_err reason = { 0 };

    cpu_begin(cpu, &call);
    self->made = make(cpu, region, bytes, &reason);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status != DDP_OK)
        return status;
    self->mapped = attach(cpu, region, bytes, &reason);
    status = barrier_pass(&cpu->barrier, false, err);
    if (status != DDP_OK)
        return status;
    segment_hide(&region->segment);
    *err = reason;
    status = count_votes(cpu, bytes, err);
    return cpu->net != NULL ? agree_abroad(cpu, bytes, err) : status;
}

ddp_status cpu_shared_alloc(struct comm *comm, size_t bytes, void **out, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    struct region region = { .segment = { .fd = -1 }, .bytes = bytes };
    int32_t number;
    size_t total = region_segment_bytes(bytes, cpu->world, &region.stride);

    *out = NULL;
    if (bytes == 0 || total == 0)
        return ddp_fail(err, DDP_ERR_ARG, "shared_alloc: %zu bytes for each of %d ranks cannot be", bytes,
                        cpu->world);
    ddp_status status = regions_reserve(&cpu->regions, &number, err);
    if (status == DDP_OK)
        status = agree(cpu, &region, total, err);
    if (status != DDP_OK) {
        region_close(&region);
        return status;
    }
    cpu->regions.list[number] = region;
    *out = regions_at(&cpu->regions, cpu->rank, (struct shm_place){ number, 0 }, bytes);
    return DDP_OK;
}

/* The barrier is there so that nobody still copies out of a peer's block that is about to go. It also
 * finds ranks that free different blocks: the number is part of the call. */
ddp_status cpu_shared_free(struct comm *comm, void *block, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    struct shm_place place = regions_find(&cpu->regions, block, 0);

    if (place.region < 0 || place.offset != 0)
        return ddp_fail(err, DDP_ERR_ARG, "shared_free: %p does not come from ddp_shared_alloc", block);
    const struct call call = { .kind = CALL_SHARED_FREE, .n = (uint64_t)place.region };
    cpu_begin(cpu, &call);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status == DDP_OK)
        region_close(&cpu->regions.list[place.region]);
    return status;
}
