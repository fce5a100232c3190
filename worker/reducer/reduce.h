/* reduce.h -- pure functions that combine the values of all ranks, element by element, along a fixed binary tree. The
 * tree depends only on the number of ranks, so equal runs give equal bits. The order is a tree, because rounding errors
 * then grow only with the logarithm of the number of ranks. */
#ifndef WORKER_REDUCER_REDUCE_H
#define WORKER_REDUCER_REDUCE_H

#include "ddp/group.h"

#include <stdint.h>

/* Combine elements [at, at + n) of the arrays in[0 .. world) and write them to the arrays out[0 .. outs). All outputs
 * get the same bits. An output may be the same array as an input, but must not overlap an input partly. The caller owns
 * all arrays.
 *
 * The order is a balanced binary tree over the ranks, ((x0+x1)+(x2+x3))+((x4+x5)+x6). In a subtree with n ranks, the
 * number of ranks in the left half is the largest power of two below n.
 *
 * f16 and bf16 are combined in f32 and rounded once. Integer sums and products wrap around. u8 is combined in 32 bits,
 * so averages are correct. MIN and MAX keep a NaN.
 *
 * Sums and products treat subnormal numbers of the accumulator's type (f32 or f64) as zero, because arithmetic with
 * them is slow (flush_subnormals.h). MIN and MAX keep subnormal numbers. A subnormal f16 is a normal number in f32, so
 * it is not lost. */
void reduce_range(ddp_dtype dtype, ddp_op op, const void *const in[], size_t world, size_t at, size_t n,
                  void *const out[], size_t outs);

/* A piece: a subtree whose ranks [first, first + count) are all on one host. The host combines the values of these
 * ranks into unfinished elements. An unfinished element has the accumulator's type and is not rounded. For DDP_AVG, an
 * unfinished element is a sum that is not divided yet. A rank that has all pieces joins the pieces and finishes the
 * elements. The result has the same bits as with reduce_range.
 *
 * Because the order is a tree, each host can compute its part of the tree alone. For example, the first 2^k ranks are a
 * subtree. With the order ((x0+x1)+x2)+x3, only the host of rank 0 could combine its ranks alone. */
struct reduce_piece {
    uint32_t first, count;
};

/* Return the size in bytes of an unfinished (not yet rounded) element: 4 for f16, bf16 and u8, otherwise the size of
 * the type. */
size_t reduce_partial_size(ddp_dtype dtype);

/* Combine the inputs of a piece into n unfinished elements (see struct reduce_piece) in `partial`. `count` is the
 * number of ranks of the piece. in[i] has the n elements of rank first + i. `partial` must not overlap an input. */
void reduce_piece(ddp_dtype dtype, ddp_op op, const void *const in[], size_t count, size_t n, void *partial);

/* Join the pieces, which together contain all ranks; `world` is the number of ranks. partials[p] has the n
 * unfinished elements (see struct reduce_piece) of pieces[p]. `out` must not overlap `partials`. */
void reduce_join(ddp_dtype dtype, ddp_op op, const struct reduce_piece *pieces, size_t world,
                 const void *const partials[], size_t n, void *out);

/* --- values.c: arithmetic on one rank's gradients before and after they are combined ------------------ */

/* Factors are double, because the float nearest to 1/3 is wrong in the eighth digit. */

/* Return true if values of this type can be multiplied by a fraction. */
int values_are_real(ddp_dtype dtype);

/* Multiply n elements of a real type by `factor`. */
void values_scale(ddp_dtype dtype, void *values, size_t n, double factor);

/* Convert n elements and multiply them by `factor`. values_narrow converts from f32 to `wire` (DDP_F16 or DDP_BF16),
 * values_widen converts from `wire` to f32. The arrays must not overlap. */
void values_narrow(ddp_dtype wire, uint16_t *to, const float *from, size_t n, double factor);
void values_widen(ddp_dtype wire, float *to, const uint16_t *from, size_t n, double factor);

#endif
