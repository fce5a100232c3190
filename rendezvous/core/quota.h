/* quota.h -- one budget for everything a peer can make the store keep.
 *
 * Keys, values, queues, waits, barriers and half-received requests are taken from it *before* memory is
 * asked for, so a full store refuses instead of growing. Sizes are what is allocated, not only what was
 * sent: a flood of one-byte keys is as expensive here as it is in memory. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct quota {
    uint64_t used;
    uint64_t max;
};

static inline uint64_t quota_left(const struct quota *q)
{
    return q->max > q->used ? q->max - q->used : 0;
}

static inline bool quota_take(struct quota *q, uint64_t bytes)
{
    if (bytes > quota_left(q))
        return false;
    q->used += bytes;
    return true;
}

static inline void quota_give(struct quota *q, uint64_t bytes)
{
    q->used -= bytes;
}

#endif
