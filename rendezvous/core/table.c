/* table.c -- see table.h.
 *
 * Chained, because a chain costs one pointer in an object that exists anyway, and because a node then
 * never moves: slots are pointed at by waits, sessions by their members. The hash is kept in the node, so
 * that growing and most failing comparisons never touch a key. */
#include "core/table.h"

#include <stdlib.h>

#define ODD 0x9e3779b97f4a7c15u /* 2^64 over the golden ratio */

enum { TABLE_MIN = 64 };

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

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * ODD;
    return h ^ h >> 32;
}

/* The last bytes of a key, where they are no whole word: the key's last eight, which overlap the word before, or all of a
 * short one. Copying as many as there are would be a call for each key. */
static uint64_t last_word(const uint8_t *key, size_t len)
{
    uint64_t word = 0;
    if (len >= sizeof(word))
        memcpy(&word, key + len - sizeof(word), sizeof(word));
    else
        memcpy(&word, key, len);
    return word;
}

/* Eight bytes a step: multiply, fold the high half down. Keys of one job differ mostly in their last
 * digits, so the end gets the full mixing of the last step. */
uint32_t table_hash(struct slice key)
{
    const uint8_t *p = key.data;
    uint64_t h = ODD ^ key.len, word;
    size_t at = 0;
    for (; key.len - at >= sizeof(word); at += sizeof(word)) {
        memcpy(&word, p + at, sizeof(word));
        h = mix(h, word);
    }
    if (at < key.len)
        h = mix(h, last_word(p, key.len));
    return (uint32_t)(h * ODD >> 32);
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

/* Each round waits once for what the round before has asked for: the chains, then the first node of each with the key that mostly
 * lies behind it. */
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

/* Equal keys are in one chain, and whoever found the first of them has all others behind it. */
struct table_node *table_find_same(const struct table_node *node)
{
    struct table_node *next = node->next;
    while (next != NULL && !(next->hash == node->hash && slice_equal(slice_of(next->key, next->key_len),
                                                                     slice_of(node->key, node->key_len))))
        next = next->next;
    return next;
}

/* All at once: a million keys take a few tens of milliseconds, once, which is less than a client's
 * patience and much less code than growing step by step. */
static void grow(struct table *t)
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

/* With as many nodes as chains every second look waits for the memory of a node that is not meant. Idle connections, which are
 * only to be cheap, may live like that. */
void table_put(struct table *t, struct table_node *node)
{
    const uint32_t spare = t->is_busy ? t->mask / 4 : 0;
    if (t->count > t->mask - spare && t->mask < UINT32_MAX / 2)
        grow(t);
    node->next = t->chain[node->hash & t->mask];
    t->chain[node->hash & t->mask] = node;
    t->count++;
}

/* The node must be in the table: the walk has no other end. */
void table_remove(struct table *t, struct table_node *node)
{
    struct table_node **at = &t->chain[node->hash & t->mask];
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    t->count--;
}

/* No cursor is kept: the node's own hash says where the walk stands, so it survives that the array has
 * grown. */
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
