/* pictures.cu -- layers/activation.c and layers/conv.c. */

/* A block that neither halves the picture nor has more channels adds its input as it is. */
__device__ inline bool is_same(const struct shortcut_args *a)
{
    return a->stride == 1 && a->in == a->out;
}

KERNEL(shortcut_forward)
{
    const size_t at = thread_number() * PACK;
    if (at >= a.n)
        return;
    struct pack y = pack_within((const value *)a.to, at, a.n);
    const value *x = (const value *)a.from;
    const int before = (a.out - a.in) / 2;
    if (is_same(&a)) {
        const struct pack same = pack_within(x, at, a.n);
        for (int k = 0; k < PACK; k++)
            y.each[k] = put(get(y.each[k]) + get(same.each[k]));
    }
    for (int k = 0; k < PACK && !is_same(&a); k++) {
        const size_t i = at + (size_t)k, plane = i / (size_t)(a.out_side * a.out_side);
        const int place = (int)(i % (size_t)(a.out_side * a.out_side)), channel = (int)(plane % (size_t)a.out) - before;
        const int line = place / a.out_side * a.stride, column = place % a.out_side * a.stride;
        if (i < a.n && channel >= 0 && channel < a.in) {
            const size_t from = plane / (size_t)a.out * (size_t)a.in + (size_t)channel;
            y.each[k] = put(get(y.each[k]) + get(x[(from * (size_t)a.side + (size_t)line) * (size_t)a.side + (size_t)column]));
        }
    }
    pack_to_within((value *)a.to, at, a.n, y);
}

KERNEL(shortcut_backward)
{
    const size_t at = thread_number() * PACK;
    if (at >= a.n)
        return;
    const value *dy = (const value *)a.from;
    struct pack dx = { { 0 } };
    if (is_same(&a))
        dx = pack_within(dy, at, a.n);
    for (int k = 0; k < PACK && !is_same(&a); k++) {
        const size_t i = at + (size_t)k, plane = i / (size_t)(a.side * a.side);
        const int pixel = (int)(i % (size_t)(a.side * a.side)), line = pixel / a.side, column = pixel % a.side;
        if (i < a.n && line % a.stride == 0 && column % a.stride == 0) {
            const size_t from = plane / (size_t)a.in * (size_t)a.out + plane % (size_t)a.in + (size_t)((a.out - a.in) / 2);
            dx.each[k] = dy[(from * (size_t)a.out_side + (size_t)(line / a.stride)) * (size_t)a.out_side +
                            (size_t)(column / a.stride)];
        }
    }
    pack_to_within((value *)a.to, at, a.n, dx);
}

/* A warp takes a plane. */
KERNEL(pool_forward)
{
    const size_t plane = grid_warp();
    const value *x = (const value *)a.from + plane * a.n;
    float sum = 0;
    if (plane >= a.planes)
        return;
    for (size_t i = (size_t)lane_number(); i < a.n; i += WARP)
        sum += get(x[i]);
    sum = warp_sum(sum);
    if (lane_number() == 0)
        ((value *)a.to)[plane] = put(sum / (float)a.n);
}

KERNEL(pool_backward)
{
    const size_t at = thread_number() * PACK, n = a.planes * a.n;
    const value *dy = (const value *)a.from;
    struct pack dx = { { 0 } };
    if (at >= n)
        return;
    for (int k = 0; k < PACK; k++) {
        if (at + (size_t)k < n)
            dx.each[k] = put(get(dy[(at + (size_t)k) / a.n]) / (float)a.n);
    }
    pack_to_within((value *)a.to, at, n, dx);
}
