/* optim.h -- optimizers for float32 arrays (SGD, Adam, AdamW), and clipping by the global norm.
 *
 *     ddp_optim optim = DDP_ADAMW_INIT;              choose a rule, then change fields: optim.lr = 3e-4
 *     ddp_optim_check(&optim, &err)                  once, and again after changing more than lr
 *     each step:  ddp_clip_grad_norm(grads, counts, n, 1.0)
 *                 ddp_optim_begin(&optim)
 *                 ddp_optim_update(&optim, param[i], grad[i], s0[i], s1[i], count[i])   for each parameter i
 *
 * All functions only compute. From the same averaged gradients, every rank computes the same bits. An update has the
 * same bits for any split of the model into arrays; the last bits of a norm depend on the split. Subnormals are flushed
 * (context.h). For parameters of 16 bits, see amp.h.
 *
 * Formulas, defaults and the order of operations are those of torch.optim (1.13 to 2.x, single-tensor path). The
 * factors of a step are computed in double, the elements in float32. Results may differ from torch in the last few
 * bits, as builds of torch differ from each other. */
#ifndef DDP_OPTIM_H
#define DDP_OPTIM_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each row is an update rule: its name, its text and its largest number of state arrays. In the formulas, p is the
 * parameter, g is its gradient, and t is the step (1, 2, ...):
 *   SGD    g += weight_decay p;  s0 = g in step 1, then momentum s0 + (1 - dampening) g;
 *          p -= lr s0. With nesterov: p -= lr (g + momentum s0). If momentum is 0: p -= lr g, without s0.
 *   ADAM   g += weight_decay p;  s0 = beta1 s0 + (1 - beta1) g;  s1 = beta2 s1 + (1 - beta2) g^2;
 *          p -= lr / (1 - beta1^t) s0 / (sqrt(s1) / sqrt(1 - beta2^t) + eps)          (Kingma & Ba 2015, algorithm 1)
 *   ADAMW  p *= 1 - lr weight_decay, then as ADAM with weight_decay 0     (Loshchilov & Hutter 2019, algorithm 2) */
#define DDP_RULE_LIST(X) \
    X(SGD, "sgd", 1)     \
    X(ADAM, "adam", 2)   \
    X(ADAMW, "adamw", 2)

typedef enum ddp_rule {
#define X(name, word, states) DDP_##name,
    DDP_RULE_LIST(X)
#undef X
} ddp_rule;

/* A rule and its hyperparameters. Fields that the rule does not use are ignored. The struct has no pointers, so it may
 * be copied and saved. Hyperparameters are doubles, like Python's floats in torch. */
typedef struct ddp_optim {
    ddp_rule rule;
    double lr; /* learning rate; may change in each step */
    double weight_decay;
    double momentum, dampening; /* SGD */
    int nesterov;               /* SGD: 0 or 1 */
    double beta1, beta2, eps;   /* Adam, AdamW */
    int64_t step;               /* number of steps; save it in checkpoints, with the state arrays */
} ddp_optim;

/* The defaults of torch 2.x. */
#define DDP_SGD_INIT                                      \
    {                                                     \
        DDP_SGD, 1e-3, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, 0 \
    }
#define DDP_ADAM_INIT                                         \
    {                                                         \
        DDP_ADAM, 1e-3, 0.0, 0.0, 0.0, 0, 0.9, 0.999, 1e-8, 0 \
    }
#define DDP_ADAMW_INIT                                          \
    {                                                           \
        DDP_ADAMW, 1e-3, 1e-2, 0.0, 0.0, 0, 0.9, 0.999, 1e-8, 0 \
    }

/* Check that the fields that the rule uses are within the limits of torch. Learning rate, weight decay, momentum, eps
 * and step must be at least 0, and each beta at least 0 and below 1. If `nesterov` is set, momentum must be above 0 and
 * dampening must be 0. Return DDP_ERR_ARG if a field is invalid; the error text names the field and its limits. */
DDP_API ddp_status ddp_optim_check(const ddp_optim *optim, struct ddp_err *err);

/* Return the name of `rule`, such as "adamw", or "?" for an unknown rule. */
DDP_API const char *ddp_rule_name(ddp_rule rule);

/* Return the number of state arrays of this optimizer: 0 (SGD without momentum), 1 or 2. */
DDP_API int ddp_optim_states(const ddp_optim *optim);

/* Begin a step: add 1 to `step`. Call this function before the first update of the step. torch counts the steps of
 * each parameter separately. So if some parameters are not updated in every step (find_unused in reducer.h), give
 * each parameter its own ddp_optim. */
DDP_API void ddp_optim_begin(ddp_optim *optim);

/* Update n elements of a parameter in place. s0 and s1 are the state arrays of the parameter, owned by the caller: n
 * floats each, zero before the first step. A state array that the rule does not use may be NULL. The arrays must not
 * overlap. */
DDP_API void ddp_optim_update(const ddp_optim *optim, float *param, const float *grad, float *s0, float *s1,
                              size_t n);

/* Return the square root of the sum of the squares of all elements of n arrays. Array i has counts[i] elements. The sum
 * is computed in double, in a fixed binary tree over blocks of 256 elements. So every run gives the same bits.
 * ddp_zero1_clip computes the same norm, with the same bits, for any world size. If an element is infinite or NaN, the
 * result is infinite or NaN. */
DDP_API double ddp_grad_norm(const float *const grads[], const size_t counts[], size_t n);

/* Multiply all gradients by min(1, max_norm / (norm + 1e-6)), as in torch.nn.utils.clip_grad_norm_, with a float32
 * factor. max_norm must be above 0. Return the norm before the multiplication. The caller should check the norm
 * before the update, or use a ddp_scaler. A norm of NaN makes all gradients NaN. An infinite norm makes the gradients
 * 0 or NaN. */
DDP_API double ddp_clip_grad_norm(float *const grads[], const size_t counts[], size_t n, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
