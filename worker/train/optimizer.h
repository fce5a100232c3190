/* optimizer.h -- from the gradients of each rank to the new parameters of all.
 *
 *     optimizer_open -> each step: optimizer_begin, gradients into o->grad, optimizer_ready for each of them (while the
 *     backward pass still runs), optimizer_average, optimizer_update -> optimizer_close
 *
 * Two ways, chosen by --zero1: the reducer averages all gradients and every rank updates everything, to the same bits; or
 * each rank gets the averages of its share, updates that, and gathers the rest. On a device the second is shares.h, and so is
 * --determinism world. With 16 bits (--precision) the model's
 * parameters are rounded copies of a float32 master, gradients are rounded as 16-bit kernels would leave them, and for fp16
 * the loss is scaled; sums are float32 all along. */
#ifndef WORKER_TRAIN_OPTIMIZER_H
#define WORKER_TRAIN_OPTIMIZER_H

#include "ddp/zero1.h"
#include "train/compute.h"
#include "train/models/model.h"
#include "train/shares.h"
#include "train/train_options.h"

#include <stdint.h>

enum { OPTIMIZER_SLOTS = 3 }; /* of float32 arrays as long as the model: its parameters, the rule's state */

struct optimizer {
    const struct train_options *options; /* borrowed, as are the next two */
    struct model *model;
    ddp_ctx *ctx;
    ddp_optim optim; /* with --zero1 only until it is opened: ask optimizer_rule */
    ddp_scaler scaler;
    ddp_reducer *reducer; /* one of these three */
    ddp_zero1 *zero1;
    struct shares *shares;
    float **grad;                 /* of each parameter: where to write it in this step */
    size_t *count;                /* of each parameter */
    struct compute *device;       /* the model's, when that is none of the CPU; NULL = it is */
    float *state[2];              /* of the rule, in the device's memory; whole arrays, without --zero1 */
    unsigned char *no_decay;      /* of each parameter: 1 = without weight decay */
    float *memory;                /* ours; the next lie in it */
    float *slot[OPTIMIZER_SLOTS]; /* whole arrays; with --zero1 only while a checkpoint is written or read */
    int slots;
    uint16_t *rounded; /* room for the largest parameter, 16 bits each; NULL with fp32 */
    double norm;       /* of the last step's gradients, before clipping; NAN: not requested */
    uint64_t skipped;  /* steps, as their gradients were not finite */
};

/* Collective. Compares the ranks' models and overwrites them with rank 0's. On an error call optimizer_close, too. */
ddp_status optimizer_open(struct optimizer *o, const struct train_options *options, struct model *model,
                          ddp_ctx *ctx, struct ddp_err *err);
/* Collective. Safe on a zeroed one. */
ddp_status optimizer_close(struct optimizer *o, struct ddp_err *err);

/* Collective where the model has buffers. Sets o->grad. */
ddp_status optimizer_begin(struct optimizer *o, struct ddp_err *err);

/* Collective where the model has buffers: they become rank 0's. */
ddp_status optimizer_share_buffers(const struct model *model, ddp_ctx *ctx);

/* Return the sum that the weights of all samples of a step must have, over all ranks: a number that divides
 * the sums afterwards, or the scale of the loss. */
float optimizer_weight(const struct optimizer *o);

/* The gradient of parameter i of one shard, before it is added to others: rounded as kernels of --precision would have left
 * it. */
ddp_status optimizer_round(struct optimizer *o, size_t i, float *grad, struct ddp_err *err);

/* The gradient of parameter i is complete. */
ddp_status optimizer_ready(struct optimizer *o, size_t i, struct ddp_err *err);

/* Collective. All gradients are averages (with --zero1: each rank's share) when this returns. */
ddp_status optimizer_average(struct optimizer *o, struct ddp_err *err);

/* Collective with --zero1. Clip, update, and round. `wants_norm`, the same on all ranks: set o->norm. */
ddp_status optimizer_update(struct optimizer *o, double lr, bool wants_norm, struct ddp_err *err);

/* Rule, numbers and updates done; for checkpoints. */
ddp_optim *optimizer_rule(struct optimizer *o);

/* For a checkpoint: o->slot[0 .. o->slots - 1] are whole arrays when this returns, on rank 0. Collective with --zero1. */
ddp_status optimizer_gather(struct optimizer *o, struct ddp_err *err);

/* Make room in o->slot, which a checkpoint fills; then continue with those values. */
ddp_status optimizer_room(struct optimizer *o, struct ddp_err *err);
ddp_status optimizer_restore(struct optimizer *o, struct ddp_err *err);
void optimizer_forget(struct optimizer *o); /* there was nothing to fill it from */

#endif
