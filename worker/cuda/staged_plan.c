/* staged_plan.c -- see staged_plan.h. */
#include "cuda/staged_plan.h"

static bool has_part_for_each(enum call_side side)
{
    return side == AT_ALL_WORLD || side == AT_ROOT_WORLD;
}

static size_t rows(enum call_side side, size_t bytes, int world)
{
    if (bytes == 0)
        return 0;
    return has_part_for_each(side) ? (size_t)world : 1;
}

/* At least one element, whatever the room: a slot is larger than any world times any type. */
static uint64_t most(const struct call *call, int world, size_t room)
{
    const struct call_rule *rule = &call_rules[call->kind];
    bool wide = has_part_for_each(rule->in) || has_part_for_each(rule->out);
    size_t fit = room / ddp_dtype_size(call->dtype) / (wide ? (size_t)world : 1);
    return fit > 0 ? fit : 1;
}

bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
                  struct staged_chunk *chunk)
{
    const struct call_rule *rule = &call_rules[call->kind];
    uint64_t step = most(call, world, room), first = k * step;
    size_t size = ddp_dtype_size(call->dtype);

    if (first >= call->n)
        return false;
    *chunk = (struct staged_chunk){ .k = k,
                                    .count = call->n - first < step ? call->n - first : step,
                                    .pitch = (size_t)call->n * size,
                                    .in_rows = rows(rule->in, call_in_bytes(call, rank, world), world),
                                    .out_rows = rows(rule->out, call_out_bytes(call, rank, world), world) };
    if (call->kind == CALL_BROADCAST && rank == call->root) /* one buffer, which stays as it is */
        chunk->out_rows = 0;
    chunk->width = (size_t)chunk->count * size;
    if (chunk->in_rows > 0)
        chunk->in = (const char *)call->in + first * size;
    if (chunk->out_rows > 0)
        chunk->out = (char *)call->out + first * size;
    return true;
}
