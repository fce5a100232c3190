/* mt19937.c -- see mt19937.h. Constants and recurrence are those of the 1998 paper's reference parameters. */
#include "mt19937.h"

enum { SHIFT = 397 };

void mt_seed(struct mt19937 *mt, uint64_t seed)
{
    mt->word[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++)
        mt->word[i] = 1812433253u * (mt->word[i - 1] ^ (mt->word[i - 1] >> 30)) + i;
    mt->at = MT_WORDS;
}

/* One word of the next block: the top bit of `high` joined to the low 31 bits of `low`, times the twist
 * matrix. */
static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (mixed >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
}

static void next_block(struct mt19937 *mt)
{
    uint32_t *w = mt->word;
    for (unsigned i = 0; i < MT_WORDS; i++)
        w[i] = w[(i + SHIFT) % MT_WORDS] ^ twist(w[i], w[(i + 1) % MT_WORDS]);
    mt->at = 0;
}

uint32_t mt_next(struct mt19937 *mt)
{
    if (mt->at == MT_WORDS)
        next_block(mt);
    uint32_t y = mt->word[mt->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

float mt_uniform(struct mt19937 *mt)
{
    return (float)(mt_next(mt) & 0xffffffu) / 16777216.0f;
}
