/* reducer.c -- see include/ddp/reducer.h.
 *
 * Gradients are not copied: ddp_reducer_grad returns an address in the arena, and the backend reduces the arenas of
 * all ranks in place. step.c decides which call is allowed and which bucket is reduced next. All ranks call
 * collectives in the same order, because step.c uses only data that is equal on all ranks. */
#include "core/context.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "core/flush_subnormals.h"
#include "core/comm_thread.h"
#include "reducer/step.h"
#include "reducer/reduce.h"
#include "reducer/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory for the rebuild of the buckets. rebuild_buckets frees this memory. All pointers are NULL if no rebuild will
 * happen. */
struct sync_spare {
    int64_t *sent; /* parameters, in the order in which they became ready on rank order_root */
    size_t *order; /* copy of `sent`, made after a check of `sent` */
    bool *seen;    /* memory that step_is_order needs */
    char *copy;    /* copy of the arena */
};

struct ddp_reducer {
    ddp_group *group;
    ddp_param *params;  /* owned; n parameters, then the buffers; names and data are borrowed */
    size_t n;           /* number of parameters */
    ddp_param *buffers; /* the model's buffers; points into the array `params` */
    ddp_reducer_options options;
    struct bucket_plan plan;
    struct reducer_step step;
    char *arena;           /* shared block: the gradients, bucket after bucket */
    char *packed;          /* shared block: all buffers of the model; NULL if the model has no buffers */
    uint16_t *wire;        /* shared block: a bucket converted to 16 bits; NULL without compression */
    size_t wire_elements;  /* elements that fit into `wire` */
    struct comm_job *jobs; /* one for each bucket */
    bool threaded;         /* true if the communication thread reduces buckets */
    ddp_work *last;        /* owned; handle of the latest all_reduce; NULL if the backend's calls block */
    /* The first error of a bucket or of a rebuild. Its code is DDP_OK if there was no error. No step is possible after
     * an error. The thread that reduces buckets writes this member. The program's thread reads this member only after
     * comm_thread_drain. */
    struct ddp_err failed;

    int32_t *used; /* find_unused: number of ranks that used each parameter in the latest step with sync */
    /* find_unused: copies of gradients that the step sets to zero, at the same offsets as in the arena */
    char *kept;
    struct sync_spare spare;
    bool *blank;              /* one element for each parameter: true if its gradient is in `kept` */
    struct batch_ranks ranks; /* ranks that had a batch in the latest exchange_answers; at first all ranks */
    int32_t *answers;         /* uneven inputs: for each rank, whether it has a batch (enum batch_answer) */
    int order_root;           /* the rank whose order of readiness all ranks use */
};

/* Store `err` for ddp_last_error() and return its code. */
static ddp_status reducer_fail(const ddp_reducer *reducer, struct ddp_err *err)
{
    return ctx_fail(reducer->group->ctx, err);
}

/* --- memory, on the host or on a device ------------------------------------------------------------------ */

/* These functions copy memory, set memory to zero, and wait until the copies are done. The memory is on the host or on
 * a device. If an operation on the device fails, the first error is stored in `failed`. */

/* Return true if gradients are in device memory. */
static bool reducer_on_device(const ddp_reducer *reducer)
{
    return reducer->group->comm->ops->copy != NULL;
}

/* Set `failed` if `failed` has no error yet. */
static void keep_failure(ddp_reducer *reducer, ddp_status status, struct ddp_err *err)
{
    if (status != DDP_OK && reducer->failed.code == DDP_OK)
        reducer->failed = *err;
}

static void reducer_copy(ddp_reducer *reducer, void *to, const void *from, size_t bytes)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (!reducer_on_device(reducer))
        memcpy(to, from, bytes);
    else
        keep_failure(reducer, comm->ops->copy(comm, to, from, bytes, reducer->options.stream, &err), &err);
}

static void reducer_zero(ddp_reducer *reducer, void *at, size_t bytes)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (!reducer_on_device(reducer))
        memset(at, 0, bytes);
    else
        keep_failure(reducer, comm->ops->zero(comm, at, bytes, reducer->options.stream, &err), &err);
}

/* Wait until all copies on the device are done. Copies in host memory are synchronous. */
static void reducer_wait_copies(ddp_reducer *reducer)
{
    struct comm *comm = reducer->group->comm;
    struct ddp_err err = { 0 };
    if (reducer_on_device(reducer))
        keep_failure(reducer, comm->ops->finish(comm, reducer->options.stream, &err), &err);
}

/* --- a bucket is reduced --------------------------------------------------------------------------------- */

/* A job reduces one bucket, on the program's thread or on the communication thread:
 *
 *     all-reduce        [ * before ]     all_reduce  [ * after ]         factors of struct averaging
 *     compressed        f32 -> 16 bits   all_reduce  16 bits -> f32, with the same factors
 *     hook              the hook's operations
 *
 * The cpu backend sums 16-bit types in f32, so compression rounds only twice: each rank's values, then the result. */

/* How to average: multiply by `before`, all-reduce with `op`, then multiply by `after`. */
struct averaging {
    double before, after;
    ddp_op op;
};

/* Return the divisor of an average. Any thread may read `ranks`, because exchange_answers() sets `ranks` before the
 * step's first bucket is launched. */
static size_t divisor_of(const ddp_reducer *reducer)
{
    return reducer->options.uneven == DDP_UNEVEN_ACTIVE ? (size_t)reducer->ranks.active
                                                        : (size_t)ddp_world_size(reducer->group->ctx);
}

/* Return the factors and the operation of an average. If options.predivide is 0, use DDP_AVG, because a DDP_SUM of
 * 16-bit types may overflow. With DDP_UNEVEN_ACTIVE the right divisor is the number of ranks that have a batch, so
 * `after` corrects the result. */
static struct averaging averaging_of(const ddp_reducer *reducer)
{
    double divisor = (double)divisor_of(reducer), world = ddp_world_size(reducer->group->ctx);
    double predivide = reducer->options.predivide;
    if (predivide > 0)
        return (struct averaging){ 1 / predivide, predivide / divisor, DDP_SUM };
    /* DDP_AVG divides by the world size, also with DDP_UNEVEN_ACTIVE. */
    return (struct averaging){ 1, world / divisor, DDP_AVG };
}

/* Reduce values. If the backend's calls do not block, keep only the handle of the last call. Calls run in order,
 * so a wait for the last call is enough. */
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

/* Reduce a bucket without compression, gaps included. Skipping the gaps would cost more time than reducing the gaps. */
static ddp_status reduce_plain(ddp_reducer *reducer, const struct bucket *b, void *grads, size_t n)
{
    const struct averaging a = averaging_of(reducer);
    values_scale(b->dtype, grads, n, a.before);
    ddp_status status = all_reduce(reducer, grads, n, b->dtype, a.op);
    if (status == DDP_OK)
        values_scale(b->dtype, grads, n, a.after);
    return status;
}

/* Reduce a bucket in 16 bits. Only the converted values are sent; the gradients stay in f32. */
static ddp_status reduce_compressed(ddp_reducer *reducer, float *grads, size_t n)
{
    const struct averaging a = averaging_of(reducer);
    values_narrow(reducer->options.wire, reducer->wire, grads, n, a.before);
    ddp_status status = all_reduce(reducer, reducer->wire, n, reducer->options.wire, a.op);
    if (status == DDP_OK)
        values_widen(reducer->options.wire, grads, reducer->wire, n, a.after);
    return status;
}

/* Call the user's hook for a bucket, in place of the reduction. If the hook fails without a text for
 * ddp_last_error(), add a text. */
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
    last_error_keep(&err); /* clear the last error: its text could be mistaken for an error of the hook */
    ddp_status status = reducer->options.hook(reducer->options.hook_user, reducer->group, &view);
    if (status == DDP_OK || ddp_last_error()[0] != '\0')
        return status;
    ddp_fail(&err, status, "reducer: the hook returned %s", ddp_status_name(status));
    return reducer_fail(reducer, &err);
}

static ddp_status reduce_bucket(ddp_reducer *reducer, size_t index)
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

/* Describe the bucket for DDPRUN_DEBUG=detail: its number, its first parameter, and a hash of all names. */
static void note_bucket(ddp_reducer *reducer, size_t index)
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
    snprintf(check->what, sizeof(check->what),
             "bucket %zu of %zu: %.80s and %zu more parameters (hash of the names %08x)", index,
             reducer->plan.count, first != NULL ? first : "nothing", reducer->plan.buckets[index].params - 1,
             names);
}

/* Run the job of one bucket, on the program's thread or on the communication thread. After a failure skip all later
 * buckets, because the ranks may be at different calls. Copy the error to `failed`, because the program's thread cannot
 * read ddp_last_error() of another thread. */
static void run_bucket_job(void *user, size_t index)
{
    ddp_reducer *reducer = user;
    if (reducer->failed.code != DDP_OK)
        return;
    struct recorder *recorder = &reducer->group->ctx->recorder;
    recorder->bucket = (int)index;
    recorder->posted_ns = reducer->jobs[index].posted_ns;
    note_bucket(reducer, index);
    /* Flush subnormals, because a hook must compute the same bits on the program's thread and on the communication
     * thread. */
    FLUSH_SUBNORMALS(true);
    ddp_status status = reduce_bucket(reducer, index);
    recorder->bucket = -1;
    recorder->posted_ns = 0; /* posted_ns is still set if the hook called no collective */
    if (status != DDP_OK)
        ddp_fail(&reducer->failed, status, "%s (in bucket %zu of %zu)", ddp_last_error(), index,
                 reducer->plan.count);
}

/* Return the error in `failed`, and make it the last error of this thread. */
static ddp_status buckets_failed(const ddp_reducer *reducer)
{
    return reducer->failed.code == DDP_OK ? DDP_OK : last_error_keep(&reducer->failed);
}

/* Make the program's stream wait for the last bucket. The host does not wait. */
static void follow_last(ddp_reducer *reducer)
{
    ddp_status status = ddp_work_wait(reducer->last);
    if (status != DDP_OK && reducer->failed.code == DDP_OK)
        ddp_fail(&reducer->failed, status, "%s", ddp_last_error());
    ddp_work_free(reducer->last);
    reducer->last = NULL;
}

/* Wait for all launched buckets. Afterwards this thread sees all gradients and `failed`, which the communication
 * thread wrote. */
static ddp_status bucket_wait(ddp_reducer *reducer)
{
    comm_thread_drain(reducer->group->ctx->thread);
    if (reducer->last != NULL)
        follow_last(reducer);
    return buckets_failed(reducer);
}

/* Launch all buckets that are ready. Each step can reuse the same jobs, because a step ends only after all jobs
 * are done. */
static ddp_status bucket_launch(ddp_reducer *reducer)
{
    size_t b;
    while (step_launch(&reducer->step, &b)) {
        struct comm_job *job = &reducer->jobs[b];
        *job = (struct comm_job){ .run = run_bucket_job,
                                  .user = reducer,
                                  .what = b,
                                  .posted_ns = recorder_now(&reducer->group->ctx->recorder) };
        if (reducer->threaded)
            comm_thread_post(reducer->group->ctx->thread, job);
        else
            run_bucket_job(reducer, b);
    }
    return reducer->threaded ? DDP_OK : buckets_failed(reducer);
}

/* Allocate the buffer for compression; collective. The buffer has room for the largest bucket, because buckets are
 * reduced one by one. If the old buffer is too small, replace it. */
static ddp_status bucket_wire_open(ddp_reducer *reducer)
{
    size_t most = BUCKET_ALIGN;
    void *block = NULL;

    for (size_t b = 0; b < reducer->plan.count; b++)
        if (reducer->plan.buckets[b].span > most)
            most = reducer->plan.buckets[b].span;
    /* A rebuild may have made a larger bucket. */
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

/* --- model, buffers and the order of readiness: one rank sends, the others receive ----------------------- */

static size_t param_bytes(const ddp_param *p)
{
    return p->count * ddp_dtype_size(p->dtype);
}

/* Send the model from rank `root`; collective. One broadcast for each parameter is fast enough, because only
 * ddp_reducer_create and the end of ddp_reducer_join send the model. */
static ddp_status sync_model(ddp_reducer *reducer, int root)
{
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < reducer->n + reducer->options.buffer_count && status == DDP_OK; i++) {
        const ddp_param *p = &reducer->params[i];
        status =
            ddp_broadcast(reducer->group, p->data, p->count, p->dtype, root, reducer->options.stream, NULL);
    }
    return status;
}

/* Send the buffers from rank `root`; collective. Pack the buffers into one message, because models have many small
 * buffers, and each call has a fixed cost. */
static ddp_status send_buffers(ddp_reducer *reducer, int root)
{
    bool mine = ddp_rank(reducer->group->ctx) == root;
    size_t n = reducer->options.buffer_count, total = 0;
    char *at = reducer->packed;

    if (at == NULL)
        return DDP_OK;
    for (size_t i = 0; i < n; at += param_bytes(&reducer->buffers[i++]))
        if (mine)
            reducer_copy(reducer, at, reducer->buffers[i].data, param_bytes(&reducer->buffers[i]));
    total = (size_t)(at - reducer->packed);
    ddp_status status =
        ddp_broadcast(reducer->group, reducer->packed, total, DDP_U8, root, reducer->options.stream, NULL);
    at = reducer->packed;
    for (size_t i = 0; i < n && status == DDP_OK; at += param_bytes(&reducer->buffers[i++]))
        if (!mine)
            reducer_copy(reducer, reducer->buffers[i].data, at, param_bytes(&reducer->buffers[i]));
    return status;
}

static void sync_spare_close(struct sync_spare *spare)
{
    free(spare->sent);
    free(spare->order);
    free(spare->seen);
    free(spare->copy);
    *spare = (struct sync_spare){ NULL, NULL, NULL, NULL };
}

/* Allocate the memory for a rebuild, which happens at most once. If the rebuild never happens, the memory costs
 * nothing, because the kernel provides pages at the first write. */
static bool get_spare(ddp_reducer *reducer)
{
    struct sync_spare *spare = &reducer->spare;
    if (reducer->step.keep_order || reducer->step.find_unused)
        return true;
    spare->sent = calloc(reducer->n, sizeof(*spare->sent));
    spare->order = calloc(reducer->n, sizeof(*spare->order));
    spare->seen = calloc(reducer->n, sizeof(*spare->seen));
    spare->copy = malloc(reducer->plan.arena_bytes + 1);
    return spare->sent != NULL && spare->order != NULL && spare->seen != NULL && spare->copy != NULL;
}

/* Allocate `kept` and the memory for a rebuild. Use calloc for `kept`, because its untouched pages take no memory. */
static ddp_status sync_get_memory(ddp_reducer *reducer, struct ddp_err *err)
{
    if (reducer->step.find_unused)
        reducer->kept = calloc(reducer->plan.arena_bytes + 1, 1);
    if ((reducer->step.find_unused && reducer->kept == NULL) || !get_spare(reducer))
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: out of memory to keep %zu bytes of gradients",
                        reducer->plan.arena_bytes);
    return DDP_OK;
}

/* Make a plan in the order that rank order_root has sent. Check the order before its numbers are used as indices. */
static ddp_status plan_anew(ddp_reducer *reducer, struct bucket_plan *plan, struct ddp_err *err)
{
    const struct sync_spare *r = &reducer->spare;
    const struct bucket_rule rule = { reducer->options.first_bucket_bytes, reducer->options.bucket_cap_bytes,
                                      r->order };
    if (!step_is_order(r->sent, reducer->n, r->seen))
        return ddp_fail(err, DDP_ERR_MISMATCH, "reducer: rank %d sent an invalid order of %zu parameters",
                        reducer->order_root, reducer->n);
    for (size_t k = 0; k < reducer->n; k++)
        r->order[k] = (size_t)r->sent[k];
    return bucket_plan_make(plan, reducer->params, reducer->n, &rule, err);
}

/* Move the gradients to their new places. Keep their values, because the program may be accumulating gradients. */
static void move_gradients(ddp_reducer *reducer, const struct bucket_plan *to)
{
    char *copy = reducer->spare.copy;
    reducer_copy(reducer, copy, reducer->arena, to->arena_bytes);
    reducer_zero(reducer, reducer->arena, to->arena_bytes);
    for (size_t i = 0; i < reducer->n; i++)
        reducer_copy(reducer, reducer->arena + to->at[i], copy + reducer->plan.at[i],
                     param_bytes(&reducer->params[i]));
    reducer_wait_copies(reducer);
    bucket_plan_free(&reducer->plan);
    reducer->plan = *to;
}

/* Receive the order of rank order_root and make a plan in that order. The arena stays, because its size does not
 * depend on the order. */
static ddp_status adopt_order(ddp_reducer *reducer)
{
    struct bucket_plan plan;
    struct ddp_err err = { 0 };
    int64_t *sent = reducer->spare.sent;

    for (size_t k = 0; k < reducer->n; k++)
        sent[k] = (int64_t)reducer->step.order[k];
    ddp_status status =
        ddp_broadcast(reducer->group, sent, reducer->n, DDP_I64, reducer->order_root, NULL, NULL);
    if (status != DDP_OK)
        return status;
    if (plan_anew(reducer, &plan, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    move_gradients(reducer, &plan);
    step_rebuilt(&reducer->step);
    return bucket_wire_open(reducer);
}

/* Rebuild the buckets. After a failed rebuild all later steps fail too. */
static ddp_status rebuild_buckets(ddp_reducer *reducer)
{
    ddp_status status = adopt_order(reducer);
    sync_spare_close(&reducer->spare);
    if (status != DDP_OK)
        ddp_fail(&reducer->failed, status, "%s", ddp_last_error());
    return status;
}

/* Save a gradient in `kept`, at the same offset as in the arena, then set it to zero. */
static void sync_blank(ddp_reducer *reducer, size_t i)
{
    size_t at = reducer->plan.at[i], bytes = param_bytes(&reducer->params[i]);
    reducer_copy(reducer, reducer->kept + at, reducer->arena + at, bytes);
    reducer_zero(reducer, reducer->arena + at, bytes);
    reducer->blank[i] = true;
}

/* Count the ranks that used each parameter; collective. If no rank used a parameter, restore the gradient that
 * sync_blank() has saved. As in PyTorch, the result is a count, but only a count of 0 has an effect. This collective
 * follows the last bucket, so it delays no bucket. */
static ddp_status share_used(ddp_reducer *reducer)
{
    for (size_t i = 0; i < reducer->n; i++)
        reducer->used[i] = reducer->step.used[i];
    ddp_status status = ddp_all_reduce(reducer->group, reducer->used, reducer->used, reducer->n, DDP_I32,
                                       DDP_SUM, NULL, NULL);
    for (size_t i = 0; i < reducer->n && status == DDP_OK; i++) {
        size_t at = reducer->plan.at[i];
        if (reducer->blank[i] && reducer->used[i] == 0)
            reducer_copy(reducer, reducer->arena + at, reducer->kept + at, param_bytes(&reducer->params[i]));
        reducer->blank[i] = false;
    }
    return status;
}

/* Execute the effects of step_forward; collective if step_forward has returned effects. */
static ddp_status sync_begin(ddp_reducer *reducer, const struct step_effects *effects)
{
    ddp_status status = effects->rebuild ? rebuild_buckets(reducer) : DDP_OK;
    if (status == DDP_OK && effects->send_buffers)
        status = send_buffers(reducer, reducer->ranks.first);
    return status;
}

/* End a step: wait for all buckets. With find_unused and sync, also call share_used(). At the end of the first
 * step with sync, set order_root to the first rank with a batch. The rebuild uses that rank's order. */
static ddp_status sync_end(ddp_reducer *reducer)
{
    ddp_status status = bucket_wait(reducer);
    if (status == DDP_OK && reducer->step.sync && reducer->step.find_unused)
        status = share_used(reducer);
    if (status != DDP_OK)
        return status;
    if (!reducer->step.recorded)
        reducer->order_root = reducer->ranks.first;
    step_end(&reducer->step);
    return DDP_OK;
}

/* --- create and free ------------------------------------------------------------------------------------ */

/* Free a reducer, but not its shared blocks. */
static void reducer_release(ddp_reducer *reducer)
{
    ddp_work_free(reducer->last);
    bucket_plan_free(&reducer->plan);
    step_close(&reducer->step);
    free(reducer->params);
    free(reducer->jobs);
    free(reducer->used);
    free(reducer->kept);
    sync_spare_close(&reducer->spare);
    free(reducer->blank);
    free(reducer->answers);
    free(reducer);
}

/* Check parameters and buffers on this rank. The comparison with the other ranks follows in reducer_verify. */
static ddp_status check_model(const ddp_reducer *reducer, const ddp_param *params, size_t n,
                              struct ddp_err *err)
{
    const ddp_reducer_options *o = &reducer->options;
    if (n == 0)
        return ddp_fail(err, DDP_ERR_ARG, "reducer: no parameters");
    ddp_status status = reducer_check_list("parameter", params, n, err);
    if (status == DDP_OK)
        status = reducer_check_list("buffer", o->buffers, o->buffer_count, err);
    if (status == DDP_OK && reducer_on_device(reducer))
        status = reducer_check_device(o, err);
    return status == DDP_OK ? reducer_check_types(params, n, o, err) : status;
}

/* Allocate all memory now, because a step must not fail for lack of memory on only one rank. */
static ddp_status reducer_allocate(ddp_reducer *reducer, const ddp_param *params, size_t n,
                                   struct ddp_err *err)
{
    size_t buffers = reducer->options.buffer_count;
    reducer->n = n;
    reducer->params = calloc(n + buffers, sizeof(*params));
    reducer->jobs = calloc(n, sizeof(*reducer->jobs));
    reducer->used = calloc(n, sizeof(*reducer->used));
    reducer->blank = calloc(n, sizeof(*reducer->blank));
    reducer->answers = calloc((size_t)ddp_world_size(reducer->group->ctx), sizeof(*reducer->answers));
    if (!reducer->params || !reducer->jobs || !reducer->used || !reducer->blank || !reducer->answers)
        return ddp_fail(err, DDP_ERR_NOMEM, "reducer: out of memory for %zu parameters", n);
    memcpy(reducer->params, params, n * sizeof(*params));
    reducer->buffers = reducer->params + n;
    if (buffers > 0)
        memcpy(reducer->buffers, reducer->options.buffers, buffers * sizeof(*params));
    return DDP_OK;
}

/* Return true if buckets should be reduced on a thread. With DDP_OVERLAP_AUTO, use a thread only if this process may
 * use two cores for each rank of the host. Otherwise the thread would slow down the backward pass. */
static bool wants_thread(const ddp_reducer *reducer)
{
    const ddp_ctx *ctx = reducer->group->ctx;
    if (reducer->options.overlap != DDP_OVERLAP_AUTO)
        return reducer->options.overlap == DDP_OVERLAP_ON;
    return ddp_world_size(ctx) > 1 && cores_allowed() >= 2 * ddp_local_world_size(ctx);
}

/* Start the communication thread if wants_thread() allows it. With DDP_OVERLAP_AUTO ignore a failure, because the
 * reducer also works without a thread. */
static ddp_status reducer_start_thread(ddp_reducer *reducer, struct ddp_err *err)
{
    ddp_status status = wants_thread(reducer) ? ctx_start_thread(reducer->group->ctx, err) : DDP_OK;
    reducer->threaded = wants_thread(reducer) && reducer->group->ctx->thread != NULL;
    return reducer->options.overlap == DDP_OVERLAP_AUTO ? DDP_OK : status;
}

/* Do the part of ddp_reducer_create that needs no other rank. After an error the caller releases `reducer`. */
static ddp_status reducer_build(ddp_reducer *reducer, const ddp_param *params, size_t n,
                                const ddp_reducer_options *given, struct ddp_err *err)
{
    ddp_reducer_options *o = &reducer->options;
    ddp_status status = reducer_options_read(given, o, err);
    if (status == DDP_OK)
        status = check_model(reducer, params, n, err);
    if (status == DDP_OK)
        status = reducer_allocate(reducer, params, n, err);
    const struct bucket_rule rule = { o->first_bucket_bytes, o->bucket_cap_bytes, NULL };
    if (status == DDP_OK)
        status = bucket_plan_make(&reducer->plan, reducer->params, n, &rule, err);
    if (status == DDP_OK)
        status = step_open(&reducer->step, &reducer->plan, reducer->params, n, err);
    if (status != DDP_OK)
        return status;
    reducer->step.find_unused = o->find_unused;
    reducer->step.keep_order = o->keep_order;
    reducer->step.uneven = o->uneven != DDP_UNEVEN_NO;
    status = sync_get_memory(reducer, err);
    return status == DDP_OK ? reducer_start_thread(reducer, err) : status;
}

/* Allocate the block for the buffers in shared memory, where a broadcast is only one copy. */
static ddp_status alloc_packed(ddp_reducer *reducer)
{
    size_t bytes = 0;
    void *block = NULL;
    for (size_t i = 0; i < reducer->options.buffer_count; i++)
        bytes += reducer->buffers[i].count * ddp_dtype_size(reducer->buffers[i].dtype);
    if (bytes == 0 || reducer->options.keep_buffers)
        return DDP_OK;
    ddp_status status = ddp_shared_alloc(reducer->group, bytes, &block);
    reducer->packed = block;
    return status;
}

/* Free all shared blocks in the reverse order of their allocation. */
static ddp_status free_shared(ddp_reducer *reducer)
{
    ddp_status status = ddp_shared_free(reducer->group, reducer->wire);
    if (status == DDP_OK)
        status = ddp_shared_free(reducer->group, reducer->packed);
    return status == DDP_OK ? ddp_shared_free(reducer->group, reducer->arena) : status;
}

/* Allocate the shared blocks; collective. Every shared_alloc fails on all ranks or on no rank. So all ranks free the
 * blocks after a failure. */
static ddp_status alloc_shared(ddp_reducer *reducer)
{
    void *arena = NULL;
    size_t bytes = reducer->plan.arena_bytes > 0 ? reducer->plan.arena_bytes : BUCKET_ALIGN;
    ddp_status status = ddp_shared_alloc(reducer->group, bytes, &arena);
    reducer->arena = arena;
    if (status == DDP_OK)
        status = alloc_packed(reducer);
    if (status == DDP_OK)
        status = bucket_wire_open(reducer);
    if (status == DDP_OK)
        return DDP_OK;
    /* Keep the text of the failure, because free_shared may replace the last error. */
    struct ddp_err why = { 0 };
    ddp_fail(&why, status, "%s", ddp_last_error());
    free_shared(reducer);
    return last_error_keep(&why);
}

/* Do the collective part of ddp_reducer_create: compare the models, send rank 0's values, and allocate the shared
 * blocks. */
static ddp_status reducer_unite(ddp_reducer *reducer)
{
    int world = ddp_world_size(reducer->group->ctx);
    reducer->ranks = (struct batch_ranks){ world, 0, 0, true };
    const struct model model = { { reducer->params, reducer->buffers },
                                 { reducer->n, reducer->options.buffer_count },
                                 &reducer->options };
    ddp_status status = reducer_verify(reducer->group, &model);
    if (status == DDP_OK)
        status = sync_model(reducer, 0);
    return status == DDP_OK ? alloc_shared(reducer) : status;
}

ddp_status ddp_reducer_create(ddp_group *group, const ddp_param *params, size_t n,
                              const ddp_reducer_options *options, ddp_reducer **out)
{
    NOT_NULL(group, NULL);
    NOT_NULL(out, NULL);
    struct ddp_err err = { 0 };
    ddp_reducer *reducer = calloc(1, sizeof(*reducer));

    *out = NULL;
    if (reducer == NULL) {
        ddp_fail(&err, DDP_ERR_NOMEM, "out of memory for a reducer");
        return ctx_fail(group->ctx, &err);
    }
    reducer->group = group;
    ddp_status status = reducer_build(reducer, params, n, options, &err);
    if (status != DDP_OK)
        reducer_fail(reducer, &err);
    else
        status = reducer_unite(reducer);
    if (status != DDP_OK) {
        reducer_release(reducer);
        return status;
    }
    *out = reducer;
    return DDP_OK;
}

/* Free the reducer; collective, because freeing shared memory is collective. */
ddp_status ddp_reducer_free(ddp_reducer *reducer)
{
    if (reducer == NULL)
        return DDP_OK;
    comm_thread_drain(reducer->group->ctx->thread);
    ddp_status status = free_shared(reducer);
    reducer_release(reducer);
    return status;
}

/* --- ranks with different numbers of batches ------------------------------------------------------------- */

/* With uneven inputs, each rank reports to the other ranks at the beginning of a step whether it has a batch. This
 * report is the rank's answer:
 *
 *   - A rank with a batch answers in ddp_reducer_forward and then computes.
 *   - A rank without a batch answers in ddp_reducer_join, and takes part with zeros as gradients.
 *
 * The answers determine the divisor, and whether the step has sync. The first rank with a batch sends its buffers and,
 * in the first step with sync, its order of readiness. */

/* Exchange the answers of all ranks; collective. After a failure reducer->ranks is unchanged. */
static ddp_status exchange_answers(ddp_reducer *reducer, enum batch_answer answer)
{
    int32_t mine = (int32_t)answer;
    struct ddp_err err;
    ddp_status status = ddp_all_gather(reducer->group, &mine, reducer->answers, 1, DDP_I32, NULL, NULL);
    if (status != DDP_OK)
        return status;
    struct batch_ranks ranks;
    status = batch_ranks_decode(&ranks, reducer->answers, ddp_world_size(reducer->group->ctx),
                                reducer->options.uneven, &err);
    if (status != DDP_OK)
        return reducer_fail(reducer, &err);
    if (ranks.active == 0)
        ranks.last = reducer->ranks.last; /* no rank has a batch now: keep the previous `last` */
    reducer->ranks = ranks;
    return DDP_OK;
}

/* Report to all ranks that this rank has a batch; collective. */
static ddp_status join_answer(ddp_reducer *reducer)
{
    return exchange_answers(reducer, reducer->step.sync ? BATCH_SYNC : BATCH_LOCAL);
}

/* Take part in a step although this rank has no batch. Run the same collectives as a rank with a batch, in the same
 * order: rebuild, buffers, buckets, used parameters. */
static ddp_status shadow_step(ddp_reducer *reducer)
{
    struct step_effects effects;
    struct ddp_err err;

    if (step_forward(&reducer->step, &effects, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    ddp_status status = sync_begin(reducer, &effects);
    if (status != DDP_OK)
        return status;
    step_shadow(&reducer->step, reducer->ranks.sync);
    reducer_zero(reducer, reducer->arena, reducer->plan.arena_bytes);
    status = bucket_launch(reducer);
    return status == DDP_OK ? sync_end(reducer) : status;
}

/* Check that ddp_reducer_join is allowed. Call this function before exchange_answers(), because afterwards the other
 * ranks expect this rank in the step. */
static ddp_status check_join(const ddp_reducer *reducer)
{
    struct ddp_err err;
    if (reducer->options.uneven == DDP_UNEVEN_NO)
        ddp_fail(&err, DDP_ERR_ARG, "reducer: join: ddp_reducer_options.uneven must not be DDP_UNEVEN_NO");
    else if (reducer->step.phase != STEP_IDLE)
        ddp_fail(&err, DDP_ERR_ARG,
                 "reducer: join: the last step has not ended; call ddp_reducer_finish first");
    else
        return DDP_OK;
    return reducer_fail(reducer, &err);
}

/* Take part in the steps of the other ranks until no rank has a batch. Then all ranks get the model of the last
 * rank that had a batch. */
ddp_status ddp_reducer_join(ddp_reducer *reducer)
{
    NOT_NULL(reducer, NULL);
    ddp_status status = bucket_wait(reducer);
    if (status == DDP_OK)
        status = check_join(reducer);
    while (status == DDP_OK) {
        status = exchange_answers(reducer, BATCH_NONE);
        if (status == DDP_OK && reducer->ranks.active == 0)
            return sync_model(reducer, reducer->ranks.last);
        if (status == DDP_OK)
            status = shadow_step(reducer);
    }
    return status;
}

/* --- a step --------------------------------------------------------------------------------------------- */

/* Return the address of gradient i, or NULL if i is out of range. The address is valid until the next
 * ddp_reducer_forward. */
void *ddp_reducer_grad(ddp_reducer *reducer, size_t i)
{
    return i < reducer->n ? reducer->arena + reducer->plan.at[i] : NULL;
}

/* Set sync for the next step. The step in progress keeps its own value, because step.c copies next_sync when a step
 * begins. */
void ddp_reducer_set_sync(ddp_reducer *reducer, int on)
{
    reducer->step.next_sync = on != 0;
}

/* Begin a step. Check for misuse before exchange_answers(), because afterwards the other ranks expect this rank in
 * the step. */
ddp_status ddp_reducer_forward(ddp_reducer *reducer)
{
    NOT_NULL(reducer, NULL);
    struct step_effects effects;
    struct ddp_err err;
    ddp_status status = bucket_wait(reducer);

    if (status != DDP_OK)
        return status;
    if (step_forward(&reducer->step, &effects, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    if (reducer->step.uneven)
        status = join_answer(reducer);
    if (status == DDP_OK)
        status = sync_begin(reducer, &effects);
    if (status != DDP_OK)
        step_cancel(&reducer->step);
    return status;
}

ddp_status ddp_reducer_ready(ddp_reducer *reducer, size_t i)
{
    NOT_NULL(reducer, NULL);
    struct ddp_err err;
    if (step_ready(&reducer->step, i, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    return bucket_launch(reducer);
}

ddp_status ddp_reducer_unused(ddp_reducer *reducer, size_t i)
{
    NOT_NULL(reducer, NULL);
    struct ddp_err err;
    bool blank;
    if (step_unused(&reducer->step, i, &blank, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    if (blank)
        sync_blank(reducer, i);
    return bucket_launch(reducer);
}

/* End a step. First mark the remaining parameters as unused, so that their buckets are launched. */
ddp_status ddp_reducer_finish(ddp_reducer *reducer)
{
    NOT_NULL(reducer, NULL);
    struct ddp_err err;
    size_t i;
    ddp_status status = DDP_OK;

    if (step_finish(&reducer->step, &err) != DDP_OK)
        return reducer_fail(reducer, &err);
    while (status == DDP_OK && step_missing(&reducer->step, &i))
        status = ddp_reducer_unused(reducer, i);
    return status == DDP_OK ? sync_end(reducer) : status;
}

/* --- queries -------------------------------------------------------------------------------------------- */

int ddp_reducer_used(const ddp_reducer *reducer, size_t i)
{
    return i < reducer->n && (!reducer->step.find_unused || reducer->used[i] > 0);
}

size_t ddp_reducer_buckets(const ddp_reducer *reducer)
{
    return reducer->plan.count;
}

size_t ddp_reducer_bucket_bytes(const ddp_reducer *reducer, size_t b)
{
    return b < reducer->plan.count ? reducer->plan.buckets[b].bytes : 0;
}

size_t ddp_reducer_bucket_of(const ddp_reducer *reducer, size_t i)
{
    return i < reducer->n ? reducer->plan.bucket_of[i] : reducer->plan.count;
}
