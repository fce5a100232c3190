/* entry.h -- one key of the store: its value, its queue, and who waits for it.
 *
 *     entry "/a" --> value "hi"
 *               --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *               --> line: link <-> link <-> link     (store.h; first come, first woken)
 *
 * The three live in one object because every write asks for all of them: whether the key is there, and whom
 * its arrival wakes. An entry exists as long as one of them does, or as long as a connection that was woken
 * for its queue has not acted; entry_settle is the one place that frees it.
 *
 * A short value lies in the entry's own memory, behind its key, when it came first: one block less, and near when the key was
 * looked for. The struct has 64 bytes, as many as a line of the processor's memory: there may be a million of them, and what is
 * fetched for each bounds how many requests are answered. So the ends of line and queue that are seldom asked for are found by way
 * of the other ends. */
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
    uint32_t number; /* one more than that of the item before, so that two items tell how many lie between */
    uint8_t data[];
};

struct entry {
    struct table_node node;
    uint8_t *value; /* NULL, in `key` behind the key, or in a struct shared of its own */
    uint32_t len, cap;
    uint32_t woken;              /* connections that were told of the queue and have not acted yet */
    uint16_t room;               /* bytes for a value behind the key */
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

/* What a new entry, or a queued value, takes from the budget. */
static inline uint64_t entry_cost(size_t key_len)
{
    return sizeof(struct entry) + key_len;
}

struct entry *entry_find(const struct entries *entries, struct slice key);

/* What holds the value: who holds it, too, keeps these bytes whatever becomes of the entry. NULL if they lie behind the key. */
struct shared *entry_holder(struct entry *entry);

/* Slots with these hashes will be asked for, and their values read or written: see table_expect. */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n);

/* The entry of this key, an empty new one if need be, with room for a value so long; NULL when memory or budget is short. An empty
 * entry that is not used after all must go to entry_settle. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len);

/* Free the entry if nothing is in it and nobody waits. */
void entry_settle(struct entries *entries, struct entry *entry);

/* Replace the value or append to it (copied). False when memory or budget is short: nothing has changed. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value);
bool entry_append(struct entries *entries, struct entry *entry, struct slice value);
/* Remove the value; the entry itself stays (entry_settle). */
void entry_unset(struct entries *entries, struct entry *entry);

/* Queue a copy; false when memory or budget is short. */
bool entry_push(struct entries *entries, struct entry *entry, struct slice value);
/* Take the oldest item, NULL when there is none; it is the caller's until entry_item_free. */
const struct queue_item *entry_front(const struct entry *entry);
struct queue_item *entry_pop(struct entry *entry);
void entry_item_free(struct entries *entries, struct queue_item *item);

#endif
