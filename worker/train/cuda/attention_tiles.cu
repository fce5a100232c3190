/* attention_tiles.cu -- attention of 16-bit values on tensor cores, after FlashAttention-2; for float values, the host
 * uses the kernels of attention.cu. One kernel computes the gradients of queries, and another kernel computes the
 * gradients of keys and values, although both compute the scores again. In a single kernel, several blocks would add to
 * the same memory, in a different order in every run. */

/* A block of four warps processes 64 queries of a head, 16 per warp. The block reads the keys 64 at a time. After each
 * 64 keys the block updates the largest scores, the sums of exp and the results. For the gradients of keys and values,
 * a block processes 64 keys and reads the queries.
 *
 * Every product is acc += left right^T, where `left` is 16 x 64 in registers, and `right` is 64 x 64 in shared memory.
 * The summed index must be the second index of both operands. If the summed index is the first index in memory, load()
 * transposes the tile. A result and a left operand have the same layout in registers, so a result can be the left
 * operand of the next product. */

#ifdef VALUE_F32 /* these kernels need values of 16 bits; for f32 the host uses the kernels of attention.cu */
KERNEL(attention_forward_tiles, attention) { (void)a; }
KERNEL(attention_backward_query_tiles, attention_back) { (void)a; }
KERNEL(attention_backward_key_tiles, attention_back) { (void)a; }
#else

enum {
    TILE = KERNEL_TILE,
    TILE_WORDS = TILE / 2 + 4, /* two values per word; with 4 extra words, rows begin in different banks */
    STEPS = TILE / 16,         /* steps of 16 along the summed index */
    BANDS = TILE / 8,          /* bands of 8 columns of a result */
};

typedef unsigned tile[TILE][TILE_WORDS];
typedef unsigned left_rows[STEPS][4];
typedef float result[BANDS][4];

/* Return the row of element e of a result; a warp has 16 rows. */
__device__ inline int row_of(int e) { return warp_number() * 16 + lane_number() / 4 + 8 * (e / 2); }
__device__ inline int column_of(int b, int e) { return b * 8 + lane_number() % 4 * 2 + e % 2; }

__device__ inline unsigned two(float low, float high) { return put(low) | (unsigned)put(high) << 16; }

/* Load the rows of `from`, beginning with row `first`, into `to`. Also store these rows, transposed, in `turned`. `to`
 * or `turned` may be NULL. Set elements outside rows x width to 0. */
__device__ inline void load(unsigned (*to)[TILE_WORDS], unsigned (*turned)[TILE_WORDS], const value *from, size_t stride,
                            size_t first, size_t rows, size_t width)
{
    for (int i = (int)threadIdx.x; i < TILE * TILE / PACK; i += (int)blockDim.x) {
        const int row = i % TILE, column = i / TILE * PACK;
        struct pack p = { { 0 } };
        if (first + (size_t)row < rows && (size_t)column < width)
            p = pack_at(from + (first + (size_t)row) * stride + column);
        if (to != NULL)
            pack_to((value *)to[row] + column, p);
        for (int k = 0; k < PACK && turned != NULL; k++)
            ((value *)turned[column + k])[row] = p.each[k];
    }
}

/* Load this warp's 16 rows of a tile into registers. */
__device__ inline void take_left(left_rows a, tile from)
{
    const int row = row_of(0), word = lane_number() % 4;
    for (int s = 0; s < STEPS; s++) {
        a[s][0] = from[row][s * 8 + word];
        a[s][1] = from[row + 8][s * 8 + word];
        a[s][2] = from[row][s * 8 + word + 4];
        a[s][3] = from[row + 8][s * 8 + word + 4];
    }
}

__device__ inline void as_left(left_rows a, result x)
{
    for (int s = 0; s < STEPS; s++) {
        a[s][0] = two(x[2 * s][0], x[2 * s][1]);
        a[s][1] = two(x[2 * s][2], x[2 * s][3]);
        a[s][2] = two(x[2 * s + 1][0], x[2 * s + 1][1]);
        a[s][3] = two(x[2 * s + 1][2], x[2 * s + 1][3]);
    }
}

__device__ inline void clear(result x)
{
    for (int b = 0; b < BANDS; b++) {
        for (int e = 0; e < 4; e++)
            x[b][e] = 0;
    }
}

__device__ inline void product(result acc, left_rows a, tile b)
{
    const int row = lane_number() / 4, word = lane_number() % 4;
    for (int s = 0; s < STEPS; s++) {
        for (int n = 0; n < BANDS; n++) {
            const unsigned right[2] = { b[n * 8 + row][s * 8 + word], b[n * 8 + row][s * 8 + word + 4] };
            mma(acc[n], a[s], right);
        }
    }
}

/* Return the maximum over the four lanes that share a row. */
__device__ inline float quad_max(float x)
{
    x = larger(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return larger(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Write the rows of the result `x` to `to`, each row multiplied by its factor. `first` is the number of the tile's
 * first row. Skip elements outside rows x width. */
__device__ inline void write_result(value *to, size_t stride, result x, const float factor[2], size_t first, size_t rows,
                                    size_t width)
{
    for (int r = 0; r < 2; r++) {
        const size_t row = first + (size_t)row_of(2 * r);
        for (int b = 0; b < BANDS; b++) {
            const size_t column = (size_t)column_of(b, 0);
            if (row < rows && column < width)
                *(unsigned *)(to + row * stride + column) = two(x[b][2 * r] * factor[r], x[b][2 * r + 1] * factor[r]);
        }
    }
}

/* The head and the tile that a block of threads processes. The last tiles have the most work, so the first blocks
 * process the last tiles. */
struct work {
    struct head h;
    size_t number, tiles, tile; /* number: index of the head; tiles: tiles per head; tile: index of this block's tile */
};

__device__ inline struct work work_of(const void *qkv, size_t length, size_t heads, size_t width)
{
    struct work w;
    w.tiles = (length + TILE - 1) / TILE;
    w.tile = w.tiles - 1 - blockIdx.x % w.tiles;
    w.number = blockIdx.x / w.tiles;
    w.h = head_of(qkv, w.number, length, heads, width);
    return w;
}

/* Add a tile of scores to the softmax. Turn the scores into probabilities relative to the largest score so far. If that
 * score has grown, scale the earlier results down. */
__device__ inline void soften(result s, result y, float top[2], float sum[2], size_t first_query, size_t first_key, size_t length,
                              float scale)
{
    for (int r = 0; r < 2; r++) {
        const size_t query = first_query + (size_t)row_of(2 * r);
        float now = top[r];
        for (int b = 0; b < BANDS; b++) {
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                const size_t key = first_key + (size_t)column_of(b, e);
                s[b][e] = key <= query && key < length ? s[b][e] * scale : -INFINITY;
                now = larger(now, s[b][e]);
            }
        }
        now = quad_max(now);
        const float shrink = exp_of(top[r] - now);
        top[r] = now;
        sum[r] *= shrink;
        for (int b = 0; b < BANDS; b++) {
            for (int e = 2 * r; e < 2 * r + 2; e++) {
                s[b][e] = exp_of(s[b][e] - now);
                sum[r] += s[b][e];
                y[b][e] *= shrink;
            }
        }
    }
}

KERNEL(attention_forward_tiles, attention)
{
    __shared__ ALIGNED16 tile k, v; /* `v` is transposed */
    const struct work w = work_of(a.qkv, a.length, a.heads, a.width);
    const size_t first = w.tile * TILE;
    float top[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };
    left_rows q, p;
    result s, y;
    load(k, NULL, w.h.q, w.h.stride, first, a.length, w.h.width);
    __syncthreads();
    take_left(q, k);
    clear(y);
    for (size_t key = 0; key <= first; key += TILE) {
        __syncthreads();
        load(k, NULL, w.h.k, w.h.stride, key, a.length, w.h.width);
        load(NULL, v, w.h.v, w.h.stride, key, a.length, w.h.width);
        __syncthreads();
        clear(s);
        product(s, q, k);
        soften(s, y, top, sum, first, key, a.length, w.h.scale);
        as_left(p, s);
        product(y, p, v);
    }
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
    const float factor[2] = { 1 / sum[0], 1 / sum[1] };
    write_result((value *)a.y + w.h.row * a.length * a.width + w.h.head * w.h.width, a.width, y, factor, first, a.length,
                 w.h.width);
    for (int r = 0; r < 2; r++) {
        const size_t query = first + (size_t)row_of(2 * r);
        if (lane_number() % 4 == 0 && query < a.length)
            a.log_sum[w.number * a.length + query] = top[r] + logf(sum[r]);
    }
}

/* Turn s from a score into its probability, and ds from the gradient of the probability into the gradient of the
 * score. `log_sum` and `dot` (see struct attention_args) belong to the query. `seen` is false if the query
 * must not use the key. */
__device__ inline void score_back(float *s, float *ds, float scale, float log_sum, float dot, bool seen)
{
    *s = seen ? exp_of(*s * scale - log_sum) : 0;
    *ds = *s * (*ds - dot) * scale;
}

KERNEL(attention_backward_query_tiles, attention_back)
{
    __shared__ ALIGNED16 tile k, turned, v;
    const struct work w = work_of(a.qkv, a.length, a.heads, a.width);
    const size_t first = w.tile * TILE;
    const value *dy = (const value *)a.dy + w.h.row * a.length * a.width + w.h.head * w.h.width;
    const float one[2] = { 1, 1 };
    float log_sum[2] = { 0, 0 }, dots[2] = { 0, 0 };
    left_rows q, d;
    result s, ds, dq;
    load(k, NULL, w.h.q, w.h.stride, first, a.length, w.h.width);
    load(v, NULL, dy, a.width, first, a.length, w.h.width);
    __syncthreads();
    take_left(q, k);
    take_left(d, v);
    clear(dq);
    for (int r = 0; r < 2; r++) {
        const size_t query = first + (size_t)row_of(2 * r);
        log_sum[r] = query < a.length ? a.log_sum[w.number * a.length + query] : 0;
        dots[r] = query < a.length ? a.dots[w.number * a.length + query] : 0;
    }
    for (size_t key = 0; key <= first; key += TILE) {
        left_rows p;
        __syncthreads();
        load(k, turned, w.h.k, w.h.stride, key, a.length, w.h.width);
        load(v, NULL, w.h.v, w.h.stride, key, a.length, w.h.width);
        __syncthreads();
        clear(s);
        clear(ds);
        product(s, q, k);
        product(ds, d, v);
        for (int b = 0; b < BANDS; b++) {
            for (int e = 0; e < 4; e++) {
                const size_t at = key + (size_t)column_of(b, e), query = first + (size_t)row_of(e);
                score_back(&s[b][e], &ds[b][e], w.h.scale, log_sum[e / 2], dots[e / 2], at <= query && query < a.length);
            }
        }
        as_left(p, ds);
        product(dq, p, turned);
    }
    write_result((value *)a.dqkv + (w.h.q - (const value *)a.qkv), w.h.stride, dq, one, first, a.length, w.h.width);
}

/* Compute the gradients of keys and values. Here rows are keys and columns are queries, so all scores are
 * transposed. */
KERNEL(attention_backward_key_tiles, attention_back)
{
    __shared__ ALIGNED16 tile q, q_turned, d, d_turned;
    __shared__ float log_sum[TILE], dots[TILE];
    const struct work w = work_of(a.qkv, a.length, a.heads, a.width);
    /* For keys, the first tiles have the most work. Reverse the order of work_of(), so that the first blocks process
     * these tiles. */
    const size_t first = (w.tiles - 1 - w.tile) * TILE;
    const value *dy = (const value *)a.dy + w.h.row * a.length * a.width + w.h.head * w.h.width;
    const float one[2] = { 1, 1 };
    left_rows k, v;
    result s, ds, dk, dv;
    load(q, NULL, w.h.k, w.h.stride, first, a.length, w.h.width);
    load(d, NULL, w.h.v, w.h.stride, first, a.length, w.h.width);
    __syncthreads();
    take_left(k, q);
    take_left(v, d);
    clear(dk);
    clear(dv);
    for (size_t query = first; query < a.length; query += TILE) {
        left_rows p;
        __syncthreads();
        load(q, q_turned, w.h.q, w.h.stride, query, a.length, w.h.width);
        load(d, d_turned, dy, a.width, query, a.length, w.h.width);
        if (threadIdx.x < TILE && query + threadIdx.x < a.length) {
            log_sum[threadIdx.x] = a.log_sum[w.number * a.length + query + threadIdx.x];
            dots[threadIdx.x] = a.dots[w.number * a.length + query + threadIdx.x];
        }
        __syncthreads();
        clear(s);
        clear(ds);
        product(s, k, q);
        product(ds, v, d);
        for (int b = 0; b < BANDS; b++) {
            for (int e = 0; e < 4; e++) {
                const int column = column_of(b, e);
                const size_t key = first + (size_t)row_of(e), at = query + (size_t)column;
                const bool seen = key <= at && at < a.length;
                score_back(&s[b][e], &ds[b][e], w.h.scale, seen ? log_sum[column] : 0, seen ? dots[column] : 0, seen);
            }
        }
        as_left(p, s);
        product(dv, p, d_turned);
        as_left(p, ds);
        product(dk, p, q_turned);
    }
    write_result((value *)a.dqkv + (w.h.k - (const value *)a.qkv), w.h.stride, dk, one, first, a.length, w.h.width);
    write_result((value *)a.dqkv + (w.h.v - (const value *)a.qkv), w.h.stride, dv, one, first, a.length, w.h.width);
}
#endif
