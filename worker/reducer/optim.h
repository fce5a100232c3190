/* optim.h -- the norm of gradients: the sum of squares of many numbers, in an order that depends only on their
 * places. Pure.
 *
 * Leaves are sums over blocks of NORM_LEAF elements; an array's last block may be shorter, none spans two arrays.
 * Leaves are pushed in order and joined as a binary tree, ((l0+l1)+(l2+l3))+..., so that ranks that each hold some of
 * the leaves get the same bits as one that holds all. */
#ifndef WORKER_REDUCER_OPTIM_H
#define WORKER_REDUCER_OPTIM_H

#include <stddef.h>
#include <stdint.h>

enum { NORM_LEAF = 256 };

/* Return the sum of the squares of n <= NORM_LEAF elements; zeros at the end change no bit of it. */
double norm_leaf(const float *x, size_t n);

/* Starts as { 0 }. part[k] is the sum of 2^k leaves when bit k of `leaves` is set. */
struct norm_tree {
    double part[64];
    uint64_t leaves;
};

void norm_push(struct norm_tree *tree, double leaf);
double norm_root(const struct norm_tree *tree); /* Return the sum of all leaves. */

/* Return torch's factor for clipping, in float32 as there; never above 1. NaN stays NaN. */
float norm_clip_factor(double norm, double max_norm);

/* x[i] *= factor */
void norm_multiply(float *x, float factor, size_t n);

#endif
