/* parameters.c -- see compute.h: parameters on the device, updates, and results for the host.
 *
 * Each parameter begins at a multiple of 256 bytes in the array of weights that kernels read. If the weights are
 * floats, they are also the masters, which the optimizer updates. */
#include "train/cuda/device.h"

#include "train/train_options.h"

#include "ddp/amp.h"

#include <math.h>
#include <stdlib.h>

_Static_assert((int)KERNEL_SQUARES == (int)COMPUTE_LEAF && (int)KERNEL_ROWS == (int)COMPUTE_ROWS,
               "kernels.h and compute.h have different constants");

ddp_status cuda_place(struct compute *base, struct model_tensors *t, size_t multiple, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    size_t count = 0, at = 0;
    for (size_t i = 0; i < t->n; i++)
        count += compute_room(t->each[i].count);
    cuda_release(base, c->weights);
    c->weights = cuda_alloc(base, (count + multiple - 1) / multiple * multiple * base->value_bytes);
    if (c->weights == NULL)
        return ddp_fail(
            err, DDP_ERR_NOMEM,
            "out of device memory for %zu parameters; use a smaller model, or a device with more free memory",
            t->count);
    for (size_t i = 0; i < t->n; i++) {
        char *here = (char *)c->weights + at * base->value_bytes;
        t->each[i].at = here;
        t->each[i].master = base->value_bytes == sizeof(float) ? (float *)(void *)here : NULL;
        at += compute_room(t->each[i].count);
    }
    return cuda_send(base, t, err);
}

static void start_copy(struct cuda *c, float *to, const float *from, size_t n)
{
    cuda_check(c, c->gpu.call.copy_async(to, from, n * sizeof(float), CUDA_COPY_DEFAULT, c->stream),
               "cannot copy numbers");
}

static ddp_status wait(struct cuda *c, struct ddp_err *err)
{
    cuda_check(c, c->gpu.call.stream_sync(c->stream), "cannot wait for the GPU");
    return cuda_end(&c->base, err);
}

void cuda_wait(struct compute *base)
{
    struct cuda *c = cuda_of(base);
    c->gpu.call.stream_sync(c->stream);
}

/* --- weights of 16 bits, which the host converts --------------------------------------------------------- */

static ddp_dtype type_of(const struct cuda *c)
{
    return c->precision == PRECISION_BF16 ? DDP_BF16 : DDP_F16;
}

static ddp_status copy_weights(struct cuda *c, void *to, const void *from, size_t n, struct ddp_err *err)
{
    cuda_check(c, c->gpu.call.copy_async(to, from, n * sizeof(uint16_t), CUDA_COPY_DEFAULT, c->stream),
               "cannot copy weights");
    return wait(c, err);
}

static ddp_status send_one(struct cuda *c, const struct model_tensor *t, uint16_t *room, struct ddp_err *err)
{
    ddp_status status = ddp_round_f32(t->value, room, type_of(c), t->count, err);
    return status == DDP_OK ? copy_weights(c, (void *)(uintptr_t)t->at, room, t->count, err) : status;
}

static ddp_status fetch_one(struct cuda *c, const struct model_tensor *t, uint16_t *room, struct ddp_err *err)
{
    ddp_status status = copy_weights(c, room, t->at, t->count, err);
    return status == DDP_OK ? ddp_widen_f32(room, type_of(c), t->value, t->count, err) : status;
}

static ddp_status each_narrow(struct cuda *c, const struct model_tensors *t, bool sends, struct ddp_err *err)
{
    size_t most = 1;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < t->n; i++)
        most = t->each[i].count > most ? t->each[i].count : most;
    uint16_t *room = malloc(most * sizeof(*room));
    if (room == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu weights", most);
    for (size_t i = 0; i < t->n && status == DDP_OK; i++)
        status = (sends ? send_one : fetch_one)(c, &t->each[i], room, err);
    free(room);
    return status;
}

/* --- the host's values -------------------------------------------------------------------------------- */

/* Copy the values to the device or back, and wait, because the host uses its memory afterwards. */
static ddp_status copy_tensors(struct cuda *c, const struct model_tensors *t, bool to_device,
                               struct ddp_err *err)
{
    if (c->base.value_bytes != sizeof(float))
        return each_narrow(c, t, to_device, err);
    for (size_t i = 0; i < t->n; i++) {
        float *host = t->each[i].value, *device = t->each[i].master;
        start_copy(c, to_device ? device : host, to_device ? host : device, t->each[i].count);
    }
    return wait(c, err);
}

ddp_status cuda_send(struct compute *base, const struct model_tensors *t, struct ddp_err *err)
{
    return copy_tensors(cuda_of(base), t, true, err);
}

ddp_status cuda_fetch(struct compute *base, struct model_tensors *t, struct ddp_err *err)
{
    return copy_tensors(cuda_of(base), t, false, err);
}

ddp_status cuda_copy(struct compute *base, float *to, const float *from, size_t n, struct ddp_err *err)
{
    start_copy(cuda_of(base), to, from, n);
    return wait(cuda_of(base), err);
}

/* --- updates ------------------------------------------------------------------------------------------ */

/* Return the address of the norm, after the totals. */
static float *norm_slot(struct cuda *c)
{
    return (float *)(void *)(c->total + TOTALS);
}

void cuda_squares(struct compute *base, double *leaf, const float *x, size_t n)
{
    struct squares_args args = { leaf, x, n };
    cuda_launch(cuda_of(base), KERNEL_squares, cuda_blocks(n, KERNEL_SQUARES), 1, &args);
}

void cuda_join_squares(struct compute *base, const double *leaf, size_t leaves, double most, double unscale)
{
    struct cuda *c = cuda_of(base);
    struct join_squares_args args = { norm_slot(c), leaf, leaves, (float)most, (float)unscale };
    cuda_launch(c, KERNEL_join_squares, 1, 1, &args);
}

void cuda_sum_rows(struct compute *base, float *to, const float *rows, size_t n, size_t stride, int many)
{
    struct sum_rows_args args = { to, rows, n, stride, many };
    cuda_launch(cuda_of(base), KERNEL_sum_rows, cuda_by_elements(n), 1, &args);
}

void cuda_norm(struct compute *base, float *const grad[], const size_t count[], size_t n, double most,
               double unscale)
{
    struct cuda *c = cuda_of(base);
    size_t parts = 0, at = 0;
    for (size_t i = 0; i < n; i++)
        parts += cuda_blocks(count[i], KERNEL_SQUARES);
    double *part = cuda_room(c, &c->squares, parts * sizeof(double));
    for (size_t i = 0; i < n && part != NULL; i++) {
        cuda_squares(base, part + at, grad[i], count[i]);
        at += cuda_blocks(count[i], KERNEL_SQUARES);
    }
    cuda_join_squares(base, part, parts, most, unscale);
}

ddp_status cuda_norm_now(struct compute *base, double *out, struct ddp_err *err)
{
    float found = NAN;
    ddp_status status = cuda_copy(base, &found, norm_slot(cuda_of(base)), 1, err);
    *out = (double)found;
    return status;
}

static void update_sgd(struct cuda *c, const ddp_optim *o, const struct compute_update *u)
{
    struct update_sgd_args args = { .p = u->p,
                                    .m = u->m,
                                    .w = u->w,
                                    .g = u->g,
                                    .factor = norm_slot(c) + 1,
                                    .n = u->n,
                                    .lr = (float)o->lr,
                                    .decay = (float)o->weight_decay,
                                    .momentum = (float)o->momentum,
                                    .old = o->step > 1 ? (float)o->momentum : 0,
                                    .fresh = o->step > 1 ? (float)(1 - o->dampening) : 1,
                                    .nesterov = o->nesterov };
    cuda_launch(c, KERNEL_update_sgd, cuda_by_elements(u->n), 1, &args);
}

/* Update parameters. Compute the factors in double, as in worker/reducer/optim.c. */
void cuda_update(struct compute *base, const ddp_optim *o, const struct compute_update *u)
{
    struct cuda *c = cuda_of(base);
    const bool decoupled = o->rule == DDP_ADAMW;
    if (o->rule == DDP_SGD) {
        update_sgd(c, o, u);
        return;
    }
    struct update_adam_args args = { .p = u->p,
                                     .m = u->m,
                                     .v = u->v,
                                     .w = u->w,
                                     .g = u->g,
                                     .factor = norm_slot(c) + 1,
                                     .n = u->n,
                                     .step_size = (float)(o->lr / (1 - pow(o->beta1, (double)o->step))),
                                     .root_bias2 = (float)sqrt(1 - pow(o->beta2, (double)o->step)),
                                     .weight1 = (float)(1 - o->beta1),
                                     .beta2 = (float)o->beta2,
                                     .weight2 = (float)(1 - o->beta2),
                                     .eps = (float)o->eps,
                                     .decay = decoupled ? 0 : (float)o->weight_decay,
                                     .shrink = decoupled ? (float)(1 - o->lr * o->weight_decay) : 1 };
    cuda_launch(c, KERNEL_update_adam, cuda_by_elements(u->n), 1, &args);
}

/* --- results for the host ----------------------------------------------------------------------------- */

/* Add results from slot `slot` to *out, after the device has written them. */
static ddp_status read_totals(struct cuda *c, unsigned slot, struct compute_report *out, struct ddp_err *err)
{
    const struct results *results = &c->results[slot];
    if (!c->unread[slot])
        return DDP_OK;
    if (!cuda_check(c, c->gpu.call.event_sync(c->written[slot]), "cannot wait for a step"))
        return cuda_end(&c->base, err);
    *out = (struct compute_report){ out->loss + results->total[0], (double)results->norm[0] };
    c->unread[slot] = false;
    return DDP_OK;
}

/* Queue a copy of the totals to the host, and then set the totals to 0. So a NaN loss affects only one report. */
static cuda_error queue_totals(struct cuda *c, unsigned slot)
{
    cuda_error error = c->gpu.call.copy_async(&c->results[slot], c->total, sizeof(struct results),
                                              CUDA_COPY_DEFAULT, c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.event_record(c->written[slot], c->stream);
    if (error == CUDA_SUCCESS_)
        error = c->gpu.call.set_async(c->total, 0, 2 * sizeof(c->total[0]), c->stream);
    c->unread[slot] = true;
    return error;
}

ddp_status cuda_report(struct compute *base, bool now, struct compute_report *out, struct ddp_err *err)
{
    struct cuda *c = cuda_of(base);
    const unsigned slot = c->reports++ % SLOTS;
    *out = (struct compute_report){ 0, NAN };
    if (!cuda_check(c, queue_totals(c, slot), "cannot read the loss"))
        return cuda_end(base, err);
    ddp_status status = read_totals(c, (slot + 1) % SLOTS, out, err);
    return status == DDP_OK && now ? read_totals(c, slot, out, err) : status;
}
