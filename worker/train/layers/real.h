/* real.h -- `real`, the type in which layers compute. `train` uses the layers in float. A test compiles the same
 * sources in double (LAYERS_IN_DOUBLE) and compares gradients with central differences, because rounding errors of
 * float would hide a wrong gradient. */
#ifndef TRAIN_LAYERS_REAL_H
#define TRAIN_LAYERS_REAL_H

#include <cblas.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef LAYERS_IN_DOUBLE
typedef double real;
#define real_gemm cblas_dgemm
#define real_exp  exp
#define real_log  log
#define real_sqrt sqrt
#else
typedef float real;
#define real_gemm cblas_sgemm
#define real_exp  expf
#define real_log  logf
#define real_sqrt sqrtf
#endif

/* REAL_WIDE defines a function that is compiled twice: for any processor, and for processors with AVX2. Both
 * versions give the same bits, because they add in the same order and use no fused multiply-add.
 *
 *     static inline void scale_body(real *x, size_t n) { ... }
 *     REAL_WIDE(scale, (real *x, size_t n), (x, n))           defines scale() with these parameters */
#ifdef __x86_64__
#define REAL_WIDE(name, params, args)                              \
    __attribute__((target("avx2"))) static void name##_avx2 params \
    {                                                              \
        name##_body args;                                          \
    }                                                              \
    static void name##_plain params                                \
    {                                                              \
        name##_body args;                                          \
    }                                                              \
    void name params                                               \
    {                                                              \
        if (__builtin_cpu_supports("avx2"))                        \
            name##_avx2 args;                                      \
        else                                                       \
            name##_plain args;                                     \
    }
#else
#define REAL_WIDE(name, params, args) \
    void name params                  \
    {                                 \
        name##_body args;             \
    }
#endif
#define REAL_BODY static inline __attribute__((always_inline))

/* --- sums in a fixed order, for loops that the compiler vectorizes -------------------------------------- */

/* Number of partial sums (lanes) of a long sum. Element i is added to lane i mod REAL_LANES. At the end the lanes
 * are added as a tree, so all processors give the same bits. */
enum { REAL_LANES = 16 };

/* Return the sum of the lanes, added as a tree. */
REAL_BODY real lanes_sum(const real lane[REAL_LANES])
{
    real sum[REAL_LANES];
    memcpy(sum, lane, sizeof(sum));
    for (int n = REAL_LANES / 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++)
            sum[i] += sum[i + n];
    }
    return sum[0];
}

/* Execute STATEMENT for i from 0 to n - 1. In STATEMENT, *lane is the partial sum to which element i is added. */
#define LANES_LOOP(n, lanes, STATEMENT)                    \
    do {                                                   \
        size_t i_ = 0;                                     \
        for (; i_ + REAL_LANES <= (n); i_ += REAL_LANES) { \
            for (int j_ = 0; j_ < REAL_LANES; j_++) {      \
                const size_t i = i_ + (size_t)j_;          \
                real *const lane = &(lanes)[j_];           \
                STATEMENT;                                 \
            }                                              \
        }                                                  \
        for (int j_ = 0; i_ + (size_t)j_ < (n); j_++) {    \
            const size_t i = i_ + (size_t)j_;              \
            real *const lane = &(lanes)[j_];               \
            STATEMENT;                                     \
        }                                                  \
    } while (0)

#ifdef LAYERS_IN_DOUBLE
#define lanes_exp exp
#else
/* Return exp(x) without branches and calls, with an error of at most two units in the last place. Let x = n log 2 + r.
 * A polynomial (Cephes) gives exp(r), and n gives the exponent bits of 2^n. x is limited to [-87, 88], where 2^n has a
 * normal exponent. */
REAL_BODY float lanes_exp(float x)
{
    const float rounder = 12582912.0f; /* 1.5 x 2^23: a sum with this number has no fraction */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + rounder, n = shifted - rounder;
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof(bits));
    bits = (int32_t)(((uint32_t)bits + 127u) << 23); /* exponent n + 127; the shift drops `rounder`'s bits */
    memcpy(&power, &bits, sizeof(power));
    return p * power;
}
#endif

#endif
