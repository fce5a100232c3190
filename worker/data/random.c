/* random.c -- see ddp/random.h. The constants are those of the paper of 1998. */
#include "ddp/random.h"

enum { SHIFT = 397 };

void ddp_random_seed(ddp_random *random, uint64_t seed)
{
    random->word[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < DDP_RANDOM_WORDS; i++)
        random->word[i] = 1812433253u * (random->word[i - 1] ^ (random->word[i - 1] >> 30)) + i;
    random->at = DDP_RANDOM_WORDS;
}

/* One word of the next block: the top bit of `high` joined to the low 31 bits of `low`, times the twist
 * matrix. */
static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (mixed >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
}

/* All 624 words at once, each from itself, its neighbour and the one 397 further on, round the ring. */
static void next_block(ddp_random *random)
{
    uint32_t *w = random->word;
    for (unsigned i = 0; i < DDP_RANDOM_WORDS; i++)
        w[i] = w[(i + SHIFT) % DDP_RANDOM_WORDS] ^ twist(w[i], w[(i + 1) % DDP_RANDOM_WORDS]);
    random->at = 0;
}

/* The tempering of the paper: the raw words are linear in each other, this evens out their bits. */
uint32_t ddp_random_next(ddp_random *random)
{
    if (random->at == DDP_RANDOM_WORDS)
        next_block(random);
    uint32_t y = random->word[random->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* 24 bits are all that a float holds; so 1 is never reached by rounding up. */
float ddp_random_uniform(ddp_random *random)
{
    return (float)(ddp_random_next(random) & 0xffffffu) / 16777216.0f;
}
