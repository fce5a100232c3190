/* optim.h -- optimisers over flat float32 arrays: SGD, Adam, AdamW; clipping by the global norm.
 *
 *     ddp_optim optim = DDP_ADAMW_INIT;              choose a rule, then change fields: optim.lr = 3e-4
 *     ddp_optim_check(&optim, &err)                  once, and again after changing more than lr
 *     each step:  ddp_clip_grad_norm(grads, counts, n, 1.0)
 *                 ddp_optim_begin(&optim)
 *                 ddp_optim_update(&optim, param[i], grad[i], s0[i], s1[i], count[i])   for each parameter i
 *
 * Pure arithmetic: every rank computes the same bits from the same averaged gradients, for any split of the model
 * into arrays. Formulas, defaults and order of operations follow torch.optim (1.13 to 2.x, single-tensor path).
 * Factors of a step are computed in double and elements in float32. Results agree with torch to a few units in the
 * last place, as torch's own builds do with each other. Subnormals are flushed (context.h). Parameters of 16 bits
 * have a float32 copy: see amp.h. */
#ifndef DDP_OPTIM_H
#define DDP_OPTIM_H

#include "ddp/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, text, largest number of state arrays. With g the gradient and t the step, counted from 1:
 *   SGD    g += weight_decay p;  s0 = g in step 1, then momentum s0 + (1 - dampening) g;
 *          p -= lr s0, with nesterov lr (g + momentum s0), without momentum lr g (and no state at all)
 *   ADAM   g += weight_decay p;  s0 = beta1 s0 + (1 - beta1) g;  s1 = beta2 s1 + (1 - beta2) g^2;
 *          p -= lr / (1 - beta1^t) s0 / (sqrt(s1) / sqrt(1 - beta2^t) + eps)          (Kingma & Ba 2015, algorithm 1)
 *   ADAMW  p *= 1 - lr weight_decay, then as ADAM without decay           (Loshchilov & Hutter 2019, algorithm 2) */
#define DDP_RULE_LIST(X) \
    X(SGD, "sgd", 1)     \
    X(ADAM, "adam", 2)   \
    X(ADAMW, "adamw", 2)

typedef enum ddp_rule {
#define X(name, word, states) DDP_##name,
    DDP_RULE_LIST(X)
#undef X
} ddp_rule;

/* A rule with its numbers; fields that the rule does not use are ignored. Plain data: it may be copied and saved. The
 * numbers are doubles, because torch computes the factors of a step from Python's floats. */
typedef struct ddp_optim {
    ddp_rule rule;
    double lr; /* may change from step to step */
    double weight_decay;
    double momentum, dampening; /* SGD */
    int nesterov;               /* SGD: 0 or 1 */
    double beta1, beta2, eps;   /* Adam, AdamW */
    int64_t step;               /* updates so far; part of a checkpoint, like the state arrays */
} ddp_optim;

/* torch's defaults. (Before 2.x torch had no default rate for SGD; since then it is 1e-3.) */
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

/* Check torch's limits: rates, decay and momentum not below 0, betas in [0, 1), nesterov only with momentum and
 * without dampening. DDP_ERR_ARG names the number and its limits. */
DDP_API ddp_status ddp_optim_check(const ddp_optim *optim, struct ddp_err *err);

/* Return the name of `rule`, such as "adamw", or "?" for a rule that is not in the list. */
DDP_API const char *ddp_rule_name(ddp_rule rule);

/* Return how many state arrays this optimizer keeps: 0 (SGD without momentum), 1 or 2. */
DDP_API int ddp_optim_states(const ddp_optim *optim);

/* Begin a step; call this before the first update of each step. `step` then applies to all parameters, while torch
 * counts the steps of each parameter separately. If some parameters are skipped in some steps (find_unused in
 * reducer.h), give each parameter its own ddp_optim. Then call ddp_optim_begin for a parameter only in the steps that
 * update this parameter. */
DDP_API void ddp_optim_begin(ddp_optim *optim);

/* Update n parameters in place. s0 and s1 (n floats each, zero at the start, owned by the caller) are the rule's
 * state arrays; arrays beyond ddp_optim_states are not used and may be NULL. The arrays must not overlap. */
DDP_API void ddp_optim_update(const ddp_optim *optim, float *param, const float *grad, float *s0, float *s1,
                              size_t n);

/* Return the square root of the sum of all squares of n arrays; array i has counts[i] elements. Squares are added in
 * double and in a fixed binary tree over blocks of 256 elements of each array. So the result has the same bits in
 * every run, and the same as ddp_zero1_clip for any world size. The result is infinite or NaN if an element is
 * infinite or NaN. */
DDP_API double ddp_grad_norm(const float *const grads[], const size_t counts[], size_t n);

/* Multiply all gradients by min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_. The factor is
 * computed in float32, and applied even if it is 1, as in torch. Returns the norm before the multiplication. If the
 * norm is NaN, all gradients become NaN. If the norm is infinite, each gradient becomes 0 or NaN. So check the norm
 * (or use a ddp_scaler) before the update. max_norm > 0. */
DDP_API double ddp_clip_grad_norm(float *const grads[], const size_t counts[], size_t n, double max_norm);

#ifdef __cplusplus
}
#endif
#endif
