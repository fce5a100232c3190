/* optimizer_device.c -- see optimizer.h: parameters, gradients and the rule's state are in the memory of a device, and so is the norm;
 * the host only says in which order. With fp16 it waits for the norm once a step, as that decides whether the step is made. */
#include "train/optimizer.h"

#include "train/shares_plan.h"

#include <math.h>
#include <string.h>

static float **states(struct optimizer *o, int slot)
{
    return &o->state[slot - 1];
}

/* --- opening ----------------------------------------------------------------------------------------- */

bool optimizer_device_shares(const struct optimizer *o)
{
    return o->device != NULL && (o->options->zero1 || o->options->determinism == DETERMINISM_WORLD);
}

/* With --zero1 a rank has masters of its share alone, unless they are what layers read. */
ddp_status optimizer_device_place(struct optimizer *o, struct ddp_err *err)
{
    const size_t multiple = optimizer_device_shares(o) ? shares_multiple((size_t)ddp_world_size(o->ctx)) : 1;
    return o->device->ops->place(o->device, &o->model->params, multiple, !o->options->zero1, err);
}

static ddp_status open_states(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    for (int slot = 1; slot < o->slots; slot++) {
        *states(o, slot) = o->device->ops->alloc(o->device, params->count * sizeof(float));
        if (*states(o, slot) == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM,
                            "no device memory for the optimiser's state of %zu parameters", params->count);
    }
    return DDP_OK;
}

static ddp_status open_shares(struct optimizer *o, struct ddp_err *err)
{
    static const ddp_dtype read[] = {
        [PRECISION_FP32] = DDP_F32, [PRECISION_BF16] = DDP_BF16, [PRECISION_FP16] = DDP_F16
    };
    const struct shares_wish wish = { .group = ddp_world(o->ctx),
                                      .device = o->device,
                                      .params = &o->model->params,
                                      .count = o->count,
                                      .world = ddp_world_size(o->ctx),
                                      .rank = ddp_rank(o->ctx),
                                      .dtype = read[o->options->precision],
                                      .zero1 = o->options->zero1,
                                      .any_world = o->options->determinism == DETERMINISM_WORLD,
                                      .slots = o->slots };
    return shares_open(&o->shares, &wish, err);
}

/* Rank 0's parameters have been written over the masters; where there are none, over the values. */
static ddp_status fill(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    if (params->n > 0 && params->each[0].master == NULL) {
        ddp_status status = o->device->ops->send(o->device, params, err);
        return status == DDP_OK ? shares_import(o->shares, 0, params->values, err) : status;
    }
    o->device->ops->refresh(o->device, params);
    return o->device->ops->end(o->device, err);
}

ddp_status optimizer_device_open(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status = optimizer_device_shares(o) ? open_shares(o, err) : DDP_OK;
    if (status == DDP_OK && !o->options->zero1)
        status = open_states(o, err);
    return status == DDP_OK ? fill(o, err) : status;
}

void optimizer_device_close(struct optimizer *o)
{
    shares_close(o->shares);
    o->shares = NULL;
    for (int slot = 1; o->device != NULL && slot < o->slots; slot++) {
        o->device->ops->release(o->device, *states(o, slot));
        *states(o, slot) = NULL;
    }
}

/* --- one step ---------------------------------------------------------------------------------------- */

static ddp_status look_at_norm(struct optimizer *o, struct ddp_err *err)
{
    const double most = o->options->clip > 0 ? o->options->clip : INFINITY;
    const double unscale = 1 / (double)o->scaler.scale;
    if (o->shares != NULL)
        return shares_norm(o->shares, most, unscale, err);
    o->device->ops->norm(o->device, o->grad, o->count, o->model->params.n, most, unscale);
    return DDP_OK;
}

/* A sum of squares that is finite has only finite terms. */
static ddp_status look_at_scale(struct optimizer *o, int *go, struct ddp_err *err)
{
    ddp_status status = o->device->ops->norm_now(o->device, &o->norm, err);
    if (status == DDP_OK)
        status = ddp_scaler_unscaled(&o->scaler, !isfinite(o->norm), err);
    if (status == DDP_OK)
        status = ddp_scaler_step(&o->scaler, go, err);
    return status == DDP_OK ? ddp_scaler_update(&o->scaler, err) : status;
}

/* Calls that could not be carried out are told here, whether the step is made or not. */
ddp_status optimizer_device_look(struct optimizer *o, int *go, struct ddp_err *err)
{
    ddp_status status = look_at_norm(o, err);
    if (status == DDP_OK && o->options->precision == PRECISION_FP16)
        status = look_at_scale(o, go, err);
    return status == DDP_OK ? o->device->ops->end(o->device, err) : status;
}

static void update_whole(struct optimizer *o, const ddp_optim *rule, size_t i)
{
    const struct model_tensor *t = &o->model->params.each[i];
    const size_t at = (size_t)(t->value - o->model->params.values);
    const struct compute_update u = { .p = t->master,
                                      .w = t->at != t->master ? (void *)(uintptr_t)t->at : NULL,
                                      .g = o->grad[i],
                                      .m = o->state[0] != NULL ? o->state[0] + at : NULL,
                                      .v = o->state[1] != NULL ? o->state[1] + at : NULL,
                                      .n = t->count };
    o->device->ops->update(o->device, rule, &u);
}

void optimizer_device_one(struct optimizer *o, const ddp_optim *rule, size_t i)
{
    if (o->options->zero1)
        shares_update(o->shares, rule, i);
    else
        update_whole(o, rule, i);
}

ddp_status optimizer_device_made(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status = o->options->zero1 ? shares_send(o->shares, err) : DDP_OK;
    return status == DDP_OK ? o->device->ops->end(o->device, err) : status;
}

/* --- checkpoints ------------------------------------------------------------------------------------- */

/* Of all parameters, one after the other on the host. */
static ddp_status fetch_masters(struct optimizer *o, float *flat, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < params->n && status == DDP_OK; flat += params->each[i++].count)
        status = o->device->ops->copy(o->device, flat, params->each[i].master, params->each[i].count, err);
    return status;
}

/* Masters of all, which every rank has, or those of its share. */
static ddp_status gather_one(struct optimizer *o, int slot, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    const bool first = ddp_rank(o->ctx) == 0;
    if (slot == 0 && params->each[0].master != NULL)
        return first ? fetch_masters(o, o->slot[0], err) : DDP_OK;
    if (o->options->zero1)
        return shares_export(o->shares, slot, first ? o->slot[slot] : NULL, err);
    return o->device->ops->copy(o->device, o->slot[slot], *states(o, slot), params->count, err);
}

ddp_status optimizer_device_gather(struct optimizer *o, struct ddp_err *err)
{
    ddp_status status = DDP_OK;
    for (int slot = 0; slot < o->slots && status == DDP_OK; slot++)
        status = gather_one(o, slot, err);
    return status;
}

static ddp_status restore_one(struct optimizer *o, int slot, struct ddp_err *err)
{
    if (o->options->zero1)
        return shares_import(o->shares, slot, o->slot[slot], err);
    return slot == 0 ? DDP_OK
                     : o->device->ops->copy(o->device, *states(o, slot), o->slot[slot],
                                            o->model->params.count, err);
}

ddp_status optimizer_device_restore(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    if (o->slot[0] != params->values)
        memcpy(params->values, o->slot[0], params->count * sizeof(float));
    ddp_status status = o->device->ops->send(o->device, params, err);
    for (int slot = 0; slot < o->slots && status == DDP_OK; slot++)
        status = restore_one(o, slot, err);
    return status;
}
