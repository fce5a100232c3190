/* entry.c -- see entry.h.
 *
 * Memory is charged to the quota before it is allocated. The charge is not stored. When the memory is freed, the same
 * charge is computed again from the length of the key, `room`, `cap` and the items. */
#include "store/entry.h"

#include <stdlib.h>

enum {
    VALUE_MIN = 24, /* minimum bytes of room for a value; any counter fits, so ADD allocates only once */
    ROOM_MAX = 512, /* maximum bytes of a value in the block of its key; a longer value has another block */
};

_Static_assert(sizeof(void *) != 8 || sizeof(struct entry) == 64, "struct entry must fill one cache line");

struct entry *entry_find(const struct entries *entries, struct slice key)
{
    struct table_node *node = table_find(&entries->table, key, table_hash(key));
    return node ? TABLE_ENTRY(node, struct entry, node) : NULL;
}

/* Prefetch the entries with these hashes, and the first three cache lines of each value. The rest of a longer value is
 * copied in order, so the processor prefetches the rest itself. */
void entries_expect(const struct entries *entries, const uint32_t *hashes, uint32_t n)
{
    enum { LINE = 64, LINES = 3 };
    table_expect(&entries->table, hashes, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct table_node *node = table_first(&entries->table, hashes[i]);
        const uint8_t *value = node ? TABLE_ENTRY(node, const struct entry, node)->value : NULL;
        for (int line = 0; value != NULL && line < LINES; line++)
            __builtin_prefetch(value + line * LINE, 1);
    }
}

/* Allocate one block for the struct, the key and a short value. node.key points into this block. */
struct entry *entry_make(struct entries *entries, struct slice key, size_t value_len)
{
    const uint32_t hash = table_hash(key);
    const uint16_t room = value_len > ROOM_MAX ? 0 : value_len < VALUE_MIN ? VALUE_MIN : (uint16_t)value_len;
    struct table_node *node = table_find(&entries->table, key, hash);
    if (node != NULL)
        return TABLE_ENTRY(node, struct entry, node);
    if (!quota_use(entries->quota, entry_cost(key.len) + room))
        return NULL;
    struct entry *entry = malloc(sizeof(*entry) + key.len + room);
    if (entry == NULL) {
        quota_release(entries->quota, entry_cost(key.len) + room);
        return NULL;
    }
    *entry = (struct entry){
        .node = { .key = entry->key, .key_len = (uint32_t)key.len, .hash = hash },
        .room = room,
    };
    if (key.len > 0)
        memcpy(entry->key, key.data, key.len);
    table_insert(&entries->table, &entry->node);
    return entry;
}

/* Free an unused entry. Keep the entry while `woken` is not 0, because a woken connection has a pointer to the entry
 * until store_acted is called. */
void entry_free_unused(struct entries *entries, struct entry *entry)
{
    if (entry_is_there(entry) || entry->first != NULL || entry->woken > 0)
        return;
    table_remove(&entries->table, &entry->node);
    quota_release(entries->quota, entry_cost(entry->node.key_len) + entry->room);
    free(entry);
}

/* Return the address of the `room` bytes after the key. */
static uint8_t *room_of(struct entry *entry)
{
    return (uint8_t *)entry->key + entry->node.key_len;
}

/* Return the separate block that has the value. Return NULL if the value is in the entry, after the key, or if there is
 * no value. If `room` is 0, the entry ends after the key, so the value is never in the entry. */
struct shared *entry_holder(struct entry *entry)
{
    const bool is_behind_key = entry->room > 0 && entry->value == room_of(entry);
    return entry->value == NULL || is_behind_key
               ? NULL
               : (struct shared *)(void *)(entry->value - offsetof(struct shared, bytes));
}

/* Return the charge for the separate block of the value, in bytes of the quota. Return 0 if the value is in the entry,
 * after the key, because the entry's charge includes this value. */
static uint32_t block_cost(struct entry *entry)
{
    return entry_holder(entry) != NULL ? entry->cap : 0;
}

/* Move the first `keep` bytes of the value to a block of exactly `cap` bytes. Return false, without any change, if
 * memory or quota is short. */
static bool resize(struct entries *entries, struct entry *entry, uint32_t cap, uint32_t keep)
{
    const uint32_t old = block_cost(entry);
    if (cap > old && !quota_use(entries->quota, cap - old))
        return false;
    struct shared *block = shared_resize(entry_holder(entry), cap, keep);
    if (block == NULL) {
        if (cap > old)
            quota_release(entries->quota, cap - old);
        return false;
    }
    if (cap < old)
        quota_release(entries->quota, old - cap);
    if (old == 0 && keep > 0)
        memcpy(block->bytes, entry->value, keep);
    entry->value = block->bytes;
    entry->cap = cap;
    return true;
}

/* Set the value. Keep the old block if the new value fits and fills at least a quarter of the block. So ADD need not
 * allocate, and a short value does not keep a block of 8 MiB. If a reply is sending the old block, allocate another
 * block, because bytes that are being sent must not change. */
bool entry_set(struct entries *entries, struct entry *entry, struct slice value)
{
    const uint32_t cap = value.len < VALUE_MIN ? VALUE_MIN : (uint32_t)value.len;
    if (entry->value == NULL && cap <= entry->room) {
        entry->value = room_of(entry);
        entry->cap = entry->room;
    }
    const bool too_small = cap > entry->cap, wasteful = cap < block_cost(entry) / 4;
    if ((too_small || wasteful || shared_is_held_twice(entry_holder(entry))) &&
        !resize(entries, entry, cap, 0))
        return false;
    if (value.len > 0)
        memcpy(entry->value, value.data, value.len);
    entry->len = (uint32_t)value.len;
    entries->existing += !entry->exists;
    entry->exists = true;
    return true;
}

/* Append to the value. If the block is too small, allocate 1.5 times the needed size, so that many small appends seldom
 * copy the value. If memory is short, allocate only the needed size. A reply that is sending the value may continue:
 * the reply has stored the old length, so it does not send the appended bytes. */
bool entry_append(struct entries *entries, struct entry *entry, struct slice value)
{
    if (!entry->exists)
        return entry_set(entries, entry, value);
    uint64_t need = (uint64_t)entry->len + value.len;
    if (need > entry->cap && !resize(entries, entry, (uint32_t)(need + need / 2), entry->len) &&
        !resize(entries, entry, (uint32_t)need, entry->len))
        return false;
    if (value.len > 0)
        memcpy(entry->value + entry->len, value.data, value.len);
    entry->len = (uint32_t)need;
    return true;
}

void entry_unset(struct entries *entries, struct entry *entry)
{
    entries->existing -= entry->exists;
    quota_release(entries->quota, block_cost(entry));
    shared_release(entry_holder(entry));
    entry->value = NULL;
    entry->len = entry->cap = 0;
    entry->exists = false;
}

/* Insert an item at the end of the ring: between the youngest and the oldest item. */
static void append_item(struct entry *entry, struct queue_item *item)
{
    struct queue_item *before = entry->push_end;
    item->number = before != NULL ? before->number + 1 : 0;
    item->next = before != NULL ? before->next : item;
    if (before != NULL)
        before->next = item;
    entry->push_end = item;
}

bool entry_push(struct entries *entries, struct entry *entry, struct slice value)
{
    uint64_t cost = sizeof(struct queue_item) + value.len;
    if (!quota_use(entries->quota, cost))
        return false;
    struct queue_item *item = malloc(cost);
    if (item == NULL) {
        quota_release(entries->quota, cost);
        return false;
    }
    item->len = (uint32_t)value.len;
    if (value.len > 0)
        memcpy(item->data, value.data, value.len);
    append_item(entry, item);
    return true;
}

const struct queue_item *entry_front(const struct entry *entry)
{
    return entry->push_end != NULL ? entry->push_end->next : NULL;
}

/* Remove the oldest item without freeing it, because the caller must first send its bytes. */
struct queue_item *entry_pop(struct entry *entry)
{
    struct queue_item *last = entry->push_end;
    if (last == NULL)
        return NULL;
    struct queue_item *first = last->next;
    if (first == last)
        entry->push_end = NULL;
    last->next = first->next;
    return first;
}

void entry_item_free(struct entries *entries, struct queue_item *item)
{
    quota_release(entries->quota, sizeof(*item) + item->len);
    free(item);
}
