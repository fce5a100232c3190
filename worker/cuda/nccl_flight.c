/* nccl_flight.c -- see nccl.h. One stream runs calls in order, so the first event that has not come ends the look. */
#include "cuda/nccl.h"

#include "base/clock.h"

#include <stdio.h>

static struct nccl_flight *flight_of(struct nccl_comm *n, uint64_t number)
{
    return &n->flights[number % NCCL_FLIGHTS];
}

struct nccl_flight *flight_begin(struct nccl_comm *n, const struct call *call)
{
    struct nccl_flight *flight = flight_of(n, ++n->begun);
    flight->call = *call;
    flight->queued = false;
    flight->since_ms = clock_ms();
    flight->timeout_ms = call->timeout_ms ? call->timeout_ms : n->step_timeout_ms;
    pthread_cond_signal(&n->wanted);
    return flight;
}

void flight_undo(struct nccl_comm *n)
{
    n->begun--;
}

ddp_status flight_queued(struct nccl_comm *n, struct nccl_flight *flight, struct ddp_err *err)
{
    const struct cudart *call = &n->gpu.call;
    cuda_error error = CUDA_SUCCESS_;
    if (flight->after == NULL)
        error = call->event_make(&flight->after, CUDA_EVENT_NO_TIMING);
    if (error == CUDA_SUCCESS_)
        error = call->event_record(flight->after, n->stream);
    if (error != CUDA_SUCCESS_)
        return gpu_fail(&n->gpu, error, "an event behind the call", err);
    flight->queued = true;
    return DDP_OK;
}

/* The next one's time begins now: it had to wait for this one. */
static void retire_one(struct nccl_comm *n)
{
    n->done++;
    n->host->settle(n->recorder, n->done);
    flight_of(n, n->done + 1)->since_ms = clock_ms();
}

ddp_status flight_retire(struct nccl_comm *n, struct ddp_err *err)
{
    uint64_t before = n->done;
    cuda_error error = CUDA_SUCCESS_;
    while (n->done < n->begun && flight_of(n, n->done + 1)->queued) {
        error = gpu_query(&n->gpu, flight_of(n, n->done + 1)->after);
        if (error != CUDA_SUCCESS_)
            break;
        retire_one(n);
    }
    if (n->done != before)
        pthread_cond_broadcast(&n->changed);
    if (error == CUDA_SUCCESS_ || error == CUDA_NOT_READY)
        return DDP_OK;
    char text[CALL_TEXT], doing[CALL_TEXT + 64];
    snprintf(doing, sizeof(doing), "rank %d: %s on the GPU", n->rank, flight_text(n, text));
    return gpu_fail(&n->gpu, error, doing, err);
}

bool flight_has_room(const struct nccl_comm *n)
{
    return n->begun - n->done < NCCL_FLIGHTS - 1;
}

const struct nccl_flight *flight_oldest(const struct nccl_comm *n)
{
    return n->done < n->begun ? &n->flights[(n->done + 1) % NCCL_FLIGHTS] : NULL;
}

const char *flight_text(const struct nccl_comm *n, char text[CALL_TEXT])
{
    const struct nccl_flight *oldest = flight_oldest(n);
    const struct call none = { .kind = CALL_INIT };
    return call_text(text, oldest != NULL ? &oldest->call : &none, n->done + 1);
}
