/* table.h -- a hash table with byte strings as keys, for example the keys of the store and the names of barriers. Each
 * object in a table has a member of type struct table_node. The table owns only its array of chains and never frees an
 * object. */
#ifndef RENDEZVOUS_TABLE_H
#define RENDEZVOUS_TABLE_H

#include "base/buf.h"

#include <stdint.h>

struct table_node {
    struct table_node *next;
    const void *key; /* borrowed from the object; must not change while the node is in a table */
    uint32_t key_len;
    uint32_t hash;
};

struct table {
    struct table_node **chain; /* owned: the first node of each chain; NULL = an empty chain */
    uint32_t mask;             /* number of chains - 1; the number of chains is a power of two */
    uint32_t count;            /* number of objects in the table */
    bool is_busy;              /* each request uses this table, so table_insert keeps the chains short */
};

#define TABLE_ENTRY(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

/* Create an empty table. Return false if memory is short. */
bool table_init(struct table *t);
/* Free the array of chains, but not the objects. */
void table_free(struct table *t);

/* Set the secret of all tables of this process. A server calls this function once, with random numbers, before its
 * first call of table_hash. Without this call the secret is 0, so that unit tests are repeatable. */
void table_set_hash_key(const uint64_t key[2]);

/* Return the lower 32 bits of SipHash-1-3 of `key` with the secret. */
uint32_t table_hash(struct slice key);

/* Return the node with this key, or NULL. `hash` must be table_hash(key). The node belongs to the object that contains
 * it. */
struct table_node *table_find(const struct table *t, struct slice key, uint32_t hash);

/* Return the first node with this hash, or NULL. Keys are not compared. */
const struct table_node *table_first(const struct table *t, uint32_t hash);

/* Return the next node with the key of `node`, or NULL. Only tables with repeated keys need this function. */
struct table_node *table_find_same(const struct table_node *node);

/* Prefetch the nodes with these hashes into the processor's caches, all at the same time. Otherwise each lookup in a
 * table of a million keys would wait for memory. */
void table_expect(const struct table *t, const uint32_t *hashes, uint32_t n);

/* Insert a node. The caller first sets its key and hash. The array grows with the number of objects. If memory for a
 * larger array is short, the chains become longer instead. */
void table_insert(struct table *t, struct table_node *node);
/* Remove a node, which must be in the table. */
void table_remove(struct table *t, struct table_node *node);

/* Return the node after `after`, or the first node if `after` is NULL. Return NULL after the last node, and for a
 * zeroed table. To remove a node during a walk, first fetch its successor with this function, because `after` must be
 * in the table. */
struct table_node *table_next(const struct table *t, const struct table_node *after);

/* Loop over all nodes. The loop must not remove nodes. */
#define EACH_NODE(node, table) \
    for (struct table_node *node = table_next(table, NULL); node != NULL; node = table_next(table, node))

#endif
