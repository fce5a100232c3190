/* reduce.c -- see reduce.h. The general function works on tiles, which fit into the first-level cache. f32 gradients of
 * two or four ranks have a faster loop, which reads and writes each element once. All loops are plain C that gcc -O3
 * vectorizes, so no code depends on one processor. */
#include "reducer/reduce.h"

#include "core/flush_subnormals.h"
#include "core/half.h"

#include <stdbool.h>
#include <string.h>

/* Number of elements in a tile. A tile is a range of elements that fits into the first-level cache. Each recursive
 * call of tree() has one tile on the stack. */
enum { TILE = 512 };

typedef union tile {
    _Alignas(64) float f32[TILE];
    double f64[TILE];
    uint32_t i32[TILE];
    uint64_t i64[TILE];
} tile;

/* --- combining two arrays ------------------------------------------------------------------------------- */

typedef void (*join_fn)(void *to, const void *a, const void *b, size_t n);

/* `to` may be the same array as `a` or `b`, but does not overlap them partly. ivdep tells gcc that each element depends
 * only on elements with the same index, so gcc adds no check at run time. */
#ifdef __clang__
#define NO_OVERLAP
#else
#define NO_OVERLAP _Pragma("GCC ivdep")
#endif

#define JOIN(name, type, expression)                                   \
    static void name(void *to, const void *a, const void *b, size_t n) \
    {                                                                  \
        type *t = to;                                                  \
        const type *p = a, *q = b;                                     \
        NO_OVERLAP for (size_t i = 0; i < n; i++)                      \
        {                                                              \
            type x = p[i], y = q[i];                                   \
            t[i] = (expression);                                       \
        }                                                              \
    }

/* MIN and MAX keep a NaN. If x is a NaN, x != x selects x. If y is a NaN, both comparisons are false, which selects
 * y. */
JOIN(sum_f32, float, x + y)
JOIN(min_f32, float, ((x < y) | (x != x)) ? x : y)
JOIN(max_f32, float, ((x > y) | (x != x)) ? x : y)
JOIN(prod_f32, float, (x * y))
JOIN(sum_f64, double, x + y)
JOIN(min_f64, double, ((x < y) | (x != x)) ? x : y)
JOIN(max_f64, double, ((x > y) | (x != x)) ? x : y)
JOIN(prod_f64, double, (x * y))
/* Use unsigned integers, because signed overflow is undefined. */
JOIN(sum_i32, uint32_t, x + y)
JOIN(min_i32, uint32_t, (int32_t)x < (int32_t)y ? x : y)
JOIN(max_i32, uint32_t, (int32_t)x > (int32_t)y ? x : y)
JOIN(prod_i32, uint32_t, (x * y))
JOIN(sum_i64, uint64_t, x + y)
JOIN(min_i64, uint64_t, (int64_t)x < (int64_t)y ? x : y)
JOIN(max_i64, uint64_t, (int64_t)x > (int64_t)y ? x : y)
JOIN(prod_i64, uint64_t, (x * y))

/* --- into the accumulator's type and back --------------------------------------------------------------- */

#define CONVERT(name, from_type, to_type, expression)      \
    static void name(void *to, const void *from, size_t n) \
    {                                                      \
        to_type *t = to;                                   \
        const from_type *f = from;                         \
        for (size_t i = 0; i < n; i++) {                   \
            from_type x = f[i];                            \
            t[i] = (to_type)(expression);                  \
        }                                                  \
    }

CONVERT(widen_f16, uint16_t, float, f16_to_f32(x))
CONVERT(narrow_f16, float, uint16_t, f32_to_f16(x))
CONVERT(widen_bf16, uint16_t, float, bf16_to_f32(x))
CONVERT(narrow_bf16, float, uint16_t, f32_to_bf16(x))
CONVERT(widen_u8, uint8_t, uint32_t, x)
CONVERT(narrow_u8, uint32_t, uint8_t, x)

/* --- the average ---------------------------------------------------------------------------------------- */

static bool is_power_of_two(size_t n)
{
    return (n & (n - 1)) == 0;
}

/* Divide n values by `world`. If `world` is a power of two, multiply by 1 / world, which is exact and faster. Otherwise
 * divide each value, because 1 / world and the product would both be rounded. */
#define DIVIDE_FLOAT(name, type)                                 \
    static void name(void *values, size_t n, size_t world)       \
    {                                                            \
        type *v = values, by = (type)world, with = (type)1 / by; \
        if (is_power_of_two(world))                              \
            for (size_t i = 0; i < n; i++)                       \
                v[i] *= with;                                    \
        else                                                     \
            for (size_t i = 0; i < n; i++)                       \
                v[i] /= by;                                      \
    }

#define DIVIDE_INTEGER(name, type, signed_type)                    \
    static void name(void *values, size_t n, size_t world)         \
    {                                                              \
        type *v = values;                                          \
        for (size_t i = 0; i < n; i++)                             \
            v[i] = (type)((signed_type)v[i] / (signed_type)world); \
    }

DIVIDE_FLOAT(divide_f32, float)
DIVIDE_FLOAT(divide_f64, double)
DIVIDE_INTEGER(divide_i32, uint32_t, int32_t)
DIVIDE_INTEGER(divide_i64, uint64_t, int64_t)

/* --- one row for each type ------------------------------------------------------------------------------ */

struct type_row {
    size_t partial; /* bytes of an element in the accumulator */
    join_fn sum, min, max, prod;
    void (*divide)(void *values, size_t n, size_t world);
    /* widen converts elements to the accumulator's type, and narrow converts back. Both are NULL if elements already
     * have the accumulator's type. */
    void (*widen)(void *to, const void *from, size_t n);
    void (*narrow)(void *to, const void *from, size_t n);
};

#define IN_F32 4, sum_f32, min_f32, max_f32, prod_f32, divide_f32
#define IN_F64 8, sum_f64, min_f64, max_f64, prod_f64, divide_f64
#define IN_I32 4, sum_i32, min_i32, max_i32, prod_i32, divide_i32
#define IN_I64 8, sum_i64, min_i64, max_i64, prod_i64, divide_i64

static const struct type_row types[] = {
    [DDP_F32] = { IN_F32, NULL, NULL },
    [DDP_F64] = { IN_F64, NULL, NULL },
    [DDP_F16] = { IN_F32, widen_f16, narrow_f16 },
    [DDP_BF16] = { IN_F32, widen_bf16, narrow_bf16 },
    [DDP_I32] = { IN_I32, NULL, NULL },
    [DDP_I64] = { IN_I64, NULL, NULL },
    [DDP_U8] = { IN_I32, widen_u8, narrow_u8 },
};

/* Return the loop that combines two accumulators. */
static join_fn join_of(const struct type_row *row, ddp_op op)
{
    switch (op) {
    case DDP_MIN:
        return row->min;
    case DDP_MAX:
        return row->max;
    case DDP_PROD:
        return row->prod;
    default:
        return row->sum; /* DDP_AVG: reduce_range divides the sum at the end */
    }
}

/* --- the tree ------------------------------------------------------------------------------------------- */

/* Return the number of ranks in the left half of a subtree: the largest power of two below `count`. Six ranks:
 *
 *                 +
 *               /   \
 *             +       +
 *            / \     / \
 *           +   +   4   5
 *          / \ / \
 *         0  1 2  3 */
static size_t left_part(size_t count)
{
    size_t left = 1;
    while (left * 2 < count)
        left *= 2;
    return left;
}

struct work {
    const struct type_row *row;
    join_fn join;
    size_t element; /* bytes of an element */
    const void *const *in;
};

/* Return the address of element `at` in the input of `rank`. */
static const void *leaf(const struct work *w, size_t rank, size_t at)
{
    return (const char *)w->in[rank] + at * w->element;
}

/* Load a leaf of the tree: one rank's values, converted to the accumulator's type. */
static void load(const struct work *w, tile *to, size_t rank, size_t at, size_t n)
{
    if (w->row->widen != NULL)
        w->row->widen(to, leaf(w, rank, at), n);
    else
        memcpy(to, leaf(w, rank, at), n * w->element);
}

/* Combine elements [at, at + n) of ranks [first, first + count) into `to`. The caller limits n to TILE. */
static void tree(const struct work *w, tile *to, size_t first, size_t count, size_t at, size_t n)
{
    if (count == 1) {
        load(w, to, first, at, n);
    } else if (count == 2 && w->row->widen == NULL) {
        w->join(to, leaf(w, first, at), leaf(w, first + 1, at), n);
    } else {
        tile right;
        size_t left = left_part(count);
        tree(w, to, first, left, at, n);
        tree(w, &right, first + left, count - left, at, n);
        w->join(to, to, &right, n);
    }
}

/* --- f32, two or four ranks ------------------------------------------------------------------------------ */

/* Number of floats that the loop reads from one input before it reads from the next input. On AMD processors, lines of
 * two inputs may replace each other in the cache. So the loop must not change to another input after each line. */
enum { STRIP = 64 };

struct fused {
    const void *const *in;
    void *const *out;
    size_t world, outs;
    float with; /* factor of the sum: 1 / world for an average, otherwise 1 */
};

#define INLINE static inline __attribute__((always_inline))

/* Store the sums of `a` and `b` in `to`. Use two loops, so that each loop reads one input. See STRIP. */
INLINE void add_pair(float *to, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = a[i];
    for (size_t i = 0; i < n; i++)
        to[i] += b[i];
}

/* Reduce one strip. Read all inputs before writing an output, because an output may be the same array as an input. */
INLINE void fused_strip(const struct fused *f, size_t at, size_t n)
{
    _Alignas(64) float sum[STRIP], right[STRIP];

    add_pair(sum, (const float *)f->in[0] + at, (const float *)f->in[1] + at, n);
    if (f->world == 4) {
        add_pair(right, (const float *)f->in[2] + at, (const float *)f->in[3] + at, n);
        for (size_t i = 0; i < n; i++)
            sum[i] += right[i];
    }
    for (size_t i = 0; i < n; i++)
        sum[i] *= f->with;
    for (size_t o = 0; o < f->outs; o++)
        for (size_t i = 0; i < n; i++)
            ((float *)f->out[o])[at + i] = sum[i];
}

/* Reduce whole strips, whose length is a compile-time constant, then the remaining elements. */
INLINE void fused_strips(const struct fused *f, size_t at, size_t n)
{
    size_t end = at + n;
    for (; end - at >= STRIP; at += STRIP)
        fused_strip(f, at, STRIP);
    if (at < end)
        fused_strip(f, at, end - at);
}

static void fused_plain(const struct fused *f, size_t at, size_t n)
{
    fused_strips(f, at, n);
}

/* Run fused_strips with AVX2, whose registers hold twice as many floats as SSE registers. fused_plain gives the same
 * bits. */
#ifdef __x86_64__
__attribute__((target("avx2"))) static void fused_avx2(const struct fused *f, size_t at, size_t n)
{
    fused_strips(f, at, n);
}
#define FUSED (__builtin_cpu_supports("avx2") ? fused_avx2 : fused_plain)
#else
#define FUSED fused_plain
#endif

/* Reduce with the fast loop, which combines in the same order as tree() and gives the same bits. Return false if there
 * is no fast loop for this type, operation and world size. */
static bool reduce_fused(ddp_dtype dtype, ddp_op op, const struct fused *f, size_t at, size_t n)
{
    if (dtype != DDP_F32 || (op != DDP_SUM && op != DDP_AVG) || (f->world != 2 && f->world != 4))
        return false;
    FUSED(f, at, n);
    return true;
}

/* --- reduce_range --------------------------------------------------------------------------------------- */

/* Return true if subnormal numbers slow down the operation. The caller then flushes them to zero. */
static bool is_arithmetic(ddp_op op)
{
    return op != DDP_MIN && op != DDP_MAX;
}

/* Store the result in all outputs. Round only once and copy the bytes, so that all outputs have the same bits. */
static void store(const struct work *w, const tile *from, size_t at, size_t n, void *const out[], size_t outs)
{
    for (size_t o = 0; o < outs; o++) {
        void *to = (char *)out[o] + at * w->element;
        if (o > 0)
            memcpy(to, (char *)out[0] + at * w->element, n * w->element);
        else if (w->row->narrow != NULL)
            w->row->narrow(to, from, n);
        else
            memcpy(to, from, n * w->element);
    }
}

/* Use the fast loop if this type and operation have one. Otherwise combine the ranks tile by tile: tree() combines
 * all ranks in an accumulator on the stack. Then divide the accumulator (for an average), round it and copy it to
 * every output. */
void reduce_range(ddp_dtype dtype, ddp_op op, const void *const in[], size_t world, size_t at, size_t n,
                  void *const out[], size_t outs)
{
    const struct type_row *row = &types[dtype];
    const struct work w = { row, join_of(row, op), ddp_dtype_size(dtype), in };
    const struct fused f = { in, out, world, outs, op == DDP_AVG ? 1.0f / (float)world : 1.0f };
    FLUSH_SUBNORMALS(is_arithmetic(op));

    if (reduce_fused(dtype, op, &f, at, n))
        return;
    for (size_t end = at + n; at < end; at += TILE) {
        tile acc;
        size_t now = end - at < TILE ? end - at : TILE;
        tree(&w, &acc, 0, world, at, now);
        if (op == DDP_AVG)
            row->divide(&acc, now, world);
        store(&w, &acc, at, now, out, outs);
    }
}

/* --- reduce_piece and reduce_join ----------------------------------------------------------------------- */

size_t reduce_partial_size(ddp_dtype dtype)
{
    return types[dtype].partial;
}

/* Reduce one piece. For DDP_AVG, reduce_join divides the sum later. */
void reduce_piece(ddp_dtype dtype, ddp_op op, const void *const in[], size_t count, size_t n, void *partial)
{
    const struct type_row *row = &types[dtype];
    const struct work w = { row, join_of(row, op), ddp_dtype_size(dtype), in };
    FLUSH_SUBNORMALS(is_arithmetic(op));

    if (row->narrow == NULL) {
        reduce_range(dtype, op == DDP_AVG ? DDP_SUM : op, in, count, 0, n, &partial, 1);
        return;
    }
    for (size_t at = 0; at < n; at += TILE) {
        tile acc;
        size_t now = n - at < TILE ? n - at : TILE;
        tree(&w, &acc, 0, count, at, now);
        memcpy((char *)partial + at * row->partial, &acc, now * row->partial);
    }
}

/* The state of reduce_join. */
struct joining {
    const struct type_row *row;
    join_fn join;
    const struct reduce_piece *pieces;
    const void *const *partials;
    size_t next; /* index of the piece that join_tree() reads next */
};

/* Return the address of element `at` of the next piece. Then increase `next`. */
static const void *next_partial(struct joining *j, size_t at)
{
    return (const char *)j->partials[j->next++] + at * j->row->partial;
}

/* Return true if piece number next + ahead is a subtree with `count` ranks. */
static bool is_piece(const struct joining *j, size_t ahead, size_t count)
{
    return j->pieces[j->next + ahead].count == count;
}

/* Walk the tree as tree() does, but stop at pieces instead of ranks. Pieces are sorted in the order of this walk. */
static void join_tree(struct joining *j, tile *to, size_t count, size_t at, size_t n)
{
    size_t left = left_part(count);

    if (is_piece(j, 0, count)) {
        memcpy(to, next_partial(j, at), n * j->row->partial);
    } else if (is_piece(j, 0, left) && is_piece(j, 1, count - left)) {
        const void *a = next_partial(j, at);
        j->join(to, a, next_partial(j, at), n);
    } else {
        tile right;
        join_tree(j, to, left, at, n);
        join_tree(j, &right, count - left, at, n);
        j->join(to, to, &right, n);
    }
}

void reduce_join(ddp_dtype dtype, ddp_op op, const struct reduce_piece *pieces, size_t world,
                 const void *const partials[], size_t n, void *out)
{
    const struct type_row *row = &types[dtype];
    const struct work w = { row, join_of(row, op), ddp_dtype_size(dtype), NULL };
    FLUSH_SUBNORMALS(is_arithmetic(op));
    struct joining j = { row, w.join, pieces, partials, 0 };

    for (size_t at = 0; at < n; at += TILE) {
        tile acc;
        size_t now = n - at < TILE ? n - at : TILE;
        j.next = 0;
        join_tree(&j, &acc, world, at, now);
        if (op == DDP_AVG)
            row->divide(&acc, now, world);
        store(&w, &acc, at, now, &out, 1);
    }
}
