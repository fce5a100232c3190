/* reducer_bucket.c -- one bucket is launched, and reduced: see reducer_state.h.
 *
 * Reducing is a job, the same on the program's thread and on the lane's:
 *
 *     own all-reduce    [ / predivide ]  all_reduce  [ times what is left of the average ]
 *     compressed        f32 -> 16 bits   all_reduce  16 bits -> f32, with the same factors
 *     hook              whatever it does
 *
 * The plain average is one call of the backend (DDP_AVG), which divides where it sums. The backend sums 16-bit types in
 * f32 and rounds once, so only what a rank sends has lost digits.
 *
 * A backend whose calls do not block needs neither lane nor wait: the same jobs then only say what is to happen on a
 * stream. */
#include "core/crc32c.h"
#include "core/flush_subnormals.h"
#include "core/error.h"
#include "reducer/reducer_state.h"
#include "reducer/values.h"

#include <stdio.h>
#include <string.h>

/* What happens to a value before and after the all-reduce, and which that is. */
struct averaging {
    double before, after;
    ddp_op op;
};

/* The roll call of the step is over before its first bucket is launched, so the job may read it on any thread. */
static size_t divisor_of(const ddp_reducer *reducer)
{
    return reducer->options.uneven == DDP_UNEVEN_ACTIVE ? (size_t)reducer->roll.active
                                                        : (size_t)ddp_world_size(reducer->group->ctx);
}

/* Without predivide the sum is divided by the world size in any case: sums of 16-bit types stay in their range. */
static struct averaging averaging_of(const ddp_reducer *reducer)
{
    double divisor = (double)divisor_of(reducer), world = ddp_world_size(reducer->group->ctx);
    double predivide = reducer->options.predivide;
    if (predivide > 0)
        return (struct averaging){ 1 / predivide, predivide / divisor, DDP_SUM };
    return (struct averaging){ 1, world / divisor, DDP_AVG };
}

/* Where calls go on by themselves, the stream waits for the last one at the end of the step: they come one after the other. */
static ddp_status all_reduce(ddp_reducer *reducer, void *values, size_t n, ddp_dtype dtype, ddp_op op)
{
    ddp_work *work = NULL, **goes_on = reducer->group->comm->ops->blocks ? NULL : &work;
    ddp_status status =
        ddp_all_reduce(reducer->group, values, values, n, dtype, op, reducer->options.stream, goes_on);
    if (work != NULL) {
        ddp_work_free(reducer->last);
        reducer->last = work;
    }
    return status;
}

/* The zeros between gradients are scaled and summed along: looking for them would cost more, and they stay zeros. */
static ddp_status reduce_plain(ddp_reducer *reducer, const struct bucket *b, void *grads, size_t n)
{
    const struct averaging a = averaging_of(reducer);
    values_scale(b->dtype, grads, n, a.before);
    ddp_status status = all_reduce(reducer, grads, n, b->dtype, a.op);
    if (status == DDP_OK)
        values_scale(b->dtype, grads, n, a.after);
    return status;
}

/* The gradients themselves stay in f32: only what a bucket looks like on its way is smaller, in one buffer for all. */
static ddp_status reduce_compressed(ddp_reducer *reducer, float *grads, size_t n)
{
    const struct averaging a = averaging_of(reducer);
    values_narrow(reducer->options.wire, reducer->wire, grads, n, a.before);
    ddp_status status = all_reduce(reducer, reducer->wire, n, reducer->options.wire, a.op);
    if (status == DDP_OK)
        values_widen(reducer->options.wire, grads, reducer->wire, n, a.after);
    return status;
}

static ddp_status call_hook(ddp_reducer *reducer, size_t index, const struct bucket *b, void *grads, size_t n)
{
    const ddp_bucket view = { .index = index,
                              .last = index + 1 == reducer->plan.count,
                              .grads = grads,
                              .count = n,
                              .dtype = b->dtype,
                              .divisor = divisor_of(reducer),
                              .stream = reducer->options.stream };
    struct ddp_err err = { 0 };
    last_error_keep(&err); /* a hook need not leave words, and those of another call would mislead */
    ddp_status status = reducer->options.hook(reducer->options.hook_user, reducer->group, &view);
    if (status == DDP_OK || ddp_last_error()[0] != '\0')
        return status;
    ddp_fail(&err, status, "reducer: the hook returned %s", ddp_status_name(status));
    return reducer_fail(reducer, &err);
}

/* One bucket holds one type, so the choice is made once for all of its gradients. */
static ddp_status reduce(ddp_reducer *reducer, size_t index)
{
    const struct bucket *b = &reducer->plan.buckets[index];
    void *grads = reducer->arena + b->at;
    size_t n = b->span / ddp_dtype_size(b->dtype);

    if (reducer->options.hook != NULL)
        return call_hook(reducer, index, b, grads, n);
    if (reducer->options.compress && b->dtype == DDP_F32)
        return reduce_compressed(reducer, grads, n);
    return reduce_plain(reducer, b, grads, n);
}

/* For DDPRUN_DEBUG=detail: which bucket it is, and of which parameters, the first by name and all by a hash of their names. */
static void say_what(ddp_reducer *reducer, size_t index)
{
    struct collective_check *check = &reducer->group->ctx->check;
    const char *first = NULL;
    uint32_t names = 0;
    if (!check->on)
        return;
    for (size_t i = 0; i < reducer->n; i++) {
        if (reducer->plan.bucket_of[i] != index)
            continue;
        first = first != NULL ? first : reducer->params[i].name;
        names = crc32c(names, reducer->params[i].name, strlen(reducer->params[i].name));
    }
    snprintf(check->what, sizeof(check->what), "bucket %zu of %zu: %.80s and %zu more (%08x)", index,
             reducer->plan.count, first != NULL ? first : "nothing", reducer->plan.buckets[index].params - 1,
             names);
}

/* After a failure the buckets behind it are left alone: the ranks may be out of step. The words are of this thread, and
 * the program will ask for them on another. Subnormals are flushed here, on either thread, so a hook computes the same bits on both. */
static void run_job(void *user, size_t index)
{
    ddp_reducer *reducer = user;
    if (reducer->failed.code != DDP_OK)
        return;
    struct recorder *recorder = &reducer->group->ctx->recorder;
    recorder->bucket = (int)index;
    recorder->posted_ns = reducer->jobs[index].posted_ns;
    say_what(reducer, index);
    FLUSH_SUBNORMALS(true);
    ddp_status status = reduce(reducer, index);
    recorder->bucket = -1;
    recorder->posted_ns = 0; /* a hook may have made no call */
    if (status != DDP_OK)
        ddp_fail(&reducer->failed, status, "%s (in bucket %zu of %zu)", ddp_last_error(), index,
                 reducer->plan.count);
}

static ddp_status so_far(const ddp_reducer *reducer)
{
    return reducer->failed.code == DDP_OK ? DDP_OK : last_error_keep(&reducer->failed);
}

/* From here on the program's stream comes after the buckets; the host does not wait. */
static void follow_last(ddp_reducer *reducer)
{
    ddp_status status = ddp_work_wait(reducer->last);
    if (status != DDP_OK && reducer->failed.code == DDP_OK)
        ddp_fail(&reducer->failed, status, "%s", ddp_last_error());
    ddp_work_free(reducer->last);
    reducer->last = NULL;
}

/* The drain makes everything that the lane's thread has written visible here, `failed` and gradients alike. */
ddp_status bucket_wait(ddp_reducer *reducer)
{
    comm_thread_drain(reducer->group->ctx->thread);
    if (reducer->last != NULL)
        follow_last(reducer);
    return so_far(reducer);
}

/* A job's place is free again when its bucket comes up next, as a step ends with a wait. */
ddp_status bucket_launch(ddp_reducer *reducer)
{
    size_t b;
    while (core_launch(&reducer->core, &b)) {
        struct comm_job *job = &reducer->jobs[b];
        *job = (struct comm_job){ .run = run_job,
                                  .user = reducer,
                                  .what = b,
                                  .posted_ns = recorder_now(&reducer->group->ctx->recorder) };
        if (reducer->threaded)
            comm_thread_post(reducer->group->ctx->thread, job);
        else
            run_job(reducer, b);
    }
    return reducer->threaded ? DDP_OK : so_far(reducer);
}

/* Buckets are reduced one by one, so the largest one is all the room that is needed. */
ddp_status bucket_wire_open(ddp_reducer *reducer)
{
    size_t most = BUCKET_ALIGN;
    void *block = NULL;

    for (size_t b = 0; b < reducer->plan.count; b++)
        if (reducer->plan.buckets[b].span > most)
            most = reducer->plan.buckets[b].span;
    if (!reducer->options.compress || most / sizeof(float) <= reducer->wire_elements)
        return DDP_OK;
    ddp_status status = ddp_shared_free(reducer->group, reducer->wire);
    reducer->wire = NULL;
    reducer->wire_elements = 0;
    if (status == DDP_OK)
        status = ddp_shared_alloc(reducer->group, most / sizeof(float) * sizeof(*reducer->wire), &block);
    reducer->wire = block;
    if (status == DDP_OK)
        reducer->wire_elements = most / sizeof(float);
    return status;
}
