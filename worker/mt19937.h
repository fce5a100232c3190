/* mt19937.h -- Matsumoto and Nishimura's Mersenne Twister, the generator behind torch's CPU random numbers.
 *
 * Pure: the state is the caller's, a copied struct is a copied generator. */
#ifndef WORKER_MT19937_H
#define WORKER_MT19937_H

#include <stdint.h>

enum { MT_WORDS = 624 };

struct mt19937 {
    uint32_t word[MT_WORDS];
    unsigned at; /* next word to hand out; MT_WORDS = make new ones first */
};

/* Like torch.manual_seed, only the low 32 bits of a seed count. */
void mt_seed(struct mt19937 *mt, uint64_t seed);

uint32_t mt_next(struct mt19937 *mt);

/* [0, 1) with 24 bits, the way torch draws a float. */
float mt_uniform(struct mt19937 *mt);

#endif
