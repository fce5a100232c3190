/* quota.h -- one memory limit for everything that peers can make the store keep, and the shares of sources and jobs
 * in it.
 *
 * Keys, values, queues, waits, barriers and half-received requests are charged *before* memory is allocated, so a
 * full store rejects requests instead of growing. The charge is the allocated size and not only the bytes sent, so a
 * flood of one-byte keys is charged in full.
 *
 * A share may hold at most half of what its siblings leave of the whole. In ddp-rendezvous the jobs that one source
 * declared share the source's share of the store, so more job names give a source no more room. A share's `floor` is
 * reserved for it in the whole, hence no sibling and no other source can prevent it from holding that much. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota {
    uint64_t used;
    uint64_t max;
    uint64_t floor;      /* reserved in `whole` even if it is not used */
    struct quota *whole; /* borrowed; this quota is a share of it. NULL: `max` is its limit */
};

/* Return the part of `whole` that this share uses or reserves. */
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

/* Charge memory that is already allocated, even past the limit. */
static inline void quota_charge(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used += bytes;
        bytes = quota_held(q) - held;
    }
}

static inline bool quota_take(struct quota *q, uint64_t bytes)
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

/* Make `q`, with its charges, a share of `whole`, or of nothing if that is NULL. */
static inline void quota_move(struct quota *q, struct quota *whole)
{
    quota_give(q->whole, quota_held(q));
    q->whole = whole;
    quota_charge(whole, quota_held(q));
}

#endif
