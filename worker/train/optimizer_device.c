/* optimizer_device.c -- see optimizer.h: parameters, gradients and the rule's state are in the memory of a device, and so is the norm;
 * the host only says in which order. With fp16 it waits for the norm once a step, as that decides whether the step is made. */
#include "optimizer.h"

#include <math.h>
#include <string.h>

static float **states(struct optimizer *o, int slot)
{
    return &o->state[slot - 1];
}

/* The reducer has written rank 0's parameters over the masters. */
ddp_status optimizer_device_open(struct optimizer *o, struct ddp_err *err)
{
    const struct model_tensors *params = &o->model->params;
    for (int slot = 1; slot < o->slots; slot++) {
        *states(o, slot) = o->device->ops->alloc(o->device, params->count * sizeof(float));
        if (*states(o, slot) == NULL)
            return ddp_fail(err, DDP_ERR_NOMEM,
                            "no device memory for the optimiser's state of %zu parameters", params->count);
    }
    o->device->ops->refresh(o->device, params);
    return o->device->ops->end(o->device, err);
}

void optimizer_device_close(struct optimizer *o)
{
    for (int slot = 1; o->device != NULL && slot < o->slots; slot++) {
        o->device->ops->release(o->device, *states(o, slot));
        *states(o, slot) = NULL;
    }
}

/* --- one step ---------------------------------------------------------------------------------------- */

static void update_all(struct optimizer *o)
{
    const struct model_tensors *params = &o->model->params;
    ddp_optim_begin(&o->optim);
    ddp_optim without = o->optim;
    without.weight_decay = 0;
    for (size_t i = 0; i < params->n; i++) {
        const struct model_tensor *t = &params->each[i];
        const size_t at = (size_t)(t->value - params->values);
        o->device->ops->update(o->device, o->no_decay[i] ? &without : &o->optim, t, o->grad[i],
                               o->state[0] != NULL ? o->state[0] + at : NULL,
                               o->state[1] != NULL ? o->state[1] + at : NULL);
    }
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

ddp_status optimizer_device_update(struct optimizer *o, double lr, struct ddp_err *err)
{
    const double most = o->options->clip > 0 ? o->options->clip : INFINITY;
    int go = 1;
    o->optim.lr = lr;
    o->device->ops->norm(o->device, o->grad, o->count, o->model->params.n, most, 1 / (double)o->scaler.scale);
    ddp_status status = o->options->precision == PRECISION_FP16 ? look_at_scale(o, &go, err) : DDP_OK;
    if (status != DDP_OK)
        return status;
    o->skipped += !go;
    if (go)
        update_all(o);
    return o->device->ops->end(o->device, err);
}

/* --- checkpoints ------------------------------------------------------------------------------------- */

ddp_status optimizer_device_gather(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    ddp_status status = o->device->ops->fetch(o->device, params, err);
    if (status == DDP_OK && o->slot[0] != params->values)
        memcpy(o->slot[0], params->values, params->count * sizeof(float));
    for (int slot = 1; slot < o->slots && status == DDP_OK; slot++)
        status = o->device->ops->copy(o->device, o->slot[slot], *states(o, slot), params->count, err);
    return status;
}

ddp_status optimizer_device_restore(struct optimizer *o, struct ddp_err *err)
{
    struct model_tensors *params = &o->model->params;
    if (o->slot[0] != params->values)
        memcpy(params->values, o->slot[0], params->count * sizeof(float));
    ddp_status status = o->device->ops->send(o->device, params, err);
    for (int slot = 1; slot < o->slots && status == DDP_OK; slot++)
        status = o->device->ops->copy(o->device, *states(o, slot), o->slot[slot], params->count, err);
    return status;
}
