/* slot.c -- see slot.h.
 *
 * The budget is asked before malloc, and gets back exactly what it gave: what a slot has taken can always
 * be computed from the slot itself (key length, capacity, items), so no second account can drift away
 * from the first. */
#include "core/slot.h"

#include <stdlib.h>

enum { VALUE_MIN = 24 }; /* holds any counter, so ADD never allocates after the first time */

/* The key may live without a value: a slot is also where people wait, and where a queue is. See slot_is_there. */
struct slot *slot_find(const struct slots *slots, struct slice key)
{
    struct table_node *node = table_find(&slots->table, key, table_hash(key));
    return node ? TABLE_ENTRY(node, struct slot, node) : NULL;
}

/* The first with the hash is nearly always meant. Of a long value the processor fetches the rest by itself. */
void slots_expect(const struct slots *slots, const uint32_t *hashes, uint32_t n)
{
    enum { LINE = 64, LINES = 3 };
    table_expect(&slots->table, hashes, n);
    for (uint32_t i = 0; i < n; i++) {
        const struct table_node *node = table_first(&slots->table, hashes[i]);
        const uint8_t *value = node ? TABLE_ENTRY(node, const struct slot, node)->value : NULL;
        for (int line = 0; value != NULL && line < LINES; line++)
            __builtin_prefetch(value + line * LINE, 1);
    }
}

/* The key's bytes live behind the struct: one block for a key, and the table's node points into it. */
struct slot *slot_make(struct slots *slots, struct slice key)
{
    uint32_t hash = table_hash(key);
    struct table_node *node = table_find(&slots->table, key, hash);
    if (node != NULL)
        return TABLE_ENTRY(node, struct slot, node);
    if (!quota_take(slots->quota, slot_cost(key.len)))
        return NULL;
    struct slot *slot = malloc(sizeof(*slot) + key.len);
    if (slot == NULL) {
        quota_give(slots->quota, slot_cost(key.len));
        return NULL;
    }
    *slot = (struct slot){ .node = { .key = slot->key, .key_len = (uint32_t)key.len, .hash = hash } };
    if (key.len > 0)
        memcpy(slot->key, key.data, key.len);
    table_put(&slots->table, &slot->node);
    return slot;
}

/* Called after everything that may have been the last use. A woken connection counts as a use: it holds a
 * pointer to the slot until it has acted. */
void slot_settle(struct slots *slots, struct slot *slot)
{
    if (slot_is_there(slot) || slot->first != NULL || slot->woken > 0)
        return;
    table_remove(&slots->table, &slot->node);
    quota_give(slots->quota, slot_cost(slot->node.key_len));
    free(slot);
}

/* Room for exactly `cap` bytes, what is there stays. */
static bool resize(struct slots *slots, struct slot *slot, uint32_t cap)
{
    if (cap > slot->cap && !quota_take(slots->quota, cap - slot->cap))
        return false;
    uint8_t *value = realloc(slot->value, cap);
    if (value == NULL) {
        if (cap > slot->cap)
            quota_give(slots->quota, cap - slot->cap);
        return false;
    }
    if (cap < slot->cap)
        quota_give(slots->quota, slot->cap - cap);
    slot->value = value;
    slot->cap = cap;
    return true;
}

/* GETNUMKEYS must not walk the table, so existing keys are counted as they come and go. */
static void mark_existing(struct slots *slots, struct slot *slot)
{
    if (!slot->exists)
        slots->existing++;
    slot->exists = true;
}

/* The old buffer is used again when it fits and is not absurdly big for what comes: a counter or a
 * heartbeat key never allocates after the first time, and a key that once held 8 MiB does not keep them. */
bool slot_set(struct slots *slots, struct slot *slot, struct slice value)
{
    uint32_t cap = value.len < VALUE_MIN ? VALUE_MIN : (uint32_t)value.len;
    bool too_small = cap > slot->cap;
    bool wasteful = cap < slot->cap / 4;
    if ((too_small || wasteful) && !resize(slots, slot, cap))
        return false;
    if (value.len > 0)
        memcpy(slot->value, value.data, value.len);
    slot->len = (uint32_t)value.len;
    mark_existing(slots, slot);
    return true;
}

/* Grows by half, so that many small appends stay cheap. */
bool slot_append(struct slots *slots, struct slot *slot, struct slice value)
{
    if (!slot->exists)
        return slot_set(slots, slot, value);
    uint64_t need = (uint64_t)slot->len + value.len;
    if (need > slot->cap && !resize(slots, slot, (uint32_t)(need + need / 2)) &&
        !resize(slots, slot, (uint32_t)need))
        return false;
    if (value.len > 0)
        memcpy(slot->value + slot->len, value.data, value.len);
    slot->len = (uint32_t)need;
    return true;
}

/* Also used on a slot without a value, where it does nothing. */
void slot_unset(struct slots *slots, struct slot *slot)
{
    slots->existing -= slot->exists;
    quota_give(slots->quota, slot->cap);
    free(slot->value);
    slot->value = NULL;
    slot->len = slot->cap = 0;
    slot->exists = false;
}

/* Items are blocks of their own: queues of the real thing are short, and an item is popped once. */
bool slot_push(struct slots *slots, struct slot *slot, struct slice value)
{
    uint64_t cost = sizeof(struct queue_item) + value.len;
    if (!quota_take(slots->quota, cost))
        return false;
    struct queue_item *item = malloc(cost);
    if (item == NULL) {
        quota_give(slots->quota, cost);
        return false;
    }
    item->next = NULL;
    item->len = (uint32_t)value.len;
    if (value.len > 0)
        memcpy(item->data, value.data, value.len);
    if (slot->push_end != NULL)
        slot->push_end->next = item;
    else
        slot->pop_end = item;
    slot->push_end = item;
    slot->queue_len++;
    return true;
}

/* The item is the caller's, so that its bytes can be sent before they are freed. */
struct queue_item *slot_pop(struct slot *slot)
{
    struct queue_item *item = slot->pop_end;
    if (item == NULL)
        return NULL;
    slot->pop_end = item->next;
    if (slot->pop_end == NULL)
        slot->push_end = NULL;
    slot->queue_len--;
    return item;
}

void slot_item_free(struct slots *slots, struct queue_item *item)
{
    quota_give(slots->quota, sizeof(*item) + item->len);
    free(item);
}
