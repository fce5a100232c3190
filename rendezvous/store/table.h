/* table.h -- a hash table with byte strings as keys. A node of the table is a member of the object that the table
 * finds.
 *
 * The table is used for keys, barrier names and connection ids. The table never allocates or frees an object. It owns
 * only its array of chains, which grows with the number of nodes. If memory for a larger array is short, the chains
 * become longer instead. */
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
    bool is_busy; /* lookups are frequent, so at least a quarter of the chains stay empty */
};

#define TABLE_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Create an empty table. Return false if memory is short. */
bool table_init(struct table *t);
/* Free the array of chains, but not the objects. */
void table_free(struct table *t);

/* Set the secret of all tables of this process. The caller passes random numbers, before the first call of table_hash.
 * The default is 0, which makes unit tests repeatable. */
void table_set_hash_key(const uint64_t key[2]);

/* Return SipHash-1-3 of `key` with the secret. table_hash returns the lower half of this hash, which the tables use. */
uint64_t table_siphash(struct slice key);
uint32_t table_hash(struct slice key);

/* Return the node with this key, or NULL. `hash` is table_hash(key). */
struct table_node *table_find(const struct table *t, struct slice key, uint32_t hash);

/* Return the first node with this hash, without comparing keys, or NULL if no node has this hash. */
const struct table_node *table_first(const struct table *t, uint32_t hash);

/* Return the next node with the same key as `node`, or NULL. Tables with repeated keys need this. */
struct table_node *table_find_same(const struct table_node *node);

/* Prefetch the nodes of these hashes together, because lookups of these nodes follow soon. A table of a million keys
 * exceeds the processor's caches, and without prefetching each lookup would wait for memory. */
void table_expect(const struct table *t, const uint32_t *hashes, uint32_t n);

/* Insert a node. Its key and hash are set. */
void table_put(struct table *t, struct table_node *node);
void table_remove(struct table *t, struct table_node *node);

/* Walk all nodes: NULL starts the walk, and NULL is returned at the end. A zeroed table has no nodes. Before the
 * caller removes the returned node, the caller must fetch the next node. */
struct table_node *table_next(const struct table *t, const struct table_node *after);

/* Walk all nodes with `EACH_NODE (node, &table)`. The loop must not remove nodes. */
#define EACH_NODE(node, table) \
    for (struct table_node *node = table_next(table, NULL); node != NULL; node = table_next(table, node))

#endif
