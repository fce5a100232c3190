/* slot.c -- see slot.h.
 *
 * The budget is asked before malloc, and gets back exactly what it gave: what a slot has taken can always
 * be computed from the slot itself (key length, room, capacity, items), so no second account can drift away
 * from the first. */
#include "store/slot.h"

#include <stdlib.h>

enum {
    VALUE_MIN = 24, /* holds any counter, so ADD never allocates after the first time */
    ROOM_MAX = 512, /* a longer value has a block of its own: room is only given back with the slot */
};

_Static_assert(sizeof(void *) != 8 || sizeof(struct slot) == 64, "see slot.h");

static uint16_t room_for(size_t value_len)
{
    if (value_len > ROOM_MAX)
        return 0;
    return value_len < VALUE_MIN ? VALUE_MIN : (uint16_t)value_len;
}

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
struct slot *slot_make(struct slots *slots, struct slice key, size_t value_len)
{
    const uint32_t hash = table_hash(key);
    const uint16_t room = room_for(value_len);
    struct table_node *node = table_find(&slots->table, key, hash);
    if (node != NULL)
        return TABLE_ENTRY(node, struct slot, node);
    if (!quota_take(slots->quota, slot_cost(key.len) + room))
        return NULL;
    struct slot *slot = malloc(sizeof(*slot) + key.len + room);
    if (slot == NULL) {
        quota_give(slots->quota, slot_cost(key.len) + room);
        return NULL;
    }
    *slot = (struct slot){
        .node = { .key = slot->key, .key_len = (uint32_t)key.len, .hash = hash },
        .room = room,
    };
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
    quota_give(slots->quota, slot_cost(slot->node.key_len) + slot->room);
    free(slot);
}

static uint8_t *room_of(struct slot *slot)
{
    return (uint8_t *)slot->key + slot->node.key_len;
}

/* Not the slot's room, which is paid for with the slot. Where there is no room, a block may begin just where the slot ends. */
struct shared *slot_holder(struct slot *slot)
{
    const bool is_behind_key = slot->room > 0 && slot->value == room_of(slot);
    return slot->value == NULL || is_behind_key
               ? NULL
               : (struct shared *)(void *)(slot->value - offsetof(struct shared, bytes));
}

static uint32_t block_cost(struct slot *slot)
{
    return slot_holder(slot) != NULL ? slot->cap : 0;
}

/* A block of exactly `cap` bytes; the first `keep` bytes of the value stay. */
static bool resize(struct slots *slots, struct slot *slot, uint32_t cap, uint32_t keep)
{
    const uint32_t old = block_cost(slot);
    if (cap > old && !quota_take(slots->quota, cap - old))
        return false;
    struct shared *block = shared_resize(slot_holder(slot), cap, keep);
    if (block == NULL) {
        if (cap > old)
            quota_give(slots->quota, cap - old);
        return false;
    }
    if (cap < old)
        quota_give(slots->quota, old - cap);
    if (old == 0 && keep > 0)
        memcpy(block->bytes, slot->value, keep);
    slot->value = block->bytes;
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

/* The old buffer is used again when nobody else holds it, it fits and is not absurdly big for what comes: a counter or a
 * heartbeat key never allocates after the first time, and a key that once held 8 MiB does not keep them. */
static bool make_room(struct slots *slots, struct slot *slot, uint32_t cap)
{
    if (slot->value == NULL && cap <= slot->room) {
        slot->value = room_of(slot);
        slot->cap = slot->room;
    }
    const bool too_small = cap > slot->cap, wasteful = cap < block_cost(slot) / 4;
    return (!too_small && !wasteful && !shared_is_held_twice(slot_holder(slot))) ||
           resize(slots, slot, cap, 0);
}

bool slot_set(struct slots *slots, struct slot *slot, struct slice value)
{
    if (!make_room(slots, slot, value.len < VALUE_MIN ? VALUE_MIN : (uint32_t)value.len))
        return false;
    if (value.len > 0)
        memcpy(slot->value, value.data, value.len);
    slot->len = (uint32_t)value.len;
    mark_existing(slots, slot);
    return true;
}

/* Grows by half, so that many small appends stay cheap. Other holders do not look behind the value's end. */
bool slot_append(struct slots *slots, struct slot *slot, struct slice value)
{
    if (!slot->exists)
        return slot_set(slots, slot, value);
    uint64_t need = (uint64_t)slot->len + value.len;
    if (need > slot->cap && !resize(slots, slot, (uint32_t)(need + need / 2), slot->len) &&
        !resize(slots, slot, (uint32_t)need, slot->len))
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
    quota_give(slots->quota, block_cost(slot));
    shared_release(slot_holder(slot));
    slot->value = NULL;
    slot->len = slot->cap = 0;
    slot->exists = false;
}

static void put_last(struct slot *slot, struct queue_item *item)
{
    struct queue_item *before = slot->push_end;
    item->number = before != NULL ? before->number + 1 : 0;
    item->next = before != NULL ? before->next : item;
    if (before != NULL)
        before->next = item;
    slot->push_end = item;
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
    item->len = (uint32_t)value.len;
    if (value.len > 0)
        memcpy(item->data, value.data, value.len);
    put_last(slot, item);
    return true;
}

/* The item is the caller's, so that its bytes can be sent before they are freed. */
const struct queue_item *slot_front(const struct slot *slot)
{
    return slot->push_end != NULL ? slot->push_end->next : NULL;
}

struct queue_item *slot_pop(struct slot *slot)
{
    struct queue_item *last = slot->push_end;
    if (last == NULL)
        return NULL;
    struct queue_item *first = last->next;
    if (first == last)
        slot->push_end = NULL;
    last->next = first->next;
    return first;
}

void slot_item_free(struct slots *slots, struct queue_item *item)
{
    quota_give(slots->quota, sizeof(*item) + item->len);
    free(item);
}
