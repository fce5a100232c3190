/* table.h -- a hash table of byte strings whose nodes live inside the objects they find.
 *
 * Used for keys, barrier names and connection ids. The table never allocates or frees an object; it owns only its
 * array of chains, which doubles with the number of nodes. If memory for a larger array is short, the chains get
 * longer instead. */
#ifndef RENDEZVOUS_TABLE_H
#define RENDEZVOUS_TABLE_H

#include "base/buf.h"

#include <stdint.h>

struct table_node {
    struct table_node *next;
    const void *key; /* part of the object, unchanged while the node is in a table */
    uint32_t key_len;
    uint32_t hash;
};

struct table {
    struct table_node **chain;
    uint32_t mask; /* number of chains - 1 */
    uint32_t count;
    bool is_busy; /* a table with frequent lookups: at least a quarter of its chains stay empty */
};

#define TABLE_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* False when memory is short. */
bool table_init(struct table *t);
/* Free the array, not the objects. */
void table_free(struct table *t);

/* Set the secret of all tables of this process: random, and before the first table_hash. Until then it is 0, so that
 * unit tests are repeatable. */
void table_set_hash_key(const uint64_t key[2]);

/* Return SipHash-1-3 of `key` under the secret, and its lower half, which the tables use. */
uint64_t table_siphash(struct slice key);
uint32_t table_hash(struct slice key);

/* Return the node with this key, or NULL. `hash` is table_hash(key). */
struct table_node *table_find(const struct table *t, struct slice key, uint32_t hash);

/* Return the first node with this hash, whatever its key. */
const struct table_node *table_first(const struct table *t, uint32_t hash);

/* Return the next node with the key of `node`, for tables where keys may repeat; NULL = no more. */
struct table_node *table_find_same(const struct table_node *node);

/* Keys with these hashes will be looked up soon: prefetch them all at once, because a table of a million keys is far
 * from the processor, and separate lookups would wait for each. */
void table_expect(const struct table *t, const uint32_t *hashes, uint32_t n);

/* Insert a node whose key and hash are set. */
void table_put(struct table *t, struct table_node *node);
void table_remove(struct table *t, struct table_node *node);

/* Walk all nodes: start with NULL, ends with NULL; a table that was never made has none. The caller may remove the
 * returned node only after fetching its successor. */
struct table_node *table_next(const struct table *t, const struct table_node *after);

/* EACH_NODE (node, &table) ... for walks that remove no node. */
#define EACH_NODE(node, table) \
    for (struct table_node *node = table_next(table, NULL); node != NULL; node = table_next(table, node))

#endif
