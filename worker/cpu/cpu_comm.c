/* cpu_comm.c -- the cpu backend: shared memory between the ranks of one host, TCP between hosts. A call takes one of
 * five paths (cpu_run). All ranks choose the same path, because the choice depends only on values that are equal on all
 * ranks. */
#include "core/bootstrap.h"
#include "cpu/host_collectives.h"
#include "cpu/net_join.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Wait, without moving data, until all ranks have made `call`. */
static ddp_status cpu_meet(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err)
{
    return cpu->net != NULL ? net_run(cpu->net, call, err) : barrier_pass(&cpu->barrier, true, err);
}

/* --- open and close ------------------------------------------------------------------------------------- */

/* Free a cpu_comm, also after a failed cpu_open. */
static void cpu_close(struct comm *comm)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    net_close(cpu->net);
    regions_close(&cpu->regions);
    barrier_close(&cpu->barrier);
    meeting_close(&cpu->meeting);
    free(cpu->in);
    free(cpu->out);
    free(cpu);
}

/* Map the control page of the host. A world of one has a private page, so that other functions need no special
 * case. */
static ddp_status cpu_get_page(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    struct meeting *m = &cpu->meeting;
    ddp_status status;

    if (setup->world_size > 1) {
        status = meeting_join(setup->bootstrap, m, err);
    } else {
        *m = (struct meeting){ .hosts = 1, .locals = 1 };
        status = segment_create_private(&m->segment, shm_control_bytes(1), err);
    }
    if (status != DDP_OK)
        return status;
    cpu->control = m->segment.base;
    if (setup->world_size == 1)
        cpu->control->ranks[0].pid = getpid();
    cpu->rank = m->local_rank;
    cpu->world = m->locals;
    cpu->regions = (struct regions){ .rank = cpu->rank, .world = cpu->world };
    return DDP_OK;
}

/* Open the parts that need the control page: the barrier and the connections to other hosts. */
static ddp_status cpu_get_peers(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    ddp_status status = barrier_open(&cpu->barrier, cpu->control, cpu->rank, cpu->world, err);
    if (status == DDP_OK && cpu->meeting.hosts > 1)
        status = net_open(&cpu->net, cpu, setup, err);
    return status;
}

/* Pass the first barrier. After this barrier, every rank has mapped the page. The barrier's timeout is the rest
 * of the init timeout. */
static ddp_status first_barrier(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    const struct call call = { .kind = CALL_INIT,
                               .timeout_ms =
                                   setup->bootstrap ? bootstrap_remaining_ms(setup->bootstrap) : 1 };
    cpu_begin(cpu, &call);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status == DDP_OK && setup->bootstrap != NULL)
        status = meeting_over(setup->bootstrap, &cpu->meeting, err);
    return status;
}

/* Publish `err` in the store for the other hosts, because this host has no connection to them yet. */
static void publish_to_hosts(const struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    struct net_end end;
    net_end_open(&end, setup->bootstrap, cpu->meeting.nonce);
    net_end_set(&end, err);
}

/* Report the failed start to the other ranks at once, because they may wait in the first barrier. The other ranks
 * may also wait for the control page (shm.h), which this rank may have to create. */
static void give_up_start(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    if (cpu->meeting.hosts > 1 && cpu->net == NULL)
        publish_to_hosts(cpu, setup, err);
    if (cpu->control != NULL)
        barrier_give_up(&cpu->barrier, err);
    if (cpu->control != NULL && setup->bootstrap != NULL)
        meeting_refuse(setup->bootstrap, &cpu->meeting, err);
    cpu_close(&cpu->comm);
}

static ddp_status cpu_open(const struct comm_setup *setup, struct comm **out, struct ddp_err *err)
{
    struct cpu_comm *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a communicator");
    size_t world = (size_t)setup->world_size;
    cpu->comm.ops = &cpu_comm_ops;
    cpu->group_size = setup->world_size;
    cpu->step_timeout_ms = setup->step_timeout_ms;
    cpu->in = calloc(world, sizeof(*cpu->in));
    cpu->out = calloc(world, sizeof(*cpu->out));

    ddp_status status = cpu->in != NULL && cpu->out != NULL
                            ? cpu_get_page(cpu, setup, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu ranks", world);
    if (status == DDP_OK)
        status = cpu_get_peers(cpu, setup, err);
    if (status == DDP_OK)
        status = first_barrier(cpu, setup, err);
    if (status != DDP_OK)
        give_up_start(cpu, setup, err);
    else
        *out = &cpu->comm;
    return status;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Run a call in a world of one: the result is the rank's own value. */
static void run_alone(const struct call *call)
{
    size_t bytes = call_out_bytes(call, 0, 1);
    if (bytes > 0 && call->in != call->out)
        memcpy(call->out, call->in, bytes);
}

/* Run a call on one of five paths: between hosts (net_join.h), as a barrier only (no data), as a copy (world of one),
 * in place (all buffers in shared memory), or through slots (host_collectives.c). */
static ddp_status cpu_run(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;

    cpu_begin(cpu, call);
    if (cpu->net != NULL)
        return net_run(cpu->net, call, err);
    if (call_rules[call->kind].in == AT_NONE || call->n == 0)
        return barrier_pass(&cpu->barrier, true, err);
    if (cpu->world > 1)
        return host_run(cpu, call, err);
    ddp_status status = shm_aborted(cpu->control, err);
    if (status == DDP_OK)
        run_alone(call);
    return status;
}

/* --- shared memory ---------------------------------------------------------------------------------------- */

/* Blocks of shared memory, which all ranks of a host allocate together:
 *
 *     first rank   creates a memory file and describes it in the control page
 *     barrier
 *     other ranks  map the file; each rank stores its status
 *     barrier
 *     all ranks    keep the block only if no rank failed, so all return the same error */

/* Create the memory on the host's first rank. */
static ddp_status make_block(struct cpu_comm *cpu, struct region *region, size_t bytes, struct ddp_err *err)
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

/* Map the memory that the host's first rank has created, or return that rank's error. Call this function after the
 * first barrier. */
static ddp_status attach_block(struct cpu_comm *cpu, struct region *region, size_t bytes, struct ddp_err *err)
{
    struct shm_control *control = cpu->control;
    if (cpu->rank == 0 || control->ranks[0].made != DDP_OK)
        return (ddp_status)control->ranks[0].made;
    return segment_attach(&region->segment, &control->offer, bytes, err);
}

/* Return this rank's error if it has failed. Otherwise return the error of the lowest rank that has failed, or
 * DDP_OK. */
static ddp_status count_votes(const struct cpu_comm *cpu, size_t bytes, struct ddp_err *err)
{
    for (int r = 0; r < cpu->world; r++) {
        ddp_status vote = (ddp_status)cpu->control->ranks[r].mapped;
        if (vote != DDP_OK && err->code == DDP_OK)
            return ddp_fail(
                err, vote,
                "rank %d could not create or map %zu bytes of shared memory; see the error of that rank",
                cpu->control->ranks[r].rank, bytes);
    }
    return err->code;
}

/* Exchange the statuses of all hosts, so that an error on one host becomes an error on all hosts. */
static ddp_status agree_abroad(struct cpu_comm *cpu, size_t bytes, struct ddp_err *err)
{
    int32_t own = (int32_t)err->code, worst = own;
    struct ddp_err reason = *err;
    const struct call call = { CALL_ALL_REDUCE, &own, &worst, 1, DDP_I32, DDP_MAX, 0, NULL, 0 };

    cpu_begin(cpu, &call);
    ddp_status status = net_run(cpu->net, &call, err);
    if (status != DDP_OK)
        return status;
    *err = reason;
    if (err->code != DDP_OK || worst == DDP_OK)
        return err->code;
    return ddp_fail(
        err, (ddp_status)worst,
        "a rank on another host could not create or map %zu bytes of shared memory; see the error of "
        "that rank",
        bytes);
}

/* Create and map `region` on all ranks together. After an error the caller closes the region. `made` and `mapped` are
 * separate fields, because other ranks may still read `mapped` when a fast rank begins the next call. */
static ddp_status agree_on_block(struct cpu_comm *cpu, struct region *region, size_t bytes,
                                 struct ddp_err *err)
{
    const struct call call = { .kind = CALL_SHARED_ALLOC, .n = region->bytes };
    struct shm_rank *self = &cpu->control->ranks[cpu->rank];
    struct ddp_err reason = { 0 };

    cpu_begin(cpu, &call);
    self->made = make_block(cpu, region, bytes, &reason);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status != DDP_OK)
        return status;
    self->mapped = attach_block(cpu, region, bytes, &reason);
    status = barrier_pass(&cpu->barrier, false, err);
    if (status != DDP_OK)
        return status;
    segment_hide(&region->segment);
    *err = reason;
    status = count_votes(cpu, bytes, err);
    return cpu->net != NULL ? agree_abroad(cpu, bytes, err) : status;
}

static ddp_status cpu_shared_alloc(struct comm *comm, size_t bytes, void **out, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    struct region region = { .segment = { .fd = -1 }, .bytes = bytes };
    int32_t number;
    size_t total = region_segment_bytes(bytes, cpu->world, &region.stride);

    *out = NULL;
    if (bytes == 0 || total == 0)
        return ddp_fail(err, DDP_ERR_ARG, "shared_alloc: invalid size: %zu bytes for each of %d ranks", bytes,
                        cpu->world);
    ddp_status status = regions_reserve(&cpu->regions, &number, err);
    if (status == DDP_OK)
        status = agree_on_block(cpu, &region, total, err);
    if (status != DDP_OK) {
        region_close(&region);
        return status;
    }
    cpu->regions.list[number] = region;
    *out = regions_at(&cpu->regions, cpu->rank, (struct shm_place){ number, 0 }, bytes);
    return DDP_OK;
}

/* Free a block after a barrier, so that no rank still copies from the block. The barrier also compares the block's
 * number, so it detects ranks that free different blocks. */
static ddp_status cpu_shared_free(struct comm *comm, void *block, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    struct shm_place place = regions_find(&cpu->regions, block, 0);

    if (place.region < 0 || place.offset != 0)
        return ddp_fail(err, DDP_ERR_ARG, "shared_free: %p was not returned by ddp_shared_alloc", block);
    const struct call call = { .kind = CALL_SHARED_FREE, .n = (uint64_t)place.region };
    cpu_begin(cpu, &call);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status == DDP_OK)
        region_close(&cpu->regions.list[place.region]);
    return status;
}

/* --- the table ------------------------------------------------------------------------------------------- */

static ddp_status cpu_check(struct comm *comm, struct ddp_err *err)
{
    return barrier_check(&((struct cpu_comm *)comm)->barrier, false, err);
}

static void cpu_give_up(struct comm *comm, struct ddp_err *err)
{
    barrier_give_up(&((struct cpu_comm *)comm)->barrier, err);
}

const struct comm_ops cpu_comm_ops = {
    .name = "cpu",
    .blocks = true,
    .open = cpu_open,
    .run = cpu_run,
    .shared_alloc = cpu_shared_alloc,
    .shared_free = cpu_shared_free,
    .check = cpu_check,
    .give_up = cpu_give_up,
    .close = cpu_close,
};
