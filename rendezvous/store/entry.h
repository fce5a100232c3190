/* entry.h -- one key of the store: its value, its queue, and its waiters.
 *
 *     entry "/a" --> value "hi"
 *                --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *                --> line: link <-> link <-> link     (store.h; woken in order of arrival)
 *
 * The three live in one object because every write needs all of them: the key's presence, and the waiters that it
 * wakes. An entry exists as long as one of them does, or as long as a connection that was woken for its queue has not
 * acted; entry_settle is the one place that frees it.
 *
 * The first value, if short, lies in the entry's memory, after its key: one block less, and close to the key. The
 * struct has 64 bytes, one cache line, because with a million entries the number of fetched lines limits the request
 * rate. So the rarely used ends of line and queue are found through the other ends. */
#ifndef RENDEZVOUS_STORE_ENTRY_H
#define RENDEZVOUS_STORE_ENTRY_H

#include "base/buf.h"
#include "store/quota.h"
#include "store/table.h"

#include <stddef.h>

struct wait_link;

struct queue_item {
    struct queue_item *next; /* `prev` of the first is the last */
    uint32_t len;
    uint32_t number; /* 1 + that of the item before; the difference of two is their distance */
    uint8_t data[];
};

struct entry {
    struct table_node node;
    uint8_t *value; /* NULL, in `key` after the key, or in a separate struct shared */
    uint32_t len, cap;
    uint32_t woken;              /* connections that were woken for the queue and have not acted yet */
    uint16_t room;               /* bytes for a value after the key */
    bool exists;                 /* the key has a value (which may be empty) */
    struct wait_link *first;     /* borrowed: the waiters of this key, in order of arrival (store.h) */
    struct queue_item *push_end; /* owned: the youngest item, and by its `next` the oldest */
    char key[];
};

/* The entries of one store and the quota that they are charged to. */
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

/* The meaning of "exists" for CHECK and WAIT. */
static inline bool entry_is_there(const struct entry *entry)
{
    return entry->exists || entry->push_end != NULL;
}

static inline uint32_t entry_queue_len(const struct entry *entry)
{
    const struct queue_item *last = entry->push_end;
    return last != NULL ? last->number - last->next->number + 1 : 0;
}

/* The charge of a new entry, or of a queued value. */
static inline uint64_t entry_cost(size_t key_len)
{
    return sizeof(struct entry) + key_len;
}

struct entry *entry_find(const struct entries *entries, struct slice key);

/* Return the holder of the value: a reference to it keeps these bytes after the entry is gone. NULL if they follow
 * the key. */
struct shared *entry_holder(struct entry *entry);

/* Entries with these hashes will be used soon, with their values: see table_expect. */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n);

/* Return the entry of this key, or a new empty one with room for a value of that length; NULL when memory or quota is
 * short. Pass an empty entry that stays unused to entry_settle. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len);

/* Free the entry if it is empty and has no waiters. */
void entry_settle(struct entries *entries, struct entry *entry);

/* Replace the value or append to it (copied). False when memory or quota is short: nothing has changed. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value);
bool entry_append(struct entries *entries, struct entry *entry, struct slice value);
/* Remove the value; the entry itself stays (entry_settle). */
void entry_unset(struct entries *entries, struct entry *entry);

/* Queue a copy; false when memory or quota is short. */
bool entry_push(struct entries *entries, struct entry *entry, struct slice value);
/* Remove and return the oldest item, or NULL; the caller owns it until entry_item_free. */
const struct queue_item *entry_front(const struct entry *entry);
struct queue_item *entry_pop(struct entry *entry);
void entry_item_free(struct entries *entries, struct queue_item *item);

#endif
