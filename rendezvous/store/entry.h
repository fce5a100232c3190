/* entry.h -- one key of the store: its value, its queue, and its waiters.
 *
 *     entry "/a" --> value "hi"
 *               --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *               --> line: link <-> link <-> link     (store.h; first come, first woken)
 *
 * The three live in one object because every write needs all of them: the key's presence, and the waiters that it
 * wakes. An entry exists as long as one of them does, or as long as a connection that was woken for its queue has not
 * acted; entry_settle is the one place that frees it.
 *
 * The first value, if short, lies in the entry's memory, after its key: one block less, and close to the key. The
 * struct has 64 bytes, as many as a cache line: there may be a million of them, and the lines fetched for each bound
 * the number of answered requests. So the rarely used ends of line and queue are found through the other ends. */
#ifndef RENDEZVOUS_STORE_ENTRY_H
#define RENDEZVOUS_STORE_ENTRY_H

#include "base/buf.h"
#include "store/quota.h"
#include "store/table.h"

#include <stddef.h>

struct wait_link;

struct queue_item {
    struct queue_item *next; /* the last one's is the first */
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
    struct wait_link *first;     /* borrowed: who waits here, in order of arrival (store.h) */
    struct queue_item *push_end; /* owned: the youngest item, and by its `next` the oldest */
    char key[];
};

/* The entries of one store and the budget they are taken from. */
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

/* What CHECK and WAIT mean by "exists". */
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

/* The holder of the value: another reference to it keeps these bytes after the entry is gone. NULL if they follow the
 * key. */
struct shared *entry_holder(struct entry *entry);

/* Slots with these hashes will be asked for, and their values read or written: see table_expect. */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n);

/* The entry of this key, an empty new one if need be, with room for a value so long; NULL when memory or budget is short. An empty
 * entry that is not used after all must go to entry_settle. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len);

/* Free the entry if it is empty and has no waiters. */
void entry_settle(struct entries *entries, struct entry *entry);

/* Replace the value or append to it (copied). False when memory or budget is short: nothing has changed. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value);
bool entry_append(struct entries *entries, struct entry *entry, struct slice value);
/* Remove the value; the entry itself stays (entry_settle). */
void entry_unset(struct entries *entries, struct entry *entry);

/* Queue a copy; false when memory or budget is short. */
bool entry_push(struct entries *entries, struct entry *entry, struct slice value);
/* Take the oldest item, or NULL; it is the caller's until entry_item_free. */
const struct queue_item *entry_front(const struct entry *entry);
struct queue_item *entry_pop(struct entry *entry);
void entry_item_free(struct entries *entries, struct queue_item *item);

#endif
