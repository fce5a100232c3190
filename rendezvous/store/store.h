/* store.h -- the keys of one attempt, and the waiters of these keys. The store behaves like PyTorch's c10d store, but
 * limits every size.
 *
 * A connection owns a `struct store_waiter`. A connection has at most one wait at a time. A wait may cover many keys.
 * A wait ends in one of three ways: the last missing key arrives (the store calls `wake`), the connection sends
 * another request or closes (store_leave, no callback), or all keys are removed (store_clear, no callback). The cost
 * of store_leave grows with the number of keys of the wait, not with the size of the store.
 *
 * The store has no knowledge of jobs and sessions. It calls its user only through `wake` and an observer. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include "base/buf.h"
#include "store/quota.h"

#include <stdint.h>

/* Counters have PyTorch's format: decimal text that is parsed by the rules of C++ stoll. */

enum { DECIMAL_MAX = 24 }; /* "-9223372036854775808" and 4 spare bytes */

/* Parse blanks, an optional sign and digits, and stop at the first other byte ("12ab" is 12). Return false if there is
 * no digit or the number exceeds 64 bits. */
bool decimal_parse(struct slice text, int64_t *value);

/* Write `value` into `text`, a buffer of DECIMAL_MAX bytes, and return a view of the digits. */
struct slice decimal_print(int64_t value, char *text);

struct shared;
struct store;
struct entry;
struct wait;

/* The wait of one connection. The caller zeroes the struct before its first use. */
struct store_waiter {
    struct wait *wait;   /* the pending wait of the connection, or NULL; owned by the store */
    struct entry *offer; /* the queue for which this connection was woken, until store_acted; borrowed */
};

/* The store notifies the observer of each change at once. The observer must not change the store. Without an
 * observer, no request compares its key with prefixes. */
struct store_observer {
    void *user;
    /* Prefixes of keys, or of the last component of keys (NAME in "a/b/NAME"). Writes to matching keys are reported.
     * The array ends with NULL. */
    const char *const *prefixes;
    /* Called after such a key was set, except by a COMPARE_SET that replaced a value. `anew` is true if the key had a
     * non-empty value before. */
    void (*written)(void *user, struct slice key, bool anew);
    /* Called after ADD of `delta` has changed such a key to `sum`. */
    void (*counted)(void *user, struct slice key, int64_t delta, int64_t sum);
    /* Called when a wait for any keys begins (`waits`), or when all `keys` of a wait exist already (`found`). */
    void (*waits)(void *user, struct store_waiter *waiter);
    void (*found)(void *user, struct store_waiter *waiter, struct slice keys);
};

enum store_status {
    STORE_OK,
    STORE_WAITS, /* the store will call `wake`, unless store_leave or store_clear ends the wait */
    STORE_FULL,  /* quota or memory is short, or a value would exceed WIRE_MAX_VALUE; nothing has changed */
    STORE_NOT_A_NUMBER, /* the value is not a number, nothing has changed */
};

/* Create a store, or return NULL if memory is short. The store calls `wake` after a wait is complete and removed.
 * `wake` must not call the store. `quota` is borrowed. */
typedef void (*store_wake)(void *user, struct store_waiter *waiter);
struct store *store_new(struct quota *quota, store_wake wake, void *user);
/* Replace the observer. The struct is copied; the memory that its pointers refer to is borrowed. */
void store_observe(struct store *s, const struct store_observer *observer);
/* Free the store and all keys. Before that, each connection must have called store_leave and store_acted. */
void store_free(struct store *s);

/* Remove all keys, queues and waits. No connection is woken: each wait ends as with store_leave. */
void store_clear(struct store *s);

/* Prefetch keys with these hashes (table_hash), because requests will use them soon. The prefetch saves time and
 * changes no result. */
void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n);

/* The store copies keys and values. A returned slice is a view into the store, valid until the next change of the
 * store. */
enum store_status store_set(struct store *s, struct slice key, struct slice value);
struct slice store_get(const struct store *s, struct slice key); /* empty when missing */
/* Return the block that contains `value`, a result of store_get. With a reference to this block, a caller can use the
 * bytes after the next change (base/buf.h). Return NULL if `value` is shorter than SHARED_MIN, is not the key's value,
 * or is stored in the entry itself. */
struct shared *store_holder(const struct store *s, struct slice key, struct slice value);
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current);
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum);
enum store_status store_append(struct store *s, struct slice key, struct slice value);
bool store_delete(struct store *s, struct slice key);
uint64_t store_count(const struct store *s);

/* Set all pairs of a list that wire_next can read. Set no pair if the quota may be too small for all pairs. */
enum store_status store_multi_set(struct store *s, struct slice pairs);

/* Check whether every key of the list has a value or a non-empty queue. */
bool store_check(const struct store *s, struct slice keys);

/* End the waiter's earlier wait, then wait for all keys of the list. Return STORE_OK if all keys exist already. */
enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys);

/* Carry out c10d's BARRIER: add 1 to the counter at `key`. If the sum is below `world_size`, begin a wait. Otherwise
 * wake all waiters and return STORE_OK. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key,
                                int64_t world_size);

/* End the wait of a connection without a reply, because it sends another request or has closed. */
void store_leave(struct store *s, struct store_waiter *w);

/* Report that a connection which was woken for a queue has sent its next request, or is closed. If the queue still has
 * an item that is offered to no connection, the next waiter in line is woken. */
void store_acted(struct store *s, struct store_waiter *w);

/* Return the number of keys that a wait still misses, and the n-th of these keys (n < number). */
uint32_t store_awaited_count(const struct store_waiter *w);
struct slice store_awaited(const struct store_waiter *w, uint32_t n);

struct queue_item;
enum store_status store_push(struct store *s, struct slice queue, struct slice value);
/* Return the oldest item, or NULL if the queue is empty. store_front leaves the item in the queue. store_pop removes
 * the item and sets *len_before to the queue's length before the removal. The caller then owns the item until
 * store_item_free. */
const struct queue_item *store_front(const struct store *s, struct slice queue);
struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before);
struct slice store_item_value(const struct queue_item *item);
void store_item_free(struct store *s, struct queue_item *item);
uint32_t store_queue_len(const struct store *s, struct slice queue);

/* Walk the keys that have a value: start with *at = NULL, and stop when the result is false. The store must not change
 * during the walk. */
bool store_next(const struct store *s, const struct entry **at, struct slice *key, struct slice *value);

#endif
