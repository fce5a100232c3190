/* slot.h -- one key of the store: its value, its queue, and who waits for it.
 *
 *     slot "/a" --> value "hi"
 *               --> queue: item -> item -> item      (QUEUE_PUSH at the end, QUEUE_POP at the front)
 *               --> line: link <-> link <-> link     (waits.h; first come, first woken)
 *
 * The three live in one object because every write asks for all of them: whether the key is there, and whom
 * its arrival wakes. A slot exists as long as one of them does, or as long as a connection that was woken
 * for its queue has not acted; slot_settle is the one place that frees it.
 *
 * A short value lies in the slot's own memory, behind its key, when it came first: one block less, and near when the key was
 * looked for. The struct has 64 bytes, as many as a line of the processor's memory: there may be a million of them, and what is
 * fetched for each bounds how many requests are answered. So the ends of line and queue that are seldom asked for are found by way
 * of the other ends. */
#ifndef RENDEZVOUS_SLOT_H
#define RENDEZVOUS_SLOT_H

#include "base/shared.h"
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

struct slot {
    struct table_node node;
    uint8_t *value; /* NULL, in `key` behind the key, or in a struct shared of its own */
    uint32_t len, cap;
    uint32_t woken;              /* connections that were told of the queue and have not acted yet */
    uint16_t room;               /* bytes for a value behind the key */
    bool exists;                 /* the key has a value (which may be empty) */
    struct wait_link *first;     /* borrowed: who waits here, in order of arrival (waits.h) */
    struct queue_item *push_end; /* owned: the youngest item, and by its `next` the oldest */
    char key[];
};

/* The slots of one store and the budget they are taken from. */
struct slots {
    struct table table;
    struct quota *quota; /* borrowed */
    uint32_t existing;   /* slots that have a value */
};

static inline struct slice slot_key(const struct slot *slot)
{
    return slice_of(slot->key, slot->node.key_len);
}

static inline struct slice slot_value(const struct slot *slot)
{
    return slice_of(slot->value, slot->exists ? slot->len : 0);
}

/* What CHECK and WAIT mean by "exists". */
static inline bool slot_is_there(const struct slot *slot)
{
    return slot->exists || slot->push_end != NULL;
}

static inline uint32_t slot_queue_len(const struct slot *slot)
{
    const struct queue_item *last = slot->push_end;
    return last != NULL ? last->number - last->next->number + 1 : 0;
}

/* What a new slot, or a queued value, takes from the budget. */
static inline uint64_t slot_cost(size_t key_len)
{
    return sizeof(struct slot) + key_len;
}

struct slot *slot_find(const struct slots *slots, struct slice key);

/* What holds the value: who holds it, too, keeps these bytes whatever becomes of the slot. NULL if they lie behind the key. */
struct shared *slot_holder(struct slot *slot);

/* Slots with these hashes will be asked for, and their values read or written: see table_expect. */
void slots_expect(const struct slots *slots, const uint32_t *hashes, uint32_t n);

/* The slot of this key, an empty new one if need be, with room for a value so long; NULL when memory or budget is short. An empty
 * slot that is not used after all must go to slot_settle. */
struct slot *slot_make(struct slots *slots, struct slice key, size_t value_len);

/* Free the slot if nothing is in it and nobody waits. */
void slot_settle(struct slots *slots, struct slot *slot);

/* Replace the value or append to it (copied). False when memory or budget is short: nothing has changed. */
bool slot_set(struct slots *slots, struct slot *slot, struct slice value);
bool slot_append(struct slots *slots, struct slot *slot, struct slice value);
/* Remove the value; the slot itself stays (slot_settle). */
void slot_unset(struct slots *slots, struct slot *slot);

/* Queue a copy; false when memory or budget is short. */
bool slot_push(struct slots *slots, struct slot *slot, struct slice value);
/* Take the oldest item, NULL when there is none; it is the caller's until slot_item_free. */
const struct queue_item *slot_front(const struct slot *slot);
struct queue_item *slot_pop(struct slot *slot);
void slot_item_free(struct slots *slots, struct queue_item *item);

#endif
