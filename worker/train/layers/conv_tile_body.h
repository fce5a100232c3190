/* conv_tile_body.h -- the loops of conv_tile.c for one kind of processor. For each kind, conv_tile.c defines four
 * macros and includes this file. The size of a register (BYTES) and the number of channels (OUTS) are constants,
 * because the compiler can then keep all sums in registers. */
typedef real FOR(vector) __attribute__((vector_size(BYTES)));
typedef real FOR(loose) __attribute__((vector_size(BYTES), aligned(sizeof(real)), may_alias)); /* unaligned */

/* The macros that conv_tile.c defines before each inclusion:
 *
 *     FOR(name)   name of a function for this kind of processor
 *     TARGET      attribute that allows the instructions of this kind
 *     BYTES       size of a register
 *     OUTS        channels at a time; OUTS * 3 sums and their operands must fit into the registers */
#define VECTOR     FOR(vector)
#define LOOSE      FOR(loose)
#define WIDE       (BYTES / sizeof(real))
#define TILE       static inline TARGET __attribute__((always_inline)) void
#define AT(p, v)   (*(LOOSE *)((p) + (v)*WIDE))
#define SEEN(p, v) (*(const LOOSE *)((p) + (v)*WIDE))

/* Compute the pixels of some channels. `outs` is the number of channels. `vectors` is the number of registers that
 * the pixels of one channel fill. Both numbers are compile-time constants. */
TILE FOR(sum_tile)(const struct conv_sum *s, real *y, size_t pitch, const real *x, const real *weight,
                   const size_t outs, const size_t vectors)
{
    VECTOR sum[OUTS][3];
    for (size_t o = 0; o < outs; o++)
        for (size_t v = 0; v < vectors; v++)
            sum[o][v] = (VECTOR){ 0 };
    for (size_t c = 0; c < s->channels; c++, x += s->plane) {
        for (size_t t = 0; t < s->taps; t++, weight += CONV_OUTS) {
            const real *from = x + s->at[t];
            VECTOR read[3];
            for (size_t v = 0; v < vectors; v++)
                read[v] = SEEN(from, v);
            for (size_t o = 0; o < outs; o++)
                for (size_t v = 0; v < vectors; v++)
                    sum[o][v] += read[v] * weight[o];
        }
    }
    for (size_t o = 0; o < outs; o++)
        for (size_t v = 0; v < vectors; v++)
            AT(y + o * pitch, v) = sum[o][v];
}

TARGET static void FOR(sum)(const struct conv_sum *s, real *y, size_t pitch, size_t n, const real *x,
                            const real *weight)
{
    for (size_t o = 0; o < CONV_OUTS; o += OUTS, y += OUTS * pitch, weight += OUTS) {
        size_t p = 0;
        for (; p + 3 * WIDE <= n; p += 3 * WIDE)
            FOR(sum_tile)(s, y + p, pitch, x + p, weight, OUTS, 3);
        if (p + 2 * WIDE <= n)
            FOR(sum_tile)(s, y + p, pitch, x + p, weight, OUTS, 2);
        else if (p < n)
            FOR(sum_tile)(s, y + p, pitch, x + p, weight, OUTS, 1);
    }
}

TILE FOR(product_tile)(const struct conv_product *p, real *dw, const real *dy, const real *x,
                       const size_t outs, const size_t vectors)
{
    const size_t plane = p->side * p->side;
    VECTOR sum[OUTS][3];
    for (size_t o = 0; o < outs; o++)
        for (size_t v = 0; v < vectors; v++)
            sum[o][v] = SEEN(dw + o * p->pitch, v);
    for (size_t l = 0; l < p->side; l++, x += p->line) {
        const real *from = x;
        for (size_t k = 0; k < p->side; k++, from += p->step, dy++) {
            VECTOR read[3];
            for (size_t v = 0; v < vectors; v++)
                read[v] = SEEN(from, v);
            for (size_t o = 0; o < outs; o++)
                for (size_t v = 0; v < vectors; v++)
                    sum[o][v] += read[v] * dy[o * plane];
        }
    }
    for (size_t o = 0; o < outs; o++)
        for (size_t v = 0; v < vectors; v++)
            AT(dw + o * p->pitch, v) = sum[o][v];
}

TILE FOR(product_outs)(const struct conv_product *p, real *dw, const real *dy, const real *x,
                       const size_t outs)
{
    size_t i = 0;
    for (; i + 3 * WIDE <= p->width; i += 3 * WIDE)
        FOR(product_tile)(p, dw + i, dy, x + i, outs, 3);
    if (i + 2 * WIDE <= p->width)
        FOR(product_tile)(p, dw + i, dy, x + i, outs, 2);
    else if (i < p->width)
        FOR(product_tile)(p, dw + i, dy, x + i, outs, 1);
}

TARGET static void FOR(product)(const struct conv_product *p, real *dw, const real *dy, const real *x)
{
    const size_t plane = p->side * p->side;
    size_t o = 0;
    for (; o + OUTS <= p->outs; o += OUTS)
        FOR(product_outs)(p, dw + o * p->pitch, dy + o * plane, x, OUTS);
    for (; o < p->outs; o++)
        FOR(product_outs)(p, dw + o * p->pitch, dy + o * plane, x, 1);
}

/* Undefine all macros for the next inclusion. The file has no include guard. */
#undef VECTOR
#undef LOOSE
#undef WIDE
#undef TILE
#undef AT
#undef SEEN
#undef FOR
#undef TARGET
#undef BYTES
#undef OUTS
