/* random.h -- random numbers of torch's CPU generator, the Mersenne Twister mt19937, and of Philox, which has a
 * separate sequence for each sample.
 *
 * Pure: the caller owns the state, and copying the struct copies the generator. */
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
    unsigned at; /* next word to return; DDP_RANDOM_WORDS = compute new words first */
} ddp_random;

/* Seed the generator. Only the low 32 bits of a seed are used, as in torch.manual_seed. */
DDP_API void ddp_random_seed(ddp_random *random, uint64_t seed);

DDP_API uint32_t ddp_random_next(ddp_random *random);

/* Return a number in [0, 1) with 24 bits, as torch draws a float. */
DDP_API float ddp_random_uniform(ddp_random *random);

/* Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011): a function of a key and a counter instead of a state. So a
 * sequence may begin anywhere at no cost, unlike mt19937 with its 624 words. */
typedef struct ddp_philox {
    uint32_t key[2], counter[4]; /* counter[0] counts blocks of four words */
    uint32_t word[4];
    unsigned at; /* next word to return; 4 = compute new words first */
} ddp_philox;

/* Begin the sequence of (seed, epoch, sample), which has 2^34 numbers. All 64 bits of seed and sample are used, and
 * the low 32 bits of epoch. */
DDP_API void ddp_philox_seed(ddp_philox *random, uint64_t seed, uint64_t epoch, uint64_t sample);

DDP_API uint32_t ddp_philox_next(ddp_philox *random);

/* Return a number in [0, 1) with 24 bits. */
DDP_API float ddp_philox_uniform(ddp_philox *random);

#ifdef __cplusplus
}
#endif
#endif
