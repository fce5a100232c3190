/* activations.cu -- activations (layers/activation.c) and conversions. A thread processes PACK elements, because one
 * access to memory reads or writes PACK values. */

/* Executes STATEMENT for each element i of this thread's pack. */
#define EACH_PACK(n, STATEMENT)                                           \
    const size_t at = thread_number() * PACK;                             \
    const int many = at >= (n) ? 0 : (n) - at < PACK ? (int)((n) - at) : PACK; \
    for (int k = 0; k < many; k++) {                                      \
        const size_t i = at + (size_t)k;                                  \
        STATEMENT;                                                        \
    }

KERNEL(add, add)
{
    EACH_PACK(a.n, a.left[i] += a.right[i])
}

KERNEL(narrow, narrow)
{
    value *to = (value *)a.to;
    EACH_PACK(a.n, to[i] = put(a.from[i]))
}

__device__ inline float tanh_of(float x)
{
    return 1 - 2 / (exp_of(2 * (0.7978845608028654f * (x + 0.044715f * x * x * x))) + 1);
}

__device__ inline float gelu(float x) { return 0.5f * x * (1 + tanh_of(x)); }

__device__ inline float gelu_slope(float x)
{
    const float t = tanh_of(x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608028654f * (1 + 3 * 0.044715f * x * x);
}

KERNEL(gelu_forward, gelu)
{
    const size_t at = thread_number() * PACK;
    if (at >= a.n)
        return;
    struct pack x = pack_at((const value *)a.x + at);
    for (int k = 0; k < PACK; k++)
        x.each[k] = put(gelu(get(x.each[k])));
    pack_to((value *)a.to + at, x);
}

KERNEL(gelu_backward, gelu)
{
    const size_t at = thread_number() * PACK;
    if (at >= a.n)
        return;
    struct pack d = pack_at((const value *)a.to + at);
    const struct pack x = pack_at((const value *)a.x + at);
    for (int k = 0; k < PACK; k++)
        d.each[k] = put(get(d.each[k]) * gelu_slope(get(x.each[k])));
    pack_to((value *)a.to + at, d);
}

KERNEL(relu_forward, activation)
{
    value *y = (value *)a.to;
    EACH_PACK(a.rows * a.n, y[i] = get(y[i]) > 0 ? y[i] : put(0))
}

KERNEL(relu_backward, activation)
{
    value *d = (value *)a.to;
    const value *y = (const value *)a.y;
    EACH_PACK(a.rows * a.n, d[i] = get(y[i]) > 0 ? d[i] : put(0))
}

KERNEL(sigmoid_forward, activation)
{
    value *y = (value *)a.to;
    EACH_PACK(a.rows * a.n, y[i] = put(1 / (1 + expf(-get(y[i])))))
}

KERNEL(sigmoid_backward, activation)
{
    value *d = (value *)a.to;
    const value *y = (const value *)a.y;
    EACH_PACK(a.rows * a.n, d[i] = put(get(d[i]) * (get(y[i]) * (1 - get(y[i])))))
}

/* Let each warp process one row. */
KERNEL(log_softmax_forward, activation)
{
    value *y = (value *)a.to + grid_warp() * a.n;
    float top = -INFINITY, sum = 0;
    if (grid_warp() >= a.rows)
        return;
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        top = larger(top, get(y[i]));
    top = warp_max(top);
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        sum += expf(get(y[i]) - top);
    const float log_sum = top + logf(warp_sum(sum));
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        y[i] = put(get(y[i]) - log_sum);
}

KERNEL(log_softmax_backward, activation)
{
    value *d = (value *)a.to + grid_warp() * a.n;
    const value *y = (const value *)a.y + grid_warp() * a.n;
    float sum = 0;
    if (grid_warp() >= a.rows)
        return;
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        sum += get(d[i]);
    sum = warp_sum(sum);
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        d[i] = put(get(d[i]) - expf(get(y[i])) * sum);
}
