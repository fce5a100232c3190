/* store.c -- see store.h.
 *
 * Who is woken when: any write (SET, ADD, APPEND, MULTI_SET) wakes the whole line of its key, COMPARE_SET
 * when it creates the key, the last BARRIER its line. A line at a key that exists can only consist of
 * BARRIER callers and of those who waited when the first of them came; everyone else was answered at
 * once. */
#include "store/store.h"

#include "store/decimal.h"
#include "store/ops.h"
#include "store/waits.h"
#include "store/wire.h"

#include <stdlib.h>

struct store {
    struct slots slots;
    store_wake wake;
    void *user;
    struct store_observer observer; /* no prefixes: nobody observes */
};

struct store *store_new(struct quota *quota, store_wake wake, void *user)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL || !table_init(&s->slots.table)) {
        free(s);
        return NULL;
    }
    s->slots.table.is_busy = true;
    s->slots.quota = quota;
    s->wake = wake;
    s->user = user;
    return s;
}

void store_observe(struct store *s, const struct store_observer *observer)
{
    s->observer = *observer;
}

/* Has somebody subscribed to this key? */
static bool is_observed(const struct store *s, struct slice key)
{
    const char *text = key.data;
    size_t last = key.len;
    if (s->observer.prefixes == NULL)
        return false;
    while (last > 0 && text[last - 1] != '/')
        last--;
    for (const char *const *prefix = s->observer.prefixes; *prefix != NULL; prefix++) {
        const size_t len = strlen(*prefix);
        if ((key.len >= len && memcmp(text, *prefix, len) == 0) ||
            (key.len - last >= len && memcmp(text + last, *prefix, len) == 0))
            return true;
    }
    return false;
}

/* Take everybody out of the line without telling them. */
static void end_line(struct slots *slots, struct slot *slot)
{
    while (slot->first != NULL)
        wait_satisfy(slots, slot->first);
}

static void empty_slot(struct slots *slots, struct slot *slot)
{
    slot_unset(slots, slot);
    for (struct queue_item *item; (item = slot_pop(slot)) != NULL;)
        slot_item_free(slots, item);
    end_line(slots, slot);
}

/* A slot that was offered to a connection stays until that connection has acted (store_acted). */
void store_clear(struct store *s)
{
    struct table_node *node = table_next(&s->slots.table, NULL);
    while (node != NULL) {
        struct slot *slot = TABLE_ENTRY(node, struct slot, node);
        node = table_next(&s->slots.table, node);
        empty_slot(&s->slots, slot);
        slot_settle(&s->slots, slot);
    }
}

void store_free(struct store *s)
{
    if (s == NULL)
        return;
    store_clear(s);
    table_free(&s->slots.table);
    free(s);
}

/* Everybody in line has this key now; those who miss nothing else are told. Each turn takes one link off
 * the line, so a callback that led to a new wait here could not make it endless. */
static void wake_line(struct store *s, struct slot *slot)
{
    while (slot->first != NULL) {
        struct store_waiter *done = wait_satisfy(&s->slots, slot->first);
        if (done != NULL)
            s->wake(s->user, done);
    }
}

/* The common end of every write: wake when it worked, drop a slot that was made for nothing when it did
 * not. */
static enum store_status written(struct store *s, struct slot *slot, bool done)
{
    if (done)
        wake_line(s, slot);
    else
        slot_settle(&s->slots, slot);
    return done ? STORE_OK : STORE_FULL;
}

/* The hot path: one look-up, one copy, and no allocation when the key is there and the value fits. */
enum store_status store_set(struct store *s, struct slice key, struct slice value)
{
    struct slot *slot = slot_make(&s->slots, key, value.len);
    if (slot == NULL)
        return STORE_FULL;
    const bool anew = slot_value(slot).len > 0;
    const enum store_status status = written(s, slot, slot_set(&s->slots, slot, value));
    if (status == STORE_OK && is_observed(s, key))
        s->observer.written(s->observer.user, key, anew);
    return status;
}

void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n)
{
    slots_expect(&s->slots, hashes, n);
}

struct slice store_get(const struct store *s, struct slice key)
{
    const struct slot *slot = slot_find(&s->slots, key);
    return slot ? slot_value(slot) : slice_of("", 0);
}

struct shared *store_holder(const struct store *s, struct slice key, struct slice value)
{
    struct slot *slot = value.len >= SHARED_MIN ? slot_find(&s->slots, key) : NULL;
    return slot != NULL && slot->value == value.data ? slot_holder(slot) : NULL;
}

/* A missing key equals an empty `expected`; with any other one the caller gets its own `expected` back,
 * which is what PyTorch's clients know as "not there". */
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current)
{
    struct slot *slot = slot_find(&s->slots, key);
    bool exists = slot != NULL && slot->exists;
    *current = exists ? slot_value(slot) : expected;
    if (!slice_equal(*current, expected) || (!exists && expected.len > 0))
        return STORE_OK;
    *current = desired;
    if (exists)
        return slot_set(&s->slots, slot, desired) ? STORE_OK : STORE_FULL;
    return store_set(s, key, desired);
}

/* The counter at `slot` plus `delta`, as PyTorch counts: decimal text, 64 bits that wrap around. */
static enum store_status add_to_slot(struct store *s, struct slot *slot, int64_t delta, int64_t *sum)
{
    char text[DECIMAL_MAX];
    int64_t old = 0;
    if (slot->exists && !decimal_parse(slot_value(slot), &old))
        return STORE_NOT_A_NUMBER;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    return slot_set(&s->slots, slot, decimal_print(*sum, text)) ? STORE_OK : STORE_FULL;
}

/* A value that is no number is left alone, and its slot with it: it existed before, so there is nothing
 * to settle. */
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum)
{
    struct slot *slot = slot_make(&s->slots, key, DECIMAL_MAX);
    if (slot == NULL)
        return STORE_FULL;
    enum store_status status = add_to_slot(s, slot, delta, sum);
    if (status != STORE_NOT_A_NUMBER)
        status = written(s, slot, status == STORE_OK);
    if (status == STORE_OK && is_observed(s, key))
        s->observer.counted(s->observer.user, key, delta, *sum);
    return status;
}

/* No value grows past what a single SET could have sent, or nobody could set it back with COMPARE_SET. */
enum store_status store_append(struct store *s, struct slice key, struct slice value)
{
    struct slot *slot = slot_make(&s->slots, key, value.len);
    if (slot == NULL)
        return STORE_FULL;
    bool fits = slot->len + value.len <= WIRE_MAX_VALUE;
    return written(s, slot, fits && slot_append(&s->slots, slot, value));
}

/* Waits that counted this key as there are not armed again: PyTorch's server does not, and clients rely
 * on neither. A queue of the same name stays. */
bool store_delete(struct store *s, struct slice key)
{
    struct slot *slot = slot_find(&s->slots, key);
    if (slot == NULL || !slot->exists)
        return false;
    slot_unset(&s->slots, slot);
    slot_settle(&s->slots, slot);
    return true;
}

/* What GETNUMKEYS returns; kept up to date, see mark_existing in slot.c. */
uint64_t store_count(const struct store *s)
{
    return s->slots.existing;
}

/* All or nothing: what the pairs could take at most is compared with the quota before the first is set.
 * Keys that exist already take less, so a nearly full store may refuse what would just have fitted. */
enum store_status store_multi_set(struct store *s, struct slice pairs)
{
    struct slice key, value;
    uint64_t need = 0;
    for (struct slice rest = pairs; wire_next(&rest, &key) && wire_next(&rest, &value);)
        need += slot_cost(key.len) + value.len + DECIMAL_MAX;
    if (need > quota_left(s->slots.quota))
        return STORE_FULL;
    enum store_status status = STORE_OK;
    while (status == STORE_OK && wire_next(&pairs, &key) && wire_next(&pairs, &value))
        status = store_set(s, key, value);
    return status;
}

/* For CHECK and WAIT a queue with something in it is as good as a key. */
static bool is_there(const struct store *s, struct slice key)
{
    const struct slot *slot = slot_find(&s->slots, key);
    return slot != NULL && slot_is_there(slot);
}

static uint32_t count_missing(const struct store *s, struct slice keys)
{
    uint32_t missing = 0;
    for (struct slice key; wire_next(&keys, &key);)
        missing += !is_there(s, key);
    return missing;
}

/* Ends at the first missing key: a poll of 1,000 keys that are not there yet costs one look-up. */
bool store_check(const struct store *s, struct slice keys)
{
    for (struct slice key; wire_next(&keys, &key);)
        if (!is_there(s, key))
            return false;
    return true;
}

/* Two walks over the list: the first only looks, so that the common case (everything is there) makes
 * nothing, and the wait gets exactly the room it needs. A slot made for a key that is missing is kept
 * alive by the link in its line. */
static enum store_status begun(struct store *s, struct store_waiter *w)
{
    if (s->observer.prefixes != NULL)
        s->observer.waits(s->observer.user, w);
    return STORE_WAITS;
}

enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys)
{
    store_leave(s, w);
    uint32_t missing = count_missing(s, keys);
    if (missing == 0) {
        if (s->observer.prefixes != NULL)
            s->observer.found(s->observer.user, w, keys);
        return STORE_OK;
    }
    struct wait *wait = wait_new(&s->slots, w, missing);
    if (wait == NULL)
        return STORE_FULL;
    for (struct slice key; wire_next(&keys, &key);) {
        struct slot *slot = slot_make(&s->slots, key, 0);
        if (slot == NULL) {
            wait_free(&s->slots, wait);
            return STORE_FULL;
        }
        if (!slot_is_there(slot))
            wait_add(wait, slot);
    }
    w->wait = wait;
    return begun(s, w);
}

/* The wait is made before the count: when memory is short the counter is not one too high. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key, int64_t world_size)
{
    store_leave(s, w);
    struct slot *slot = slot_make(&s->slots, key, DECIMAL_MAX);
    struct wait *wait = slot ? wait_new(&s->slots, w, 1) : NULL;
    int64_t arrived = 0;
    enum store_status status = wait ? add_to_slot(s, slot, 1, &arrived) : STORE_FULL;
    if (status == STORE_OK && arrived < world_size) {
        wait_add(wait, slot);
        w->wait = wait;
        return begun(s, w);
    }
    if (wait != NULL)
        wait_free(&s->slots, wait);
    if (status == STORE_OK)
        wake_line(s, slot);
    else if (slot != NULL)
        slot_settle(&s->slots, slot);
    return status;
}

/* O(own): the wait knows its links, and each link knows its place in line. */
void store_leave(struct store *s, struct store_waiter *w)
{
    if (w->wait == NULL)
        return;
    wait_free(&s->slots, w->wait);
    w->wait = NULL;
}

uint32_t store_awaited_count(const struct store_waiter *w)
{
    return w->wait ? w->wait->missing : 0;
}

/* A walk over the wait's own links, fine for the few that a diagnosis shows. */
struct slice store_awaited(const struct store_waiter *w, uint32_t n)
{
    const struct wait_link *link = w->wait->link;
    while (link->slot == NULL || n-- > 0)
        link++;
    return slot_key(link->slot);
}

/* One item wakes one connection: the first in line that lacks nothing else. Those before it that wait for
 * more keys count the queue as there and go on waiting for the rest. */
static bool wake_one(struct store *s, struct slot *slot)
{
    while (slot->first != NULL) {
        struct store_waiter *done = wait_satisfy(&s->slots, slot->first);
        if (done == NULL)
            continue;
        done->offer = slot;
        slot->woken++;
        s->wake(s->user, done);
        return true;
    }
    return false;
}

/* Items that nobody has been woken for wake somebody. `woken` are promises: an item is not promised
 * twice. */
static void offer(struct store *s, struct slot *slot)
{
    while (slot_queue_len(slot) > slot->woken && wake_one(s, slot))
        ;
}

/* It has popped its item, or let it lie: in both cases the promise is over, and what is in the queue now
 * counts. */
void store_acted(struct store *s, struct store_waiter *w)
{
    struct slot *slot = w->offer;
    if (slot == NULL)
        return;
    w->offer = NULL;
    slot->woken--;
    offer(s, slot);
    slot_settle(&s->slots, slot);
}

enum store_status store_push(struct store *s, struct slice queue, struct slice value)
{
    struct slot *slot = slot_make(&s->slots, queue, 0);
    if (slot == NULL)
        return STORE_FULL;
    bool pushed = slot_push(&s->slots, slot, value);
    if (pushed)
        offer(s, slot);
    slot_settle(&s->slots, slot);
    return pushed ? STORE_OK : STORE_FULL;
}

/* The length before tells the client an empty queue from an empty item. */
const struct queue_item *store_front(const struct store *s, struct slice queue)
{
    const struct slot *slot = slot_find(&s->slots, queue);
    return slot != NULL ? slot_front(slot) : NULL;
}

struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before)
{
    struct slot *slot = slot_find(&s->slots, queue);
    *len_before = slot ? slot_queue_len(slot) : 0;
    struct queue_item *item = slot ? slot_pop(slot) : NULL;
    if (item != NULL)
        slot_settle(&s->slots, slot);
    return item;
}

struct slice store_item_value(const struct queue_item *item)
{
    return slice_of(item->data, item->len);
}

void store_item_free(struct store *s, struct queue_item *item)
{
    slot_item_free(&s->slots, item);
}

uint32_t store_queue_len(const struct store *s, struct slice queue)
{
    const struct slot *slot = slot_find(&s->slots, queue);
    return slot ? slot_queue_len(slot) : 0;
}

/* Slots that only hold a queue or a line are no keys. */
bool store_next(const struct store *s, const struct slot **at, struct slice *key, struct slice *value)
{
    const struct table_node *node = *at ? &(*at)->node : NULL;
    while ((node = table_next(&s->slots.table, node)) != NULL) {
        const struct slot *slot = TABLE_ENTRY(node, const struct slot, node);
        if (!slot->exists)
            continue;
        *at = slot;
        *key = slot_key(slot);
        *value = slot_value(slot);
        return true;
    }
    return false;
}
