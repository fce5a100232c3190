/* random.h -- the random numbers of torch's CPU generator, the Mersenne Twister mt19937.
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

#ifdef __cplusplus
}
#endif
#endif
