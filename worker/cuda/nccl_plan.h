/* nccl_plan.h -- which function of NCCL does which call, with which values. Pure. */
#ifndef CUDA_NCCL_PLAN_H
#define CUDA_NCCL_PLAN_H

#include "core/call.h"
#include "cuda/nccl_abi.h"

enum nccl_way {
    NCCL_WAY_NOTHING, /* no values to move */
    NCCL_WAY_ALL_REDUCE,
    NCCL_WAY_REDUCE,
    NCCL_WAY_BROADCAST,
    NCCL_WAY_ALL_GATHER,
    NCCL_WAY_REDUCE_SCATTER,
    NCCL_WAY_MOVES, /* a group of sends and receives */
};

struct nccl_plan {
    enum nccl_way way;
    nccl_type type;
    nccl_redop op;
};

struct nccl_plan nccl_plan(const struct call *call);

/* One send or receive of call->n elements. */
struct nccl_move {
    bool send;
    int peer;
    const void *from; /* of a send */
    void *to;         /* of a receive */
};

/* The i-th that this rank takes part in; false: there are no more. A root that gathers in place, or scatters so, sends
 * nothing to itself. */
bool nccl_move(const struct call *call, int rank, int world, int i, struct nccl_move *move);

#endif
