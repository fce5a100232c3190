/* attention.cu -- attention on a GPU, for any type of values, without tensor cores (attention_tiles.cu uses them).
 * layers/attention.c has the formulas. The scores are never stored, because their number is the square of the
 * length. */

enum { HEAD_PARTS = KERNEL_HEAD / WARP };

/* One head of one sequence. */
struct head {
    size_t row, head, stride, width; /* stride: number of values per token of qkv; width: number of values per head */
    const value *q, *k, *v;
    float scale;
};

__device__ inline struct head head_of(const void *qkv, size_t number, size_t length, size_t heads, size_t width)
{
    struct head h;
    h.row = number / heads;
    h.head = number % heads;
    h.stride = 3 * width;
    h.width = width / heads;
    h.q = (const value *)qkv + h.row * length * h.stride + h.head * h.width;
    h.k = h.q + width;
    h.v = h.k + width;
    h.scale = 1 / sqrtf((float)h.width);
    return h;
}

__device__ inline float product_of(const value *x, const value *y, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += get(x[i]) * get(y[i]);
    return sum;
}

/* Add x[0] * row 0 + x[1] * row 1 + ... to sum[]. Rows are `stride` values apart. Each lane sums every 32nd
 * column. */
__device__ inline void add_rows(float *sum, const float *x, const value *row, size_t stride, size_t rows, size_t width)
{
    for (size_t j = 0; j < rows; j++, row += stride) {
        for (size_t d = (size_t)lane_number(), part = 0; d < width; d += WARP, part++)
            sum[part] += x[j] * get(row[d]);
    }
}

/* Copy each lane's argument `x` to shared[lane_number()], so that all lanes can read the value. */
__device__ inline void share(float *shared, float x)
{
    __syncwarp();
    shared[lane_number()] = x;
    __syncwarp();
}

__device__ inline size_t at_most_warp(size_t n) { return n < WARP ? n : WARP; }

__device__ inline void write_head(value *to, const float *sum, float factor, size_t width)
{
    for (size_t d = (size_t)lane_number(), part = 0; d < width; d += WARP, part++)
        to[d] = put(sum[part] * factor);
}

/* Let each warp process one query of a head. The warp reads the keys 32 at a time and computes one score per lane. Then
 * it updates the largest score, the sum of exp and the result. */
KERNEL(attention_forward, attention)
{
    __shared__ float shared[KERNEL_WARPS][WARP];
    const size_t number = grid_warp(), query = number % a.length;
    if (number >= a.rows * a.heads * a.length)
        return;
    const struct head h = head_of(a.qkv, number / a.length, a.length, a.heads, a.width);
    float *p = shared[warp_number()], top = -INFINITY, sum = 0, y[HEAD_PARTS] = { 0 };
    for (size_t first = 0; first <= query; first += WARP) {
        const size_t key = first + (size_t)lane_number();
        const float s = key <= query
                            ? product_of(h.q + query * h.stride, h.k + key * h.stride, h.width) * h.scale
                            : -INFINITY;
        const float now = larger(top, warp_max(s)), shrink = exp_of(top - now), mine = exp_of(s - now);
        top = now;
        sum = sum * shrink + warp_sum(mine);
        for (int part = 0; part < HEAD_PARTS; part++)
            y[part] *= shrink;
        share(p, mine);
        add_rows(y, p, h.v + first * h.stride, h.stride, at_most_warp(query + 1 - first), h.width);
    }
    write_head((value *)a.y + (h.row * a.length + query) * a.width + h.head * h.width, y, 1 / sum, h.width);
    if (lane_number() == 0)
        a.log_sum[number] = top + logf(sum);
}

KERNEL(attention_dots, attention_back)
{
    const size_t number = grid_warp();
    if (number >= a.rows * a.heads * a.length)
        return;
    const size_t width = a.width / a.heads, head = number / a.length;
    const size_t at = (head / a.heads * a.length + number % a.length) * a.width + head % a.heads * width;
    float sum = 0;
    for (size_t d = (size_t)lane_number(); d < width; d += WARP)
        sum += get(((const value *)a.y)[at + d]) * get(((const value *)a.dy)[at + d]);
    sum = warp_sum(sum);
    if (lane_number() == 0)
        a.dots[number] = sum;
}

/* Results for one query and one key: p is their probability after the softmax, and ds is the gradient of their
 * score. */
struct score {
    float p, ds;
};

__device__ inline struct score score_of(const struct head *h, size_t query, size_t key, const value *dy, float log_sum, float dot)
{
    struct score s;
    s.p = exp_of(product_of(h->q + query * h->stride, h->k + key * h->stride, h->width) * h->scale - log_sum);
    s.ds = s.p * (product_of(dy, h->v + key * h->stride, h->width) - dot) * h->scale;
    return s;
}

KERNEL(attention_backward_queries, attention_back)
{
    __shared__ float shared[KERNEL_WARPS][WARP];
    const size_t number = grid_warp(), query = number % a.length;
    if (number >= a.rows * a.heads * a.length)
        return;
    const struct head h = head_of(a.qkv, number / a.length, a.length, a.heads, a.width);
    const value *dy = (const value *)a.dy + (h.row * a.length + query) * a.width + h.head * h.width;
    float dq[HEAD_PARTS] = { 0 };
    for (size_t first = 0; first <= query; first += WARP) {
        const size_t key = first + (size_t)lane_number();
        share(shared[warp_number()],
              key <= query ? score_of(&h, query, key, dy, a.log_sum[number], a.dots[number]).ds : 0);
        add_rows(dq, shared[warp_number()], h.k + first * h.stride, h.stride, at_most_warp(query + 1 - first), h.width);
    }
    write_head((value *)a.dqkv + (h.q - (const value *)a.qkv) + query * h.stride, dq, 1, h.width);
}

/* Let each warp process one key of a head and read the queries, for the gradients of keys and values. */
KERNEL(attention_backward_keys, attention_back)
{
    __shared__ float shared[KERNEL_WARPS][2][WARP];
    const size_t number = grid_warp(), key = number % a.length;
    if (number >= a.rows * a.heads * a.length)
        return;
    const struct head h = head_of(a.qkv, number / a.length, a.length, a.heads, a.width);
    const value *dy = (const value *)a.dy + h.row * a.length * a.width + h.head * h.width;
    const float *log_sum = a.log_sum + number - key, *dots = a.dots + number - key;
    float(*own)[WARP] = shared[warp_number()], dk[HEAD_PARTS] = { 0 }, dv[HEAD_PARTS] = { 0 };
    for (size_t first = key; first < a.length; first += WARP) {
        const size_t query = first + (size_t)lane_number(), many = at_most_warp(a.length - first);
        struct score s = { 0, 0 };
        if (query < a.length)
            s = score_of(&h, query, key, dy + query * a.width, log_sum[query], dots[query]);
        share(own[0], s.p);
        share(own[1], s.ds);
        add_rows(dv, own[0], dy + first * a.width, a.width, many, h.width);
        add_rows(dk, own[1], h.q + first * h.stride, h.stride, many, h.width);
    }
    write_head((value *)a.dqkv + (h.k - (const value *)a.qkv) + key * h.stride, dk, 1, h.width);
    write_head((value *)a.dqkv + (h.v - (const value *)a.qkv) + key * h.stride, dv, 1, h.width);
}
