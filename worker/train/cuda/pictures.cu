/* pictures.cu -- kernels for the shortcut (layers/activation.c), and for convolution and pooling (layers/conv.c).
 * cuBLASLt computes a convolution's product, so the kernels here only arrange its operands. */

/* Return the pixel at (line, column) of a picture in which neighbouring pixels are `apart` lines or columns apart.
 * Return 0 for a place that is between the pixels or outside the picture. */
__device__ inline value seen_at(const value *from, int line, int column, int side, int apart)
{
    if (apart != 1) {
        if (line < 0 || column < 0 || line % apart != 0 || column % apart != 0)
            return put(0);
        line /= apart;
        column /= apart;
    }
    return (unsigned)line < (unsigned)side && (unsigned)column < (unsigned)side ? from[line * side + column] : put(0);
}

/* Let each thread compute PACK elements of one row. Row r belongs to plane r / taps, counted over all pictures, and to
 * tap r % taps. */
KERNEL(columns, columns)
{
    const size_t at = thread_number() * PACK, row = at / a.pitch;
    if (at >= a.n)
        return;
    const int taps = a.kernel * a.kernel, tap = (int)(row % (size_t)taps), first = (int)(at % a.pitch);
    const int up = a.before - tap / a.kernel, left = a.before - tap % a.kernel;
    const value *plane = (const value *)a.from + row / (size_t)taps * (size_t)(a.side * a.side);
    int line = first / a.to_side, column = first % a.to_side;
    struct pack seen;
    for (int k = 0; k < PACK; k++) {
        seen.each[k] = line < a.to_side ? seen_at(plane, line * a.step - up, column * a.step - left, a.side, a.apart) : put(0);
        if (++column == a.to_side) {
            column = 0;
            line++;
        }
    }
    pack_to((value *)a.to + at, seen);
}

KERNEL(turn_weight, turn_weight)
{
    const size_t at = thread_number(), tap = at % a.taps, o = at / a.taps % a.out, i = at / a.taps / a.out;
    if (i < a.in)
        ((value *)a.to)[at] = ((const value *)a.weight)[(o * a.in + i + 1) * a.taps - 1 - tap];
}

/* Return true if the shortcut is the unchanged input: the block neither halves the picture nor adds channels. */
__device__ inline bool is_same(const struct shortcut_args *a)
{
    return a->stride == 1 && a->in == a->out;
}

KERNEL(shortcut_forward, shortcut)
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

KERNEL(shortcut_backward, shortcut)
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

/* Compute the mean of each plane. Each warp processes one plane. */
KERNEL(pool_forward, pool)
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

KERNEL(pool_backward, pool)
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
