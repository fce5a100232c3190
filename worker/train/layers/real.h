/* real.h -- the type that layers compute in.
 *
 * Layers are pure functions over arrays: no context, no memory of their own, no clock. `train` uses them in float. A test
 * compiles the same sources a second time with LAYERS_IN_DOUBLE and compares their gradients with differences, which in
 * float drown in rounding. */
#ifndef TRAIN_LAYERS_REAL_H
#define TRAIN_LAYERS_REAL_H

#include <cblas.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef LAYERS_IN_DOUBLE
typedef double real;
#define real_gemm cblas_dgemm
#define real_exp  exp
#define real_log  log
#define real_sqrt sqrt
#define real_tanh tanh
#else
typedef float real;
#define real_gemm cblas_sgemm
#define real_exp  expf
#define real_log  logf
#define real_sqrt sqrtf
#define real_tanh tanhf
#endif

#endif
