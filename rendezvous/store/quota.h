/* quota.h -- a limit of the memory that peers can make the store allocate, and the shares of sources and jobs.
 *
 * Keys, values, queues, waits, barriers and incomplete requests are charged *before* memory is allocated, so a full
 * store rejects requests instead of growing. The charge is the allocated size, which is much larger than a small key.
 *
 * A quota may be a share of another quota, its `whole`. A share may use at most half of the memory that the other
 * shares leave. In ddp-rendezvous, each source has a share of the store, and each job has a share of its source's
 * share. So a source gets no more memory by declaring more jobs. `floor` bytes of the whole are reserved for the
 * share. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota {
    uint64_t used;
    uint64_t max;
    uint64_t floor; /* number of bytes that are reserved in `whole`, whether used or not */
    /* Borrowed: the quota of which this quota is a share. NULL = this quota is no share; `max` is its limit. */
    struct quota *whole;
};

/* Return the number of bytes that this quota uses or reserves. */
static inline uint64_t quota_held(const struct quota *q)
{
    return q->used > q->floor ? q->used : q->floor;
}

static inline uint64_t quota_limit(const struct quota *q)
{
    if (q->whole == NULL)
        return q->max;
    const uint64_t limit = quota_limit(q->whole), others = q->whole->used - quota_held(q);
    const uint64_t half = limit > others ? (limit - others) / 2 : 0;
    return half > q->floor ? half : q->floor;
}

static inline uint64_t quota_left(const struct quota *q)
{
    const uint64_t limit = quota_limit(q);
    return limit > q->used ? limit - q->used : 0;
}

/* Charge memory that is allocated already, even beyond the limit. */
static inline void quota_charge(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used += bytes;
        bytes = quota_held(q) - held;
    }
}

static inline bool quota_use(struct quota *q, uint64_t bytes)
{
    if (bytes > quota_left(q))
        return false;
    quota_charge(q, bytes);
    return true;
}

static inline void quota_give(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used -= bytes;
        bytes = held - quota_held(q);
    }
}

/* Make `q` a share of `whole`, and move its charges to `whole`. NULL = make `q` independent. */
static inline void quota_move(struct quota *q, struct quota *whole)
{
    quota_give(q->whole, quota_held(q));
    q->whole = whole;
    quota_charge(whole, quota_held(q));
}

#endif
