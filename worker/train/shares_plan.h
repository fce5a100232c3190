/* shares_plan.h -- all parameters of a model as one flat array on a device, cut into buckets, and each bucket into an equal share for every
 * rank. Pure arithmetic.
 *
 * Parameters lie in it as compute_ops.place has them. Buckets know nothing of parameters: one may begin in the middle of one, and is
 * reduced as soon as all parameters that it touches are ready. Each share is a multiple of COMPUTE_LEAF elements, so that the norm's
 * leaves are the same whoever adds them up, and behind the last parameter there is room, always zero, that makes it come out even. A
 * rank's shares, bucket after bucket, are one array: its shard. */
#ifndef TRAIN_SHARES_PLAN_H
#define TRAIN_SHARES_PLAN_H

#include <stdbool.h>
#include <stddef.h>

struct shares_plan {
    size_t n;               /* parameters */
    const size_t *elements; /* of each; borrowed */
    size_t *at;             /* where each begins; ours */
    size_t count;           /* of all, with room behind them */
    size_t bucket, buckets; /* elements of each but the last, which may have fewer; how many */
    size_t world, rank;
};

/* A part of a parameter. */
struct shares_piece {
    size_t first; /* in the parameter */
    size_t at;    /* in the flat array */
    size_t n;     /* elements; 0 = there is none */
};

/* Buckets of `most` elements, or the next size that can be shared out; a small model has eight. False: no memory. */
bool shares_plan_make(struct shares_plan *p, const size_t elements[], size_t n, size_t world, size_t rank,
                      size_t most);
void shares_plan_free(struct shares_plan *p);

/* What parameters have to be placed at a multiple of, so that they are as many as the plan's. */
size_t shares_multiple(size_t world);

/* Elements of bucket b; those of a rank's share of it; where it begins, and where this rank's share does. */
size_t shares_of_bucket(const struct shares_plan *p, size_t b);
size_t shares_of_rank(const struct shares_plan *p, size_t b);
size_t shares_begin(const struct shares_plan *p, size_t b);
size_t shares_mine(const struct shares_plan *p, size_t b);

/* Where an element of this rank's share of bucket b is in its shard. */
size_t shares_in_shard(const struct shares_plan *p, size_t b, size_t at);

/* Of parameter i, what lies in the `many` elements from `from` on. */
struct shares_piece shares_piece(const struct shares_plan *p, size_t i, size_t from, size_t many);

#endif
