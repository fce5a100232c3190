/* optim.c -- see ddp/optim.h and reducer/optim.h. All operations are in the order of torch.optim's single-tensor
 * functions, so that a run gives the same digits as PyTorch. The loops have no branches and use `restrict`, so that the
 * compiler can vectorize them. */
#include "reducer/optim.h"

#include "base/not_null.h"
#include "core/flush_subnormals.h"
#include "ddp/optim.h"

#include <math.h>

/* The name and the number of state arrays of each rule in DDP_RULE_LIST. */
static const struct {
    const char *word;
    int states;
} rules[] = {
#define X(name, word, states) [DDP_##name] = { word, states },
    DDP_RULE_LIST(X)
#undef X
};

enum { RULES = sizeof(rules) / sizeof(rules[0]) };

const char *ddp_rule_name(ddp_rule rule)
{
    return (unsigned)rule < RULES ? rules[rule].word : "?";
}

/* Return the number of state arrays. As in torch, SGD with momentum 0 needs no state array. */
int ddp_optim_states(const ddp_optim *optim)
{
    if ((unsigned)optim->rule >= RULES || (optim->rule == DDP_SGD && optim->momentum == 0))
        return 0;
    return rules[optim->rule].states;
}

/* --- checking ------------------------------------------------------------------------------------------- */

/* Check that low <= value < below. A NaN fails this check. */
static ddp_status in_range(const char *name, double value, double low, double below, struct ddp_err *err)
{
    if (value >= low && value < below)
        return DDP_OK;
    return ddp_fail(err, DDP_ERR_ARG, "optimizer: %s=%g: expected a number of at least %g and below %g", name,
                    value, low, below);
}

/* Check the hyperparameters of SGD. Nesterov's method is defined only without dampening. */
static ddp_status check_sgd(const ddp_optim *o, struct ddp_err *err)
{
    ddp_status status = in_range("momentum", o->momentum, 0, INFINITY, err);
    if (status == DDP_OK)
        status = in_range("dampening", o->dampening, -INFINITY, INFINITY, err);
    if (status == DDP_OK && o->nesterov && (o->momentum <= 0 || o->dampening != 0))
        return ddp_fail(
            err, DDP_ERR_ARG,
            "optimizer: nesterov needs momentum above 0 and dampening 0, but momentum=%g and dampening=%g",
            o->momentum, o->dampening);
    return status;
}

/* Check the hyperparameters of Adam. With a beta of 1, the bias correction would divide by zero. */
static ddp_status check_adam(const ddp_optim *o, struct ddp_err *err)
{
    ddp_status status = in_range("beta1", o->beta1, 0, 1, err);
    if (status == DDP_OK)
        status = in_range("beta2", o->beta2, 0, 1, err);
    return status == DDP_OK ? in_range("eps", o->eps, 0, INFINITY, err) : status;
}

/* Check all hyperparameters. Check the rule first, because the rule determines which hyperparameters are used. */
ddp_status ddp_optim_check(const ddp_optim *o, struct ddp_err *err)
{
    if (o == NULL)
        return null_argument(err, __func__, "optim");
    if ((unsigned)o->rule >= RULES)
        return ddp_fail(err, DDP_ERR_ARG, "optimizer: rule=%d: expected a value of ddp_rule", (int)o->rule);
    ddp_status status = in_range("lr", o->lr, 0, INFINITY, err);
    if (status == DDP_OK)
        status = in_range("weight_decay", o->weight_decay, 0, INFINITY, err);
    if (status == DDP_OK && o->step < 0)
        return ddp_fail(err, DDP_ERR_ARG, "optimizer: step=%lld: expected at least 0", (long long)o->step);
    if (status != DDP_OK)
        return status;
    return o->rule == DDP_SGD ? check_sgd(o, err) : check_adam(o, err);
}

/* --- SGD ------------------------------------------------------------------------------------------------ */

/* Update without momentum. SGD adds the weight decay to the gradient. */
static void sgd_plain(const ddp_optim *o, float *restrict param, const float *restrict grad, size_t n)
{
    const float lr = (float)o->lr, decay = (float)o->weight_decay;
    for (size_t i = 0; i < n; i++)
        param[i] -= lr * (grad[i] + decay * param[i]);
}

/* Update the momentum buffer. In the first step set the buffer to the gradient, without dampening. */
static void sgd_buffer(const ddp_optim *o, const float *restrict param, const float *restrict grad,
                       float *restrict buffer, size_t n)
{
    const float decay = (float)o->weight_decay;
    const float old = o->step > 1 ? (float)o->momentum : 0;
    const float new = o->step > 1 ? (float)(1.0 - o->dampening) : 1;
    for (size_t i = 0; i < n; i++)
        buffer[i] = old * buffer[i] + new *(grad[i] + decay * param[i]);
}

/* Update the momentum buffer, then the parameters. Nesterov's method uses the new buffer. */
static void sgd_momentum(const ddp_optim *o, float *restrict param, const float *restrict grad,
                         float *restrict buffer, size_t n)
{
    const float lr = (float)o->lr, decay = (float)o->weight_decay, momentum = (float)o->momentum;
    sgd_buffer(o, param, grad, buffer, n);
    if (o->nesterov) {
        for (size_t i = 0; i < n; i++)
            param[i] -= lr * (grad[i] + decay * param[i] + momentum * buffer[i]);
    } else {
        for (size_t i = 0; i < n; i++)
            param[i] -= lr * buffer[i];
    }
}

/* --- Adam ----------------------------------------------------------------------------------------------- */

/* The factors of one step, the same for all parameters. */
struct scale {
    float step_size;  /* lr / (1 - beta1^t) */
    float root_bias2; /* sqrt(1 - beta2^t) */
    float weight1;    /* 1 - beta1: weight of the gradient in the average m */
    float beta2;      /* weight of the old average v */
    float weight2;    /* 1 - beta2: weight of the squared gradient in v */
    float eps;
    float decay;  /* Adam: weight decay, added to the gradient */
    float shrink; /* AdamW: factor of the parameter */
};

/* Compute the factors of this step. Compute in double, as torch does. In float, the result of 1 - 0.999^t would have
 * only about five correct digits. */
static struct scale scale_of(const ddp_optim *o)
{
    const double bias1 = 1.0 - pow(o->beta1, (double)o->step);
    const double bias2 = 1.0 - pow(o->beta2, (double)o->step);
    const int decoupled = o->rule == DDP_ADAMW;
    return (struct scale){
        .step_size = (float)(o->lr / bias1),
        .root_bias2 = (float)sqrt(bias2),
        .weight1 = (float)(1.0 - o->beta1),
        .beta2 = (float)o->beta2,
        .weight2 = (float)(1.0 - o->beta2),
        .eps = (float)o->eps,
        .decay = decoupled ? 0 : (float)o->weight_decay,
        .shrink = decoupled ? (float)(1.0 - o->lr * o->weight_decay) : 1,
    };
}

/* Update by Adam or AdamW. One loop serves both rules: Adam has shrink 1, and AdamW has decay 0. The
 * multiplications by `decay` and `shrink` cost less than the square root. As in torch, the first moment is a
 * linear interpolation, and eps is added after the division by root_bias2. Adam adds the weight decay to the
 * gradient, and AdamW instead shrinks the parameter first. */
static void adam(const ddp_optim *o, float *restrict param, const float *restrict grad, float *restrict m,
                 float *restrict v, size_t n)
{
    const struct scale s = scale_of(o);
    for (size_t i = 0; i < n; i++) {
        float p = param[i] * s.shrink;
        float g = grad[i] + s.decay * p;
        m[i] = m[i] + s.weight1 * (g - m[i]);
        v[i] = v[i] * s.beta2 + s.weight2 * g * g;
        float denominator = sqrtf(v[i]) / s.root_bias2 + s.eps;
        param[i] = p - s.step_size * m[i] / denominator;
    }
}

/* Begin a step: increase the step number once, before the updates of all arrays of the model. */
void ddp_optim_begin(ddp_optim *optim)
{
    optim->step++;
}

void ddp_optim_update(const ddp_optim *o, float *param, const float *grad, float *s0, float *s1, size_t n)
{
    FLUSH_SUBNORMALS(true);
    if (o->rule != DDP_SGD)
        adam(o, param, grad, s0, s1, n);
    else if (o->momentum != 0)
        sgd_momentum(o, param, grad, s0, n);
    else
        sgd_plain(o, param, grad, n);
}

/* --- the norm of all gradients --------------------------------------------------------------------------- */

/* Number of running sums in a leaf, enough for the processor's vector units. */
enum { LANES = 8 };

/* Sum the squares of a leaf. Add element i to running sum i mod LANES, even if the length of the leaf is not a multiple
 * of LANES. So zeros after the last element would not change a bit of the result. */
double norm_leaf(const float *x, size_t n)
{
    double lane[LANES] = { 0 };
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * x[i + k];
    }
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* Add a leaf to the tree. Two sums of equally many leaves become one sum, like a carry in binary counting. */
void norm_push(struct norm_tree *tree, double leaf)
{
    int k = 0;
    for (; tree->leaves >> k & 1; k++)
        leaf = tree->part[k] + leaf;
    tree->part[k] = leaf;
    tree->leaves++;
}

/* Return the sum of all parts of the tree. Begin with the part that has the fewest leaves. */
double norm_root(const struct norm_tree *tree)
{
    double sum = 0;
    for (int k = 0; k < 64; k++) {
        if (tree->leaves >> k & 1)
            sum = tree->part[k] + sum;
    }
    return sum;
}

/* Return the norm. Each array begins a new leaf of the tree of sums (norm_push). So the result does not depend on where
 * the arrays are in memory. */
double ddp_grad_norm(const float *const grads[], const size_t counts[], size_t n)
{
    FLUSH_SUBNORMALS(true);
    struct norm_tree tree = { .leaves = 0 };
    for (size_t i = 0; i < n; i++) {
        for (size_t at = 0; at < counts[i]; at += NORM_LEAF) {
            size_t left = counts[i] - at;
            norm_push(&tree, norm_leaf(grads[i] + at, left < NORM_LEAF ? left : NORM_LEAF));
        }
    }
    return sqrt(norm_root(&tree));
}

/* Return the clipping factor, at most 1. As in torch, the factor is max_norm * (1 / (norm + 1e-6)); the 1e-6 prevents a
 * division by zero. If the norm is a NaN, return a NaN. */
float norm_clip_factor(double norm, double max_norm)
{
    float factor = 1.0f / ((float)norm + 1e-6f) * (float)max_norm;
    /* A NaN fails this comparison and is returned. */
    return factor > 1 ? 1 : factor;
}

/* Multiply n elements by `factor`. As in torch, do this even if `factor` is 1. */
void norm_multiply(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

double ddp_clip_grad_norm(float *const grads[], const size_t counts[], size_t n, double max_norm)
{
    FLUSH_SUBNORMALS(true);
    double norm = ddp_grad_norm((const float *const *)grads, counts, n);
    float factor = norm_clip_factor(norm, max_norm);
    for (size_t i = 0; i < n; i++)
        norm_multiply(grads[i], factor, counts[i]);
    return norm;
}
