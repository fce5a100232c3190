/* shares.h -- gradients and parameters on a device, shared out by our own collectives in place of the reducer's: for --zero1, where a rank
 * updates its share alone, and for --determinism world, where the order of a sum must not depend on the number of ranks.
 *
 *     shares_open -> each step: gradients into shares_grad, shares_ready for each while the backward pass still runs,
 *     shares_average, shares_norm, shares_update for each parameter and shares_send (zero1) -> shares_close
 *
 *                            reduced by                                             updated
 *     zero1                  reduce_scatter, NCCL's average                         own share, then all_gather of what layers read
 *     world                  all_gather of all ranks' sums, added here as a tree    everything, by every rank
 *     zero1 and world        the same, added where the own share is                 own share, then all_gather
 *
 * With one precision the last two come to the same bits. The price of `world`: a rank gets the gradients of all others, which with N
 * ranks is N / 2 times the traffic of an all-reduce. */
#ifndef TRAIN_SHARES_H
#define TRAIN_SHARES_H

#include "train/compute.h"
#include "ddp/reducer.h"

enum { SHARES_SLOTS = 3 };

struct shares_wish {
    ddp_group *group; /* borrowed, as are the next three */
    struct compute *device;
    const struct model_tensors *params; /* placed at a multiple of shares_multiple(world) */
    const size_t *count;                /* elements of each */
    int world, rank;
    ddp_dtype dtype; /* of what layers read */
    bool zero1, any_world;
    int slots; /* with zero1: masters, and the rule's states */
};

struct shares;

ddp_status shares_open(struct shares **out, const struct shares_wish *wish, struct ddp_err *err);
void shares_close(struct shares *s); /* NULL is allowed */

float *shares_grad(const struct shares *s, size_t i);

/* A step begins; the gradient of parameter i is complete when the stream has come so far; all of them are. Collective. */
void shares_start(struct shares *s);
ddp_status shares_ready(struct shares *s, size_t i, struct ddp_err *err);
ddp_status shares_average(struct shares *s, struct ddp_err *err);

/* As compute_ops.norm, of all gradients; the same bits with zero1. Collective. */
ddp_status shares_norm(struct shares *s, double most, double unscale, struct ddp_err *err);

/* With zero1: what of parameter i is in this rank's share; then what layers read of all shares. */
void shares_update(struct shares *s, const ddp_optim *rule, size_t i);
ddp_status shares_send(struct shares *s, struct ddp_err *err);

/* With zero1: slot 0 is the masters, 1 and 2 are the rule's states. `flat`: all parameters one after the other, on the host.
 * Export is collective and for rank 0, the others pass NULL; import keeps this rank's shares. Masters that layers read are the
 * model's own, and are not imported. */
ddp_status shares_export(struct shares *s, int slot, float *flat, struct ddp_err *err);
ddp_status shares_import(struct shares *s, int slot, const float *flat, struct ddp_err *err);

#endif
