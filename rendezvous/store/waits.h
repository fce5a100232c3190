/* waits.h -- the bookkeeping behind store_wait: one wait, one link for each key it misses.
 *
 *                    slot "/a"   slot "/b"   slot "/c"
 *     wait of conn 1:  link -------link                   misses 2
 *     wait of conn 2:              link --------link      misses 2
 *                                   |
 *                         the line of "/b", from top to bottom
 *
 * A link sits in the slot's line and in the wait's array, so both ends find it without searching: a key that
 * arrives walks its line, a connection that leaves walks its own array. */
#ifndef RENDEZVOUS_WAITS_H
#define RENDEZVOUS_WAITS_H

#include "store/slot.h"
#include "store/store.h"

struct wait_link {
    struct slot *slot; /* NULL once the key has come */
    struct wait *wait;
    struct wait_link *prev, *next; /* the first one's `prev` is the last */
};

struct wait {
    struct store_waiter *owner;
    uint32_t missing; /* links that still have a slot */
    uint32_t links;
    uint32_t room; /* links there is memory for */
    struct wait_link link[];
};

/* A wait of `owner` with room for `links`; NULL when memory or budget is short. */
struct wait *wait_new(struct slots *slots, struct store_waiter *owner, uint32_t links);

/* Stand in the line of `slot`, unless this wait stands there already (a key named twice). */
void wait_add(struct wait *wait, struct slot *slot);

/* Leave all lines and free the wait; slots that nobody needs any more go with it. */
void wait_free(struct slots *slots, struct wait *wait);

/* The key of this link has come. Returns the waiter when that was the last one its wait missed; the wait is
 * freed then. The slot is not settled. */
struct store_waiter *wait_satisfy(struct slots *slots, struct wait_link *link);

#endif
