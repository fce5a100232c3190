/* blocks.c -- see blocks.h. A block exists on all ranks or on no rank, so the ranks exchange the status of each
 * allocation through the cpu communicator. */
#include "cuda/blocks.h"

#include <stdlib.h>

struct block {
    struct block *next;
    void *memory;
};

static void blocks_release(struct blocks *blocks, struct block **at)
{
    struct block *block = *at;
    *at = block->next;
    blocks->gpu->call.free(block->memory);
    free(block);
}

static void blocks_reclaim(struct blocks *blocks, const void *memory)
{
    struct block **at = &blocks->first;
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    if (*at != NULL)
        blocks_release(blocks, at);
}

static void *blocks_get(struct blocks *blocks, size_t bytes, struct ddp_err *err)
{
    struct block *block = calloc(1, sizeof(*block));
    if (block == NULL)
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a block");
    else if (gpu_alloc(blocks->gpu, bytes > 0 ? bytes : 1, &block->memory, err) != DDP_OK)
        free(block);
    if (err->code != DDP_OK)
        return NULL;
    block->next = blocks->first;
    blocks->first = block;
    return block->memory;
}

/* Combine the statuses of all ranks. If memory is short on one rank, the call fails on all ranks, and the job may
 * continue. */
static ddp_status blocks_vote(const struct blocks *blocks, size_t bytes, struct ddp_err *err)
{
    struct ddp_err ours = *err;
    int32_t mine = (int32_t)err->code, worst = mine;
    const struct call call = { CALL_ALL_REDUCE, &mine, &worst, 1, DDP_I32, DDP_MAX, 0, NULL, 0 };
    ddp_status status = blocks->run(blocks->user, &call, err);
    if (status != DDP_OK)
        return status;
    *err = ours;
    if (ours.code != DDP_OK || worst == DDP_OK)
        return ours.code;
    return ddp_fail(err, (ddp_status)worst, "another rank could not allocate %zu bytes of device memory",
                    bytes);
}

ddp_status blocks_alloc(struct blocks *blocks, size_t bytes, void **out, struct ddp_err *err)
{
    err->code = DDP_OK;
    *out = blocks_get(blocks, bytes, err);
    ddp_status status = blocks_vote(blocks, bytes, err);
    if (status == DDP_OK)
        return DDP_OK;
    blocks_reclaim(blocks, *out);
    *out = NULL;
    return status;
}

/* Free a block; collective. cudaFree first waits for all work on the device, so no running kernel uses the block. */
ddp_status blocks_free(struct blocks *blocks, void *memory, struct ddp_err *err)
{
    const struct call call = { .kind = CALL_BARRIER };
    blocks_reclaim(blocks, memory);
    return blocks->run(blocks->user, &call, err);
}

void blocks_close(struct blocks *blocks)
{
    while (blocks->first != NULL)
        blocks_release(blocks, &blocks->first);
}
