/* shim.h -- defines CUDA's keywords in C, so that the kernels of worker/train/cuda/ run on a CPU. One block runs at a
 * time. The threads of a block are fibers of one system thread (shim.c). A barrier waits until every fiber has reached
 * it. If a kernel lets only some threads of a block reach a barrier, the barrier never ends, as on a GPU. Each stream
 * has separate __shared__ memory.
 *
 *     #define VALUE_BF16
 *     #include "shim.h"
 *     #include "train/cuda/kernels.cu"
 *     SHIM_MODULE(bf16)                        shim_bf16 is the table of that module's kernels */
#ifndef SHIM_H
#define SHIM_H

#include "core/half.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

struct shim_kernel {
    const char *name;
    size_t bytes; /* size of the arguments */
    void (*run)(const void *args);
};

struct shim_place {
    unsigned x, y;
};

/* Run `kernel` for all blocks of a grid. */
void shim_run(const struct shim_kernel *kernel, struct shim_place grid, unsigned threads, const void *args);

extern const struct shim_kernel shim_f32[], shim_bf16[],
    shim_f16[]; /* tables of kernels, indexed by enum kernel */

/* --- what kernels see ----------------------------------------------------------------------------------- */

extern _Thread_local struct shim_place shim_grid, shim_block, shim_thread, shim_threads;
void shim_block_barrier(void);
void shim_warp_barrier(void);
float shim_exchange(float x, int mask);
/* Add this lane's part of the product of the matrices `a` and `b` to `d`, as `mma` of kernels.cu does. `get` converts
 * 16 bits to a float. */
void shim_mma(float d[4], const unsigned a[4], const unsigned b[2], float (*get)(uint16_t x));

#define __device__ static __attribute__((unused))
#define __shared__ static _Thread_local
#define ALIGNED16  __attribute__((aligned(16)))
#define gridDim    shim_grid
#define blockIdx   shim_block
#define threadIdx  shim_thread
#define blockDim   shim_threads
#define __syncwarp shim_warp_barrier
#define __expf     expf
#define KERNEL(name, args)                        \
    static void name(const struct args##_args a); \
    static void name##_run(const void *from)      \
    {                                             \
        name(*(const struct args##_args *)from);  \
    }                                             \
    static void name(const struct args##_args a)
#define __syncthreads                        shim_block_barrier
#define __shfl_xor_sync(lanes, x, lane_mask) shim_exchange(x, lane_mask)

#define SHIM_ROW(name, threads, args) { #name, sizeof(struct args##_args), name##_run },
#define SHIM_MODULE(type)             const struct shim_kernel shim_##type[] = { KERNEL_LIST(SHIM_ROW) };

#ifdef VALUE_F32
typedef float value;
__device__ float get(value x)
{
    return x;
}
__device__ value put(float x)
{
    return x;
}
#else
typedef uint16_t value;
#ifdef VALUE_BF16
__device__ float get(value x)
{
    return bf16_to_f32(x);
}
__device__ value put(float x)
{
    return f32_to_bf16(x);
}
#elif defined(VALUE_F16)
__device__ float get(value x)
{
    return f16_to_f32(x);
}
__device__ value put(float x)
{
    return f32_to_f16(x);
}
#endif
#define mma(d, a, b) shim_mma(d, a, b, get)
#endif

#endif
