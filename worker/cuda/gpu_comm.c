/* gpu_comm.c -- see gpu_comm.h. A block of ddp_shared_alloc exists on all ranks or on no rank, so the ranks exchange
 * the status of each allocation through the cpu communicator. */
#include "cuda/gpu_comm.h"

#include <stdlib.h>

/* A block of ddp_shared_alloc. */
struct block {
    struct block *next;
    void *memory;    /* device memory, owned */
    uint64_t number; /* number of the allocation, equal on all ranks */
};

static void blocks_release(struct gpu_comm *base, struct block **at)
{
    struct block *block = *at;
    *at = block->next;
    base->gpu.call.set_device(base->gpu.device); /* without this call, a new thread uses device 0 */
    base->gpu.call.free(block->memory);
    free(block);
}

/* Find the block with this memory. Return the address of the pointer to this block: `blocks`, or `next` of the
 * previous block. The pointer is NULL if no block has this memory. */
static struct block **blocks_find(struct gpu_comm *base, const void *memory)
{
    struct block **at = &base->blocks;
    while (*at != NULL && (*at)->memory != memory)
        at = &(*at)->next;
    return at;
}

static void *blocks_get(struct gpu_comm *base, size_t bytes, struct ddp_err *err)
{
    struct block *block = calloc(1, sizeof(*block));
    if (block == NULL)
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a block");
    else if (gpu_alloc(&base->gpu, bytes > 0 ? bytes : 1, &block->memory, err) != DDP_OK)
        free(block);
    if (err->code != DDP_OK)
        return NULL;
    block->next = base->blocks;
    block->number = base->allocations;
    base->blocks = block;
    return block->memory;
}

/* Combine the statuses of all ranks. If memory is short on one rank, the call fails on all ranks with the same status.
 * So no rank keeps the block, and the job can continue. */
static ddp_status blocks_vote(struct gpu_comm *base, size_t bytes, struct ddp_err *err)
{
    struct ddp_err own = *err;
    int32_t mine = (int32_t)err->code, worst = mine;
    const struct call call = { CALL_ALL_REDUCE, &mine, &worst, 1, DDP_I32, DDP_MAX, 0, NULL, 0 };
    ddp_status status = base->run_cpu(base, &call, err);
    if (status != DDP_OK)
        return status;
    *err = own;
    if (own.code == (ddp_status)worst)
        return own.code;
    return ddp_fail(err, (ddp_status)worst,
                    "another rank could not allocate %zu bytes of device memory; see the error of that rank",
                    bytes);
}

/* Allocate a block. All ranks must call this function. First make the call on the cpu communicator, which compares the
 * calls of all ranks. So ranks that request different sizes fail before they allocate memory. */
ddp_status gpu_comm_shared_alloc(struct comm *comm, size_t bytes, void **out, struct ddp_err *err)
{
    struct gpu_comm *base = (struct gpu_comm *)comm;
    const struct call call = { .kind = CALL_SHARED_ALLOC, .n = bytes };
    *out = NULL;
    ddp_status status = base->run_cpu(base, &call, err);
    if (status != DDP_OK)
        return status;
    base->allocations++;
    err->code = DDP_OK;
    *out = blocks_get(base, bytes, err);
    status = blocks_vote(base, bytes, err);
    if (status == DDP_OK)
        return DDP_OK;
    if (*out != NULL)
        blocks_release(base, &base->blocks); /* blocks_get has added this block at the front */
    *out = NULL;
    return status;
}

/* Free a block. All ranks must call this function. cudaFree first waits for all work on the device, so no running
 * kernel uses the block. */
ddp_status gpu_comm_shared_free(struct comm *comm, void *memory, struct ddp_err *err)
{
    struct gpu_comm *base = (struct gpu_comm *)comm;
    struct block **at = blocks_find(base, memory);
    if (*at == NULL)
        return ddp_fail(err, DDP_ERR_ARG, "shared_free: %p was not returned by ddp_shared_alloc", memory);
    const struct call call = { .kind = CALL_SHARED_FREE, .n = (*at)->number };
    ddp_status status = base->run_cpu(base, &call, err);
    if (status == DDP_OK)
        blocks_release(base, at);
    return status;
}

ddp_status gpu_comm_place(const struct gpu_comm *base, const struct call *call, bool *in, bool *out,
                          struct ddp_err *err)
{
    bool has_in = call_in_bytes(call, base->rank, base->world) > 0,
         has_out = call_out_bytes(call, base->rank, base->world) > 0;
    cuda_error error = CUDA_SUCCESS_;
    if (has_in || has_out) /* without this call, a new thread uses device 0 */
        error = base->gpu.call.set_device(base->gpu.device);
    ddp_status status = gpu_check(&base->gpu, error, "cannot select the GPU", err);
    if (status == DDP_OK)
        status = gpu_owns(&base->gpu, has_in ? call->in : NULL, in, err);
    if (status == DDP_OK)
        status = gpu_owns(&base->gpu, has_out ? call->out : NULL, out, err);
    if (status == DDP_OK)
        return DDP_OK;
    return ddp_wrap(err, "at rank %d: %s", base->rank, call_rules[call->kind].word);
}

/* --- copies ------------------------------------------------------------------------------------------- */

/* Each thread has its own current device, so each of these functions first selects the device of this backend. If
 * `stream` is NULL, the functions use the default stream of this device. */

ddp_status gpu_comm_copy(struct comm *comm, void *to, const void *from, size_t bytes, void *stream,
                         struct ddp_err *err)
{
    const struct gpu *gpu = &((struct gpu_comm *)comm)->gpu;
    cuda_error error = gpu->call.set_device(gpu->device);
    if (error == CUDA_SUCCESS_)
        error = gpu->call.copy_async(to, from, bytes, CUDA_COPY_DEFAULT, stream);
    return gpu_check(gpu, error, "cannot copy memory of the GPU", err);
}

ddp_status gpu_comm_zero(struct comm *comm, void *at, size_t bytes, void *stream, struct ddp_err *err)
{
    const struct gpu *gpu = &((struct gpu_comm *)comm)->gpu;
    cuda_error error = gpu->call.set_device(gpu->device);
    if (error == CUDA_SUCCESS_)
        error = gpu->call.set_async(at, 0, bytes, stream);
    return gpu_check(gpu, error, "cannot clear memory of the GPU", err);
}

ddp_status gpu_comm_finish(struct comm *comm, void *stream, struct ddp_err *err)
{
    const struct gpu *gpu = &((struct gpu_comm *)comm)->gpu;
    cuda_error error = gpu->call.set_device(gpu->device);
    if (error == CUDA_SUCCESS_)
        error = gpu->call.stream_sync(stream);
    return gpu_check(gpu, error, "cannot wait for a stream", err);
}

/* --- open and close ----------------------------------------------------------------------------------- */

void *gpu_comm_make(size_t bytes, const struct comm_ops *ops, const struct comm_setup *setup,
                    struct ddp_err *err)
{
    struct gpu_comm *base = calloc(1, bytes);
    if (base == NULL) {
        ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a communicator");
        return NULL;
    }
    base->comm.ops = ops;
    base->rank = setup->rank;
    base->world = setup->world_size;
    base->step_timeout_ms = setup->step_timeout_ms;
    base->gpu.device = -1;
    return base;
}

ddp_status gpu_comm_open(struct gpu_comm *base, const struct comm_setup *setup, struct ddp_err *err)
{
    int count;
    ddp_status status = gpu_open(&base->gpu, setup->paths.cudart, &count, err);
    if (status == DDP_OK)
        status = gpu_use(&base->gpu, setup->device, count, err);
    if (status != DDP_OK)
        return status;
    cuda_error error = base->gpu.call.stream_make(&base->stream, CUDA_STREAM_NON_BLOCKING);
    if (error == CUDA_SUCCESS_)
        error = base->gpu.call.event_make(&base->before, CUDA_EVENT_NO_TIMING);
    return gpu_check(&base->gpu, error, "cannot create a stream", err);
}

/* Make all ranks fail. Any thread may call this function. In the NCCL backend, the watch thread of each rank reads
 * the reason from the cpu communicator and aborts NCCL's communicator. */
void gpu_comm_give_up(struct comm *comm, struct ddp_err *err)
{
    struct comm *cpu = ((struct gpu_comm *)comm)->cpu;
    cpu->ops->give_up(cpu, err);
}

ddp_status gpu_comm_finish_open(struct gpu_comm *base, ddp_status status, struct comm **out,
                                struct ddp_err *err)
{
    if (status == DDP_OK) {
        *out = &base->comm;
        return DDP_OK;
    }
    struct ddp_err mismatch = *err;
    if (base->cpu != NULL)
        gpu_comm_give_up(&base->comm, &mismatch);
    base->comm.ops->close(&base->comm);
    return status;
}

void gpu_comm_close(struct gpu_comm *base)
{
    if (base->before != NULL)
        base->gpu.call.event_free(base->before);
    if (base->stream != NULL)
        base->gpu.call.stream_free(base->stream);
    while (base->blocks != NULL)
        blocks_release(base, &base->blocks);
    if (base->cpu != NULL)
        base->cpu->ops->close(base->cpu);
}
