/* conv.cu -- layers/conv.c, directly from the pictures as they lie, channels x side x side.
 *
 * A thread takes a place of the result and KERNEL_OUTS of its channels, whose sums stay in registers: neighbours read neighbouring
 * numbers, and each that is read serves all of these sums. The weights of KERNEL_TAPS taps at a time lie in shared memory, where all
 * threads read the same.
 *
 * There are no tensor cores here. The pictures of CIFAR have 16, 32 and 64 channels: what a tap sees would have to be looked up and
 * laid out for tensor cores, once for each 16 to 64 products, and that looking up is already a third of the time. A matrix of what
 * the kernel sees, for cuBLASLt, would be nine times as large as the pictures. */

enum { OUTS = KERNEL_OUTS, TAPS = KERNEL_TAPS, PLACES = KERNEL_PLACES };

/* One of the taps that a block has: of which channel, seen from the first place that the kernel sees. */
struct tap {
    int plane;
    short line, column;
};

/* Of a number that counts through channels and, inside them, taps. */
__device__ inline struct tap tap_of(int number, int kernel, int pixels)
{
    const int taps = kernel * kernel, of_channel = number % taps;
    struct tap t;
    t.plane = number / taps * pixels;
    t.line = (short)(of_channel / kernel);
    t.column = (short)(of_channel % kernel);
    return t;
}

/* What lies `apart` from each other, at (line, column) of the places between and around; 0 where nothing is. */
__device__ inline float seen_at(const value *from, int line, int column, int side, int apart)
{
    if (apart != 1) {
        if (line < 0 || column < 0 || line % apart != 0 || column % apart != 0)
            return 0;
        line /= apart;
        column /= apart;
    }
    return (unsigned)line < (unsigned)side && (unsigned)column < (unsigned)side ? get(from[line * side + column]) : 0;
}

/* Weights of taps first, first + 1 ... for the channels from `out`; those that are not there are 0. */
__device__ inline void load_weights(const struct convolve_args *a, float (*to)[OUTS + 4], int first, int all, int out)
{
    const int taps = a->kernel * a->kernel;
    const value *weight = (const value *)a->weight;
    for (int i = (int)threadIdx.x; i < TAPS * OUTS; i += (int)blockDim.x) {
        const int k = i % TAPS, o = i / TAPS, number = first + k;
        const int tap = a->turned ? taps - 1 - number % taps : number % taps;
        float w = 0;
        if (number < all && out + o < a->to_channels)
            w = get(weight[(size_t)(out + o) * (size_t)a->weight_to + (size_t)(number / taps) * (size_t)a->weight_from +
                           (size_t)tap]);
        to[k][o] = w;
    }
}

KERNEL(convolve)
{
    __shared__ ALIGNED16 float weight[TAPS][OUTS + 4]; /* with the rest, threads that write do not meet in one bank */
    __shared__ struct tap tap[TAPS];
    const int all = a.from_channels * a.kernel * a.kernel, out = (int)blockIdx.y * OUTS;
    const size_t places = (size_t)a.to_side * (size_t)a.to_side, pixels = (size_t)a.from_side * (size_t)a.from_side;
    const size_t row = thread_number() / places, place = thread_number() % places;
    const bool works = row < a.rows;
    const int line = (int)place / a.to_side * a.step - a.before, column = (int)place % a.to_side * a.step - a.before;
    const value *from = (const value *)a.from + (works ? row * (size_t)a.from_channels * pixels : 0);
    float sum[OUTS];
    for (int o = 0; o < OUTS; o++)
        sum[o] = 0;
    for (int first = 0; first < all; first += TAPS) {
        const int many = all - first < TAPS ? all - first : TAPS;
        __syncthreads();
        load_weights(&a, weight, first, all, out);
        if (threadIdx.x < TAPS)
            tap[threadIdx.x] = tap_of(first + (int)threadIdx.x, a.kernel, (int)pixels);
        __syncthreads();
        for (int k = 0; k < many && works; k++) {
            const struct tap t = tap[k];
            const float seen = seen_at(from + t.plane, line + t.line, column + t.column, a.from_side, a.apart);
            for (int o = 0; o < OUTS; o++)
                sum[o] += seen * weight[k][o];
        }
    }
    value *to = (value *)a.to + (row * (size_t)a.to_channels + (size_t)out) * places + place;
    for (int o = 0; o < OUTS; o++) {
        if (works && out + o < a.to_channels)
            to[(size_t)o * places] = put(a.add ? get(to[(size_t)o * places]) + sum[o] : sum[o]);
    }
}

/* --- the gradient of the weight -------------------------------------------------------------------------------------------------
 *
 * A sum over all places of all pictures. A block goes through its strip PLACES at a time: what TAPS taps see there and OUTS channels
 * of dy come into shared memory. A thread adds up 4 x 4 products over a quarter of the places; the quarters are joined at the end. */

enum { QUARTERS = 4, SQUARE = 4 };

typedef float part_sums[SQUARE][SQUARE];

/* Where a thread is on its way through the strip; it has every PLACES-th place. */
struct place {
    size_t row;
    int place;
};

__device__ inline void go_on(struct place *p, int places)
{
    for (p->place += PLACES; p->place >= places; p->place -= places)
        p->row++;
}

/* The place of this lane: each warp takes other taps and channels. */
__device__ inline void load_place(const struct conv_weight_sums_args *a, const struct tap *tap, float *seen, float *dy,
                                  const struct place *p, bool there, int taps, int out)
{
    const size_t pixels = (size_t)a->side * (size_t)a->side, places = (size_t)a->out_side * (size_t)a->out_side;
    const int line = p->place / a->out_side * a->stride - a->padding;
    const int column = p->place % a->out_side * a->stride - a->padding;
    const value *x = (const value *)a->x + (there ? p->row * (size_t)a->in * pixels : 0);
    const value *of_dy = (const value *)a->dy + (there ? (p->row * (size_t)a->out + (size_t)out) * places + (size_t)p->place : 0);
    for (int k = warp_number(); k < TAPS; k += KERNEL_WARPS)
        seen[k] = there && k < taps
                      ? seen_at(x + tap[k].plane, line + tap[k].line, column + tap[k].column, a->side, 1)
                      : 0;
    for (int o = warp_number(); o < OUTS; o += KERNEL_WARPS)
        dy[o] = there && out + o < a->out ? get(of_dy[(size_t)o * places]) : 0;
}

__device__ inline void add_products(part_sums sum, const float *seen, const float *dy)
{
    for (int k = 0; k < SQUARE; k++) {
        for (int o = 0; o < SQUARE; o++)
            sum[k][o] += seen[k] * dy[o];
    }
}

/* One quarter after the other, into `total`. */
__device__ inline void join_quarters(float (*total)[TAPS], part_sums sum, int k, int o, int quarter)
{
    for (int q = 0; q < QUARTERS; q++) {
        __syncthreads();
        for (int i = 0; i < SQUARE * SQUARE && q == quarter; i++)
            total[o + i % SQUARE][k + i / SQUARE] = (q > 0 ? total[o + i % SQUARE][k + i / SQUARE] : 0) + sum[i / SQUARE][i % SQUARE];
    }
    __syncthreads();
}

KERNEL(conv_weight_sums)
{
    __shared__ ALIGNED16 float seen[PLACES][TAPS + 4];
    __shared__ ALIGNED16 float dy[PLACES][OUTS + 4];
    __shared__ float total[OUTS][TAPS];
    __shared__ struct tap tap[TAPS];
    const int all = a.in * a.kernel * a.kernel, groups = (all + TAPS - 1) / TAPS, places = a.out_side * a.out_side;
    const int first = (int)(blockIdx.x % (unsigned)groups) * TAPS, out = (int)(blockIdx.x / (unsigned)groups) * OUTS;
    const int taps = all - first < TAPS ? all - first : TAPS;
    const int k = (int)threadIdx.x % 16 * SQUARE, o = (int)threadIdx.x / 16 % 4 * SQUARE, quarter = (int)threadIdx.x / 64;
    const size_t begin = blockIdx.y * a.strip, end = a.rows * (size_t)places, left = end - begin;
    const size_t many = left < a.strip ? left : a.strip;
    const size_t mine = begin + (size_t)lane_number();
    struct place p = { mine / (size_t)places, (int)(mine % (size_t)places) };
    part_sums sum;
    for (int i = 0; i < SQUARE * SQUARE; i++)
        sum[i / SQUARE][i % SQUARE] = 0;
    if (threadIdx.x < TAPS)
        tap[threadIdx.x] = tap_of(first + (int)threadIdx.x, a.kernel, a.side * a.side);
    for (size_t at = 0; at < many; at += PLACES, go_on(&p, places)) {
        __syncthreads();
        load_place(&a, tap, seen[lane_number()], dy[lane_number()], &p, at + (size_t)lane_number() < many, taps, out);
        __syncthreads();
        for (int i = quarter * (PLACES / QUARTERS); i < (quarter + 1) * (PLACES / QUARTERS); i++)
            add_products(sum, seen[i] + k, dy[i] + o);
    }
    join_quarters(total, sum, k, o, quarter);
    float *part = a.part + blockIdx.y * (size_t)a.out * (size_t)all;
    for (int i = (int)threadIdx.x; i < OUTS * TAPS; i += (int)blockDim.x) {
        if (out + i / TAPS < a.out && i % TAPS < taps)
            part[(size_t)(out + i / TAPS) * (size_t)all + (size_t)(first + i % TAPS)] = total[i / TAPS][i % TAPS];
    }
}
