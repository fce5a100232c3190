/* optimizer.c -- see optimizer.h. With --determinism world, each sample's weight in the loss includes the division by
 * the number of ranks, and the reducer's hook only adds. A later division of a very small gradient would lose digits,
 * so the bits would depend on the number of ranks. */
#include "train/optimizer.h"

#include "train/library.h"
#include "train/sharded_update.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* On a device, the host only queues the work. With fp16, the host waits for the norm in each step, because the norm
 * decides whether the parameters are updated. */

/* --- opening ------------------------------------------------------------------------------------------ */

/* Return true if each rank has only its share of the optimizer's state. */
static bool is_shared_out(const struct optimizer *o)
{
    return o->options->zero1 || (o->device != NULL && o->options->determinism == DETERMINISM_WORLD);
}

/* Place the parameters on the device, before the ranks compare them. */
static ddp_status optimizer_device_place(struct optimizer *o, struct ddp_err *err)
{
    const size_t multiple = sharded_multiple(is_shared_out(o) ? (size_t)ddp_world_size(o->ctx) : 1);
    return o->device->ops->place(o->device, &o->model->params, multiple, err);
}

/* Return the type of the weights that layers read. */
static ddp_dtype dtype_of(const struct optimizer *o)
{
    static const ddp_dtype read[] = {
        [PRECISION_FP32] = DDP_F32, [PRECISION_BF16] = DDP_BF16, [PRECISION_FP16] = DDP_F16
    };
    return read[o->options->precision];
}

/* Allocate the optimizer's state: either this rank's share or the whole state. Then set masters and weights to rank 0's
 * parameters. If layers read the masters, open_ranks has already written these parameters to the device, and
 * sharded_import does nothing. Otherwise open_ranks has written them to the host's memory, so copy the parameters from
 * that memory to the weights and to the masters. */
static ddp_status optimizer_device_open(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    const struct sharded_request request = { .group = ddp_world(o->ctx),
                                             .device = o->device,
                                             .params = params,
                                             .count = o->count,
                                             .world = is_shared_out(o) ? ddp_world_size(o->ctx) : 1,
                                             .rank = is_shared_out(o) ? ddp_rank(o->ctx) : 0,
                                             .reduces = is_shared_out(o),
                                             .dtype = dtype_of(o),
                                             .any_world = o->options->determinism == DETERMINISM_WORLD,
                                             .slots = o->slots };
    ddp_status status = sharded_open(&o->sharded, &request, err);
    if (status == DDP_OK && params->n > 0 && params->each[0].master == NULL)
        status = o->device->ops->send(o->device, params, err);
    return status == DDP_OK ? sharded_import(o->sharded, 0, params->values, err) : status;
}

/* --- one step ----------------------------------------------------------------------------------------- */

/* Compute the norm of the gradients. */
static ddp_status device_norm(struct optimizer *o, struct ddp_err *err)
{
    const double most = o->options->clip > 0 ? o->options->clip : INFINITY;
    const double unscale = 1 / (double)o->scaler.scale;
    if (is_shared_out(o))
        return sharded_norm(o->sharded, most, unscale, err);
    o->device->ops->norm(o->device, o->grad, o->count, o->model->params.n, most, unscale);
    return DDP_OK;
}

/* Check that the norm is finite, because then all gradients are finite. Set *go to 1 if the parameters may be
 * updated, otherwise to 0. */
static ddp_status device_scale(struct optimizer *o, int *go, struct ddp_err *err)
{
    ddp_status status = o->device->ops->norm_now(o->device, &o->norm, err);
    if (status == DDP_OK)
        status = ddp_scaler_unscaled(&o->scaler, !isfinite(o->norm), err);
    if (status == DDP_OK)
        status = ddp_scaler_step(&o->scaler, go, err);
    return status == DDP_OK ? ddp_scaler_update(&o->scaler, err) : status;
}

/* --- checkpoints -------------------------------------------------------------------------------------- */

/* Gather all slots on rank 0. If each rank has only its share of the state, all ranks must call this function. If the
 * layers read the masters, slot 0 is not gathered, because rank 0 has all masters on its own device. */
static ddp_status optimizer_device_gather(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    const bool first = ddp_rank(o->ctx) == 0, has_masters = params->each[0].master != NULL;
    ddp_status status = first && has_masters ? o->device->ops->fetch(o->device, params, err) : DDP_OK;
    for (int slot = has_masters; slot < o->slots && status == DDP_OK; slot++)
        status = sharded_export(o->sharded, slot, first ? o->slot[slot] : NULL, err);
    return status;
}

static ddp_status optimizer_device_restore(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    if (o->slot[0] != params->values)
        memcpy(params->values, o->slot[0], params->count * sizeof(float));
    ddp_status status = o->device->ops->send(o->device, params, err);
    for (int slot = 0; slot < o->slots && status == DDP_OK; slot++)
        status = sharded_import(o->sharded, slot, o->slot[slot], err);
    return status;
}

/* --- weights and 16 bits ------------------------------------------------------------------------------ */

static bool is_rounded(const struct optimizer *o)
{
    return o->options->precision != PRECISION_FP32;
}

/* Return true if the gradients of the ranks are only added and not averaged, so that the bits do not depend on the
 * number of ranks. On the CPU, ZeRO-1 always averages, so the bits of very small gradients may depend on the number of
 * ranks. */
static bool only_adds(const struct optimizer *o)
{
    return o->zero1 == NULL && o->options->determinism == DETERMINISM_WORLD;
}

/* Round `from` to 16 bits, and convert the result back to float32 in `to`. Work in pieces that fit on the stack. */
static ddp_status round_into(const struct optimizer *o, const float *from, float *to, size_t n,
                             struct ddp_err *err)
{
    enum { PIECE = 4096 };
    uint16_t rounded[PIECE];
    ddp_status status = DDP_OK;
    for (size_t at = 0; at < n && status == DDP_OK; at += PIECE) {
        const size_t many = n - at < PIECE ? n - at : PIECE;
        status = ddp_round_f32(from + at, rounded, dtype_of(o), many, err);
        if (status == DDP_OK)
            status = ddp_widen_f32(rounded, dtype_of(o), to + at, many, err);
    }
    return status;
}

/* Return the number by which the reducer or ZeRO-1 divides the sum over all ranks. */
static float divisor_of(const struct optimizer *o)
{
    return only_adds(o) ? 1 : (float)ddp_world_size(o->ctx);
}

float optimizer_weight(const struct optimizer *o)
{
    if (o->device != NULL)
        return o->scaler.scale * divisor_of(o);
    return is_rounded(o) ? o->scaler.scale : divisor_of(o);
}

/* Round the gradient to 16 bits. Then multiply the result by divisor_of(), to cancel the later division of the sum. If
 * the multiplication were first, a large number of ranks could make a value exceed the range of 16 bits. */
ddp_status optimizer_round(struct optimizer *o, size_t i, float *grad, struct ddp_err *err)
{
    float divisor = divisor_of(o);
    if (!is_rounded(o) || o->device != NULL)
        return DDP_OK;
    ddp_status status = round_into(o, grad, grad, o->count[i], err);
    for (size_t k = 0; k < o->count[i] && divisor != 1; k++)
        grad[k] *= divisor;
    return status;
}

/* Set the model's parameters to `from`, rounded to 16 bits. */
static ddp_status round_model(struct optimizer *o, const float *from, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < params->n && status == DDP_OK; i++) {
        size_t at = (size_t)(params->each[i].value - params->values);
        status = round_into(o, from + at, params->each[i].value, params->each[i].count, err);
    }
    return status;
}

/* --- opening ------------------------------------------------------------------------------------------ */

/* Allocate an array of all parameters for each slot. With full precision, slot 0 is usually the model's own memory.
 * With --zero1 on the CPU, slot 0 has separate memory. */
ddp_status optimizer_room(struct optimizer *o, struct ddp_err *err)
{
    size_t count = o->model->params.count;
    bool borrows = (o->zero1 == NULL || o->device != NULL) && !is_rounded(o);
    size_t own = (size_t)o->slots - borrows;
    if (o->memory != NULL)
        return DDP_OK;
    o->memory = calloc(own * count + 1, sizeof(float));
    if (o->memory == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for %zu arrays of %zu parameters", own, count);
    for (int i = borrows; i < o->slots; i++)
        o->slot[i] = o->memory + (size_t)(i - borrows) * count;
    if (borrows)
        o->slot[0] = o->model->params.values;
    return DDP_OK;
}

/* Return the model's parameters or buffers as a list for libddp. The caller frees the list. */
static ddp_param *list_of(const struct model_tensors *t)
{
    ddp_param *list = calloc(t->n + 1, sizeof(*list));
    for (size_t i = 0; list != NULL && i < t->n; i++)
        list[i] = (ddp_param){ .name = t->each[i].name,
                               .data = t->each[i].master != NULL ? t->each[i].master : t->each[i].value,
                               .count = t->each[i].count,
                               .dtype = DDP_F32,
                               .shape = t->each[i].shape,
                               .dims = t->each[i].dims };
    return list;
}

static ddp_status only_add(void *user, ddp_group *group, const ddp_bucket *bucket)
{
    (void)user;
    return ddp_all_reduce(group, bucket->grads, bucket->grads, bucket->count, bucket->dtype, DDP_SUM, NULL,
                          NULL);
}

static ddp_status open_reducer(struct optimizer *o, const ddp_param *params, const ddp_param *buffers)
{
    ddp_reducer_options options = DDP_REDUCER_OPTIONS_INIT;
    options.buffers = buffers;
    options.buffer_count = o->model->buffers.n;
    options.hook = only_adds(o) ? only_add : NULL;
    options.stream = o->device != NULL ? o->device->ops->stream(o->device) : NULL;
    return ddp_reducer_create(ddp_world(o->ctx), params, o->model->params.n, &options, &o->reducer);
}

static ddp_status open_zero1(struct optimizer *o, const ddp_param *params)
{
    ddp_zero1_options options = DDP_ZERO1_OPTIONS_INIT;
    options.optim = o->optim;
    options.no_decay = o->no_decay;
    return ddp_zero1_create(ddp_world(o->ctx), params, o->model->params.n, &options, &o->zero1);
}

/* Create ZeRO-1 or a reducer. On a device whose gradients sharded_update.c reduces, the reducer only compares the models
 * and sends rank 0's model, so free it at once. */
static ddp_status open_way(struct optimizer *o, const ddp_param *params, const ddp_param *buffers)
{
    if (o->device == NULL && o->options->zero1)
        return open_zero1(o, params);
    ddp_status status = open_reducer(o, params, buffers);
    if (status == DDP_OK && is_shared_out(o)) {
        status = ddp_reducer_free(o->reducer);
        o->reducer = NULL;
    }
    return status;
}

/* Check that the models of all ranks have parameters with the same names and sizes. Overwrite the parameters with those
 * of rank 0. Later the models stay equal, because all ranks compute the same steps. */
static ddp_status open_ranks(struct optimizer *o, struct ddp_err *err)
{
    ddp_param *params = list_of(&o->model->params), *buffers = list_of(&o->model->buffers);
    ddp_status status = DDP_ERR_NOMEM;
    if (params == NULL || buffers == NULL)
        ddp_fail(err, status, "out of memory for a list of %zu parameters", o->model->params.n);
    else
        status = library(open_way(o, params, buffers), err);
    free(params);
    free(buffers);
    return status;
}

static ddp_status make_lists(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    o->grad = calloc(params->n, sizeof(*o->grad));
    o->count = calloc(params->n, sizeof(*o->count));
    o->no_decay = calloc(params->n, 1);
    o->view = calloc(params->n, sizeof(*o->view));
    if (o->grad == NULL || o->count == NULL || o->no_decay == NULL || o->view == NULL)
        return ddp_fail(err, DDP_ERR_NOMEM, "out of memory for a list of %zu gradients", params->n);
    for (size_t i = 0; i < params->n; i++) {
        o->count[i] = params->each[i].count;
        /* weight decay does not apply to biases and normalizations, which have one dimension */
        o->no_decay[i] = params->each[i].dims < 2;
    }
    return DDP_OK;
}

ddp_status optimizer_open(struct optimizer *o, const struct train_options *options, struct model *model,
                          ddp_ctx *ctx, struct ddp_err *err)
{
    *o = (struct optimizer){ .options = options,
                             .model = model,
                             .ctx = ctx,
                             .optim = train_options_optim(options),
                             .scaler = DDP_SCALER_INIT,
                             .device = model->compute->remote ? model->compute : NULL,
                             .norm = NAN };
    if (options->precision != PRECISION_FP16)
        o->scaler.scale = 1;
    o->slots = 1 + ddp_optim_states(&o->optim);
    ddp_status status = make_lists(o, err);
    if (status == DDP_OK && o->device != NULL)
        status = optimizer_device_place(o, err);
    if (status == DDP_OK)
        status = open_ranks(o, err);
    if (status != DDP_OK || o->device != NULL)
        return status == DDP_OK ? optimizer_device_open(o, err) : status;
    if (!options->zero1)
        status = optimizer_room(o, err);
    if (status != DDP_OK || !is_rounded(o))
        return status;
    if (o->zero1 == NULL)
        memcpy(o->slot[0], model->params.values, model->params.count * sizeof(float));
    return round_model(o, model->params.values, err);
}

ddp_status optimizer_close(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status = library(ddp_reducer_free(o->reducer), err);
    if (status == DDP_OK)
        status = library(ddp_zero1_free(o->zero1), err);
    sharded_close(o->sharded);
    free(o->grad);
    free(o->count);
    free(o->no_decay);
    free(o->memory);
    free(o->view);
    *o = (struct optimizer){ 0 };
    return status;
}

/* --- one step ----------------------------------------------------------------------------------------- */

/* Send rank 0's buffers to all ranks, in one broadcast. */
ddp_status optimizer_share_buffers(const struct model *model, ddp_ctx *ctx)
{
    const struct model_tensors *buffers = &model->buffers;
    struct compute *on = model->compute;
    void *stream = on->remote ? on->ops->stream(on) : NULL;
    if (buffers->count == 0)
        return DDP_OK;
    return ddp_broadcast(ddp_world(ctx), buffers->each[0].master, buffers->count, DDP_F32, 0, stream, NULL);
}

static float *grad_of(const struct optimizer *o, size_t i)
{
    if (o->reducer != NULL)
        return ddp_reducer_grad(o->reducer, i);
    return o->zero1 != NULL ? ddp_zero1_grad(o->zero1, i) : sharded_grad(o->sharded, i);
}

/* Begin a step. Set o->grad again, because ddp_reducer_forward may have moved the gradients. ddp_reducer_forward also
 * sends the model's buffers to all ranks. Without a reducer, send the buffers here. */
ddp_status optimizer_begin(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status =
        o->reducer != NULL ? ddp_reducer_forward(o->reducer) : optimizer_share_buffers(o->model, o->ctx);
    if (o->sharded != NULL && o->reducer == NULL)
        sharded_start(o->sharded);
    for (size_t i = 0; i < o->model->params.n && status == DDP_OK; i++)
        o->grad[i] = grad_of(o, i);
    return library(status, err);
}

ddp_status optimizer_ready(struct optimizer *o, size_t i, struct ddp_err *err)
{
    if (o->reducer != NULL)
        return library(ddp_reducer_ready(o->reducer, i), err);
    return o->sharded != NULL ? sharded_ready(o->sharded, i, err) : DDP_OK;
}

ddp_status optimizer_average(struct optimizer *o, struct ddp_err *err)
{
    if (o->reducer != NULL)
        return library(ddp_reducer_finish(o->reducer), err);
    return o->zero1 != NULL ? library(ddp_zero1_reduce(o->zero1), err) : sharded_average(o->sharded, err);
}

/* Divide the gradients by the scale. All ranks have the same averages, so all ranks find the same infinite
 * gradients. */
static ddp_status unscale(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    int found = 0;
    if (o->zero1 != NULL)
        return library(ddp_zero1_unscale(o->zero1, &o->scaler), err);
    for (size_t i = 0; i < params->n; i++)
        found |= ddp_unscale(o->grad[i], DDP_F32, o->scaler.scale, o->grad[i], params->each[i].count);
    return ddp_scaler_unscaled(&o->scaler, found, err);
}

/* Compute the norm and clip the gradients, each only if needed. With ZeRO-1, ddp_zero1_clip does both. If only the norm
 * is needed, the limit for ddp_zero1_clip is infinite. */
static ddp_status limit_norm(struct optimizer *o, bool wants_norm, struct ddp_err *err)
{
    const bool clips = o->options->clip > 0;
    const size_t n = o->model->params.n;
    o->norm = NAN;
    if (!clips && !wants_norm)
        return DDP_OK;
    if (o->zero1 != NULL)
        return library(ddp_zero1_clip(o->zero1, clips ? o->options->clip : INFINITY, &o->norm), err);
    o->norm = clips ? ddp_clip_grad_norm(o->grad, o->count, n, o->options->clip)
                    : ddp_grad_norm((const float *const *)o->grad, o->count, n);
    return DDP_OK;
}

static void update_on_cpu(struct optimizer *o, const ddp_optim *rule, size_t i)
{
    const struct model_tensor *t = &o->model->params.each[i];
    const size_t at = (size_t)(t->value - o->model->params.values);
    ddp_optim_update(rule, o->slot[0] + at, o->grad[i], o->slot[1] != NULL ? o->slot[1] + at : NULL,
                     o->slot[2] != NULL ? o->slot[2] + at : NULL, t->count);
}

/* Update each parameter. Use weight decay 0 for a parameter whose flag in no_decay is set. If ranks have shares,
 * sharded_update changes only this rank's share. */
static void update_each(struct optimizer *o)
{
    ddp_optim_begin(&o->optim);
    ddp_optim without = o->optim;
    without.weight_decay = 0;
    for (size_t i = 0; i < o->model->params.n; i++) {
        const ddp_optim *rule = o->no_decay[i] ? &without : &o->optim;
        if (o->sharded != NULL)
            sharded_update(o->sharded, rule, i, o->grad[i]);
        else
            update_on_cpu(o, rule, i);
    }
}

/* Update the parameters. With 16-bit precision, round the new float32 values to 16 bits, and store the results in the
 * model. With ZeRO-1, the float32 values are already in the model. Without ZeRO-1, the float32 values are in
 * o->slot[0]. */
static ddp_status make_step(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    if (o->zero1 != NULL)
        status = library(ddp_zero1_step(o->zero1), err);
    else
        update_each(o);
    if (status != DDP_OK || !is_rounded(o))
        return status;
    return round_model(o, o->zero1 != NULL ? o->model->params.values : o->slot[0], err);
}

/* Unscale and clip the gradients. With fp16, set *go to 0 if the parameters must not be updated. */
static ddp_status check_scale(struct optimizer *o, bool wants_norm, int *go, struct ddp_err *err)
{
    bool scales = o->options->precision == PRECISION_FP16;
    ddp_status status = scales ? unscale(o, err) : DDP_OK;
    if (status == DDP_OK)
        status = limit_norm(o, wants_norm, err);
    if (status == DDP_OK && scales)
        status = ddp_scaler_step(&o->scaler, go, err);
    return status;
}

static ddp_status update_on_device(struct optimizer *o, double lr, struct ddp_err *err)
{
    int go = 1;
    o->optim.lr = lr;
    ddp_status status = device_norm(o, err);
    if (status == DDP_OK && o->options->precision == PRECISION_FP16)
        status = device_scale(o, &go, err);
    if (status == DDP_OK) /* return the error of an earlier call on the device */
        status = o->device->ops->end(o->device, err);
    if (status != DDP_OK || !go)
        return status;
    update_each(o);
    status = sharded_send(o->sharded, err);
    return status == DDP_OK ? o->device->ops->end(o->device, err) : status;
}

ddp_status optimizer_update(struct optimizer *o, double lr, bool wants_norm, struct ddp_err *err)
{
    int go = 1;
    if (o->device != NULL)
        return update_on_device(o, lr, err);
    ddp_status status = check_scale(o, wants_norm, &go, err);
    optimizer_rule(o)->lr = lr;
    if (status == DDP_OK && go)
        status = make_step(o, err);
    if (status == DDP_OK && o->options->precision == PRECISION_FP16)
        status = ddp_scaler_update(&o->scaler, err);
    if (o->zero1 != NULL)
        ddp_zero1_zero_grad(o->zero1);
    return status;
}

ddp_optim *optimizer_rule(struct optimizer *o)
{
    return o->zero1 != NULL ? ddp_zero1_optim(o->zero1) : &o->optim;
}

/* --- checkpoints -------------------------------------------------------------------------------------- */

ddp_status optimizer_gather(struct optimizer *o, struct ddp_err *err)
{
    bool first = ddp_rank(o->ctx) == 0;
    ddp_status status = first ? optimizer_room(o, err) : DDP_OK;
    if (status == DDP_OK && o->device != NULL)
        return first || is_shared_out(o) ? optimizer_device_gather(o, err) : DDP_OK;
    for (int slot = 0; o->zero1 != NULL && slot < o->slots && status == DDP_OK; slot++) {
        if (first)
            model_views(&o->model->params, o->slot[slot], o->view);
        status = library(ddp_zero1_export(o->zero1, slot, first ? o->view : NULL), err);
    }
    return status;
}

/* Free the arrays of the whole state if each rank keeps only its share. In this case only a checkpoint needs these
 * arrays. */
void optimizer_forget(struct optimizer *o)
{
    if (!is_shared_out(o))
        return;
    free(o->memory);
    o->memory = NULL;
    memset(o->slot, 0, sizeof(o->slot));
}

ddp_status optimizer_restore(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    ddp_status status = DDP_OK;
    for (int slot = 0; o->zero1 != NULL && slot < o->slots && status == DDP_OK; slot++) {
        model_views(params, o->slot[slot], o->view);
        status = library(ddp_zero1_import(o->zero1, slot, (const float *const *)o->view), err);
    }
    if (o->device != NULL)
        status = optimizer_device_restore(o, err);
    else if (status == DDP_OK && is_rounded(o))
        status = round_model(o, o->slot[0], err);
    else if (status == DDP_OK && o->slot[0] != params->values)
        memcpy(params->values, o->slot[0], params->count * sizeof(float));
    optimizer_forget(o);
    return status;
}
