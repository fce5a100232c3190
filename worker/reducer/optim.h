/* optim.h -- the norm of gradients: the sum of squares of many numbers, added in an order that depends only on the
 * positions of the numbers. Pure.
 *
 * A leaf is the sum over a block of NORM_LEAF elements. No block spans two arrays, so the last block of an array may
 * be shorter. Leaves are pushed in order and added as a binary tree, ((l0+l1)+(l2+l3))+... So ranks that each hold
 * some leaves get the same bits as one rank that holds all leaves. */
#ifndef WORKER_REDUCER_OPTIM_H
#define WORKER_REDUCER_OPTIM_H

#include <stddef.h>
#include <stdint.h>

enum { NORM_LEAF = 256 };

/* Return the sum of the squares of n <= NORM_LEAF elements. Zeros at the end change no bit of the sum. */
double norm_leaf(const float *x, size_t n);

/* The sum of the leaves so far; initialize with { 0 }. part[k] is the sum of 2^k leaves if bit k of `leaves` is
 * set. */
struct norm_tree {
    double part[64];
    uint64_t leaves;
};

void norm_push(struct norm_tree *tree, double leaf);
double norm_root(const struct norm_tree *tree); /* Return the sum of all leaves. */

/* Return torch's factor for clipping, which is at most 1. Compute the factor in float32, as torch does. If the norm
 * is a NaN, so is the factor. */
float norm_clip_factor(double norm, double max_norm);

/* Multiply n elements by `factor`. */
void norm_multiply(float *x, float factor, size_t n);

#endif
