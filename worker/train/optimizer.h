/* optimizer.h -- turns the gradients of each rank into the new parameters of all ranks. Without --zero1 the reducer
 * averages all gradients, and every rank updates all parameters, with the same result. With --zero1 each rank gets the
 * averages of its share, updates this share, and gathers the other shares. */
#ifndef WORKER_TRAIN_OPTIMIZER_H
#define WORKER_TRAIN_OPTIMIZER_H

#include "ddp/zero1.h"
#include "train/compute.h"
#include "train/models/model.h"
#include "train/sharded_update.h"
#include "train/train_options.h"

#include <stdint.h>

enum { OPTIMIZER_SLOTS = 3 }; /* maximum number of arrays: the masters, and two states */

/* The optimizer of a rank. The order of calls is:
 *
 *     optimizer_open -> each step: optimizer_begin, gradients into o->grad, optimizer_ready for each gradient (while
 *     the backward pass still runs), optimizer_average, optimizer_update -> optimizer_close
 *
 * On a device, sharded_update.c owns the optimizer's state, and implements --zero1 and --determinism world.
 *
 * With --precision bf16 or fp16, the model's parameters are rounded copies of float32 masters. On the CPU, gradients
 * are rounded too, like the results of 16-bit kernels. With fp16 the loss is scaled. All sums are float32. */
struct optimizer {
    const struct train_options *options; /* borrowed, like `model` and `ctx` */
    struct model *model;
    ddp_ctx *ctx;
    ddp_optim optim; /* the initial rule; after optimizer_open, get the rule from optimizer_rule() */
    ddp_scaler scaler;
    ddp_reducer *reducer; /* owner of the gradients; NULL if zero1 or sharded owns the gradients */
    ddp_zero1 *zero1;
    struct sharded_update *sharded;
    float **grad;                 /* for each parameter, the address of its gradient in this step */
    size_t *count;                /* for each parameter, its number of elements */
    struct compute *device;       /* the model's device; NULL on the CPU */
    unsigned char *no_decay;      /* for each parameter: 1 if it has no weight decay */
    float *memory;                /* owned: memory of `slot` */
    float *slot[OPTIMIZER_SLOTS]; /* arrays for all parameters; with --zero1 or a device, they are used only
                                   * for checkpoints */
    int slots;                    /* number of arrays in `slot` */
    float **view;                 /* owned: for each parameter, the address of its part of a slot */
    double norm;                  /* norm of the last step's gradients before clipping; NAN if not computed */
};

/* Check that the models of all ranks have parameters with the same names and sizes, then overwrite the parameters with
 * those of rank 0; collective. The caller must close *o also after an error. */
ddp_status optimizer_open(struct optimizer *o, const struct train_options *options, struct model *model,
                          ddp_ctx *ctx, struct ddp_err *err);
/* Free everything; collective. `o` may be a zeroed struct. */
ddp_status optimizer_close(struct optimizer *o, struct ddp_err *err);

/* Begin a step and set o->grad; collective if the model has buffers. */
ddp_status optimizer_begin(struct optimizer *o, struct ddp_err *err);

/* Overwrite the buffers with rank 0's buffers; collective if the model has buffers. */
ddp_status optimizer_share_buffers(const struct model *model, ddp_ctx *ctx);

/* Return the sum that the weights of a step's samples must have over all ranks. Usually this sum is the scale of the
 * loss times the divisor by which the reducer or ZeRO-1 later divides the gradients. On the CPU with 16-bit precision,
 * the sum is only the scale, because optimizer_round() multiplies the gradients by the divisor. */
float optimizer_weight(const struct optimizer *o);

/* Round the gradient of parameter i of one shard to 16 bits. With fp32, or on a device, do nothing. Call this before
 * the gradient is added to the gradients of other shards. */
ddp_status optimizer_round(struct optimizer *o, size_t i, float *grad, struct ddp_err *err);

/* Record that the gradient of parameter i is complete. */
ddp_status optimizer_ready(struct optimizer *o, size_t i, struct ddp_err *err);

/* Wait until all gradients (with --zero1: those of this rank's share) are averages; collective. */
ddp_status optimizer_average(struct optimizer *o, struct ddp_err *err);

/* Clip the gradients and update the parameters. This call is collective if each rank has only its share of the
 * optimizer's state. On the CPU, this function computes o->norm if wants_norm is true or the gradients are clipped. On
 * a GPU wants_norm has no effect. All ranks must pass the same wants_norm. */
ddp_status optimizer_update(struct optimizer *o, double lr, bool wants_norm, struct ddp_err *err);

/* Return the optimizer's rule with its numbers and its step count, for checkpoints. `o` owns the rule. */
ddp_optim *optimizer_rule(struct optimizer *o);

/* Fill in o->slot on rank 0 with arrays of the whole model, for a checkpoint. If each rank has only its share of the
 * state, all ranks must call this function. */
ddp_status optimizer_gather(struct optimizer *o, struct ddp_err *err);

/* Allocate o->slot, into which the caller reads a checkpoint. */
ddp_status optimizer_room(struct optimizer *o, struct ddp_err *err);
/* Continue with the parameters and states that the caller has read into o->slot. */
ddp_status optimizer_restore(struct optimizer *o, struct ddp_err *err);
/* Free the memory of o->slot if each rank keeps only its share of the state. */
void optimizer_forget(struct optimizer *o);

#endif
