/* random.c -- see ddp/random.h: Mersenne Twister with the constants of the paper of 1998, and Philox4x32-10 with the
 * constants of the paper of 2011. The generators use only unsigned integers, and the division by 2^24 is exact. So
 * every machine draws the same numbers. */
#include "ddp/random.h"

enum { SHIFT = 397 };

void ddp_random_seed(ddp_random *random, uint64_t seed)
{
    random->word[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < DDP_RANDOM_WORDS; i++)
        random->word[i] = 1812433253u * (random->word[i - 1] ^ (random->word[i - 1] >> 30)) + i;
    random->at = DDP_RANDOM_WORDS;
}

/* Combine the top bit of `high` with the low 31 bits of `low`, and return the result times the twist matrix. */
static uint32_t twist(uint32_t high, uint32_t low)
{
    uint32_t mixed = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (mixed >> 1) ^ ((low & 1u) ? 0x9908b0dfu : 0u);
}

/* Compute the next 624 words. Each new word depends on the old word at its place, the next word and the word 397
 * places later. All places are modulo 624. */
static void twister_block(ddp_random *random)
{
    uint32_t *w = random->word;
    for (unsigned i = 0; i < DDP_RANDOM_WORDS; i++)
        w[i] = w[(i + SHIFT) % DDP_RANDOM_WORDS] ^ twist(w[i], w[(i + 1) % DDP_RANDOM_WORDS]);
    random->at = 0;
}

/* Return the next number. The shifts are the tempering of the Mersenne Twister, which distributes the values of the
 * upper bits more evenly. */
uint32_t ddp_random_next(ddp_random *random)
{
    if (random->at == DDP_RANDOM_WORDS)
        twister_block(random);
    uint32_t y = random->word[random->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* Return a number in [0, 1). 24 bits are exact in a float, so rounding never gives 1. */
float ddp_random_uniform(ddp_random *random)
{
    return (float)(ddp_random_next(random) & 0xffffffu) / 16777216.0f;
}

/* --- philox ----------------------------------------------------------------------------------------------- */

/* Rounds of Philox. A round multiplies two words and swaps the halves of the products. */
enum { ROUNDS = 10 };

static void philox_round(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    const uint64_t a = (uint64_t)0xd2511f53u * word[0], b = (uint64_t)0xcd9e8d57u * word[2];
    const uint32_t w0 = (uint32_t)(b >> 32) ^ word[1] ^ key0, w2 = (uint32_t)(a >> 32) ^ word[3] ^ key1;
    word[0] = w0;
    word[1] = (uint32_t)b;
    word[2] = w2;
    word[3] = (uint32_t)a;
}

/* Compute four words from the counter, then advance the counter. */
static void philox_block(ddp_philox *random)
{
    uint32_t key0 = random->key[0], key1 = random->key[1];
    for (int i = 0; i < 4; i++)
        random->word[i] = random->counter[i];
    for (int i = 0; i < ROUNDS; i++) {
        philox_round(random->word, key0, key1);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    random->counter[0]++;
    random->at = 0;
}

void ddp_philox_seed(ddp_philox *random, uint64_t seed, uint64_t epoch, uint64_t sample)
{
    *random = (ddp_philox){
        .key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
        .counter = { 0, (uint32_t)epoch, (uint32_t)sample, (uint32_t)(sample >> 32) },
        .at = 4,
    };
}

uint32_t ddp_philox_next(ddp_philox *random)
{
    if (random->at == 4)
        philox_block(random);
    return random->word[random->at++];
}

/* Return a number in [0, 1), as ddp_random_uniform does. */
float ddp_philox_uniform(ddp_philox *random)
{
    return (float)(ddp_philox_next(random) & 0xffffffu) / 16777216.0f;
}
