/* test_table.c -- the hash of the tables: SipHash-1-3 with a secret, so that clients cannot choose keys with equal
 * hashes. */
#include "store/table.c"

#include <criterion/criterion.h>

struct vector {
    size_t len; /* number of bytes that are hashed; the bytes are 00 01 02 ... */
    uint64_t hash;
};

static void check(const struct vector *v, size_t n)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    for (size_t i = 0; i < n; i++) {
        const uint32_t hash = table_hash(slice_of(bytes, v[i].len));
        cr_expect_eq(hash, (uint32_t)v[i].hash, "%zu bytes: %08x", v[i].len, hash);
    }
}

/* The hashes are those of DefaultHasher (std::collections::hash_map) in Rust 1.95, whose key is 0. */
Test(table, hashes_like_rust_with_key_0)
{
    static const struct vector v[] = {
        { 0, 0xd1fba762150c532cu },  { 1, 0x68a914128e01e473u },  { 7, 0x2f098ab0c751325au },
        { 8, 0xead411e67ebe2eeau },  { 9, 0x75927f9d95124362u },  { 15, 0xf30eb725bb91c9eau },
        { 16, 0x8972188433a5c5b7u }, { 31, 0x169739443111d49bu }, { 63, 0x385d3e39e5f37359u },
    };
    check(v, sizeof(v) / sizeof(v[0]));
}

/* The hashes are those of _imp.source_hash(0x0706050403020100, bytes) in CPython 3.11. The number is the first half of
 * the hash's secret, and the second half is 0. */
Test(table, hashes_like_python_with_a_key)
{
    static const struct vector v[] = {
        { 0, 0xf46d3bfe2ea281dcu },  { 1, 0x5bb2c195fe70a449u },  { 7, 0x3dd20bc6123b60e0u },
        { 8, 0x5124317f8cfc24cbu },  { 9, 0x9d1f9dbb9125d122u },  { 15, 0x7f501f340ece0c62u },
        { 16, 0xa07bf4038d638986u }, { 31, 0x22e8083be40fa827u }, { 63, 0x9c56dbe0649233f3u },
    };
    table_set_hash_key((const uint64_t[2]){ 0x0706050403020100u, 0 });
    check(v, sizeof(v) / sizeof(v[0]));
}

Test(table, both_halves_of_the_secret_count)
{
    const struct slice key = slice_str("rank 0");
    table_set_hash_key((const uint64_t[2]){ 1, 2 });
    const uint32_t first = table_hash(key);
    table_set_hash_key((const uint64_t[2]){ 1, 3 });
    cr_expect_neq(table_hash(key), first);
    table_set_hash_key((const uint64_t[2]){ 0, 2 });
    cr_expect_neq(table_hash(key), first);
}

/* The previous hash had no secret and could be inverted: h = (key ^ length ^ C) * C; h ^= h >> 32; h * C >> 32. That
 * hash maps these 32,768 keys to one value. */
Test(table, keys_chosen_for_an_open_hash_are_spread)
{
    enum { KEYS = 32768 };
    static bool seen[KEYS];
    const uint64_t c = 0x9e3779b97f4a7c15u;
    uint64_t inverse = c;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - c * inverse;
    int chains = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        const uint64_t h = (UINT64_C(0x12345678) << 32 | i) * inverse;
        const uint64_t key = (h ^ h >> 32) * inverse ^ c ^ sizeof(key);
        bool *chain = &seen[table_hash(slice_of(&key, sizeof(key))) % KEYS];
        chains += !*chain;
        *chain = true;
    }
    cr_expect_gt(chains, KEYS / 2, "%d keys lie in %d chains", KEYS, chains);
}
