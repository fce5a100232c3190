/* entry.h -- one key of the store: its value, its queue, and its waiters.
 *
 *     entry "/a" --> value "hi"
 *                --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *                --> line: link <-> link <-> link     (store.c; woken in order of arrival)
 *
 * Value, queue and waiters are in one object, because a write must find the waiters of its key. An entry exists while
 * it has a value, a queue or a waiter, or while a connection that was woken for its queue has not acted. Only
 * entry_settle frees an entry.
 *
 * If the first value is short, it is stored in the entry's memory, after the key. This saves a block and a fetch from
 * memory. The struct has 64 bytes, one cache line, because with a million entries the number of fetched lines limits
 * the request rate. To save space, the last waiter is found through the first waiter, and the oldest item through the
 * youngest item. */
#ifndef RENDEZVOUS_STORE_ENTRY_H
#define RENDEZVOUS_STORE_ENTRY_H

#include "base/buf.h"
#include "store/quota.h"
#include "store/table.h"

#include <stddef.h>

struct wait_link;

struct queue_item {
    struct queue_item *next; /* the next younger item; the youngest item refers to the oldest one */
    uint32_t len;
    uint32_t number; /* 1 + the number of the next older item; youngest - oldest + 1 is the queue's length */
    uint8_t data[];
};

struct entry {
    struct table_node node;
    uint8_t *value; /* NULL, or in `key` after the key, or the `bytes` of a struct shared */
    uint32_t len, cap;
    uint32_t woken;              /* connections that were woken for the queue and have not acted yet */
    uint16_t room;               /* bytes for a value after the key */
    bool exists;                 /* the key has a value (which may be empty) */
    struct wait_link *first;     /* borrowed: the first waiter of this key (store.c) */
    struct queue_item *push_end; /* owned: the youngest item; its `next` is the oldest one */
    char key[];
};

/* The entries of one store, and the quota to which these entries are charged. */
struct entries {
    struct table table;
    struct quota *quota; /* borrowed */
    uint32_t existing;   /* entries that have a value */
};

static inline struct slice entry_key(const struct entry *entry)
{
    return slice_of(entry->key, entry->node.key_len);
}

static inline struct slice entry_value(const struct entry *entry)
{
    return slice_of(entry->value, entry->exists ? entry->len : 0);
}

/* Check whether the key exists in the sense of CHECK and WAIT. */
static inline bool entry_is_there(const struct entry *entry)
{
    return entry->exists || entry->push_end != NULL;
}

static inline uint32_t entry_queue_len(const struct entry *entry)
{
    const struct queue_item *last = entry->push_end;
    return last != NULL ? last->number - last->next->number + 1 : 0;
}

/* Return the charge of an entry without its value. */
static inline uint64_t entry_cost(size_t key_len)
{
    return sizeof(struct entry) + key_len;
}

struct entry *entry_find(const struct entries *entries, struct slice key);

/* Return the block that contains the value. With a reference to the block, the bytes outlive the entry. Return NULL
 * if the entry has no value, or stores the value after the key. */
struct shared *entry_holder(struct entry *entry);

/* Prefetch the entries with these hashes, and their values, because requests will use them soon: see table_expect. */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n);

/* Return the entry of this key. If the key has no entry, create an empty entry that can store a value of `value_len`
 * bytes. Return NULL if memory or quota is short. If the new entry remains empty, call entry_settle. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len);

/* Free the entry if it has no value, no queue, no waiters and no woken connection. */
void entry_settle(struct entries *entries, struct entry *entry);

/* Replace the value by a copy of `value`, or append the copy to the value. Return false, with an unchanged value, if
 * memory or quota is short. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value);
bool entry_append(struct entries *entries, struct entry *entry, struct slice value);
/* Remove the value. The entry itself stays; call entry_settle to free it. */
void entry_unset(struct entries *entries, struct entry *entry);

/* Append a copy of `value` to the queue. Return false if memory or quota is short. */
bool entry_push(struct entries *entries, struct entry *entry, struct slice value);
/* Return the oldest item of the queue, or NULL if the queue is empty. entry_pop also removes the item, and the caller
 * owns the item until entry_item_free. */
const struct queue_item *entry_front(const struct entry *entry);
struct queue_item *entry_pop(struct entry *entry);
void entry_item_free(struct entries *entries, struct queue_item *item);

#endif
