/* cpu_comm.c -- the cpu backend: shared memory between the ranks of one host, TCP between hosts. See cpu.h for the
 * other files.
 *
 * A call goes one of five ways: between hosts (net.h); nothing to move (a barrier alone), a world of one (a copy), in
 * place when all buffers lie in shared memory, or else through the slots. All ranks choose the same, because they
 * look only at what they have compared. */
#include "cpu/cpu.h"

#include "core/bootstrap.h"
#include "cpu/net.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- open and close ------------------------------------------------------------------------------------- */

/* The one place that frees a cpu_comm, also a half-made one. */
static void cpu_close(struct comm *comm)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;
    net_close(cpu->net);
    regions_close(&cpu->regions);
    barrier_close(&cpu->barrier);
    shm_meeting_close(&cpu->meeting);
    free(cpu->in);
    free(cpu->out);
    free(cpu);
}

/* A world of one has the same page in memory of its own, so that everything else is the same code. */
static ddp_status get_page(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    struct shm_meeting *m = &cpu->meeting;
    ddp_status status;

    if (setup->world_size > 1) {
        status = shm_join(setup->bootstrap, m, err);
    } else {
        *m = (struct shm_meeting){ .hosts = 1, .locals = 1 };
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

/* Everything that needs the page: whom to watch, and other hosts. */
static ddp_status get_peers(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    ddp_status status = barrier_open(&cpu->barrier, cpu->control, cpu->rank, cpu->world, err);
    if (status == DDP_OK && cpu->meeting.hosts > 1)
        status = net_open(&cpu->net, cpu, setup, err);
    return status;
}

/* The first call of all: it proves that every rank has mapped the page, within what is left of the time
 * to start. */
static ddp_status first_barrier(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    const struct call call = { .kind = CALL_INIT,
                               .timeout_ms = setup->bootstrap ? bootstrap_left_ms(setup->bootstrap) : 1 };
    cpu_begin(cpu, &call);
    ddp_status status = cpu_meet(cpu, &call, err);
    if (status == DDP_OK && setup->bootstrap != NULL)
        status = shm_joined(setup->bootstrap, &cpu->meeting, err);
    return status;
}

/* Other hosts have no connection with us yet. */
static void tell_other_hosts(const struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    struct net_tell tell;
    net_tell_open(&tell, setup->bootstrap, cpu->meeting.nonce);
    net_tell(&tell, err);
}

/* The others may wait in the first barrier already, or be on their way to the page: let them know at once. */
static void give_up_start(struct cpu_comm *cpu, const struct comm_setup *setup, struct ddp_err *err)
{
    if (cpu->meeting.hosts > 1 && cpu->net == NULL)
        tell_other_hosts(cpu, setup, err);
    if (cpu->control != NULL)
        barrier_give_up(&cpu->barrier, err);
    if (cpu->control != NULL && setup->bootstrap != NULL)
        shm_take_back(setup->bootstrap, &cpu->meeting, err);
    cpu_close(&cpu->comm);
}

static ddp_status cpu_open(const struct comm_setup *setup, struct comm **out, struct ddp_err *err)
{
    struct cpu_comm *cpu = calloc(1, sizeof(*cpu));
    if (cpu == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "no memory for a communicator");
    size_t world = (size_t)setup->world_size;
    cpu->comm.ops = &cpu_comm_ops;
    cpu->group_size = setup->world_size;
    cpu->step_timeout_ms = setup->step_timeout_ms;
    cpu->in = calloc(world, sizeof(*cpu->in));
    cpu->out = calloc(world, sizeof(*cpu->out));

    ddp_status status = cpu->in != NULL && cpu->out != NULL
                            ? get_page(cpu, setup, err)
                            : ddp_fail(err, DDP_ERR_NOMEM, "no memory for %zu ranks", world);
    if (status == DDP_OK)
        status = get_peers(cpu, setup, err);
    if (status == DDP_OK)
        status = first_barrier(cpu, setup, err);
    if (status != DDP_OK)
        give_up_start(cpu, setup, err);
    else
        *out = &cpu->comm;
    return status;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* A single rank is its own result, whatever the collective. */
static void run_alone(const struct call *call)
{
    size_t bytes = call_out_bytes(call, 0, 1);
    if (bytes > 0 && call->in != call->out)
        memcpy(call->out, call->in, bytes);
}

/* How many ranks have buffers in everybody's reach, and how many of those have something to give. */
static int count_in_reach(const struct cpu_comm *cpu, const struct call *call, int *with_input)
{
    int count = 0;
    *with_input = 0;
    for (int r = 0; r < cpu->world; r++) {
        if (!cpu_in_reach(cpu, call, r))
            continue;
        count++;
        *with_input += call_in_bytes(call, r, cpu->world) > 0;
    }
    return count;
}

/* After the first barrier every rank has seen every mark, and so all choose the same way. Where some
 * buffers are private and others not, some have given and some have not: all begin again. */
static ddp_status run_together(struct cpu_comm *cpu, const struct call *call, struct ddp_err *err)
{
    int with_input;
    if (!cpu_in_reach(cpu, call, cpu->rank))
        cpu_slots_give(cpu, call);
    ddp_status status = barrier_pass(&cpu->barrier, true, err);
    if (status != DDP_OK)
        return status;
    if (count_in_reach(cpu, call, &with_input) < cpu->world)
        return cpu_slots_run(cpu, call, with_input == 0, err);
    cpu_direct_run(cpu, call);
    return barrier_pass(&cpu->barrier, false, err);
}

static ddp_status cpu_run(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    struct cpu_comm *cpu = (struct cpu_comm *)comm;

    cpu_begin(cpu, call);
    if (cpu->net != NULL)
        return net_run(cpu->net, call, err);
    if (call_rules[call->kind].in == AT_NONE || call->n == 0)
        return barrier_pass(&cpu->barrier, true, err);
    if (cpu->world > 1)
        return run_together(cpu, call, err);
    ddp_status status = shm_aborted(cpu->control, err);
    if (status == DDP_OK)
        run_alone(call);
    return status;
}

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
