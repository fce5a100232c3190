/* quota.h -- one budget for everything a peer can make the store keep, and the share of each job in it.
 *
 * Keys, values, queues, waits, barriers and half-received requests are taken from it *before* memory is
 * asked for, so a full store refuses instead of growing. Sizes are what is allocated, not only what was
 * sent: a flood of one-byte keys is as expensive here as it is in memory. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quota {
    uint64_t used;
    uint64_t max;
    struct quota
        *whole; /* borrowed; this quota is a share of it. NULL: it is no share, and `max` is its limit */
};

/* A share may hold at most half of what the other shares have left, so that the next job always finds room. */
static inline uint64_t quota_limit(const struct quota *q)
{
    if (q->whole == NULL)
        return q->max;
    const uint64_t others = q->whole->used - q->used;
    return q->whole->max > others ? (q->whole->max - others) / 2 : 0;
}

static inline uint64_t quota_left(const struct quota *q)
{
    const uint64_t limit = quota_limit(q);
    return limit > q->used ? limit - q->used : 0;
}

/* Charge what is allocated already, even past the limit. */
static inline void quota_charge(struct quota *q, uint64_t bytes)
{
    q->used += bytes;
    if (q->whole != NULL)
        q->whole->used += bytes;
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
    q->used -= bytes;
    if (q->whole != NULL)
        q->whole->used -= bytes;
}

#endif
