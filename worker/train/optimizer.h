/* optimizer.h -- from the gradients of each rank to the new parameters of all ranks.
 *
 *     optimizer_open -> each step: optimizer_begin, gradients into o->grad, optimizer_ready for each gradient (while
 *     the backward pass still runs), optimizer_average, optimizer_update -> optimizer_close
 *
 * There are two ways. Without --zero1 the reducer averages all gradients, and every rank updates all parameters, to
 * the same bits. With --zero1 each rank gets the averages of its share, updates this share, and gathers the other
 * shares. On a device shares.h implements the second way, and also --determinism world.
 *
 * With 16 bits (--precision) the model's parameters are rounded copies of a float32 master. Gradients are rounded as
 * 16-bit kernels would leave them, and for fp16 the loss is scaled. All sums are float32. */
#ifndef WORKER_TRAIN_OPTIMIZER_H
#define WORKER_TRAIN_OPTIMIZER_H

#include "ddp/zero1.h"
#include "train/compute.h"
#include "train/models/model.h"
#include "train/shares.h"
#include "train/train_options.h"

#include <stdint.h>

enum { OPTIMIZER_SLOTS = 3 }; /* float32 arrays as long as the model: its parameters, the rule's states */

struct optimizer {
    const struct train_options *options; /* borrowed, like the next two */
    struct model *model;
    ddp_ctx *ctx;
    ddp_optim optim; /* with --zero1 only before opening; use optimizer_rule */
    ddp_scaler scaler;
    ddp_reducer *reducer; /* one of these three is used */
    ddp_zero1 *zero1;
    struct shares *shares;
    float **grad;                 /* for each parameter, where this step's gradient is written */
    size_t *count;                /* for each parameter, its number of elements */
    struct compute *device;       /* the model's device; NULL = the CPU */
    float *state[2];              /* states of the rule, whole arrays in device memory; not with --zero1 */
    unsigned char *no_decay;      /* for each parameter: 1 = no weight decay */
    float *memory;                /* owned: memory of the next members */
    float *slot[OPTIMIZER_SLOTS]; /* whole arrays; with --zero1 only while a checkpoint is written or read */
    int slots;
    uint16_t *rounded; /* room for the largest parameter in 16 bits; NULL with fp32 */
    double norm;       /* norm of the last step's gradients, before clipping; NAN: not requested */
    uint64_t skipped;  /* number of steps that were skipped, because gradients were not finite */
};

/* Compare the ranks' models and overwrite them with rank 0's model; collective. After an error optimizer_close is
 * still required. */
ddp_status optimizer_open(struct optimizer *o, const struct train_options *options, struct model *model,
                          ddp_ctx *ctx, struct ddp_err *err);
/* Free everything; collective. `o` may be a zeroed struct. */
ddp_status optimizer_close(struct optimizer *o, struct ddp_err *err);

/* Begin a step and set o->grad; collective if the model has buffers. */
ddp_status optimizer_begin(struct optimizer *o, struct ddp_err *err);

/* Set all buffers to rank 0's; collective if the model has buffers. */
ddp_status optimizer_share_buffers(const struct model *model, ddp_ctx *ctx);

/* Return the sum that the weights of all samples of a step must have, over all ranks. This sum cancels a later
 * division, and includes the scale of the loss. */
float optimizer_weight(const struct optimizer *o);

/* Round the gradient of parameter i of one shard to the precision that --precision's kernels have, before it is added
 * to the gradients of other shards. */
ddp_status optimizer_round(struct optimizer *o, size_t i, float *grad, struct ddp_err *err);

/* Note that the gradient of parameter i is complete. */
ddp_status optimizer_ready(struct optimizer *o, size_t i, struct ddp_err *err);

/* Wait until all gradients are averages (with --zero1: each rank's share); collective. */
ddp_status optimizer_average(struct optimizer *o, struct ddp_err *err);

/* Clip, update and round; collective with --zero1. If `wants_norm`, which is equal on all ranks, set o->norm. */
ddp_status optimizer_update(struct optimizer *o, double lr, bool wants_norm, struct ddp_err *err);

/* Return the rule, its numbers and its number of updates; for checkpoints. */
ddp_optim *optimizer_rule(struct optimizer *o);

/* Fill o->slot[0 .. o->slots - 1] with whole arrays on rank 0, for a checkpoint; collective with --zero1. */
ddp_status optimizer_gather(struct optimizer *o, struct ddp_err *err);

/* optimizer_room makes room in o->slot, which the caller fills from a checkpoint. optimizer_restore then continues
 * with these values. */
ddp_status optimizer_room(struct optimizer *o, struct ddp_err *err);
ddp_status optimizer_restore(struct optimizer *o, struct ddp_err *err);
void optimizer_forget(struct optimizer *o); /* frees the room, if there is no checkpoint */

#endif
