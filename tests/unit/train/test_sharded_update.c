/* Tests of worker/train/sharded_update.h: every element of every parameter is in one bucket and belongs to one rank,
 * for any number of ranks. */
#include "train/sharded_update.c"

#include "train/compute.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { PARAMS = 5, MOST = 1 << 18 };

static const size_t counts[PARAMS] = { 300000, 1, 0, 129, 70001 };

/* Count each element that this rank owns: in `seen` by its offset in the flat array, and in `shard` by its offset in
 * the rank's shard. */
static void count_pieces(const struct sharded_plan *p, unsigned char *seen, unsigned char *shard)
{
    for (size_t b = 0; b < p->buckets; b++) {
        const size_t mine = sharded_mine(p, b), many = sharded_of_rank(p, b);
        cr_expect_eq(mine % COMPUTE_LEAF, 0);
        cr_expect_eq(many % COMPUTE_LEAF, 0);
        cr_expect_eq(many * p->world, sharded_of_bucket(p, b));
        for (size_t i = 0; i < PARAMS; i++) {
            const struct sharded_piece piece = sharded_piece(p, i, mine, many);
            cr_expect(piece.n == 0 || piece.at == p->at[i] + piece.first);
            for (size_t k = 0; k < piece.n; k++) {
                seen[piece.at + k]++;
                shard[sharded_in_shard(p, b, piece.at + k)]++;
            }
        }
    }
}

static void expect_all_once(size_t world)
{
    struct sharded_plan p = { 0 };
    unsigned char *seen = calloc(1 << 21, 1);
    size_t wrong = 0;
    for (size_t rank = 0; rank < world; rank++) {
        unsigned char *shard = calloc(1 << 21, 1);
        cr_assert(sharded_plan_make(&p, counts, PARAMS, world, rank, MOST));
        count_pieces(&p, seen, shard);
        for (size_t k = 0; k < 1 << 21; k++)
            wrong += shard[k] > (k < p.count / world);
        free(shard);
        if (rank + 1 < world)
            sharded_plan_free(&p);
    }
    size_t all = 0;
    for (size_t i = 0; i < PARAMS; i++) {
        cr_expect_eq(p.at[i] % COMPUTE_APART, 0);
        for (size_t k = 0; k < counts[i]; k++)
            all += seen[p.at[i] + k] == 1;
    }
    cr_expect_eq(wrong, 0);
    cr_expect_eq(all, 300000 + 1 + 129 + 70001);
    sharded_plan_free(&p);
    free(seen);
}

Test(sharded_plan, every_element_is_of_one_rank)
{
    expect_all_once(1);
    expect_all_once(3);
    expect_all_once(8);
}

Test(sharded_plan, buckets_are_few_and_not_too_large)
{
    struct sharded_plan p;
    cr_assert(sharded_plan_make(&p, counts, PARAMS, 2, 0, 1 << 16));
    cr_expect_eq(p.count, 12 * 2 * COMPUTE_LEAF);
    cr_expect_eq(p.bucket, 1 << 16);
    cr_expect_eq(p.buckets, 6);
    sharded_plan_free(&p);
    cr_assert(sharded_plan_make(&p, counts, PARAMS, 1, 0, 1 << 30));
    cr_expect_eq(p.count, 23 * COMPUTE_LEAF);
    cr_expect_eq(p.bucket, 3 * COMPUTE_LEAF);
    cr_expect_eq(p.buckets, 8);
    cr_expect_eq(sharded_of_bucket(&p, 7), 2 * COMPUTE_LEAF);
    sharded_plan_free(&p);
}

/* A plan without parameters has one bucket of zeros. */
Test(sharded_plan, there_may_be_nothing)
{
    struct sharded_plan p;
    cr_assert(sharded_plan_make(&p, counts, 0, 4, 3, MOST));
    cr_expect_eq(p.buckets, 1);
    cr_expect_eq(sharded_mine(&p, 0), 3 * COMPUTE_LEAF);
    sharded_plan_free(&p);
}
