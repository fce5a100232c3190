/* kernels.cu -- all kernels of kernels.h, in one module for the type of values that -DVALUE_F32, -DVALUE_BF16 or
 * -DVALUE_F16 selects. The kernels use only the common part of CUDA and C, so that tests/fake/ also compiles these
 * files for the CPU, with fibers as threads (tests/fake/shim.h). With this build, tests on machines without a GPU
 * compare every kernel with its layer in worker/train/layers/. */
#include "train/cuda/kernels.h"

/* --- values of the module's type, packs of 16 bytes, and sums over a warp or a block in a fixed order --- */

#ifdef __CUDACC__
#define KERNEL(name, args) extern "C" __global__ void name(const struct args##_args a)
#define ALIGNED16    __align__(16)

#ifdef VALUE_F32
typedef float value;
__device__ inline float get(value x) { return x; }
__device__ inline value put(float x) { return x; }
#else
typedef unsigned short value;
#ifdef VALUE_BF16
__device__ inline float get(value x) { return __uint_as_float((unsigned)x << 16); }
#define FROM_FLOAT "cvt.rn.bf16.f32 %0, %1;"
#define MMA        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#else
__device__ inline float get(value x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
}
#define FROM_FLOAT "cvt.rn.f16.f32 %0, %1;"
#define MMA        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#endif
__device__ inline value put(float x)
{
    value y;
    asm(FROM_FLOAT : "=h"(y) : "f"(x));
    return y;
}
/* Compute d += a * b for a warp, where a is 16x16 and b is 16x8. The PTX manual lists the values of each lane in its
 * section about m16n8k16. */
__device__ inline void mma(float d[4], const unsigned a[4], const unsigned b[2])
{
    /* All lanes must execute this instruction, so the compiler must not move the instruction into a condition. */
    asm volatile(MMA "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif
#endif

#ifdef VALUE_F32
#define exp_of expf
#else
#define exp_of __expf
#endif

enum { WARP = 32, PACK = 16 / sizeof(value) };

/* A pack: PACK values that a thread reads and writes in one access. */
struct ALIGNED16 pack {
    value each[PACK];
};

__device__ inline struct pack pack_at(const value *x) { return *(const struct pack *)x; }
__device__ inline void pack_to(value *x, struct pack p) { *(struct pack *)x = p; }

/* Read a pack from an array of n values, which may end inside the pack. Set the missing values to 0.
 * pack_to_within() writes only the values whose index is below n. */
__device__ inline struct pack pack_within(const value *x, size_t at, size_t n)
{
    struct pack p;
    if (n - at >= PACK)
        return pack_at(x + at);
    for (int k = 0; k < PACK; k++)
        p.each[k] = at + (size_t)k < n ? x[at + (size_t)k] : put(0);
    return p;
}

__device__ inline void pack_to_within(value *x, size_t at, size_t n, struct pack p)
{
    if (n - at >= PACK) {
        pack_to(x + at, p);
        return;
    }
    for (int k = 0; k < PACK; k++) {
        if (at + (size_t)k < n)
            x[at + (size_t)k] = p.each[k];
    }
}

__device__ inline size_t thread_number(void) { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int lane_number(void) { return (int)(threadIdx.x % WARP); }
__device__ inline int warp_number(void) { return (int)(threadIdx.x / WARP); }
/* Return this warp's number in the grid. */
__device__ inline size_t grid_warp(void) { return thread_number() / WARP; }

__device__ inline float larger(float a, float b) { return a > b ? a : b; }

/* Return the sum over the warp. In each round, two lanes add each other's sum to their own sum. Both lanes get the same
 * bits, because a + b equals b + a. So in the end all lanes have the same bits. */
__device__ inline float warp_sum(float x)
{
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, mask);
    return x;
}

__device__ inline float warp_max(float x)
{
    for (int mask = WARP / 2; mask > 0; mask /= 2)
        x = larger(x, __shfl_xor_sync(0xffffffffu, x, mask));
    return x;
}

/* Return the sum over the block. The block must have 256 threads, and all threads must call this function. */
__device__ inline double block_sum(double x)
{
    __shared__ double part[256];
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    if (warp_number() == 0) {
        for (unsigned i = threadIdx.x + WARP; i < 256; i += WARP)
            part[threadIdx.x] += part[i];
        __syncwarp();
        for (unsigned half = WARP / 2; half > 0; half /= 2) {
            if (threadIdx.x < half)
                part[threadIdx.x] += part[threadIdx.x + half];
            __syncwarp();
        }
    }
    __syncthreads();
    return part[0];
}

__device__ inline float block_max(float x)
{
    __shared__ float top[256 / WARP];
    x = warp_max(x);
    __syncthreads();
    if (lane_number() == 0)
        top[warp_number()] = x;
    __syncthreads();
    for (int i = 0; i < 256 / WARP; i++)
        x = larger(x, top[i]);
    return x;
}

/* --- the kernels --- */

#include "activations.cu"
#include "attention.cu"
#include "attention_tiles.cu"
#include "batch_norm.cu"
#include "cross_entropy.cu"
#include "embedding.cu"
#include "layer_norm.cu"
#include "pictures.cu"
#include "sums.cu"
#include "update.cu"
