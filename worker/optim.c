/* optim.c -- see ddp/optim.h.
 *
 * The order of operations is torch.optim.Adam's single-tensor path, because float32 arithmetic is not
 * associative and a user who compares a run with PyTorch should find the same digits: the first moment is a
 * lerp, the bias corrections are computed in double once per step, eps is added after the division by the
 * root of the second correction. */
#include "ddp/optim.h"

#include <math.h>

/* What is the same for every parameter of one step. */
struct scale {
    float step_size;  /* lr / (1 - beta1^t) */
    float root_bias2; /* sqrt(1 - beta2^t) */
    float weight1;    /* 1 - beta1 */
    float beta2, weight2;
    float eps;
};

/* In double, as torch has it: 1 - 0.999^1000 in float would have three digits left. */
static struct scale scale_of(const ddp_adam *adam)
{
    double bias1 = 1.0 - pow(adam->beta1, (double)adam->step);
    double bias2 = 1.0 - pow(adam->beta2, (double)adam->step);
    return (struct scale){
        .step_size = (float)(adam->lr / bias1),
        .root_bias2 = (float)sqrt(bias2),
        .weight1 = (float)(1.0 - adam->beta1),
        .beta2 = adam->beta2,
        .weight2 = (float)(1.0 - adam->beta2),
        .eps = adam->eps,
    };
}

void ddp_adam_begin(ddp_adam *adam)
{
    adam->step++;
}

/* `restrict` and a loop without branches: this is made for the vectoriser. */
void ddp_adam_update(const ddp_adam *adam, float *restrict param, const float *restrict grad,
                     float *restrict m, float *restrict v, size_t n)
{
    const struct scale s = scale_of(adam);
    for (size_t i = 0; i < n; i++) {
        m[i] = m[i] + s.weight1 * (grad[i] - m[i]);
        v[i] = v[i] * s.beta2 + s.weight2 * grad[i] * grad[i];
        float denominator = sqrtf(v[i]) / s.root_bias2 + s.eps;
        param[i] = param[i] - s.step_size * m[i] / denominator;
    }
}
