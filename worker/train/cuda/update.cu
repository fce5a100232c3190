/* update.cu -- the optimizers of worker/reducer/optim.c, one element per thread, in the same order of operations, so
 * that results on CPU and GPU can be compared. If `w` is not NULL, these kernels also write the new parameters to `w`,
 * the copy that other kernels read. */

KERNEL(update_adam, update_adam)
{
    const size_t i = thread_number();
    if (i >= a.n)
        return;
    float p = a.p[i] * a.shrink;
    const float g = a.g[i] * *a.factor + a.decay * p;
    const float m = a.m[i] + a.weight1 * (g - a.m[i]);
    const float v = a.v[i] * a.beta2 + a.weight2 * g * g;
    p -= a.step_size * m / (sqrtf(v) / a.root_bias2 + a.eps);
    a.m[i] = m;
    a.v[i] = v;
    a.p[i] = p;
    if (a.w != NULL)
        ((value *)a.w)[i] = put(p);
}

KERNEL(update_sgd, update_sgd)
{
    const size_t i = thread_number();
    if (i >= a.n)
        return;
    const float g = a.g[i] * *a.factor + a.decay * a.p[i];
    float step = g;
    if (a.m != NULL) {
        const float m = a.old * a.m[i] + a.fresh * g;
        step = a.nesterov ? g + a.momentum * m : m;
        a.m[i] = m;
    }
    const float p = a.p[i] - a.lr * step;
    a.p[i] = p;
    if (a.w != NULL)
        ((value *)a.w)[i] = put(p);
}
