/* table.c -- see table.h.
 *
 * Each chain is a linked list of nodes. A node never moves in memory, so other structs can point to the object that
 * contains the node. A node stores its hash: enlarging the array reads no keys, and a search compares keys only if
 * their hashes are equal. */
#include "store/table.h"

#include <stdlib.h>

enum { TABLE_MIN = 64 }; /* number of chains of a new table; a power of two */

bool table_init(struct table *t)
{
    t->chain = calloc(TABLE_MIN, sizeof(*t->chain));
    t->mask = TABLE_MIN - 1;
    t->count = 0;
    t->is_busy = false;
    return t->chain != NULL;
}

void table_free(struct table *t)
{
    free(t->chain);
    *t = (struct table){ 0 };
}

/* The secret of the hash function. All tables share this secret, because callers use one hash for several tables. */
static uint64_t hash_key[2];

void table_set_hash_key(const uint64_t key[2])
{
    hash_key[0] = key[0];
    hash_key[1] = key[1];
}

static inline uint64_t rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static inline void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32) + v[3];
    v[2] += v[1];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static inline void sip_compress(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

/* Return the bytes after the last complete word of a key (at most 7) as one word. For a key of 8 bytes or more, load
 * the last 8 bytes at once and shift. This is faster than a copy of variable length. */
static inline uint64_t sip_tail(const uint8_t *key, size_t len)
{
    const size_t rest = len % sizeof(uint64_t);
    uint64_t word = 0;
    if (rest == 0)
        return 0;
    if (len >= sizeof(word)) {
        memcpy(&word, key + len - sizeof(word), sizeof(word));
        return word >> 8 * (sizeof(word) - rest);
    }
    for (size_t i = 0; i < rest; i++)
        word |= (uint64_t)key[i] << 8 * i;
    return word;
}

/* Compute SipHash-1-3 (Aumasson and Bernstein, https://www.aumasson.jp/siphash/siphash.pdf), with words in the byte
 * order of the machine. Clients choose the keys, so the hash needs a secret. Otherwise a client could choose keys that
 * are all in one chain, and each lookup would walk this chain. */
uint32_t table_hash(struct slice key)
{
    const uint8_t *p = key.data;
    uint64_t v[4] = { hash_key[0] ^ 0x736f6d6570736575u, hash_key[1] ^ 0x646f72616e646f6du,
                      hash_key[0] ^ 0x6c7967656e657261u, hash_key[1] ^ 0x7465646279746573u };
    for (size_t at = 0; key.len - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, p + at, sizeof(word));
        sip_compress(v, word);
    }
    sip_compress(v, (uint64_t)key.len << 56 | sip_tail(p, key.len));
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return (uint32_t)(v[0] ^ v[1] ^ v[2] ^ v[3]);
}

struct table_node *table_find(const struct table *t, struct slice key, uint32_t hash)
{
    struct table_node *node = t->chain[hash & t->mask];
    while (node != NULL && !(node->hash == hash && slice_equal(slice_of(node->key, node->key_len), key)))
        node = node->next;
    return node;
}

const struct table_node *table_first(const struct table *t, uint32_t hash)
{
    const struct table_node *node = t->chain[hash & t->mask];
    while (node != NULL && node->hash != hash)
        node = node->next;
    return node;
}

/* Prefetch the nodes for these hashes, in two loops. The first loop fetches the chains, because they contain the
 * addresses of the nodes. The second loop fetches the first node of each chain. This loop also fetches the next cache
 * line of the node. If the node is an entry, this cache line contains the key. */
void table_expect(const struct table *t, const uint32_t *hashes, uint32_t n)
{
    enum { LINE = 64 };
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(&t->chain[hashes[i] & t->mask]);
    for (uint32_t i = 0; i < n; i++) {
        const char *node = (const char *)t->chain[hashes[i] & t->mask];
        if (node == NULL)
            continue;
        __builtin_prefetch(node);
        __builtin_prefetch(node + LINE);
    }
}

/* Return the next node with the same key. This node is in the rest of the chain, because nodes with the same key share
 * a chain. */
struct table_node *table_find_same(const struct table_node *node)
{
    struct table_node *next = node->next;
    while (next != NULL && !(next->hash == node->hash && slice_equal(slice_of(next->key, next->key_len),
                                                                     slice_of(node->key, node->key_len))))
        next = next->next;
    return next;
}

/* Double the array of chains, and move all nodes at once. With a million keys this takes tens of milliseconds, in
 * which the store serves no client. If memory is short, keep the old array. */
static void grow_chains(struct table *t)
{
    uint32_t mask = t->mask * 2 + 1;
    struct table_node **chain = calloc((size_t)mask + 1, sizeof(*chain));
    if (chain == NULL)
        return;
    for (uint32_t i = 0; i <= t->mask; i++) {
        for (struct table_node *node = t->chain[i], *next; node != NULL; node = next) {
            next = node->next;
            node->next = chain[node->hash & mask];
            chain[node->hash & mask] = node;
        }
    }
    free(t->chain);
    t->chain = chain;
    t->mask = mask;
}

/* Insert a node. If the array of chains is too full, first enlarge it. If `is_busy` is true, the table has at most 3
 * nodes for 4 chains, because each further node in a chain costs a read from memory. Other tables have at most as many
 * nodes as chains, to save memory. */
void table_insert(struct table *t, struct table_node *node)
{
    const uint32_t spare = t->is_busy ? t->mask / 4 : 0;
    if (t->count > t->mask - spare && t->mask < UINT32_MAX / 2)
        grow_chains(t);
    node->next = t->chain[node->hash & t->mask];
    t->chain[node->hash & t->mask] = node;
    t->count++;
}

void table_remove(struct table *t, struct table_node *node)
{
    struct table_node **at = &t->chain[node->hash & t->mask];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    t->count--;
}

/* Return the node after `after` in its chain. If `after` is the last node of its chain, return the first node of the
 * next chain that is not empty. A node stores its hash, so a walk needs no state except `after`. */
struct table_node *table_next(const struct table *t, const struct table_node *after)
{
    uint32_t i = 0;
    if (t->chain == NULL)
        return NULL;
    if (after != NULL) {
        if (after->next != NULL)
            return after->next;
        i = (after->hash & t->mask) + 1;
    }
    while (i <= t->mask && t->chain[i] == NULL)
        i++;
    return i <= t->mask ? t->chain[i] : NULL;
}
