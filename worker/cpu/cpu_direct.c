/* cpu_direct.c -- collectives on buffers that all ranks can see. Nothing is copied that does not have to
 * be.
 *
 * After the first barrier everybody knows from the marks where each rank's buffers lie. A reduction is
 * shared out: each rank combines its part of the elements from all inputs, and writes the result into all
 * outputs. The others just copy what they want out of a peer's input. The barrier that follows keeps
 * inputs alive until all have read them. */
#include "cpu/cpu.h"

#include "cpu/part.h"
#include "reducer/reduce.h"

#include <string.h>

size_t cpu_in_bytes(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return call_in_bytes(call, cpu->control->ranks[rank].rank, cpu->group_size);
}

static size_t out_bytes(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return call_out_bytes(call, cpu->control->ranks[rank].rank, cpu->group_size);
}

void *cpu_input_of(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return regions_at(&cpu->regions, rank, shm_mark_of(cpu->control, rank, cpu->comm.seq)->in,
                      cpu_in_bytes(cpu, call, rank));
}

static void *output_of(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    return regions_at(&cpu->regions, rank, shm_mark_of(cpu->control, rank, cpu->comm.seq)->out,
                      out_bytes(cpu, call, rank));
}

/* Is a buffer needed at `rank` but out of reach? A rank that passes none needs none. */
static bool out_of_reach(const void *found, size_t bytes)
{
    return found == NULL && bytes > 0;
}

bool cpu_in_reach(const struct cpu_comm *cpu, const struct call *call, int rank)
{
    /* Only these, on one host, write into a peer's output; else each rank fills its own, which may be private. */
    bool writes_outputs = cpu->net == NULL && (call->kind == CALL_ALL_REDUCE || call->kind == CALL_REDUCE);

    if (out_of_reach(cpu_input_of(cpu, call, rank), cpu_in_bytes(cpu, call, rank)))
        return false;
    return !writes_outputs || !out_of_reach(output_of(cpu, call, rank), out_bytes(cpu, call, rank));
}

static void collect_inputs(struct cpu_comm *cpu, const struct call *call)
{
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = cpu_input_of(cpu, call, r);
}

/* Everybody writes his part of the result into everybody's output. In place that is safe: only we read
 * and write these elements between the two barriers. */
static void direct_all_reduce(struct cpu_comm *cpu, const struct call *call)
{
    size_t at, n;
    collect_inputs(cpu, call);
    for (int r = 0; r < cpu->world; r++)
        cpu->out[r] = output_of(cpu, call, r);
    part_of(call->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, (size_t)cpu->world);
}

/* The same work shared out in the same way, but there is one output only. */
static void direct_reduce(struct cpu_comm *cpu, const struct call *call)
{
    size_t at, n;
    collect_inputs(cpu, call);
    cpu->out[0] = output_of(cpu, call, call->root);
    part_of(call->n, ddp_dtype_size(call->dtype), cpu->rank, cpu->world, &at, &n);
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, at, n, cpu->out, 1);
}

/* Part `rank` of every input, which begins rank * n elements into it. */
static void direct_reduce_scatter(struct cpu_comm *cpu, const struct call *call)
{
    size_t skip = (size_t)cpu->rank * call->n * ddp_dtype_size(call->dtype);
    for (int r = 0; r < cpu->world; r++)
        cpu->in[r] = (char *)cpu_input_of(cpu, call, r) + skip;
    cpu->out[0] = call->out;
    reduce_range(call->dtype, call->op, cpu->in, (size_t)cpu->world, 0, call->n, cpu->out, 1);
}

/* In place there is nothing to do. */
static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from)
        memcpy(to, from, bytes);
}

static void direct_broadcast(struct cpu_comm *cpu, const struct call *call)
{
    copy(call->out, cpu_input_of(cpu, call, call->root), call_out_bytes(call, cpu->rank, cpu->world));
}

static void direct_all_gather(struct cpu_comm *cpu, const struct call *call)
{
    size_t part = call->n * ddp_dtype_size(call->dtype);
    for (int r = 0; r < cpu->world; r++)
        copy((char *)call->out + (size_t)r * part, cpu_input_of(cpu, call, r), part);
}

static void direct_gather(struct cpu_comm *cpu, const struct call *call)
{
    if (cpu->rank == call->root)
        direct_all_gather(cpu, call);
}

static void direct_scatter(struct cpu_comm *cpu, const struct call *call)
{
    size_t part = call->n * ddp_dtype_size(call->dtype);
    copy(call->out, (char *)cpu_input_of(cpu, call, call->root) + (size_t)cpu->rank * part, part);
}

static void (*const direct[CALL_KINDS])(struct cpu_comm *, const struct call *) = {
    [CALL_ALL_REDUCE] = direct_all_reduce,
    [CALL_REDUCE] = direct_reduce,
    [CALL_BROADCAST] = direct_broadcast,
    [CALL_ALL_GATHER] = direct_all_gather,
    [CALL_GATHER] = direct_gather,
    [CALL_SCATTER] = direct_scatter,
    [CALL_REDUCE_SCATTER] = direct_reduce_scatter,
};

void cpu_direct_run(struct cpu_comm *cpu, const struct call *call)
{
    direct[call->kind](cpu, call);
}
