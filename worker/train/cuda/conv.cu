/* conv.cu -- layers/conv.c, directly from the pictures as they lie, channels x side x side. A matrix of the
 * kernel's inputs for cuBLASLt would be nine times as large as the pictures. All sums go over taps (of all
 * channels) KERNEL_TAPS at a time.
 *
 * 16 bits: on tensor cores, with the tiles of attention_tiles.cu. A block takes 64 places of the result and
 * 64 of its channels: the inputs of 64 taps go into one tile, their weights into another. Bands of channels
 * that are not there cost nothing.
 *
 * fp32, without tensor cores: a thread takes a place and KERNEL_OUTS channels, whose sums stay in registers.
 * Neighbours read neighbouring numbers, and each that is read serves all of these sums; weights lie in shared
 * memory, where all threads read the same.
 *
 * The gradient of the weight is a sum over all places of all pictures, in strips, which are joined in their
 * order: no atomics. */

enum { OUTS = KERNEL_OUTS, TAPS = KERNEL_TAPS, PLACES = KERNEL_PLACES };

/* One of the taps that a block has: where it lies in a picture as seen from the first place that the kernel sees, and its weight's
 * place among those of a channel of the result. */
struct tap {
    int plane, weight;
    short line, column;
};

/* Of a number that counts through channels and, inside them, taps. */
__device__ inline struct tap tap_of(int number, int kernel, int pixels)
{
    const int taps = kernel * kernel, of_channel = number % taps;
    struct tap t;
    t.plane = number / taps * pixels;
    t.weight = 0;
    t.line = (short)(of_channel / kernel);
    t.column = (short)(of_channel % kernel);
    return t;
}

__device__ inline struct tap tap_of_sum(const struct convolve_args *a, int number)
{
    const int taps = a->kernel * a->kernel;
    struct tap t = tap_of(number, a->kernel, a->from_side * a->from_side);
    t.weight = number / taps * a->weight_from + (a->turned ? taps - 1 - number % taps : number % taps);
    return t;
}

/* Values that lie `apart` from each other, at (line, column) of the places between and around; NULL
 * outside. */
__device__ inline const value *seen_at(const value *from, int line, int column, int side, int apart)
{
    if (apart != 1) {
        if (line < 0 || column < 0 || line % apart != 0 || column % apart != 0)
            return NULL;
        line /= apart;
        column /= apart;
    }
    return (unsigned)line < (unsigned)side && (unsigned)column < (unsigned)side ? from + line * side + column : NULL;
}

/* A place of the result: its position, and the kernel's first input. */
struct view {
    bool there;
    size_t row, place;
    int line, column;
    const value *from; /* its picture */
};

__device__ inline struct view view_of(const struct convolve_args *a, size_t number)
{
    const size_t places = (size_t)a->to_side * (size_t)a->to_side, pixels = (size_t)a->from_side * (size_t)a->from_side;
    struct view v;
    v.row = number / places;
    v.place = number % places;
    v.there = v.row < a->rows;
    v.line = (int)v.place / a->to_side * a->step - a->before;
    v.column = (int)v.place % a->to_side * a->step - a->before;
    v.from = (const value *)a->from + (v.there ? v.row * (size_t)a->from_channels * pixels : 0);
    return v;
}

__device__ inline const value *seen_from(const struct convolve_args *a, const struct view *v, struct tap t)
{
    return v->there ? seen_at(v->from + t.plane, v->line + t.line, v->column + t.column, a->from_side, a->apart) : NULL;
}

__device__ inline void put_sum(const struct convolve_args *a, const struct view *v, int out, float sum)
{
    const size_t places = (size_t)a->to_side * (size_t)a->to_side;
    if (v->there && out < a->to_channels) {
        value *to = (value *)a->to + (v->row * (size_t)a->to_channels + (size_t)out) * places + v->place;
        *to = put(a->add ? get(*to) + sum : sum);
    }
}

#ifdef VALUE_F32

/* Weights of the block's taps for the channels from `out`; those that are not there are 0. */
__device__ inline void load_weights(const struct convolve_args *a, float (*to)[OUTS + 4], const struct tap *tap, int many, int out)
{
    const value *weight = (const value *)a->weight;
    for (int i = (int)threadIdx.x; i < TAPS * OUTS; i += (int)blockDim.x) {
        const int k = i % TAPS, o = i / TAPS;
        to[k][o] = k < many && out + o < a->to_channels
                       ? get(weight[(size_t)(out + o) * (size_t)a->weight_to + (size_t)tap[k].weight])
                       : 0;
    }
}

KERNEL(convolve)
{
    __shared__ ALIGNED16 float weight[TAPS][OUTS + 4]; /* with the rest, threads that write do not meet in one bank */
    __shared__ struct tap tap[TAPS];
    const int all = a.from_channels * a.kernel * a.kernel, out = (int)blockIdx.y * OUTS;
    const struct view v = view_of(&a, thread_number());
    float sum[OUTS];
    for (int o = 0; o < OUTS; o++)
        sum[o] = 0;
    for (int first = 0; first < all; first += TAPS) {
        const int many = all - first < TAPS ? all - first : TAPS;
        __syncthreads();
        if (threadIdx.x < TAPS)
            tap[threadIdx.x] = tap_of_sum(&a, first + (int)threadIdx.x);
        __syncthreads();
        load_weights(&a, weight, tap, many, out);
        __syncthreads();
        for (int k = 0; k < many && v.there; k++) {
            const value *at = seen_from(&a, &v, tap[k]);
            const float seen = at != NULL ? get(*at) : 0;
            for (int o = 0; o < OUTS; o++)
                sum[o] += seen * weight[k][o];
        }
    }
    for (int o = 0; o < OUTS; o++)
        put_sum(&a, &v, out + o, sum[o]);
}

KERNEL(convolve_tiles) { (void)a; }

#else

/* The inputs of the taps at this thread's place: a row of `to` for each place. */
__device__ inline void load_seen(const struct convolve_args *a, tile to, const struct tap *tap, int many, const struct view *v)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE / PACK; i += (int)blockDim.x) {
        const int row = i % TILE, column = i / TILE * PACK;
        struct pack p = { { 0 } };
        for (int k = 0; k < PACK; k++) {
            const value *at = column + k < many ? seen_from(a, v, tap[column + k]) : NULL;
            if (at != NULL)
                p.each[k] = *at;
        }
        pack_to((value *)to[row] + column, p);
    }
}

/* Their weights: a row for each of `outs` channels from `out`. */
__device__ inline void load_weights(const struct convolve_args *a, tile to, const struct tap *tap, int many, int out, int outs)
{
    const value *weight = (const value *)a->weight;
    for (int i = (int)threadIdx.x; i < outs * TILE; i += (int)blockDim.x) {
        const int k = i % TILE, o = i / TILE;
        value w = 0;
        if (k < many && out + o < a->to_channels)
            w = weight[(size_t)(out + o) * (size_t)a->weight_to + (size_t)tap[k].weight];
        ((value *)to[o])[k] = w;
    }
}

/* As `product`, of the first `columns` of b alone; all lanes have the same number. */
__device__ inline void band_products(result acc, left_rows a, tile b, int columns)
{
    const int row = lane_number() / 4, word = lane_number() % 4;
    for (int s = 0; s < STEPS; s++) {
        for (int n = 0; n < BANDS; n++) {
            if (n * 8 < columns) {
                const unsigned right[2] = { b[n * 8 + row][s * 8 + word], b[n * 8 + row][s * 8 + word + 4] };
                mma(acc[n], a[s], right);
            }
        }
    }
}

/* Of `channels` those that a block has from `first`, in whole bands. */
__device__ inline int in_bands(int channels, int first)
{
    const int left = channels - first;
    return left < TILE ? (left + 7) / 8 * 8 : TILE;
}

/* The first or second of the two rows that a lane has of a result; called with constants, so that it stays in registers. */
__device__ inline void put_row(const struct convolve_args *a, size_t place, int out, result sum, const int r)
{
    const struct view v = view_of(a, place + (size_t)row_of(2 * r));
    for (int b = 0; b < BANDS; b++) {
        put_sum(a, &v, out + column_of(b, 0), sum[b][2 * r]);
        put_sum(a, &v, out + column_of(b, 1), sum[b][2 * r + 1]);
    }
}

KERNEL(convolve_tiles)
{
    __shared__ ALIGNED16 tile seen, weight;
    __shared__ struct tap tap[TILE];
    const int all = a.from_channels * a.kernel * a.kernel, out = (int)blockIdx.y * TILE, outs = in_bands(a.to_channels, out);
    const size_t place = (size_t)blockIdx.x * TILE;
    const struct view mine = view_of(&a, place + threadIdx.x % TILE);
    left_rows left;
    result sum;
    clear(sum);
    for (int first = 0; first < all; first += TILE) {
        const int many = all - first < TILE ? all - first : TILE;
        __syncthreads();
        if (threadIdx.x < TILE)
            tap[threadIdx.x] = tap_of_sum(&a, first + (int)threadIdx.x);
        __syncthreads();
        load_seen(&a, seen, tap, many, &mine);
        load_weights(&a, weight, tap, many, out, outs);
        __syncthreads();
        take_left(left, seen);
        band_products(sum, left, weight, outs);
    }
    put_row(&a, place, out, sum, 0);
    put_row(&a, place, out, sum, 1);
}

KERNEL(convolve) { (void)a; }

#endif

/* --- the gradient of the weight -------------------------------------------------------------------------------------------------
 *
 * A block has a strip, which it goes through some places at a time, TAPS taps and some channels of dy. */

/* Where a lane is on its way through a strip. */
struct place {
    size_t row;
    int place;
};

__device__ inline struct place place_of(size_t number, int places)
{
    struct place p;
    p.row = number / (size_t)places;
    p.place = (int)(number % (size_t)places);
    return p;
}

__device__ inline void go_on(struct place *p, int step, int places)
{
    for (p->place += step; p->place >= places; p->place -= places)
        p->row++;
}

__device__ inline const value *seen_in(const struct conv_weight_sums_args *a, const struct place *p, struct tap t)
{
    const value *x = (const value *)a->x + p->row * (size_t)a->in * (size_t)a->side * (size_t)a->side;
    return seen_at(x + t.plane, p->place / a->out_side * a->stride - a->padding + t.line,
                   p->place % a->out_side * a->stride - a->padding + t.column, a->side, 1);
}

__device__ inline value dy_at(const struct conv_weight_sums_args *a, const struct place *p, int out)
{
    const size_t places = (size_t)a->out_side * (size_t)a->out_side;
    return ((const value *)a->dy)[(p->row * (size_t)a->out + (size_t)out) * places + (size_t)p->place];
}

/* The share of a block. */
struct share {
    int first, taps, out; /* taps from `first`, channels from `out` */
    size_t begin, many;   /* places */
    float *part;
};

__device__ inline struct share share_of(const struct conv_weight_sums_args *a, int outs)
{
    const int all = a->in * a->kernel * a->kernel, groups = (all + TAPS - 1) / TAPS;
    const size_t end = a->rows * (size_t)(a->out_side * a->out_side);
    struct share s;
    s.first = (int)(blockIdx.x % (unsigned)groups) * TAPS;
    s.taps = all - s.first < TAPS ? all - s.first : TAPS;
    s.out = (int)(blockIdx.x / (unsigned)groups) * outs;
    s.begin = blockIdx.y * a->strip;
    s.many = end - s.begin < a->strip ? end - s.begin : a->strip;
    s.part = a->part + blockIdx.y * (size_t)a->out * (size_t)all;
    return s;
}

__device__ inline void put_part(const struct conv_weight_sums_args *a, const struct share *s, int tap, int out, float sum)
{
    const size_t all = (size_t)(a->in * a->kernel * a->kernel);
    if (tap < s->taps && s->out + out < a->out)
        s->part[(size_t)(s->out + out) * all + (size_t)(s->first + tap)] = sum;
}

#ifdef VALUE_F32

/* A thread adds up 4 x 4 products over a quarter of the places; the quarters are joined at the end. */
enum { QUARTERS = 4, SQUARE = 4 };

typedef float part_sums[SQUARE][SQUARE];

/* The place of this lane: each warp takes other taps and channels. */
__device__ inline void load_place(const struct conv_weight_sums_args *a, const struct share *s, const struct tap *tap, float *seen,
                                  float *dy, const struct place *p, bool there)
{
    for (int k = warp_number(); k < TAPS; k += KERNEL_WARPS) {
        const value *at = there && k < s->taps ? seen_in(a, p, tap[k]) : NULL;
        seen[k] = at != NULL ? get(*at) : 0;
    }
    for (int o = warp_number(); o < OUTS; o += KERNEL_WARPS)
        dy[o] = there && s->out + o < a->out ? get(dy_at(a, p, s->out + o)) : 0;
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
    const struct share s = share_of(&a, OUTS);
    const int k = (int)threadIdx.x % 16 * SQUARE, o = (int)threadIdx.x / 16 % 4 * SQUARE, quarter = (int)threadIdx.x / 64;
    const int places = a.out_side * a.out_side, lane = lane_number();
    struct place p = place_of(s.begin + (size_t)lane, places);
    part_sums sum;
    for (int i = 0; i < SQUARE * SQUARE; i++)
        sum[i / SQUARE][i % SQUARE] = 0;
    if (threadIdx.x < TAPS)
        tap[threadIdx.x] = tap_of(s.first + (int)threadIdx.x, a.kernel, a.side * a.side);
    for (size_t at = 0; at < s.many; at += PLACES, go_on(&p, PLACES, places)) {
        __syncthreads();
        load_place(&a, &s, tap, seen[lane], dy[lane], &p, at + (size_t)lane < s.many);
        __syncthreads();
        for (int i = quarter * (PLACES / QUARTERS); i < (quarter + 1) * (PLACES / QUARTERS); i++)
            add_products(sum, seen[i] + k, dy[i] + o);
    }
    join_quarters(total, sum, k, o, quarter);
    for (int i = (int)threadIdx.x; i < OUTS * TAPS; i += (int)blockDim.x)
        put_part(&a, &s, i % TAPS, i / TAPS, total[i / TAPS][i % TAPS]);
}

KERNEL(conv_weight_tiles) { (void)a; }

#else

/* Places are summed up, so they come last: rows of `seen` are taps, those of `to_dy` channels. A thread has one place. */
__device__ inline void load_places(const struct conv_weight_sums_args *a, const struct share *s, const struct tap *tap, tile seen,
                                   tile to_dy, const struct place *p, bool there, int outs)
{
    const int place = (int)threadIdx.x % TILE, step = (int)blockDim.x / TILE;
    for (int k = (int)threadIdx.x / TILE; k < TILE; k += step) {
        const value *at = there && k < s->taps ? seen_in(a, p, tap[k]) : NULL;
        ((value *)seen[k])[place] = at != NULL ? *at : 0;
    }
    for (int o = (int)threadIdx.x / TILE; o < outs; o += step)
        ((value *)to_dy[o])[place] = there && s->out + o < a->out ? dy_at(a, p, s->out + o) : 0;
}

KERNEL(conv_weight_tiles)
{
    __shared__ ALIGNED16 tile seen, dy;
    __shared__ struct tap tap[TILE];
    const struct share s = share_of(&a, TILE);
    const int places = a.out_side * a.out_side, outs = in_bands(a.out, s.out), lane = (int)threadIdx.x % TILE;
    struct place p = place_of(s.begin + (size_t)lane, places);
    left_rows left;
    result sum;
    clear(sum);
    if (threadIdx.x < TILE)
        tap[threadIdx.x] = tap_of(s.first + (int)threadIdx.x, a.kernel, a.side * a.side);
    for (size_t at = 0; at < s.many; at += TILE, go_on(&p, TILE, places)) {
        __syncthreads();
        load_places(&a, &s, tap, seen, dy, &p, at + (size_t)lane < s.many, outs);
        __syncthreads();
        take_left(left, seen);
        band_products(sum, left, dy, outs);
    }
    for (int b = 0; b < BANDS; b++) {
        for (int e = 0; e < 4; e++)
            put_part(&a, &s, row_of(e), column_of(b, e), sum[b][e]);
    }
}

KERNEL(conv_weight_sums) { (void)a; }

#endif
