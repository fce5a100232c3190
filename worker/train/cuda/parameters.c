/* parameters.c -- see compute.h: where parameters live on the device, their update, and what the host is told.
 *
 * Each parameter begins at a multiple of 256 bytes in both arrays, the float masters and the copies that kernels read; with float
 * values they are the same array. */
#include "train/cuda/device.h"

#include <math.h>

enum { APART = 128 /* elements */, THREADS = 256 };

static size_t room_of(const struct model_tensor *t)
{
    return (t->count + APART - 1) / APART * APART;
}

static ddp_status place(struct compute *base, struct model_tensors *t, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    size_t count = 0, at = 0;
    for (size_t i = 0; i < t->n; i++)
        count += room_of(&t->each[i]);
    base->ops->release(base, c->master);
    base->ops->release(base, c->weights);
    c->master = base->ops->alloc(base, count * sizeof(float));
    c->weights =
        base->value_bytes == sizeof(float) ? NULL : base->ops->alloc(base, count * base->value_bytes);
    if (c->master == NULL || (c->weights == NULL && base->value_bytes != sizeof(float)))
        return ddp_fail(err, DDP_ERR_NOMEM, "no device memory for %zu parameters", t->count);
    for (size_t i = 0; i < t->n; i++) {
        t->each[i].master = (float *)c->master + at;
        t->each[i].at =
            c->weights != NULL ? (char *)c->weights + at * base->value_bytes : (void *)t->each[i].master;
        at += room_of(&t->each[i]);
    }
    return base->ops->send(base, t, err);
}

static void *copy_of(const struct cuda *c, const struct model_tensor *t)
{
    return c->weights != NULL ? (char *)c->weights + ((const char *)t->at - (const char *)c->weights) : NULL;
}

static void refresh(struct compute *base, const struct model_tensors *t)
{
    struct cuda *c = cuda_of(base);
    for (size_t i = 0; i < t->n && c->weights != NULL; i++) {
        struct narrow_args args = { copy_of(c, &t->each[i]), t->each[i].master, t->each[i].count };
        cuda_launch(c, KERNEL_narrow, cuda_blocks(args.n, (size_t)THREADS * (16 / base->value_bytes)), 1,
                    &args);
    }
}

static void start_copy(struct cuda *c, float *to, const float *from, size_t n)
{
    cuda_check(c, c->gpu.call.copy_async(to, from, n * sizeof(float), CUDA_COPY_DEFAULT, c->stream),
               "copying numbers");
}

static ddp_status wait(struct cuda *c, struct ddp_err *err)
{
    cuda_check(c, c->gpu.call.stream_sync(c->stream), "waiting for the GPU");
    return cuda_end(&c->base, err);
}

/* What the host has is in memory that it may write again, so it waits. */
static ddp_status send(struct compute *base, const struct model_tensors *t, struct ddp_err *err)
{
    for (size_t i = 0; i < t->n; i++)
        start_copy(cuda_of(base), t->each[i].master, t->each[i].value, t->each[i].count);
    refresh(base, t);
    return wait(cuda_of(base), err);
}

static ddp_status fetch(struct compute *base, struct model_tensors *t, struct ddp_err *err)
{
    for (size_t i = 0; i < t->n; i++)
        start_copy(cuda_of(base), t->each[i].value, t->each[i].master, t->each[i].count);
    return wait(cuda_of(base), err);
}

static ddp_status copy(struct compute *base, float *to, const float *from, size_t n, struct ddp_err *err)
{
    start_copy(cuda_of(base), to, from, n);
    return wait(cuda_of(base), err);
}

/* --- updates ------------------------------------------------------------------------------------------------------------------ */

/* Behind the totals: what join_squares writes. */
static float *norm_of(struct cuda *c)
{
    return (float *)(void *)(c->total + TOTALS);
}

static void norm(struct compute *base, float *const grad[], const size_t count[], size_t n, double most,
                 double unscale)
{
    struct cuda *c = cuda_of(base);
    size_t parts = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        parts += cuda_blocks(count[i], KERNEL_SQUARES);
    double *part = cuda_room(c, &c->squares, parts * sizeof(double));
    for (size_t i = 0; i < n && part != NULL; i++) {
        struct squares_args args = { part + at, grad[i], count[i] };
        cuda_launch(c, KERNEL_squares, cuda_blocks(count[i], KERNEL_SQUARES), 1, &args);
        at += cuda_blocks(count[i], KERNEL_SQUARES);
    }
    struct join_squares_args args = { norm_of(c), part, parts, (float)most, (float)unscale };
    cuda_launch(c, KERNEL_join_squares, 1, 1, &args);
}

static ddp_status norm_now(struct compute *base, double *out, struct ddp_err *err)
{
    float found = NAN;
    ddp_status status = copy(base, &found, norm_of(cuda_of(base)), 1, err);
    *out = (double)found;
    return status;
}

static void update_sgd(struct cuda *c, const ddp_optim *o, const struct model_tensor *t, const float *grad,
                       float *m)
{
    struct update_sgd_args args = { .p = t->master,
                                    .m = m,
                                    .w = copy_of(c, t),
                                    .g = grad,
                                    .factor = norm_of(c) + 1,
                                    .n = t->count,
                                    .lr = (float)o->lr,
                                    .decay = (float)o->weight_decay,
                                    .momentum = (float)o->momentum,
                                    .old = o->step > 1 ? (float)o->momentum : 0,
                                    .fresh = o->step > 1 ? (float)(1 - o->dampening) : 1,
                                    .nesterov = o->nesterov };
    cuda_launch(c, KERNEL_update_sgd, cuda_blocks(t->count, THREADS), 1, &args);
}

/* In double, as worker/optim.c has it. */
static void update(struct compute *base, const ddp_optim *o, const struct model_tensor *t, const float *grad,
                   float *m, float *v)
{
    struct cuda *c = cuda_of(base);
    const bool decoupled = o->rule == DDP_ADAMW;
    if (o->rule == DDP_SGD) {
        update_sgd(c, o, t, grad, m);
        return;
    }
    struct update_adam_args args = { .p = t->master,
                                     .m = m,
                                     .v = v,
                                     .w = copy_of(c, t),
                                     .g = grad,
                                     .factor = norm_of(c) + 1,
                                     .n = t->count,
                                     .step_size = (float)(o->lr / (1 - pow(o->beta1, (double)o->step))),
                                     .root_bias2 = (float)sqrt(1 - pow(o->beta2, (double)o->step)),
                                     .weight1 = (float)(1 - o->beta1),
                                     .beta2 = (float)o->beta2,
                                     .weight2 = (float)(1 - o->beta2),
                                     .eps = (float)o->eps,
                                     .decay = decoupled ? 0 : (float)o->weight_decay,
                                     .shrink = decoupled ? (float)(1 - o->lr * o->weight_decay) : 1 };
    cuda_launch(c, KERNEL_update_adam, cuda_blocks(t->count, THREADS), 1, &args);
}

/* --- what the host is told ----------------------------------------------------------------------------------------------------- */

/* Adds what has not been read yet. */
static ddp_status read_told(struct cuda *c, unsigned slot, struct compute_report *out, struct ddp_err *err)
{
    const struct told *told = &c->told[slot];
    if (!c->unread[slot])
        return DDP_OK;
    if (!cuda_check(c, c->gpu.call.event_sync(c->written[slot]), "waiting for a step"))
        return cuda_end(&c->base, err);
    *out = (struct compute_report){ out->loss + told->total[0], (double)told->norm[0] };
    c->unread[slot] = false;
    return DDP_OK;
}

/* Totals begin anew behind each: a loss that is no number is one step's, and not that of all that follow. */
static cuda_error tell(struct cuda *c, unsigned slot)
{
    cuda_error error =
        c->gpu.call.copy_async(&c->told[slot], c->total, sizeof(struct told), CUDA_COPY_DEFAULT, c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.event_record(c->written[slot], c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.set_async(c->total, 0, 2 * sizeof(c->total[0]), c->stream);
    c->unread[slot] = true;
    return error;
}

static ddp_status report(struct compute *base, bool now, struct compute_report *out, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    const unsigned slot = c->reports++ % SLOTS;
    *out = (struct compute_report){ 0, NAN };
    if (!cuda_check(c, tell(c, slot), "asking for the loss"))
        return cuda_end(base, err);
    ddp_status status = read_told(c, (slot + 1) % SLOTS, out, err);
    return status == DDP_OK && now ? read_told(c, slot, out, err) : status;
}

void cuda_set_parameters(struct compute_ops *ops)
{
    ops->place = place;
    ops->send = send;
    ops->fetch = fetch;
    ops->refresh = refresh;
    ops->copy = copy;
    ops->norm = norm;
    ops->norm_now = norm_now;
    ops->update = update;
    ops->report = report;
}
