/* entry.h -- one key of the store: its value, its queue, and its waiters. All three are in one struct, because a write
 * must find the waiters of its key. */
#ifndef RENDEZVOUS_STORE_ENTRY_H
#define RENDEZVOUS_STORE_ENTRY_H

#include "base/buf.h"
#include "store/quota.h"
#include "store/table.h"

#include <stddef.h>

struct wait_link;

/* An item of a queue. The items form a ring, so that one pointer finds both ends of the queue. The entry owns its items
 * until entry_pop. */
struct queue_item {
    /* the item that was pushed after this item; the youngest item points to the oldest item of the queue */
    struct queue_item *next;
    uint32_t len;    /* length of `data`, in bytes */
    uint32_t number; /* number of the previous item + 1; it may wrap around to 0 */
    uint8_t data[];
};

/* One key.
 *
 *     entry "/a" --> value "hi"
 *                --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *                --> waiters: link <-> link <-> link  (in order of arrival, see store.c)
 *
 * An entry exists while it has a value, a queued item or a waiter, or while `woken` is not 0. Only entry_free_unused
 * frees an entry. A short first value is stored in the entry, after the key, which saves a malloc.
 *
 * The struct fills one cache line of 64 bytes, because with a million entries each fetched cache line lowers the
 * request rate. To save space, two pointers are left out: the last waiter is first->prev, and the oldest item is
 * push_end->next. */
struct entry {
    struct table_node node;
    uint8_t *value;    /* points to the space after `key`, or into a `struct shared` of which the entry owns a
                        * reference; NULL = the entry has no value */
    uint32_t len, cap; /* `len`: length of the value; `cap`: longest length that needs no allocation */
    uint32_t woken;    /* number of connections that were woken to receive an item of the queue, and for which
                        * store_acted was not called yet */
    uint16_t room;     /* bytes of space after the key, for a short value; at most ROOM_MAX (entry.c) */
    bool exists;       /* the key has a value, which may be empty */
    uint8_t observed;  /* enum observed of store.c: whether the store's observer wants the key */
    struct wait_link *first;     /* borrowed: the link of the first waiter (store.c); NULL = no waiter */
    struct queue_item *push_end; /* owned: the youngest item; NULL if the queue is empty */
    char key[];
};

/* The entries of one store. */
struct entries {
    struct table table;
    struct quota *quota; /* borrowed */
    uint32_t existing;   /* number of entries with a value */
};

static inline struct slice entry_key(const struct entry *entry)
{
    return slice_of(entry->key, entry->node.key_len);
}

static inline struct slice entry_value(const struct entry *entry)
{
    return slice_of(entry->value, entry->exists ? entry->len : 0);
}

/* Return true if the key exists for the requests CHECK and WAIT: it has a value, or a queue with an item. */
static inline bool entry_is_there(const struct entry *entry)
{
    return entry->exists || entry->push_end != NULL;
}

/* Return the number of queued items. The item numbers are unsigned, so the result is also right after these numbers
 * have wrapped around. */
static inline uint32_t entry_queue_len(const struct entry *entry)
{
    const struct queue_item *last = entry->push_end;
    return last != NULL ? last->number - last->next->number + 1 : 0;
}

/* Return how many bytes an entry charges to the quota, without its value and its queue. */
static inline uint64_t entry_cost(size_t key_len)
{
    return sizeof(struct entry) + key_len;
}

/* Return the entry of a key, or NULL. An entry without a value may have waiters or a queue; see entry_is_there.
 * `entries` owns the entry, which is valid until the next call that may free it. */
struct entry *entry_find(const struct entries *entries, struct slice key);

/* Return the block that contains the value. Return NULL if the entry has no value, or if the value is in the entry,
 * after the key. To keep the bytes when the entry is changed or freed, the caller adds a reference to the block. */
struct shared *entry_holder(struct entry *entry);

/* Prefetch each entry that has one of these hashes, and the beginning of its value. Requests will soon use both (see
 * table_expect). */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n);

/* Return the entry of the key. If the key has no entry, create an empty entry with room for a value of `value_len`
 * bytes. Return NULL if memory or quota is short. If the entry stays empty, call entry_free_unused. `entries` owns the
 * entry. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len);

/* Free the entry if it has no value, no queued item and no waiter, and `woken` is 0. */
void entry_free_unused(struct entries *entries, struct entry *entry);

/* Replace the value (entry_set), or append to the value (entry_append). `value` is copied. If memory or quota is short,
 * return false and leave the old value unchanged. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value);
bool entry_append(struct entries *entries, struct entry *entry, struct slice value);
/* Remove the value. Call entry_free_unused afterwards. */
void entry_unset(struct entries *entries, struct entry *entry);

/* Append a copy of `value` to the queue. Return false if memory or quota is short. */
bool entry_push(struct entries *entries, struct entry *entry, struct slice value);
/* Return the oldest item of the queue, or NULL if the queue is empty. entry_pop also removes the item; the caller
 * then owns the item and frees it with entry_item_free. */
const struct queue_item *entry_front(const struct entry *entry);
struct queue_item *entry_pop(struct entry *entry);
void entry_item_free(struct entries *entries, struct queue_item *item);

#endif
