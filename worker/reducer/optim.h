/* optim.h -- pure functions for the norm of all gradients and for clipping. The order of the additions depends only on
 * the positions of the elements in their arrays, because ranks may exchange partial sums (leaves). All ranks then get
 * the same bits as one rank that computes all leaves. */
#ifndef WORKER_REDUCER_OPTIM_H
#define WORKER_REDUCER_OPTIM_H

#include <stddef.h>
#include <stdint.h>

/* A leaf is the sum of the squares of NORM_LEAF elements of one array. The last leaf of an array may have fewer
 * elements. */
enum { NORM_LEAF = 256 };

/* Return the sum of the squares of n <= NORM_LEAF elements. Zeros at the end change no bit of the sum. */
double norm_leaf(const float *x, size_t n);

/* The sum of the leaves so far; initialize with { 0 }. Leaves are added as a binary tree, ((l0+l1)+(l2+l3))+... If bit
 * k of `leaves` is set, part[k] is the sum of 2^k leaves. */
struct norm_tree {
    double part[64];
    uint64_t leaves;
};

/* Add a leaf. */
void norm_push(struct norm_tree *tree, double leaf);

/* Return the sum of all leaves, or 0 if no leaf was added. */
double norm_root(const struct norm_tree *tree);

/* Return the factor that reduces the norm of all gradients to max_norm. The factor is at most 1. Compute in float32 as
 * torch does. If the norm is a NaN, return a NaN. */
float norm_clip_factor(double norm, double max_norm);

/* Multiply n elements by `factor`. */
void norm_multiply(float *x, float factor, size_t n);

#endif
