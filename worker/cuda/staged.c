/* staged.c -- the cpu backend for buffers in device memory. Values are copied in chunks through two slots in host
 * memory, so that copies of other chunks overlap with the call on the current chunk. The slots are in the cpu
 * communicator's shared memory, so the cpu communicator makes no further copy. */
#include "cuda/gpu_comm.h"
#include "ddp/context.h"

#include "base/clock.h"
#include "core/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

/* Return the maximum length of a row, in elements, so that all rows of a chunk fit into a slot. The result is at
 * least 1, because a slot has room for one element of each rank even in the largest world. */
static uint64_t most(const struct call *call, int world, size_t room)
{
    const struct call_rule *rule = &call_rules[call->kind];
    bool wide = has_part_for_each(rule->in) || has_part_for_each(rule->out);
    size_t fit = room / ddp_dtype_size(call->dtype) / (wide ? (size_t)world : 1);
    return fit > 0 ? fit : 1;
}

/* A chunk of a call. A buffer has one part, or a part for each rank. A chunk contains the same range of elements from
 * each part. The range from one part is a row. */
struct staged_chunk {
    size_t k;                 /* number of the chunk */
    uint64_t count;           /* number of elements of a row */
    size_t width, pitch;      /* bytes of a row; bytes from row to row in the caller's buffer */
    size_t in_rows, out_rows; /* number of rows of each buffer; 0 if this rank has no such buffer */
    const char *in;           /* first row of the input in the caller's buffer */
    char *out;                /* first row of the output in the caller's buffer */
};

/* Set *chunk to chunk `k` of a call with slots of `room` bytes. Return false if there is no such chunk. All ranks
 * divide a call in the same way, because the chunks depend only on values that are equal on all ranks. */
static bool staged_chunk(const struct call *call, int rank, int world, size_t room, size_t k,
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
    if (call->kind == CALL_BROADCAST && rank == call->root) /* the root already has the values */
        chunk->out_rows = 0;
    chunk->width = (size_t)chunk->count * size;
    if (chunk->in_rows > 0)
        chunk->in = (const char *)call->in + first * size;
    if (chunk->out_rows > 0)
        chunk->out = (char *)call->out + first * size;
    return true;
}

enum { SLOT = 1 << 20, SLOTS = 2 };

static const struct comm_ops staged_comm_ops;

struct staged {
    struct gpu_comm base; /* must be the first member */
    char *slots;          /* in shared memory of `cpu`: two slots, each with an input and an output */
    bool pinned;          /* true if the slots are registered with CUDA */
    struct CUevent_st *ready[SLOTS];
};

static char *slot_in(const struct staged *s, size_t k)
{
    return s->slots + k % SLOTS * 2 * SLOT;
}

static char *slot_out(const struct staged *s, size_t k)
{
    return slot_in(s, k) + SLOT;
}

/* --- open and close ----------------------------------------------------------------------------------- */

/* Free the communicator, also after a failed staged_open. */
static void staged_close(struct comm *comm)
{
    struct staged *s = (struct staged *)comm;
    if (s->pinned)
        s->base.gpu.call.host_unregister(s->slots);
    for (int k = 0; k < SLOTS; k++)
        if (s->ready[k] != NULL)
            s->base.gpu.call.event_free(s->ready[k]);
    gpu_comm_close(&s->base);
    free(s);
}

static ddp_status open_gpu(struct staged *s, const struct comm_setup *setup, struct ddp_err *err)
{
    cuda_error error = CUDA_SUCCESS_;
    ddp_status status = gpu_comm_open(&s->base, setup, err);
    for (int k = 0; k < SLOTS && status == DDP_OK && error == CUDA_SUCCESS_; k++)
        error = s->base.gpu.call.event_make(&s->ready[k], CUDA_EVENT_NO_TIMING);
    return status == DDP_OK ? gpu_check(&s->base.gpu, error, "cannot create an event", err) : status;
}

/* Allocate the slots and register them with CUDA. Unregistered memory is slower, but correct. */
static ddp_status get_slots(struct staged *s, struct ddp_err *err)
{
    const size_t bytes = (size_t)SLOTS * 2 * SLOT;
    void *slots = NULL;
    ddp_status status = s->base.cpu->ops->shared_alloc(s->base.cpu, bytes, &slots, err);
    s->slots = slots;
    if (status != DDP_OK)
        return status;
    s->pinned = s->base.gpu.call.host_register(slots, bytes, 0) == CUDA_SUCCESS_;
    if (!s->pinned)
        s->base.gpu.call.last_error();
    return DDP_OK;
}

/* Open the cpu communicator and the GPU. A rank without a GPU still opens the cpu communicator, because it needs this
 * communicator to report the failure to the other ranks. */
static ddp_status staged_open_both(struct staged *s, const struct comm_setup *setup, struct ddp_err *err)
{
    struct ddp_err loading = { 0 };
    open_gpu(s, setup, &loading);
    ddp_status status = setup->host->cpu->open(setup, &s->base.cpu, err);
    if (status != DDP_OK || loading.code == DDP_OK)
        return status == DDP_OK ? get_slots(s, err) : status;
    *err = loading;
    return err->code;
}

static ddp_status staged_run_cpu(struct gpu_comm *base, const struct call *call, struct ddp_err *err)
{
    return base->cpu->ops->run(base->cpu, call, err);
}

static ddp_status staged_open(const struct comm_setup *setup, struct comm **out, struct ddp_err *err)
{
    struct staged *s = gpu_comm_make(sizeof(*s), &staged_comm_ops, setup, err);
    if (s == NULL)
        return err->code;
    s->base.run_cpu = staged_run_cpu;
    return gpu_comm_finish_open(&s->base, staged_open_both(s, setup, err), out, err);
}

/* --- calls -------------------------------------------------------------------------------------------- */

/* Copy rows. CUDA rejects rows whose distance is more than PITCH_MOST bytes, so copy such rows one by one. */
static cuda_error copy_rows(const struct staged *s, char *to, size_t to_pitch, const char *from,
                            size_t from_pitch, size_t width, size_t rows)
{
    enum { PITCH_MOST = INT32_MAX };
    cuda_error error = CUDA_SUCCESS_;
    if (rows > 1 && to_pitch <= PITCH_MOST && from_pitch <= PITCH_MOST)
        return s->base.gpu.call.copy_rows(to, to_pitch, from, from_pitch, width, rows, CUDA_COPY_DEFAULT,
                                          s->base.stream);
    for (size_t i = 0; i < rows && error == CUDA_SUCCESS_; i++)
        error = s->base.gpu.call.copy_async(to + i * to_pitch, from + i * from_pitch, width,
                                            CUDA_COPY_DEFAULT, s->base.stream);
    return error;
}

/* Copy a chunk from the caller's buffer into the chunk's slot. In the slot the rows are adjacent. */
static cuda_error bring_in(const struct staged *s, const struct staged_chunk *c)
{
    cuda_error error = CUDA_SUCCESS_;
    if (c->in_rows > 0)
        error = copy_rows(s, slot_in(s, c->k), c->width, c->in, c->pitch, c->width, c->in_rows);
    return error == CUDA_SUCCESS_ ? s->base.gpu.call.event_record(s->ready[c->k % SLOTS], s->base.stream)
                                  : error;
}

static cuda_error bring_out(const struct staged *s, const struct staged_chunk *c)
{
    return copy_rows(s, c->out, c->pitch, slot_out(s, c->k), c->width, c->width, c->out_rows);
}

/* Make the call fail on all ranks with the reason `err`. */
static ddp_status staged_fail(struct staged *s, struct ddp_err *err)
{
    if (err->code == DDP_ERR_NOMEM)
        err->code = DDP_ERR_CUDA; /* use DDP_ERR_CUDA, which makes later calls fail, too, because the ranks
                                   * may be at different calls */
    s->base.cpu->ops->give_up(s->base.cpu, err);
    return err->code;
}

/* Report a CUDA error of this rank as the error of `call` on all ranks, because the other ranks would wait for this
 * rank. */
static ddp_status fail_call(struct staged *s, const struct call *call, cuda_error error, struct ddp_err *err)
{
    char doing[64];
    snprintf(doing, sizeof(doing), "at rank %d: %s on the GPU", s->base.rank, call_rules[call->kind].word);
    gpu_fail(&s->base.gpu, error, doing, err);
    return staged_fail(s, err);
}

/* Wait until the event has occurred. The wait may take long, because the program's stream may have much work before the
 * event. So also check during the wait whether another rank has failed. The wait may last for the full timeout of the
 * call. If the event has not occurred after this time, the call fails on all ranks. */
static ddp_status wait_event(struct staged *s, struct CUevent_st *event, const struct call *call,
                             struct ddp_err *err)
{
    enum { BUSY_LOOKS = 2000, CHECK_EVERY = 500 };
    const uint32_t ms = call->timeout_ms ? call->timeout_ms : s->base.step_timeout_ms;
    /* Each call of this function has its own time limit. One limit for all chunks of a collective would also count the
     * time for which run_chunk() waits for other ranks. */
    const uint64_t end_ms = clock_ms() + ms;
    cuda_error error = gpu_query(&s->base.gpu, event);
    for (int looks = 0; error == CUDA_NOT_READY; looks++) {
        if (looks > BUSY_LOOKS)
            nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
        ddp_status status = looks % CHECK_EVERY == 0 ? s->base.cpu->ops->check(s->base.cpu, err) : DDP_OK;
        if (status != DDP_OK)
            return status;
        if (clock_ms() >= end_ms) {
            ddp_fail(err, DDP_ERR_TIMEOUT, "at rank %d: the GPU has not reached the call within %g s",
                     s->base.rank, ms / 1000.0);
            return staged_fail(s, err);
        }
        error = gpu_query(&s->base.gpu, event);
    }
    return error == CUDA_SUCCESS_ ? DDP_OK : fail_call(s, call, error, err);
}

/* Run the call for one chunk, on its slot. A broadcast passes the same half of the slot as input and output. */
static ddp_status run_chunk(struct staged *s, const struct call *call, const struct staged_chunk *c,
                            struct ddp_err *err)
{
    struct call part = *call;
    part.n = c->count;
    part.in = c->in_rows > 0 ? slot_in(s, c->k) : NULL;
    part.out = c->out_rows > 0 ? slot_out(s, c->k) : NULL;
    if (call->kind == CALL_BROADCAST)
        part.in = part.out = s->base.rank == call->root ? slot_in(s, c->k) : slot_out(s, c->k);
    part.stream = NULL;
    return s->base.cpu->ops->run(s->base.cpu, &part, err);
}

/* Run a call chunk by chunk. Copy each chunk into its slot, run the call on the slot, and copy the result back. */
static ddp_status run_chunks(struct staged *s, const struct call *call, struct ddp_err *err)
{
    struct staged_chunk now, next;
    cuda_error error = CUDA_SUCCESS_;
    ddp_status status = DDP_OK;
    bool more = staged_chunk(call, s->base.rank, s->base.world, SLOT, 0, &now);

    if (more)
        error = bring_in(s, &now);
    while (more && status == DDP_OK && error == CUDA_SUCCESS_) {
        more = staged_chunk(call, s->base.rank, s->base.world, SLOT, now.k + 1, &next);
        status = wait_event(s, s->ready[now.k % SLOTS], call, err);
        if (status == DDP_OK && more)
            error = bring_in(s, &next);
        if (status == DDP_OK && error == CUDA_SUCCESS_)
            status = run_chunk(s, call, &now, err);
        if (status == DDP_OK && error == CUDA_SUCCESS_)
            error = bring_out(s, &now);
        now = next;
    }
    return status != DDP_OK || error == CUDA_SUCCESS_ ? status : fail_call(s, call, error, err);
}

/* Run a call with buffers in device memory. The call begins after the work on the program's stream and is done when
 * this function returns. */
static ddp_status run_device(struct staged *s, const struct call *call, struct ddp_err *err)
{
    const struct cudart *cuda = &s->base.gpu.call;
    cuda_error error = cuda->set_device(s->base.gpu.device); /* each thread has its own current device */
    if (error == CUDA_SUCCESS_)
        error = cuda->event_record(s->base.before, call->stream);
    if (error == CUDA_SUCCESS_)
        error = cuda->stream_follow(s->base.stream, s->base.before, 0);
    if (error != CUDA_SUCCESS_)
        return fail_call(s, call, error, err);
    ddp_status status = run_chunks(s, call, err);
    if (status != DDP_OK)
        return status;
    error = cuda->event_record(s->base.before, s->base.stream);
    return error == CUDA_SUCCESS_ ? wait_event(s, s->base.before, call, err) : fail_call(s, call, error, err);
}

/* Run a call. All ranks must use the same kind of memory, because only calls with device memory are divided into
 * chunks. If ranks differ, the cpu communicator sees different sizes, and the call fails. */
static ddp_status staged_run(struct comm *comm, const struct call *call, struct ddp_err *err)
{
    struct staged *s = (struct staged *)comm;
    bool in, out;
    if (gpu_comm_place(&s->base, call, &in, &out, err) != DDP_OK)
        return staged_fail(s, err);
    return in || out ? run_device(s, call, err) : s->base.cpu->ops->run(s->base.cpu, call, err);
}

/* --- the table of the backend ------------------------------------------------------------------------- */

static ddp_status staged_check(struct comm *comm, struct ddp_err *err)
{
    struct staged *s = (struct staged *)comm;
    return s->base.cpu->ops->check(s->base.cpu, err);
}

static const struct comm_ops staged_comm_ops = {
    .name = "cpu",
    .blocks = true,
    .open = staged_open,
    .run = staged_run,
    .shared_alloc = gpu_comm_shared_alloc,
    .shared_free = gpu_comm_shared_free,
    .check = staged_check,
    .give_up = gpu_comm_give_up,
    .close = staged_close,
    .copy = gpu_comm_copy,
    .zero = gpu_comm_zero,
    .finish = gpu_comm_finish,
};

/* --- the one function that libddp_cuda exports -------------------------------------------------------- */

static ddp_status count_devices(const struct comm_paths *paths, int *count, struct ddp_err *err)
{
    struct gpu gpu;
    return gpu_open(&gpu, paths->cudart, count, err);
}

static const struct cuda_entry entry = { DDP_VERSION, count_devices, &nccl_comm_ops, &staged_comm_ops };

DDP_API const struct cuda_entry *ddp_cuda_entry(void);
const struct cuda_entry *ddp_cuda_entry(void)
{
    return &entry;
}
