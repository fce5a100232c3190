/* trials.h -- collectives with values that are known: for tests that run them as real processes.
 *
 * Inputs are small integers chosen so that every sum and product is exact in every type; each rank
 * computes what the result must be from the rule alone, and compares every element. */
#ifndef TESTS_TRIALS_H
#define TESTS_TRIALS_H

#include "ranks.h"

#include <stdint.h>

enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, KINDS };
enum memory { PRIVATE, SHARED, IN_SHARED, MIXED, MEMORIES }; /* MIXED: rank 0 private, the others shared */

struct trial {
    enum kind kind;
    ddp_dtype dtype;
    ddp_op op;
    size_t n;
    int root;
    enum memory memory;
    bool in_place;
};

/* Four blocks of a rank: in and out, private and shared; with a device the latter lie in its memory. */
struct room {
    struct rank *me;
    ddp_ctx *ctx;
    bool device;
    char *private_in, *private_out;
    void *shared_in, *shared_out;
    size_t bytes;
};

/* Initialise the rank and make its blocks; finalize and free. */
struct room room_open(struct rank *me, size_t bytes);

/* In a rank: with these options from now on. */
void trials_use(const ddp_options *options);
void room_close(struct room *room);

/* Run one collective and compare what came out. */
void trial_run(const struct room *room, const struct trial *trial);

/* Every kind with every type and operation, few elements, all kinds of memory (one in `one_in` of them, the same on
 * every rank); and with a million elements, every root, in place and not. Each opens and closes a room. */
void trials_of_all_types(struct rank *me, unsigned one_in);
void trials_of_large_counts(struct rank *me);

uint64_t trial_hash(uint64_t hash, const void *data, size_t len);

#endif
