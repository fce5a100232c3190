/* random.h -- random numbers: of torch's CPU generator, the Mersenne Twister mt19937, and Philox, which has a sequence of its
 * own for each sample.
 *
 * Pure: the state is yours, a copied struct is a copied generator. */
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
    unsigned at; /* next word to hand out; DDP_RANDOM_WORDS = make new ones first */
} ddp_random;

/* Like torch.manual_seed, only the low 32 bits of a seed count. */
DDP_API void ddp_random_seed(ddp_random *random, uint64_t seed);

DDP_API uint32_t ddp_random_next(ddp_random *random);

/* [0, 1) with 24 bits, the way torch draws a float. */
DDP_API float ddp_random_uniform(ddp_random *random);

/* Philox4x32-10 (Salmon, Moraes, Dror & Shaw 2011): no state to draw from, but a function of a key and a counter. So a
 * sequence begins anywhere at no cost, which mt19937 with its 624 words does not. */
typedef struct ddp_philox {
    uint32_t key[2], counter[4]; /* counter[0] counts blocks of four words */
    uint32_t word[4];
    unsigned at; /* next word to hand out; 4 = make new ones first */
} ddp_philox;

/* The sequence of (seed, epoch, sample): all 64 bits of seed and sample count, the low 32 of epoch. 2^34 numbers. */
DDP_API void ddp_philox_seed(ddp_philox *random, uint64_t seed, uint64_t epoch, uint64_t sample);

DDP_API uint32_t ddp_philox_next(ddp_philox *random);

/* [0, 1) with 24 bits. */
DDP_API float ddp_philox_uniform(ddp_philox *random);

#ifdef __cplusplus
}
#endif
#endif
