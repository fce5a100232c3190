/* shares_plan.c -- see shares_plan.h. */
#include "train/shares_plan.h"

#include "train/compute.h"

#include <stdlib.h>

static size_t rounded_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t shares_multiple(size_t world)
{
    return world * COMPUTE_LEAF;
}

bool shares_plan_make(struct shares_plan *p, const size_t elements[], size_t n, size_t world, size_t rank,
                      size_t most)
{
    enum { FEW = 8 };
    const size_t multiple = shares_multiple(world);
    *p = (struct shares_plan){ .n = n, .elements = elements, .world = world, .rank = rank };
    p->at = calloc(n + 1, sizeof(*p->at));
    if (p->at == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        p->at[i] = p->count;
        p->count += compute_room(elements[i]);
    }
    p->count = rounded_up(p->count > 0 ? p->count : 1, multiple);
    p->bucket = rounded_up(p->count / FEW < most ? p->count / FEW : most, multiple);
    p->bucket = p->bucket > 0 ? p->bucket : multiple;
    p->buckets = (p->count + p->bucket - 1) / p->bucket;
    return true;
}

void shares_plan_free(struct shares_plan *p)
{
    free(p->at);
    *p = (struct shares_plan){ 0 };
}

size_t shares_begin(const struct shares_plan *p, size_t b)
{
    return b * p->bucket;
}

size_t shares_of_bucket(const struct shares_plan *p, size_t b)
{
    const size_t left = p->count - shares_begin(p, b);
    return left < p->bucket ? left : p->bucket;
}

size_t shares_of_rank(const struct shares_plan *p, size_t b)
{
    return shares_of_bucket(p, b) / p->world;
}

size_t shares_mine(const struct shares_plan *p, size_t b)
{
    return shares_begin(p, b) + p->rank * shares_of_rank(p, b);
}

/* All buckets before this one are whole. */
size_t shares_in_shard(const struct shares_plan *p, size_t b, size_t at)
{
    return b * (p->bucket / p->world) + at - shares_mine(p, b);
}

struct shares_piece shares_piece(const struct shares_plan *p, size_t i, size_t from, size_t many)
{
    const size_t begin = p->at[i] > from ? p->at[i] : from;
    const size_t end_here = p->at[i] + p->elements[i], end_there = from + many;
    const size_t end = end_here < end_there ? end_here : end_there;
    if (begin >= end)
        return (struct shares_piece){ 0, 0, 0 };
    return (struct shares_piece){ begin - p->at[i], begin, end - begin };
}
