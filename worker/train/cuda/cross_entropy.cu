/* cross_entropy.cu -- the loss; layers/attention.c has the version for CPUs. A block reads the logits of one target
 * twice: for the sum of exp and the largest logit, then for the gradient, because the gradient needs the finished
 * sum. */

/* The first value of exp_sum.top, not -inf, because a logit of -inf (possible in fp16) would give a NaN. */
#define LOWEST -3.402823466e38f

/* The sum of exp(z - top) over the logits z that exp_sum_add() has received. `top` is the largest of these logits. */
struct exp_sum {
    float top, sum;
};

__device__ inline void exp_sum_add(struct exp_sum *s, float z)
{
    if (z > s->top) {
        s->sum *= exp_of(s->top - z);
        s->top = z;
    }
    s->sum += exp_of(z - s->top);
}

/* Return the log of the sum of exp(z) over the logits z of all threads of the block. If a logit is a NaN, the result is
 * a NaN. */
__device__ inline float log_sum_exp(struct exp_sum s)
{
    const float top = block_max(s.top);
    return top + logf((float)block_sum((double)(s.sum * exp_of(s.top - top))));
}

KERNEL(cross_entropy, cross_entropy)
{
    const size_t at = blockIdx.x;
    value *z = (value *)a.z + at * a.stride;
    const size_t target = (size_t)a.target[at];
    const float of_target = get(z[target]), weight = a.weight[at / a.length];
    struct exp_sum sum = { LOWEST, 0 };
    int above = 0; /* number of classes that beat the target; among equal logits the first class wins */
    for (size_t k = threadIdx.x; k < a.n; k += blockDim.x) {
        const float x = get(z[k]);
        exp_sum_add(&sum, x);
        above += x > of_target || (x == of_target && k < target);
    }
    const float log_sum = log_sum_exp(sum);
    const double others = block_sum((double)above);
    if (threadIdx.x == 0) {
        a.loss[at] = weight != 0 ? log_sum - of_target : 0;
        a.hit[at] = weight != 0 && others == 0 ? 1 : 0;
    }
    for (size_t k = threadIdx.x; k < a.n && a.gradient; k += blockDim.x)
        z[k] = put(weight * (exp_of(get(z[k]) - log_sum) - (k == target ? 1 : 0)));
}

KERNEL(join_losses, join_losses)
{
    double loss = 0, hit = 0;
    for (size_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        loss += (double)a.loss[i];
        hit += (double)a.hit[i];
    }
    loss = block_sum(loss);
    hit = block_sum(hit);
    if (threadIdx.x == 0) {
        a.total[0] += loss;
        a.total[1] += hit;
    }
}
