/* real.h -- `real`, the type in which layers compute.
 *
 * `train` uses the layers in float. A test compiles the same sources with LAYERS_IN_DOUBLE and compares their
 * gradients with central differences. In float, rounding errors would hide a wrong gradient. */
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

#endif
