/* nccl_calls.c -- see nccl.h. A group is opened only where there is more than one function, and closed in any case. */
#include "cuda/nccl.h"

#include "cuda/nccl_plan.h"
#include "cuda/nccl_words.h"

ddp_status cpu_call(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    pthread_mutex_lock(&n->cpu_lock);
    ddp_status status = n->cpu->ops->run(n->cpu, call, err);
    pthread_mutex_unlock(&n->cpu_lock);
    return status;
}

/* --- one function, or a group of them ---------------------------------------------------------------------------- */

static nccl_result move_all(const struct nccl_comm *n, const struct call *call, nccl_type type)
{
    struct nccl_move move;
    nccl_result first = n->lib.group_start();
    for (int i = 0; first == NCCL_SUCCESS && nccl_move(call, n->rank, n->world, i, &move); i++) {
        nccl_result result =
            move.send ? n->lib.send(move.from, (size_t)call->n, type, move.peer, n->nccl, n->stream)
                      : n->lib.recv(move.to, (size_t)call->n, type, move.peer, n->nccl, n->stream);
        if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
            first = result;
    }
    nccl_result end = n->lib.group_end();
    return first != NCCL_SUCCESS ? first : end;
}

static nccl_result call_nccl(const struct nccl_comm *n, const struct call *c)
{
    const struct nccl_plan plan = nccl_plan(c);
    const struct nccl_lib *lib = &n->lib;
    size_t count = (size_t)c->n;

    switch (plan.way) {
    case NCCL_WAY_ALL_REDUCE:
        return lib->all_reduce(c->in, c->out, count, plan.type, plan.op, n->nccl, n->stream);
    case NCCL_WAY_REDUCE:
        return lib->reduce(c->in, c->out, count, plan.type, plan.op, c->root, n->nccl, n->stream);
    case NCCL_WAY_BROADCAST:
        return lib->broadcast(c->in, c->out, count, plan.type, c->root, n->nccl, n->stream);
    case NCCL_WAY_ALL_GATHER:
        return lib->all_gather(c->in, c->out, count, plan.type, n->nccl, n->stream);
    case NCCL_WAY_REDUCE_SCATTER:
        return lib->reduce_scatter(c->in, c->out, count, plan.type, plan.op, n->nccl, n->stream);
    case NCCL_WAY_MOVES:
        return move_all(n, c, plan.type);
    case NCCL_WAY_NOTHING:
        break;
    }
    return NCCL_SUCCESS;
}

/* A single rank is its own result, whatever the collective. */
static ddp_status copy_alone(const struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    cuda_error error = CUDA_SUCCESS_;
    if (call->in != call->out)
        error = n->gpu.call.copy_async(call->out, call->in, call_out_bytes(call, 0, 1), CUDA_COPY_DEFAULT,
                                       n->stream);
    return gpu_check(&n->gpu, error, call_rules[call->kind].word, err);
}

/* A communicator that does not block may need a while to connect before it can put a call on the stream. Meanwhile the watch
 * has its turns, and may abort. */
static ddp_status until_taken(struct nccl_comm *n, nccl_result *result, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (*result == NCCL_IN_PROGRESS && status == DDP_OK) {
        nccl_result asked = n->lib.async_error(n->nccl, result);
        if (asked != NCCL_SUCCESS)
            *result = asked;
        if (*result == NCCL_IN_PROGRESS) {
            watch_pause(n, 50);
            status = watch_alive(n, err);
        }
    }
    return status;
}

/* --- between two events ------------------------------------------------------------------------------------------- */

/* Ours begins when the program's stream is so far. */
static ddp_status come_after(struct nccl_comm *n, void *stream, struct ddp_err *err)
{
    cuda_error error = n->gpu.call.event_record(n->before, stream);
    if (error == CUDA_SUCCESS_)
        error = n->gpu.call.stream_follow(n->stream, n->before, 0);
    return gpu_check(&n->gpu, error, "an event before the call", err);
}

/* Nothing has begun on any rank when an argument is refused; after all else the ranks may be out of step. */
static ddp_status refused(struct nccl_comm *n, nccl_result result, struct ddp_err *err)
{
    char text[CALL_TEXT];
    const char *words = n->lib.last_error != NULL ? n->lib.last_error(n->nccl) : NULL;
    call_text(text, &n->flights[n->begun % NCCL_FLIGHTS].call, n->begun);
    ddp_status status = nccl_fail(err, n->rank, text, result, words);
    if (status != DDP_ERR_ARG)
        return watch_fault(n, err);
    flight_undo(n);
    return status;
}

static ddp_status put(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    ddp_status status = come_after(n, call->stream, err);
    if (status != DDP_OK)
        return watch_fault(n, err);
    struct nccl_flight *flight = flight_begin(n, call);
    nccl_result result = n->nccl != NULL ? call_nccl(n, call) : NCCL_SUCCESS;
    status = until_taken(n, &result, err);
    if (status != DDP_OK)
        return status;
    if (result != NCCL_SUCCESS)
        return refused(n, result, err);
    if (n->nccl == NULL)
        status = copy_alone(n, call, err);
    if (status == DDP_OK)
        status = flight_queued(n, flight, err);
    return status == DDP_OK ? DDP_OK : watch_fault(n, err);
}

/* Waits while there is none. */
static ddp_status make_room(struct nccl_comm *n, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK && !flight_has_room(n)) {
        status = flight_retire(n, err);
        if (status != DDP_OK)
            return watch_fault(n, err);
        if (!flight_has_room(n))
            watch_pause(n, 200);
        status = watch_alive(n, err);
    }
    return status;
}

ddp_status calls_run(struct nccl_comm *n, const struct call *call, struct ddp_err *err)
{
    pthread_mutex_lock(&n->lock);
    ddp_status status = watch_alive(n, err);
    if (status == DDP_OK) /* of this thread, which may be another than the one that began */
        status = gpu_check(&n->gpu, n->gpu.call.set_device(n->gpu.device), "taking the GPU", err);
    if (status == DDP_OK)
        status = make_room(n, err);
    if (status == DDP_OK)
        status = put(n, call, err);
    n->comm.ticket = n->begun;
    pthread_mutex_unlock(&n->lock);
    return status;
}
