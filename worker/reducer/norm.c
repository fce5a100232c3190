/* norm.c -- see norm.h and ddp/optim.h.
 *
 * A square of a float is exact in double, so all that is rounded are sums. Inside a leaf eight running
 * sums fill the processor's vector units; they, too, are joined in a fixed order. */
#include "reducer/norm.h"

#include "ddp/optim.h"
#include "core/flush_subnormals.h"

#include <math.h>

enum { LANES = 8 };

/* The rest behind the last eight goes into the lanes it would be in if zeros followed, so padding changes
 * no bit. */
double norm_leaf(const float *x, size_t n)
{
    double lane[LANES] = { 0 };
    size_t whole = n / LANES * LANES;
    for (size_t i = 0; i < whole; i += LANES) {
        for (size_t k = 0; k < LANES; k++)
            lane[k] += (double)x[i + k] * x[i + k];
    }
    for (size_t i = whole; i < n; i++)
        lane[i - whole] += (double)x[i] * x[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

/* As in counting up by one: two sums of equal size become one of the next. */
void norm_push(struct norm_tree *tree, double leaf)
{
    int k = 0;
    for (; tree->leaves >> k & 1; k++)
        leaf = tree->part[k] + leaf;
    tree->part[k] = leaf;
    tree->leaves++;
}

/* The smallest part is the last in order; what is missing of its neighbours counts as 0. */
double norm_root(const struct norm_tree *tree)
{
    double sum = 0;
    for (int k = 0; k < 64; k++) {
        if (tree->leaves >> k & 1)
            sum = tree->part[k] + sum;
    }
    return sum;
}

/* Blocks begin anew with each array: how a model is cut into arrays is part of it, how those lie in memory
 * is not. */
double ddp_grad_norm(const float *const grads[], const size_t counts[], size_t n)
{
    FLUSH_SUBNORMALS(true);
    struct norm_tree tree = { .leaves = 0 };
    for (size_t i = 0; i < n; i++) {
        for (size_t at = 0; at < counts[i]; at += NORM_LEAF) {
            size_t left = counts[i] - at;
            norm_push(&tree, norm_leaf(grads[i] + at, left < NORM_LEAF ? left : NORM_LEAF));
        }
    }
    return sqrt(norm_root(&tree));
}

/* torch divides a number by a tensor as reciprocal times number. The comparison lets a NaN through. */
float norm_clip_factor(double norm, double max_norm)
{
    float factor = 1.0f / ((float)norm + 1e-6f) * (float)max_norm;
    return factor > 1 ? 1 : factor;
}

/* Also by 1: torch always multiplies, and a branch would save nothing that shows. */
void norm_multiply(float *x, float factor, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

double ddp_clip_grad_norm(float *const grads[], const size_t counts[], size_t n, double max_norm)
{
    FLUSH_SUBNORMALS(true);
    double norm = ddp_grad_norm((const float *const *)grads, counts, n);
    float factor = norm_clip_factor(norm, max_norm);
    for (size_t i = 0; i < n; i++)
        norm_multiply(grads[i], factor, counts[i]);
    return norm;
}
