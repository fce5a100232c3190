/* philox.c -- Philox4x32-10 of ddp/random.h. The constants are those of the paper of 2011.
 *
 * The counter is encrypted, more or less: ten rounds of two products whose halves change places, and a key that moves on
 * by a fixed step from round to round. */
#include "ddp/random.h"

enum { ROUNDS = 10 };

static void one_round(uint32_t word[4], uint32_t key0, uint32_t key1)
{
    const uint64_t a = (uint64_t)0xd2511f53u * word[0], b = (uint64_t)0xcd9e8d57u * word[2];
    const uint32_t w0 = (uint32_t)(b >> 32) ^ word[1] ^ key0, w2 = (uint32_t)(a >> 32) ^ word[3] ^ key1;
    word[0] = w0;
    word[1] = (uint32_t)b;
    word[2] = w2;
    word[3] = (uint32_t)a;
}

static void next_block(ddp_philox *random)
{
    uint32_t key0 = random->key[0], key1 = random->key[1];
    for (int i = 0; i < 4; i++)
        random->word[i] = random->counter[i];
    for (int i = 0; i < ROUNDS; i++) {
        one_round(random->word, key0, key1);
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
        next_block(random);
    return random->word[random->at++];
}

/* As ddp_random_uniform: 24 bits are all that a float holds. */
float ddp_philox_uniform(ddp_philox *random)
{
    return (float)(ddp_philox_next(random) & 0xffffffu) / 16777216.0f;
}
