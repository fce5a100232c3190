/* nccl_plan.c -- see nccl_plan.h. */
#include "cuda/nccl_plan.h"

static const enum nccl_way ways[CALL_KINDS] = {
    [CALL_ALL_REDUCE] = NCCL_WAY_ALL_REDUCE,
    [CALL_REDUCE] = NCCL_WAY_REDUCE,
    [CALL_BROADCAST] = NCCL_WAY_BROADCAST,
    [CALL_ALL_GATHER] = NCCL_WAY_ALL_GATHER,
    [CALL_REDUCE_SCATTER] = NCCL_WAY_REDUCE_SCATTER,
    [CALL_GATHER] = NCCL_WAY_MOVES,
    [CALL_SCATTER] = NCCL_WAY_MOVES,
};

static const nccl_type types[] = {
#define X(dtype, ours, theirs, value) [dtype] = ours,
    NCCL_TYPE_LIST(X)
#undef X
};

static const nccl_redop ops[] = {
#define X(op, ours, theirs, value) [op] = ours,
    NCCL_OP_LIST(X)
#undef X
};

struct nccl_plan nccl_plan(const struct call *call)
{
    struct nccl_plan plan = { NCCL_WAY_NOTHING, types[call->dtype], ops[call->op] };
    if (call->n > 0)
        plan.way = ways[call->kind];
    return plan;
}

/* The part of `rank` in a buffer that has one for each. */
static char *part(const struct call *call, const void *base, int rank)
{
    return (char *)(uintptr_t)base + (size_t)rank * (size_t)call->n * ddp_dtype_size(call->dtype);
}

/* Gathering and scattering are the same moves with the arrows turned round: `inner` is what each rank has, `outer` the root's
 * buffer with a part for each. The root's 0th move is its own half of the copy to itself, 1 to world are the others'. */
bool nccl_move(const struct call *call, int rank, int world, int i, struct nccl_move *move)
{
    bool gather = call->kind == CALL_GATHER;
    const void *inner = gather ? call->in : call->out, *outer = gather ? call->out : call->in;
    bool in_place = rank == call->root && inner == part(call, outer, rank);

    if (rank == call->root && in_place) { /* the others only */
        i++;
        if (i > rank)
            i++;
    }
    if (i == 0)
        *move = (struct nccl_move){
            .send = gather, .peer = call->root, .from = inner, .to = (void *)(uintptr_t)inner
        };
    else if (rank == call->root && i <= world)
        *move = (struct nccl_move){
            .send = !gather, .peer = i - 1, .from = part(call, outer, i - 1), .to = part(call, outer, i - 1)
        };
    else
        return false;
    return true;
}
