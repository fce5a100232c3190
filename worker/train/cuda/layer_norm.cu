/* layer_norm.cu -- see layers/layer_norm.c for the formula. A warp reads its row several times, because the variance
 * needs the finished mean, and the result needs both. After the first time, the row is in the cache. */

/* Executes STATEMENT for each pack of this lane in a row of n elements; i is the pack's first element. */
#define LANE_PACKS(n, STATEMENT)                                                        \
    for (size_t i = (size_t)lane_number() * PACK; i < (n); i += (size_t)WARP * PACK) { \
        STATEMENT;                                                                      \
    }

__device__ inline float pack_sum(struct pack p)
{
    float sum = 0;
    for (int k = 0; k < PACK; k++)
        sum += get(p.each[k]);
    return sum;
}

__device__ inline float pack_squares(struct pack p, float mean)
{
    float sum = 0;
    for (int k = 0; k < PACK; k++)
        sum += (get(p.each[k]) - mean) * (get(p.each[k]) - mean);
    return sum;
}

__device__ inline struct pack normal_pack(struct pack x, float mean, float scale, struct pack weight, struct pack bias)
{
    for (int k = 0; k < PACK; k++)
        x.each[k] = put((get(x.each[k]) - mean) * scale * get(weight.each[k]) + get(bias.each[k]));
    return x;
}

KERNEL(layer_norm_forward, layer_norm)
{
    const size_t row = grid_warp();
    const value *x = (const value *)a.x + row * a.n, *weight = (const value *)a.weight, *bias = (const value *)a.bias;
    float sum = 0, squares = 0;
    if (row >= a.rows)
        return;
    LANE_PACKS(a.n, sum += pack_sum(pack_at(x + i)))
    const float mean = warp_sum(sum) / (float)a.n;
    LANE_PACKS(a.n, squares += pack_squares(pack_at(x + i), mean))
    const float scale = 1 / sqrtf(warp_sum(squares) / (float)a.n + 1e-5f);
    value *y = (value *)a.y + row * a.n;
    LANE_PACKS(a.n, pack_to(y + i, normal_pack(pack_at(x + i), mean, scale, pack_at(weight + i), pack_at(bias + i))))
    if (lane_number() == 0) {
        a.mean[row] = mean;
        a.scale[row] = scale;
    }
}

/* Add a pack to the sums of g and g * h, where g = dy * weight, and h is the normalized x. */
__device__ inline void add_g(float *g, float *gh, struct pack dy, struct pack weight, struct pack x, float mean, float scale)
{
    for (int k = 0; k < PACK; k++) {
        const float of_g = get(dy.each[k]) * get(weight.each[k]);
        *g += of_g;
        *gh += of_g * ((get(x.each[k]) - mean) * scale);
    }
}

__device__ inline struct pack dx_pack(struct pack dx, struct pack dy, struct pack weight, struct pack x, float mean, float scale,
                                      float g, float gh)
{
    for (int k = 0; k < PACK; k++)
        dx.each[k] = put(get(dx.each[k]) +
                         scale * (get(dy.each[k]) * get(weight.each[k]) - g - (get(x.each[k]) - mean) * scale * gh));
    return dx;
}

KERNEL(layer_norm_backward, layer_norm)
{
    const size_t row = grid_warp();
    const value *x = (const value *)a.x + row * a.n, *dy = (const value *)a.dy + row * a.n;
    const value *weight = (const value *)a.weight;
    value *dx = (value *)a.y + row * a.n;
    float g = 0, gh = 0;
    if (row >= a.rows)
        return;
    const float mean = a.mean[row], scale = a.scale[row];
    LANE_PACKS(a.n, add_g(&g, &gh, pack_at(dy + i), pack_at(weight + i), pack_at(x + i), mean, scale))
    g = warp_sum(g) / (float)a.n;
    gh = warp_sum(gh) / (float)a.n;
    LANE_PACKS(a.n, pack_to(dx + i, dx_pack(pack_at(dx + i), pack_at(dy + i), pack_at(weight + i), pack_at(x + i), mean, scale, g,
                                            gh)))
}
