/* store.c -- see store.h. Each entry has a list of the waits for its key, and each wait has a link for each missing
 * key. So the store needs no search when a key is written or a connection closes. */
#include "store/store.h"

#include "store/entry.h"

#include "store/ops.h"
#include "store/wire.h"

#include <stdlib.h>
#include <string.h>

/* Numbers are parsed without strtoll, because a value has no NUL at its end. Also, the blanks that strtoll skips depend
 * on the locale. */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Parse a number. The limit depends on the sign: 2^63 - 1, or 2^63 for a negative number. Check the limit before the
 * multiplication, which could otherwise overflow. */
bool decimal_parse(struct slice text, int64_t *value)
{
    const char *p = text.data, *end = p + text.len;
    while (p < end && is_blank(*p))
        p++;
    bool negative = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    const char *digits = p;
    uint64_t limit = (uint64_t)INT64_MAX + negative, sum = 0;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (sum > (limit - digit) / 10)
            return false;
        sum = sum * 10 + digit;
    }
    *value = (int64_t)(negative ? 0 - sum : sum);
    return p > digits;
}

/* Write the digits from the last to the first. */
struct slice decimal_print(int64_t value, char *text)
{
    /* 2^63 does not fit in an int64_t */
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *end = text + DECIMAL_MAX, *p = end;
    do
        *--p = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0)
        *--p = '-';
    return slice_of(p, (size_t)(end - p));
}

/* --- waits ------------------------------------------------------------------------------------------------ */

/* A wait has one link for each missing key. The links to one entry form a list, in the order of arrival:
 *
 *                    entry "/a"   entry "/b"   entry "/c"
 *     wait of conn 1:  link -------link                   missing 2
 *     wait of conn 2:              link --------link      missing 2
 *                                   |
 *                          list of "/b", from top to bottom
 *
 * When a key is created, the store walks the list of its entry. When a connection leaves, the store walks the links of
 * its wait.
 *
 * A link is in a list while its key is missing. When the key is created, the link leaves the list. The wait and all its
 * links are freed together: when the last missing key is created, or when the connection leaves. */

struct wait_link {
    struct entry *entry; /* borrowed: the entry whose list has this link; NULL if no list has this link */
    struct wait *wait;   /* the wait that contains this link */
    /* `prev` of the first link is the last link; `next` of the last link is NULL */
    struct wait_link *prev, *next;
};

struct wait {
    struct store_waiter *owner; /* borrowed: the connection that waits */
    uint32_t missing;           /* number of links that are in the list of an entry */
    uint32_t links;             /* number of used elements of the array `link` */
    uint32_t room;              /* number of allocated links */
    struct wait_link link[];
};

/* Return how many bytes a wait charges to the quota. */
static uint64_t wait_cost(uint32_t links)
{
    return sizeof(struct wait) + links * sizeof(struct wait_link);
}

/* Allocate a wait with room for `links` links. All links are in one block, so that a wait for 100,000 keys needs only
 * one malloc. Return NULL if memory or quota is short. */
static struct wait *wait_new(struct entries *entries, struct store_waiter *owner, uint32_t links)
{
    if (!quota_use(entries->quota, wait_cost(links)))
        return NULL;
    struct wait *wait = malloc(wait_cost(links));
    if (wait == NULL) {
        quota_release(entries->quota, wait_cost(links));
        return NULL;
    }
    *wait = (struct wait){ .owner = owner, .room = links };
    return wait;
}

/* Append a link to the list of `entry`. If the request names the key twice, add only one link. */
static void wait_add(struct wait *wait, struct entry *entry)
{
    /* A request adds all its links before any other request adds a link. So if `wait` already has a link in this list,
     * this link is the last one. */
    struct wait_link *last = entry->first != NULL ? entry->first->prev : NULL;
    if (last != NULL && last->wait == wait)
        return;
    struct wait_link *link = &wait->link[wait->links++];
    *link = (struct wait_link){ .entry = entry, .wait = wait, .prev = last != NULL ? last : link };
    if (last != NULL)
        last->next = link;
    else
        entry->first = link;
    entry->first->prev = link;
    wait->missing++;
}

/* Remove a link from the list of its entry: the wait no longer waits for this key. */
static void wait_unlink(struct wait_link *link)
{
    struct entry *entry = link->entry;
    if (entry->first == link)
        entry->first = link->next;
    else
        link->prev->next = link->next;
    if (link->next != NULL)
        link->next->prev = link->prev;
    else if (entry->first != NULL)
        entry->first->prev = link->prev;
    link->entry = NULL;
    link->wait->missing--;
}

/* Free a wait that is in no list. */
static void wait_free(struct entries *entries, struct wait *wait)
{
    quota_release(entries->quota, wait_cost(wait->room));
    free(wait);
}

/* End a wait before its keys exist: remove its links from all lists, free unused entries, and free the wait. */
static void wait_leave(struct entries *entries, struct wait *wait)
{
    for (uint32_t i = 0; i < wait->links; i++) {
        struct entry *entry = wait->link[i].entry;
        if (entry == NULL)
            continue;
        wait_unlink(&wait->link[i]);
        entry_free_unused(entries, entry);
    }
    wait_free(entries, wait);
}

struct store {
    struct entries entries;
    store_wake wake;
    void *user;
    struct store_observer observer; /* if `prefixes` is NULL, there is no observer */
    bool may_be_prefix[256];        /* indexed by beginning(); set for each prefix of the observer */
};

struct store *store_new(struct quota *quota, store_wake wake, void *user)
{
    struct store *s = calloc(1, sizeof(*s));
    if (s == NULL || !table_init(&s->entries.table)) {
        free(s);
        return NULL;
    }
    s->entries.table.is_busy = true;
    s->entries.quota = quota;
    s->wake = wake;
    s->user = user;
    return s;
}

/* Return an index for the first two bytes of a text. Different bytes may have the same index. */
static uint8_t beginning(const char *text)
{
    return (uint8_t)((uint8_t)text[0] * 31 + (uint8_t)text[1]);
}

void store_observe(struct store *s, const struct store_observer *observer)
{
    s->observer = *observer;
    memset(s->may_be_prefix, 0, sizeof(s->may_be_prefix));
    for (const char *const *prefix = observer->prefixes; prefix != NULL && *prefix != NULL; prefix++)
        s->may_be_prefix[beginning(*prefix)] = true;
}

/* Return true if `text` begins with one of the observer's prefixes. This function is called twice for each new key, so
 * first check may_be_prefix, which rejects most texts without a loop. */
static bool has_prefix(const struct store *s, struct slice text)
{
    if (text.len < 2 || !s->may_be_prefix[beginning(text.data)])
        return false;
    for (const char *const *prefix = s->observer.prefixes; *prefix != NULL; prefix++)
        if (slice_begins_with(text, *prefix))
            return true;
    return false;
}

/* entry.observed: a new entry is OBSERVED_UNKNOWN */
enum observed { OBSERVED_UNKNOWN, OBSERVED_NO, OBSERVED_YES };

/* Set entry->observed. The observer wants a key if the key, or its part after the last '/', begins with one of the
 * prefixes. */
static void classify(const struct store *s, struct entry *entry)
{
    const struct slice key = entry_key(entry);
    size_t last = key.len;
    while (last > 0 && entry->key[last - 1] != '/')
        last--;
    const bool is_observed =
        has_prefix(s, key) || (last > 0 && has_prefix(s, slice_of(entry->key + last, key.len - last)));
    entry->observed = is_observed ? OBSERVED_YES : OBSERVED_NO;
}

/* Return true if the observer wants the key. Compare a key only at its first write, because a busy store writes the same
 * keys again and again. */
static inline bool is_observed(const struct store *s, struct entry *entry)
{
    if (entry->observed == OBSERVED_UNKNOWN && s->observer.prefixes != NULL)
        classify(s, entry);
    return entry->observed == OBSERVED_YES;
}

/* Remove links from the list of `entry`, the oldest link first. If `is_offer` is false, remove all links. If `is_offer`
 * is true, stop as soon as one connection is woken for each queued item. If a removed link was the last missing key of
 * its wait, free the wait and wake its connection. If `wake` is NULL, wake no connection. Do not free the entry.
 *
 * SET, ADD, APPEND and MULTI_SET wake all waiters of their keys. COMPARE_SET wakes the waiters only if it creates the
 * key. BARRIER wakes the waiters only if its caller is the last rank to arrive. QUEUE_PUSH wakes one waiter for each
 * item. If `is_offer` is true, a woken connection counts as the receiver of one item, even before the connection has
 * sent its QUEUE_POP. */
static void wake_waiters(struct store *s, struct entry *entry, store_wake wake, bool is_offer)
{
    while (entry->first != NULL && (!is_offer || entry_queue_len(entry) > entry->woken)) {
        struct wait *wait = entry->first->wait;
        struct store_waiter *owner = wait->owner;
        wait_unlink(entry->first);
        if (wait->missing > 0)
            continue;
        owner->wait = NULL;
        wait_free(&s->entries, wait);
        if (is_offer) {
            owner->offer = entry;
            entry->woken++;
        }
        if (wake != NULL)
            wake(s->user, owner);
    }
}

/* Remove the value, the queue and the waits, without waking any connection. */
static void empty_entry(struct store *s, struct entry *entry)
{
    entry_unset(&s->entries, entry);
    for (struct queue_item *item; (item = entry_pop(entry)) != NULL;)
        entry_item_free(&s->entries, item);
    wake_waiters(s, entry, NULL, false);
}

/* Remove all keys. Fetch the next entry before entry_free_unused frees the present entry. If a connection was woken for
 * the queue of an entry, the entry stays until store_acted is called. */
void store_clear(struct store *s)
{
    struct table_node *node = table_next(&s->entries.table, NULL);
    while (node != NULL) {
        struct entry *entry = TABLE_ENTRY(node, struct entry, node);
        node = table_next(&s->entries.table, node);
        empty_entry(s, entry);
        entry_free_unused(&s->entries, entry);
    }
}

void store_free(struct store *s)
{
    if (s == NULL)
        return;
    store_clear(s);
    table_free(&s->entries.table);
    free(s);
}

/* Finish a write. After success, wake the waiters. After a failure, free the entry if it is empty. */
static enum store_status written(struct store *s, struct entry *entry, bool done)
{
    if (done)
        wake_waiters(s, entry, s->wake, false);
    else
        entry_free_unused(&s->entries, entry);
    return done ? STORE_OK : STORE_FULL;
}

/* Set a key. SET is the most frequent request, so this function repeats the code of written() instead of calling it. If
 * entry_set keeps the old memory, SET costs one lookup and one copy, and no malloc. */
enum store_status store_set(struct store *s, struct slice key, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, key, value.len);
    if (entry == NULL)
        return STORE_FULL;
    const bool anew = entry_value(entry).len > 0;
    if (!entry_set(&s->entries, entry, value)) {
        entry_free_unused(&s->entries, entry);
        return STORE_FULL;
    }
    if (entry->first != NULL)
        wake_waiters(s, entry, s->wake, false);
    if (is_observed(s, entry))
        s->observer.written(s->observer.user, key, anew);
    return STORE_OK;
}

void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n)
{
    entries_expect(&s->entries, hashes, n);
}

struct slice store_get(const struct store *s, struct slice key)
{
    const struct entry *entry = entry_find(&s->entries, key);
    return entry ? entry_value(entry) : slice_of("", 0);
}

struct shared *store_holder(const struct store *s, struct slice key, struct slice value)
{
    struct entry *entry = value.len >= SHARED_MIN ? entry_find(&s->entries, key) : NULL;
    return entry != NULL && entry->value == value.data ? entry_holder(entry) : NULL;
}

/* Execute COMPARE_SET. As in PyTorch's server, if the key is missing and `expected` is not empty, the answer is
 * `expected`. */
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current)
{
    struct entry *entry = entry_find(&s->entries, key);
    bool exists = entry != NULL && entry->exists;
    *current = exists ? entry_value(entry) : expected;
    if (!slice_equal(*current, expected) || (!exists && expected.len > 0))
        return STORE_OK;
    *current = desired;
    if (exists)
        return entry_set(&s->entries, entry, desired) ? STORE_OK : STORE_FULL;
    return store_set(s, key, desired);
}

/* Add `delta` to the counter of `entry`. As in PyTorch's server, the sum wraps around at 64 bits. In C only unsigned
 * integers may wrap around, so the addition is unsigned. */
static enum store_status add_to_entry(struct store *s, struct entry *entry, int64_t delta, int64_t *sum)
{
    char text[DECIMAL_MAX];
    int64_t old = 0;
    if (entry->exists && !decimal_parse(entry_value(entry), &old))
        return STORE_NOT_A_NUMBER;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    return entry_set(&s->entries, entry, decimal_print(*sum, text)) ? STORE_OK : STORE_FULL;
}

/* Add to a counter. Return STORE_NOT_A_NUMBER if the value is not a number. */
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum)
{
    struct entry *entry = entry_make(&s->entries, key, DECIMAL_MAX);
    if (entry == NULL)
        return STORE_FULL;
    enum store_status status = add_to_entry(s, entry, delta, sum);
    if (status != STORE_NOT_A_NUMBER) /* written() reports each failure as STORE_FULL */
        status = written(s, entry, status == STORE_OK);
    if (status == STORE_OK && is_observed(s, entry))
        s->observer.counted(s->observer.user, key, delta, *sum);
    return status;
}

/* Append to a value. Limit the whole value to WIRE_MAX_VALUE, the limit of SET, so that a GET can return it. */
enum store_status store_append(struct store *s, struct slice key, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, key, value.len);
    if (entry == NULL)
        return STORE_FULL;
    bool fits = entry->len + value.len <= WIRE_MAX_VALUE;
    return written(s, entry, fits && entry_append(&s->entries, entry, value));
}

/* Delete a value, but keep a queue with the same name. A connection that waits for several keys waits for each key only
 * until this key exists. If this key is then deleted, the connection does not wait for the key again. PyTorch's server
 * does the same. */
bool store_delete(struct store *s, struct slice key)
{
    struct entry *entry = entry_find(&s->entries, key);
    if (entry == NULL || !entry->exists)
        return false;
    entry_unset(&s->entries, entry);
    entry_free_unused(&s->entries, entry);
    return true;
}

uint64_t store_count(const struct store *s)
{
    return s->entries.existing;
}

/* Set all pairs. First check the quota for all pairs, as if all keys were new. So a nearly full store may reject
 * pairs that would fit. If malloc fails, the pairs that are already set stay. */
enum store_status store_multi_set(struct store *s, struct slice pairs)
{
    struct slice key, value;
    uint64_t need = 0;
    for (struct slice rest = pairs; wire_next(&rest, &key) && wire_next(&rest, &value);)
        need += entry_cost(key.len) + value.len + DECIMAL_MAX;
    if (need > quota_left(s->entries.quota))
        return STORE_FULL;
    enum store_status status = STORE_OK;
    while (status == STORE_OK && wire_next(&pairs, &key) && wire_next(&pairs, &value))
        status = store_set(s, key, value);
    return status;
}

/* Return true if the key has a value or a queued item. */
static bool is_there(const struct store *s, struct slice key)
{
    const struct entry *entry = entry_find(&s->entries, key);
    return entry != NULL && entry_is_there(entry);
}

static uint32_t count_missing(const struct store *s, struct slice keys)
{
    uint32_t missing = 0;
    for (struct slice key; wire_next(&keys, &key);)
        missing += !is_there(s, key);
    return missing;
}

bool store_check(const struct store *s, struct slice keys)
{
    for (struct slice key; wire_next(&keys, &key);)
        if (!is_there(s, key))
            return false;
    return true;
}

/* Notify the observer that a wait has begun, and return the status of the request. */
static enum store_status wait_begun(struct store *s, struct store_waiter *w)
{
    if (s->observer.prefixes != NULL)
        s->observer.waits(s->observer.user, w);
    return STORE_WAITS;
}

/* Count the missing keys before allocating anything, because most WAIT requests find all keys. Then create an empty
 * entry for each missing key, because an entry has the list of waiters. */
enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys)
{
    store_leave(s, w);
    uint32_t missing = count_missing(s, keys);
    if (missing == 0) {
        if (s->observer.prefixes != NULL)
            s->observer.found(s->observer.user, w, keys);
        return STORE_OK;
    }
    struct wait *wait = wait_new(&s->entries, w, missing);
    if (wait == NULL)
        return STORE_FULL;
    for (struct slice key; wire_next(&keys, &key);) {
        struct entry *entry = entry_make(&s->entries, key, 0);
        if (entry == NULL) {
            wait_leave(&s->entries, wait);
            return STORE_FULL;
        }
        if (!entry_is_there(entry))
            wait_add(wait, entry);
    }
    w->wait = wait;
    return wait_begun(s, w);
}

/* Execute BARRIER. Allocate the wait before adding to the counter, so that the counter does not change if memory is
 * short.
 *
 * Usually only a missing key has waiters. The counter of a barrier is an exception, because the BARRIER requests create
 * the counter and then wait at it. If a WAIT for the counter begins before the first BARRIER, this WAIT also lasts
 * until the last rank has arrived. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key, int64_t world_size)
{
    store_leave(s, w);
    struct entry *entry = entry_make(&s->entries, key, DECIMAL_MAX);
    struct wait *wait = entry ? wait_new(&s->entries, w, 1) : NULL;
    int64_t arrived = 0;
    enum store_status status = wait ? add_to_entry(s, entry, 1, &arrived) : STORE_FULL;
    if (status == STORE_OK && arrived < world_size) {
        wait_add(wait, entry);
        w->wait = wait;
        return wait_begun(s, w);
    }
    if (wait != NULL)
        wait_free(&s->entries, wait);
    if (status == STORE_OK)
        wake_waiters(s, entry, s->wake, false);
    else if (entry != NULL)
        entry_free_unused(&s->entries, entry);
    return status;
}

void store_leave(struct store *s, struct store_waiter *w)
{
    if (w->wait == NULL)
        return;
    wait_leave(&s->entries, w->wait);
    w->wait = NULL;
}

uint32_t store_awaited_count(const struct store_waiter *w)
{
    return w->wait ? w->wait->missing : 0;
}

/* Return the n-th missing key. Each call walks the links from the first, which is fast enough, because a diagnosis
 * shows only a few keys. */
struct slice store_awaited(const struct store_waiter *w, uint32_t n)
{
    const struct wait_link *link = w->wait->link;
    while (link->entry == NULL || n-- > 0)
        link++;
    return entry_key(link->entry);
}

/* Stop counting the connection of `w` as the receiver of a queue's item, if the connection was woken for this item. If
 * the item is still in the queue, wake another connection. */
void store_acted(struct store *s, struct store_waiter *w)
{
    struct entry *entry = w->offer;
    if (entry == NULL)
        return;
    w->offer = NULL;
    entry->woken--;
    wake_waiters(s, entry, s->wake, true);
    entry_free_unused(&s->entries, entry);
}

enum store_status store_push(struct store *s, struct slice queue, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, queue, 0);
    if (entry == NULL)
        return STORE_FULL;
    bool pushed = entry_push(&s->entries, entry, value);
    if (pushed)
        wake_waiters(s, entry, s->wake, true);
    entry_free_unused(&s->entries, entry);
    return pushed ? STORE_OK : STORE_FULL;
}

const struct queue_item *store_front(const struct store *s, struct slice queue)
{
    const struct entry *entry = entry_find(&s->entries, queue);
    return entry != NULL ? entry_front(entry) : NULL;
}

struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before)
{
    struct entry *entry = entry_find(&s->entries, queue);
    *len_before = entry ? entry_queue_len(entry) : 0;
    struct queue_item *item = entry ? entry_pop(entry) : NULL;
    if (item != NULL)
        entry_free_unused(&s->entries, entry);
    return item;
}

struct slice store_item_value(const struct queue_item *item)
{
    return slice_of(item->data, item->len);
}

void store_item_free(struct store *s, struct queue_item *item)
{
    entry_item_free(&s->entries, item);
}

uint32_t store_queue_len(const struct store *s, struct slice queue)
{
    const struct entry *entry = entry_find(&s->entries, queue);
    return entry ? entry_queue_len(entry) : 0;
}

/* Return the next key. Skip entries without a value, which have only a queue or waiters. */
bool store_next(const struct store *s, const struct entry **at, struct slice *key, struct slice *value)
{
    const struct table_node *node = *at ? &(*at)->node : NULL;
    while ((node = table_next(&s->entries.table, node)) != NULL) {
        const struct entry *entry = TABLE_ENTRY(node, const struct entry, node);
        if (!entry->exists)
            continue;
        *at = entry;
        *key = entry_key(entry);
        *value = entry_value(entry);
        return true;
    }
    return false;
}
