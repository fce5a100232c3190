/* random.h -- two generators of random numbers: torch's CPU generator (Mersenne Twister, mt19937), and Philox, which
 * gives each sample its own sequence. The functions are pure: the caller owns the state, and a copy of the struct is a
 * copy of the generator. */
#ifndef DDP_RANDOM_H
#define DDP_RANDOM_H

#include "ddp/error.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DDP_RANDOM_WORDS = 624 };

typedef struct ddp_random {
    uint32_t word[DDP_RANDOM_WORDS];
    unsigned at; /* index of the next word; DDP_RANDOM_WORDS means that new words must be computed first */
} ddp_random;

/* Seed the generator. Only the low 32 bits of the seed are used, as in torch.manual_seed. */
DDP_API void ddp_random_seed(ddp_random *random, uint64_t seed);

/* Return 32 random bits. */
DDP_API uint32_t ddp_random_next(ddp_random *random);

/* Return a number in [0, 1) with 24 random bits, like torch's random floats. */
DDP_API float ddp_random_uniform(ddp_random *random);

/* Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011) computes numbers from a key and a counter. So a new sequence costs
 * nothing, while mt19937 must first compute 624 words of state. */
typedef struct ddp_philox {
    uint32_t key[2], counter[4]; /* counter[0] is the number of the current block, which has four words */
    uint32_t word[4];
    unsigned at; /* index of the next word; 4 means that a new block must be computed first */
} ddp_philox;

/* Begin the sequence of a sample in an epoch. A sequence has 2^34 numbers. All bits of `seed` and `sample` are used,
 * but only the low 32 bits of `epoch`. */
DDP_API void ddp_philox_seed(ddp_philox *random, uint64_t seed, uint64_t epoch, uint64_t sample);

/* Return 32 random bits. */
DDP_API uint32_t ddp_philox_next(ddp_philox *random);

/* Return a number in [0, 1) with 24 random bits. */
DDP_API float ddp_philox_uniform(ddp_philox *random);

#ifdef __cplusplus
}
#endif
#endif
