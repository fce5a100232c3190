/* store.h -- the keys of one attempt, and the connections that wait for keys. The store behaves like PyTorch's c10d
 * store, but limits every size.
 *
 * A connection owns a `struct store_waiter` and has at most one wait, for one or more keys. A wait ends in one of
 * three ways:
 *
 *   - The last missing key arrives: the store calls `wake`.
 *   - The connection sends another request, or closes: store_leave, without a callback.
 *   - All keys are removed: store_clear, without a callback.
 *
 * The store does not know jobs and sessions. It calls other modules only through `wake` and the observer. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include "base/buf.h"
#include "store/quota.h"

#include <stdint.h>

/* Counters have PyTorch's format: decimal text, parsed like C++ stoll. */

enum { DECIMAL_MAX = 24 }; /* "-9223372036854775808" and 4 spare bytes */

/* Parse blanks, an optional sign and digits. Ignore all bytes after the digits: "12ab" is 12. Return false if there
 * is no digit, or if the number does not fit in 64 bits. */
bool decimal_parse(struct slice text, int64_t *value);

/* Write `value` into `text`, which has DECIMAL_MAX bytes. Return the written digits. */
struct slice decimal_print(int64_t value, char *text);

struct shared;
struct store;
struct entry;
struct wait;

/* The wait of a connection. Set all bytes to zero before the first use. */
struct store_waiter {
    struct wait *wait;   /* owned by the store; NULL = the connection does not wait */
    struct entry *offer; /* borrowed: the queue for which the connection was woken; NULL after store_acted */
};

/* The observer is called at once for each change, and must not change the store. Without an observer, requests
 * compare no prefixes. */
struct store_observer {
    void *user;
    /* Prefixes of keys, or of the last part of keys (NAME in "a/b/NAME"). The array ends with NULL. */
    const char *const *prefixes;
    /* Called after a key with such a prefix was set, except by a COMPARE_SET that replaced a value. `anew` = the key
     * had a non-empty value before. */
    void (*written)(void *user, struct slice key, bool anew);
    /* Called after ADD has added `delta` to such a key. `sum` is the new value. */
    void (*counted)(void *user, struct slice key, int64_t delta, int64_t sum);
    /* Called for waits for any keys: `waits` when a wait begins, `found` if all `keys` exist already. */
    void (*waits)(void *user, struct store_waiter *waiter);
    void (*found)(void *user, struct store_waiter *waiter, struct slice keys);
};

enum store_status {
    STORE_OK,
    STORE_WAITS, /* `wake` is called later, unless store_leave or store_clear ends the wait */
    STORE_FULL, /* nothing has changed: quota or memory is short, or the value would be longer than WIRE_MAX_VALUE */
    STORE_NOT_A_NUMBER, /* nothing has changed: the value is not a number */
};

/* Create a store. The store calls `wake` after a wait has ended; `wake` must not call the store. `quota` is borrowed.
 * Return NULL if memory is short. */
typedef void (*store_wake)(void *user, struct store_waiter *waiter);
struct store *store_new(struct quota *quota, store_wake wake, void *user);
/* Set the observer. The struct is copied; `prefixes` and `user` are borrowed. */
void store_observe(struct store *s, const struct store_observer *observer);
/* Free the store and all keys. For each connection, call store_leave and store_acted before. */
void store_free(struct store *s);

/* Remove all keys, queues and waits. `wake` is not called. */
void store_clear(struct store *s);

/* Prefetch the keys with these hashes (table_hash), because requests will soon use them. */
void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n);

/* Set a key, or return its value. Keys and values are copied. A returned slice is borrowed until the next change of the
 * store. */
enum store_status store_set(struct store *s, struct slice key, struct slice value);
struct slice store_get(const struct store *s, struct slice key); /* empty if the key is missing */
/* Return the block that contains `value`, which store_get has returned for `key`. A reference to the block keeps the
 * bytes after the next change (base/buf.h). Return NULL if `value` is shorter than SHARED_MIN, outdated, or stored in
 * the entry. */
struct shared *store_holder(const struct store *s, struct slice key, struct slice value);
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current);
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum);
enum store_status store_append(struct store *s, struct slice key, struct slice value);
bool store_delete(struct store *s, struct slice key);
uint64_t store_count(const struct store *s);

/* Set all pairs of a list in wire format. Set no pair if the quota may be too small for all. */
enum store_status store_multi_set(struct store *s, struct slice pairs);

/* Return true if every key of the list has a value or a queued item. */
bool store_check(const struct store *s, struct slice keys);

/* End an earlier wait of `w`, then wait for all keys of the list. Return STORE_OK if all keys exist already. */
enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys);

/* Execute PyTorch's BARRIER: add 1 to the counter `key`. If the sum is below `world_size`, wait; otherwise wake all
 * waiters and return STORE_OK. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key,
                                int64_t world_size);

/* End the wait of a connection without calling `wake`, because the connection sends another request or closes. */
void store_leave(struct store *s, struct store_waiter *w);

/* Report that a connection has sent its next request, or has closed, after it was woken for a queue. If an item is
 * left that was offered to no connection, the next one in line is woken. */
void store_acted(struct store *s, struct store_waiter *w);

/* Return the number of missing keys of a wait, and the n-th missing key (n < number). */
uint32_t store_awaited_count(const struct store_waiter *w);
struct slice store_awaited(const struct store_waiter *w, uint32_t n);

struct queue_item;
enum store_status store_push(struct store *s, struct slice queue, struct slice value);
/* Return the oldest item of a queue, or NULL if the queue is empty. store_pop also removes the item, and sets
 * *len_before to the length that the queue had before. The caller then owns the item, and frees it with
 * store_item_free. */
const struct queue_item *store_front(const struct store *s, struct slice queue);
struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before);
struct slice store_item_value(const struct queue_item *item);
void store_item_free(struct store *s, struct queue_item *item);
uint32_t store_queue_len(const struct store *s, struct slice queue);

/* Walk the keys with a value. Begin with *at = NULL, and stop when the result is false. Do not change the store
 * meanwhile. */
bool store_next(const struct store *s, const struct entry **at, struct slice *key, struct slice *value);

#endif
