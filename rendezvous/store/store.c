/* store.c -- see store.h.
 *
 * SET, ADD, APPEND and MULTI_SET wake all waiters of their keys. COMPARE_SET does so if it creates the key, BARRIER
 * if its caller is the last one. QUEUE_PUSH wakes one waiter for each item.
 *
 * An existing key can have waiters, too: BARRIER callers, and WAIT requests that began before the first BARRIER call
 * created the key. */
#include "store/store.h"

#include "store/entry.h"

#include "store/ops.h"
#include "store/wire.h"

#include <stdlib.h>

/* strtoll is not used, because the text has no NUL at the end, and the locale decides which blanks strtoll skips. */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Compare with (limit - digit) / 10 before the multiplication, which could overflow. The limit depends on the sign,
 * because INT64_MIN has no positive counterpart. */
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

/* Write the digits from the last to the first. The magnitude is unsigned, because INT64_MIN has no positive
 * counterpart. */
struct slice decimal_print(int64_t value, char *text)
{
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

/* A wait has one link for each missing key. The links of all waits for one key are in the line of its entry, in order
 * of arrival:
 *
 *                    entry "/a"   entry "/b"   entry "/c"
 *     wait of conn 1:  link -------link                   misses 2
 *     wait of conn 2:              link --------link      misses 2
 *                                   |
 *                         the line of "/b", from top to bottom
 *
 * When a key arrives, the store walks the line of the entry. When a connection leaves, the store walks the links of
 * the wait. Nothing need be searched. */

struct wait_link {
    struct entry *entry; /* NULL = the key exists now */
    struct wait *wait;
    struct wait_link *prev, *next; /* `prev` of the first link is the last link */
};

struct wait {
    struct store_waiter *owner;
    uint32_t missing; /* number of links with an entry */
    uint32_t links;
    uint32_t room; /* number of allocated links */
    struct wait_link link[];
};

/* A link is in line while its key is missing; then `entry` is set. If the key arrives, the link leaves the line, and
 * `entry` becomes NULL. The wait and its links are freed when no key is missing any more, or when the owner
 * leaves. */

static uint64_t wait_cost(uint32_t links)
{
    return sizeof(struct wait) + links * sizeof(struct wait_link);
}

/* Allocate a wait with room for `links`. All links are in one block, so that a wait for 100,000 keys needs only one
 * malloc. Return NULL if memory or quota is short. */
static struct wait *wait_new(struct entries *entries, struct store_waiter *owner, uint32_t links)
{
    if (!quota_use(entries->quota, wait_cost(links)))
        return NULL;
    struct wait *wait = malloc(wait_cost(links));
    if (wait == NULL) {
        quota_give(entries->quota, wait_cost(links));
        return NULL;
    }
    *wait = (struct wait){ .owner = owner, .room = links };
    return wait;
}

/* Append a link to the waiters of `entry`. If the request names the key twice, the wait has a link already, and this
 * link is the last one, because all links of a wait are added together. */
static void wait_add(struct wait *wait, struct entry *entry)
{
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

/* Remove a link from its line. */
static void unlink_from_line(struct wait_link *link)
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

/* Free a wait that is in no line. */
static void wait_free(struct entries *entries, struct wait *wait)
{
    quota_give(entries->quota, wait_cost(wait->room));
    free(wait);
}

/* Remove all links of a wait from their lines, and free the wait. Free entries that nothing uses any more. */
static void wait_leave(struct entries *entries, struct wait *wait)
{
    for (uint32_t i = 0; i < wait->links; i++) {
        struct entry *entry = wait->link[i].entry;
        if (entry == NULL)
            continue;
        unlink_from_line(&wait->link[i]);
        entry_settle(entries, entry);
    }
    wait_free(entries, wait);
}

struct store {
    struct entries entries;
    store_wake wake;
    void *user;
    struct store_observer observer; /* `prefixes` NULL = no observer */
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

void store_observe(struct store *s, const struct store_observer *observer)
{
    s->observer = *observer;
}

/* Return true if the key matches a prefix of the observer. */
static bool is_observed(const struct store *s, struct slice key)
{
    const char *text = key.data;
    size_t last = key.len;
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

/* Record that the key exists for the first waiters in line, up to and including the first that lacks no other key.
 * Return its owner, which the caller must notify; its wait is freed. Return NULL if the line is empty now. The entry is
 * not freed. */
static struct store_waiter *next_woken(struct entries *entries, struct entry *entry)
{
    while (entry->first != NULL) {
        struct wait *wait = entry->first->wait;
        struct store_waiter *owner = wait->owner;
        unlink_from_line(entry->first);
        if (wait->missing > 0)
            continue;
        owner->wait = NULL;
        wait_free(entries, wait);
        return owner;
    }
    return NULL;
}

/* Remove the value, the queue and the waits, without waking any connection. */
static void empty_entry(struct entries *entries, struct entry *entry)
{
    entry_unset(entries, entry);
    for (struct queue_item *item; (item = entry_pop(entry)) != NULL;)
        entry_item_free(entries, item);
    while (next_woken(entries, entry) != NULL)
        ;
}

/* Empty and free all entries. An entry with woken connections stays until they have acted (store_acted). */
void store_clear(struct store *s)
{
    struct table_node *node = table_next(&s->entries.table, NULL);
    while (node != NULL) {
        struct entry *entry = TABLE_ENTRY(node, struct entry, node);
        node = table_next(&s->entries.table, node);
        empty_entry(&s->entries, entry);
        entry_settle(&s->entries, entry);
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

/* Remove all links from the line of the entry. Wake each connection whose wait has no other missing key. */
static void wake_line(struct store *s, struct entry *entry)
{
    for (struct store_waiter *done; (done = next_woken(&s->entries, entry)) != NULL;)
        s->wake(s->user, done);
}

/* End a write. After success, wake the waiters. After a failure, free the entry if it is empty. */
static enum store_status written(struct store *s, struct entry *entry, bool done)
{
    if (done)
        wake_line(s, entry);
    else
        entry_settle(&s->entries, entry);
    return done ? STORE_OK : STORE_FULL;
}

/* Set a value. SET is the most frequent request: if the value fits in the old memory, it needs one lookup, one copy
 * and no malloc. */
enum store_status store_set(struct store *s, struct slice key, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, key, value.len);
    if (entry == NULL)
        return STORE_FULL;
    const bool anew = entry_value(entry).len > 0;
    if (!entry_set(&s->entries, entry, value)) {
        entry_settle(&s->entries, entry);
        return STORE_FULL;
    }
    if (entry->first != NULL)
        wake_line(s, entry);
    if (s->observer.prefixes != NULL && is_observed(s, key))
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

/* Replace the value if it equals `expected`. A missing key counts as an empty value. If the key is missing and
 * `expected` is not empty, set *current to `expected`, as PyTorch's server does. */
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

/* Add `delta` to the counter of `entry`, as PyTorch does: the value is decimal text, and the sum wraps around at 64
 * bits. */
static enum store_status add_to_entry(struct store *s, struct entry *entry, int64_t delta, int64_t *sum)
{
    char text[DECIMAL_MAX];
    int64_t old = 0;
    if (entry->exists && !decimal_parse(entry_value(entry), &old))
        return STORE_NOT_A_NUMBER;
    *sum = (int64_t)((uint64_t)old + (uint64_t)delta);
    return entry_set(&s->entries, entry, decimal_print(*sum, text)) ? STORE_OK : STORE_FULL;
}

/* Add to a counter. If the value is not a number, do not call entry_settle, because the entry has a value. */
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum)
{
    struct entry *entry = entry_make(&s->entries, key, DECIMAL_MAX);
    if (entry == NULL)
        return STORE_FULL;
    enum store_status status = add_to_entry(s, entry, delta, sum);
    if (status != STORE_NOT_A_NUMBER)
        status = written(s, entry, status == STORE_OK);
    if (status == STORE_OK && s->observer.prefixes != NULL && is_observed(s, key))
        s->observer.counted(s->observer.user, key, delta, *sum);
    return status;
}

/* Append to a value. The result may not exceed WIRE_MAX_VALUE, the limit of SET. */
enum store_status store_append(struct store *s, struct slice key, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, key, value.len);
    if (entry == NULL)
        return STORE_FULL;
    bool fits = entry->len + value.len <= WIRE_MAX_VALUE;
    return written(s, entry, fits && entry_append(&s->entries, entry, value));
}

/* Delete a value. A queue with the same name stays. A wait that has already found the key does not wait again, as in
 * PyTorch's server. */
bool store_delete(struct store *s, struct slice key)
{
    struct entry *entry = entry_find(&s->entries, key);
    if (entry == NULL || !entry->exists)
        return false;
    entry_unset(&s->entries, entry);
    entry_settle(&s->entries, entry);
    return true;
}

/* Return the number of keys with a value. */
uint64_t store_count(const struct store *s)
{
    return s->entries.existing;
}

/* Set all pairs, or none if the quota might be too small. The check assumes that all keys are new, so a nearly full
 * store may reject pairs that would fit. Only a failure of malloc leaves a part of the pairs set. */
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

/* Return at the first missing key. */
bool store_check(const struct store *s, struct slice keys)
{
    for (struct slice key; wire_next(&keys, &key);)
        if (!is_there(s, key))
            return false;
    return true;
}

static enum store_status begun(struct store *s, struct store_waiter *w)
{
    if (s->observer.prefixes != NULL)
        s->observer.waits(s->observer.user, w);
    return STORE_WAITS;
}

/* Count the missing keys first, because usually no key is missing and nothing need be allocated. Then add a link for
 * each missing key. */
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
    return begun(s, w);
}

/* Allocate the wait before adding to the counter, so that the counter does not change if memory is short. */
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
        return begun(s, w);
    }
    if (wait != NULL)
        wait_free(&s->entries, wait);
    if (status == STORE_OK)
        wake_line(s, entry);
    else if (entry != NULL)
        entry_settle(&s->entries, entry);
    return status;
}

/* End the wait of `w`. Do nothing if `w` does not wait. */
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

/* Walk the links, because a diagnosis shows only a few keys. */
struct slice store_awaited(const struct store_waiter *w, uint32_t n)
{
    const struct wait_link *link = w->wait->link;
    while (link->entry == NULL || n-- > 0)
        link++;
    return entry_key(link->entry);
}

/* Wake one connection for each item that is not offered yet. `woken` is the number of offered items. */
static void offer(struct store *s, struct entry *entry)
{
    struct store_waiter *done;
    while (entry_queue_len(entry) > entry->woken && (done = next_woken(&s->entries, entry)) != NULL) {
        done->offer = entry;
        entry->woken++;
        s->wake(s->user, done);
    }
}

/* End the offer to this connection, whether it has removed an item or not. Then offer the remaining items to other
 * connections. */
void store_acted(struct store *s, struct store_waiter *w)
{
    struct entry *entry = w->offer;
    if (entry == NULL)
        return;
    w->offer = NULL;
    entry->woken--;
    offer(s, entry);
    entry_settle(&s->entries, entry);
}

enum store_status store_push(struct store *s, struct slice queue, struct slice value)
{
    struct entry *entry = entry_make(&s->entries, queue, 0);
    if (entry == NULL)
        return STORE_FULL;
    bool pushed = entry_push(&s->entries, entry, value);
    if (pushed)
        offer(s, entry);
    entry_settle(&s->entries, entry);
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
        entry_settle(&s->entries, entry);
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

/* Skip entries without a value, because they are not keys. */
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
