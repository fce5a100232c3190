/* store.h -- the keys of one attempt, and the connections that wait for keys. The store behaves like PyTorch's c10d
 * store, but limits every size. The store does not depend on jobs and sessions: it calls other modules only through
 * `wake` and the observer. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include "base/buf.h"
#include "store/quota.h"

#include <stdint.h>

/* Counters have the format of PyTorch's server: decimal text, parsed by the rules of std::stoll of C++. */

enum { DECIMAL_MAX = 24 }; /* "-9223372036854775808" and 4 spare bytes */

/* Parse blanks, an optional sign and digits. Ignore all bytes after the digits. Return false if there is no digit, or
 * if the number does not fit in 64 bits. */
bool decimal_parse(struct slice text, int64_t *value);

/* Write `value` into `text`, which has DECIMAL_MAX bytes. Return the written digits. */
struct slice decimal_print(int64_t value, char *text);

struct shared;
struct store;
struct entry;
struct wait;

/* The state of a connection in the store, owned by the connection. Set all bytes to zero before the first use. A
 * connection has at most one wait, for one or more keys. A wait ends in one of three ways:
 *
 *   - The last missing key is created: the store calls `wake`.
 *   - The connection sends another request, or closes: the caller calls store_leave, and the store does not call
 *     `wake`.
 *   - All keys are removed by store_clear: the store does not call `wake`. */
struct store_waiter {
    struct wait *wait;   /* owned by the store; NULL = the connection does not wait */
    struct entry *offer; /* borrowed: the queue for which the connection was woken; NULL = none */
};

/* Functions that the store calls during a request. These functions must not change the store. store_observe copies the
 * struct; `user` and the prefixes must outlive the store. Arguments of a call are valid only during the call. */
struct store_observer {
    void *user;
    /* A key is observed if the key, or its part after the last '/', begins with one of these prefixes of at least two
     * bytes. The array ends with NULL. */
    const char *const *prefixes;
    /* Called after an observed key was set, but not after a COMPARE_SET that has replaced a value. `anew` is true if
     * the key already had a non-empty value. */
    void (*written)(void *user, struct slice key, bool anew);
    /* Called after ADD has added `delta` to an observed key. `sum` is the new value. */
    void (*counted)(void *user, struct slice key, int64_t delta, int64_t sum);
    /* Called when a wait begins, even for keys that are not observed. */
    void (*waits)(void *user, struct store_waiter *waiter);
    /* Called instead of `waits` if all `keys` (a list in wire format) exist already. */
    void (*found)(void *user, struct store_waiter *waiter, struct slice keys);
};

enum store_status {
    STORE_OK,
    STORE_WAITS, /* `wake` is called later */
    /* quota or memory is short, or the value would exceed WIRE_MAX_VALUE; no key has changed, but store_multi_set may
     * have set some of its pairs */
    STORE_FULL,
    STORE_NOT_A_NUMBER, /* nothing has changed: the value is not a number */
};

/* A function that the store calls after a wait has ended. This function must not call the store. */
typedef void (*store_wake)(void *user, struct store_waiter *waiter);
/* Create a store. `quota` is borrowed. All calls for a store come from one thread. Return NULL if memory is short. */
struct store *store_new(struct quota *quota, store_wake wake, void *user);
/* Set the observer, at most once. The struct is copied; `prefixes` and `user` are borrowed. */
void store_observe(struct store *s, const struct store_observer *observer);
/* Free the store and all keys. The caller first calls store_leave and store_acted for each connection, because each
 * struct store_waiter has pointers into the store. */
void store_free(struct store *s);

/* Remove all keys, queues and waits. `wake` is not called. */
void store_clear(struct store *s);

/* Prefetch the keys with these hashes (table_hash) into the processor's caches. Call this some time before the keys
 * are used. */
void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n);

/* Set a key. The store copies the key and the value. */
enum store_status store_set(struct store *s, struct slice key, struct slice value);
/* Return the value of a key; empty if the key is missing. The slice is borrowed until the next change of the store. */
struct slice store_get(const struct store *s, struct slice key);
/* Return the block that contains `value`, a slice that store_get(key) has returned. If the caller adds a reference to
 * the block (base/buf.h), the bytes stay valid after the next change of the store. Return NULL in three cases: `value`
 * is shorter than SHARED_MIN; the key no longer has this value; or the value is stored in the entry and not in a
 * separate block. */
struct shared *store_holder(const struct store *s, struct slice key, struct slice value);
/* Replace the value of a key by `desired` if the value equals `expected`. An empty `expected` also matches a missing
 * key. Set *current to the answer for the client. The slice is borrowed from the store or from an argument. */
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current);
/* Add `delta` to a counter, and set *sum to the new value. A missing key counts as 0. */
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum);
/* Append to a value, or create the key. */
enum store_status store_append(struct store *s, struct slice key, struct slice value);
/* Delete the value of a key. Return false if the key has no value. */
bool store_delete(struct store *s, struct slice key);
/* Return the number of keys with a value. */
uint64_t store_count(const struct store *s);

/* Set all pairs of a list in wire format. If the quota may be too small for all pairs, set no pair. If malloc fails
 * later, the earlier pairs stay set. */
enum store_status store_multi_set(struct store *s, struct slice pairs);

/* Return true if every key of the list has a value or a queued item. */
bool store_check(const struct store *s, struct slice keys);

/* End an earlier wait of `w`, then wait for all keys of the list, which is in wire format. Return STORE_OK if all keys
 * exist already. */
enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys);

/* Execute the request BARRIER of PyTorch's protocol: add 1 to the counter `key`. If the sum is below `world_size`,
 * wait; otherwise wake all waiters and return STORE_OK. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key,
                                int64_t world_size);

/* End the wait of a connection that sends another request or closes. `wake` is not called. */
void store_leave(struct store *s, struct store_waiter *w);

/* Release the queue item for which the connection was woken. Do nothing if there is no such item. If the connection has
 * not removed the item, wake the next waiter of the queue. Call this function after a request was handled, and before
 * the connection closes. */
void store_acted(struct store *s, struct store_waiter *w);

/* Return the number of keys that a connection still waits for; 0 = the connection does not wait. */
uint32_t store_awaited_count(const struct store_waiter *w);
/* Return the missing key with the index `n`. `n` must be below store_awaited_count(w). The slice is borrowed. */
struct slice store_awaited(const struct store_waiter *w, uint32_t n);

struct queue_item;
/* Append a copy of `value` to a queue, and wake one waiter. */
enum store_status store_push(struct store *s, struct slice queue, struct slice value);
/* Return the oldest item of a queue, or NULL if the queue is empty. The item stays in the queue. The store owns the
 * item. */
const struct queue_item *store_front(const struct store *s, struct slice queue);
/* Remove and return the oldest item of a queue, or return NULL if the queue is empty. Set *len_before to the number of
 * items before the call. The caller owns the item and frees it with store_item_free. */
struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before);
struct slice store_item_value(const struct queue_item *item);
void store_item_free(struct store *s, struct queue_item *item);
uint32_t store_queue_len(const struct store *s, struct slice queue);

/* Find the next key that has a value, and set *key and *value. To get the first key, set *at to NULL before the call.
 * Return false after the last key. The store must not change between the calls. *key and *value are borrowed from the
 * store. */
bool store_next(const struct store *s, const struct entry **at, struct slice *key, struct slice *value);

#endif
