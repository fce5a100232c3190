/* store.h -- the keys of one attempt, and their waiters. It follows the rules of the c10d store, but bounds every size.
 *
 * A connection takes part through a `struct store_waiter` that it owns: at most one wait at a time, which may cover
 * many keys. A wait ends in one of three ways: the last missing key arrives (the `wake` callback), the connection
 * sends another request or closes (store_leave, silent), or the key space is wiped (store_clear, silent). Leaving
 * costs time in proportion to the keys of the wait, not to the size of the store.
 *
 * The store is independent of its users. An observer subscribes to events of some keys. */
#ifndef RENDEZVOUS_STORE_STORE_H
#define RENDEZVOUS_STORE_STORE_H

#include "base/buf.h"
#include "store/quota.h"

#include <stdint.h>

/* Counters as PyTorch keeps them: decimal text, parsed by the rules of C++ stoll. */

enum { DECIMAL_MAX = 24 }; /* "-9223372036854775808" and spare room */

/* Parse blanks, a sign, digits; stop at the first other byte ("12ab" is 12). False without a digit or past 64 bits. */
bool decimal_parse(struct slice text, int64_t *value);

/* Write into `text` (DECIMAL_MAX bytes, the caller's) and return a view of it. */
struct slice decimal_print(int64_t value, char *text);

struct shared;
struct store;
struct entry;
struct wait;

/* Embedded in a connection, zeroed before first use. */
struct store_waiter {
    struct wait *wait;   /* its pending wait, NULL = none; owned by the store */
    struct entry *offer; /* a queue for which this connection was woken and has not acted yet; borrowed */
};

/* Notified of changes as they happen; it must not change the store. Without an observer no request compares its key. */
struct store_observer {
    void *user;
    /* Prefixes of keys, or of their last component ("a/b/NAME"), whose writes are reported: an array that ends with
     * NULL. */
    const char *const *prefixes;
    /* SET of such a key has been carried out; `anew`: it had a value before. */
    void (*written)(void *user, struct slice key, bool anew);
    /* ADD of `delta` to such a key has made it `sum`. */
    void (*counted)(void *user, struct slice key, int64_t delta, int64_t sum);
    /* A wait for any key begins, or ends at once because all of `keys` exist. */
    void (*waits)(void *user, struct store_waiter *waiter);
    void (*found)(void *user, struct store_waiter *waiter, struct slice keys);
};

enum store_status {
    STORE_OK,
    STORE_WAITS,        /* `wake` will be called, unless store_leave is called first */
    STORE_FULL,         /* quota or memory is used up, nothing has changed */
    STORE_NOT_A_NUMBER, /* the value is not a number, nothing has changed */
};

/* `wake` reports that the waiter's wait is complete and over; it must not call the store. `quota` is borrowed. NULL
 * when memory is short. */
typedef void (*store_wake)(void *user, struct store_waiter *waiter);
struct store *store_new(struct quota *quota, store_wake wake, void *user);
/* The observer is copied; what it points to is borrowed. */
void store_observe(struct store *s, const struct store_observer *observer);
/* No waiter may be pending. */
void store_free(struct store *s);

/* Remove all keys, queues and waits; waiters are left as after store_leave, and none is woken. */
void store_clear(struct store *s);

/* Keys with these hashes (table_hash) will be used soon. Only makes that faster. */
void store_expect(const struct store *s, const uint32_t *hashes, uint32_t n);

/* Bytes are copied. Returned slices are views into the store, valid until its next change. */
enum store_status store_set(struct store *s, struct slice key, struct slice value);
struct slice store_get(const struct store *s, struct slice key); /* empty when missing */
/* Return the holder of `value`, as store_get returned it, so that it can be kept (base/buf.h); NULL when it is
 * shorter than SHARED_MIN or is not the key's value. */
struct shared *store_holder(const struct store *s, struct slice key, struct slice value);
enum store_status store_compare_set(struct store *s, struct slice key, struct slice expected,
                                    struct slice desired, struct slice *current);
enum store_status store_add(struct store *s, struct slice key, int64_t delta, int64_t *sum);
enum store_status store_append(struct store *s, struct slice key, struct slice value);
bool store_delete(struct store *s, struct slice key);
uint64_t store_count(const struct store *s);

/* `pairs` is a list as wire_next reads it: all of it is set, or nothing when it might not fit. */
enum store_status store_multi_set(struct store *s, struct slice pairs);

/* True when every key of the list has a value or a queue that is not empty. */
bool store_check(const struct store *s, struct slice keys);

/* Wait for all keys of the list: STORE_OK when they all exist. Ends the waiter's earlier wait. */
enum store_status store_wait(struct store *s, struct store_waiter *w, struct slice keys);

/* c10d's BARRIER: count the caller at `key`; STORE_OK when it is number `world_size` or later. */
enum store_status store_barrier(struct store *s, struct store_waiter *w, struct slice key,
                                int64_t world_size);

/* End the wait of a connection without a reply, because it sends another request or has closed. */
void store_leave(struct store *s, struct store_waiter *w);

/* The connection has acted (popped, or not) after it was woken for a queue, or is gone. An item that it left is
 * offered to the next one in line. */
void store_acted(struct store *s, struct store_waiter *w);

/* Return how many keys it still waits for, and the n-th of them (n < count). */
uint32_t store_awaited_count(const struct store_waiter *w);
struct slice store_awaited(const struct store_waiter *w, uint32_t n);

struct queue_item;
enum store_status store_push(struct store *s, struct slice queue, struct slice value);
/* Return the oldest item; NULL if the queue is empty. store_front leaves it there. The caller owns the item
 * of store_pop until store_item_free, and *len_before counts it. */
const struct queue_item *store_front(const struct store *s, struct slice queue);
struct queue_item *store_pop(struct store *s, struct slice queue, uint32_t *len_before);
struct slice store_item_value(const struct queue_item *item);
void store_item_free(struct store *s, struct queue_item *item);
uint32_t store_queue_len(const struct store *s, struct slice queue);

/* Walk the keys that have a value: start with NULL; false at the end. The store must not change meanwhile. */
bool store_next(const struct store *s, const struct entry **at, struct slice *key, struct slice *value);

#endif
