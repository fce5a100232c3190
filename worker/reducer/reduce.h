/* reduce.h -- combine the values of all ranks, element by element, in one fixed order. Pure.
 *
 * The order is a balanced binary tree over the ranks, ((x0+x1)+(x2+x3))+((x4+x5)+x6). The left part of a node has the
 * largest power of two below the node's count. The tree depends only on the number of ranks, not on sizes, timing or
 * the computing rank. So equal runs give equal bits. f16 and bf16 are combined in f32 and rounded once. Integers wrap
 * around. u8 is combined in 32 bits, so an average is correct, and a sum is correct modulo 256. MIN and MAX keep a
 * NaN.
 *
 * A tree has two advantages over ((x0+x1)+x2)+x3. Rounding errors grow with the logarithm of the number of ranks
 * instead of the number. A sum over half of the ranks is a subtree, so a smaller job computes the same sum. */
#ifndef WORKER_REDUCER_REDUCE_H
#define WORKER_REDUCER_REDUCE_H

#include "ddp/group.h"

#include <stdint.h>

/* Combine elements [at, at + n) of in[0 .. world) into the same elements of out[0 .. outs). All outputs get the same
 * bits. An output may be the same memory as an input, but must not overlap an input otherwise. */
void reduce_range(ddp_dtype dtype, ddp_op op, const void *const in[], size_t world, size_t at, size_t n,
                  void *const out[], size_t outs);

/* One host's part of a reduction, for ranks that do not share memory. A piece is a whole node of the tree: ranks
 * [first, first + count). The host of these ranks combines their values into unfinished elements in the tree's type.
 * A rank that has all pieces joins the pieces and finishes the elements. The result has the same bits as the result
 * of reduce_range. */
struct reduce_piece {
    uint32_t first, count;
};

/* Return the bytes of an unfinished element: 4 for f16, bf16 and u8, otherwise the size of the type. */
size_t reduce_partial_size(ddp_dtype dtype);

/* Combine elements [0, n) of the `count` ranks of one piece into `partial`, which must not overlap an input. */
void reduce_piece(ddp_dtype dtype, ddp_op op, const void *const in[], size_t count, size_t n, void *partial);

/* Join the pieces of a world of `world` ranks, in order. partials[p] has n unfinished elements of pieces[p]. `out`
 * must not overlap `partials`. */
void reduce_join(ddp_dtype dtype, ddp_op op, const struct reduce_piece *pieces, size_t world,
                 const void *const partials[], size_t n, void *out);

/* --- values.c: arithmetic on one rank's gradients before and after they are combined ------------------ */

/* Factors are double and each value is rounded once. As a float, 1/3 would be wrong in the eighth digit. 0 stays 0,
 * because the gaps between gradients must stay zero. */

/* Return true if values of this type can be multiplied by a fraction. */
int values_are_real(ddp_dtype dtype);

/* Multiply n elements of a real type by `factor`. */
void values_scale(ddp_dtype dtype, void *values, size_t n, double factor);

/* Convert f32 to `wire` (DDP_F16 or DDP_BF16) and back, times `factor` in f32's precision. The arrays must not
 * overlap. */
void values_narrow(ddp_dtype wire, uint16_t *to, const float *from, size_t n, double factor);
void values_widen(ddp_dtype wire, float *to, const uint16_t *from, size_t n, double factor);

#endif
