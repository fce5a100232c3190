/* quota.h -- limits the memory that clients can make the store allocate. Keys, values, queues, waits and barriers are
 * charged *before* memory is allocated, so a full store rejects requests instead of growing. The charge is the
 * allocated size, which is much larger than the size of a small key. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A limit of memory. A quota may be a share (a part) of another quota, which is its `whole`. A share may use half of
 * the memory that the other shares leave free. If `floor` is larger than this half, the share may use `floor` bytes.
 * All numbers are in bytes.
 *
 * In ddp-rendezvous, each source (a local user or a network, see hub/job.c) has a share of the store. Each job has a
 * share of its source's share. So a source gets no more memory by declaring more jobs. */
struct quota {
    uint64_t used;       /* bytes that are charged now; may exceed the limit after quota_charge */
    uint64_t max;        /* the limit, if `whole` is NULL */
    uint64_t floor;      /* bytes of `whole` that are reserved for this share, used or not */
    struct quota *whole; /* borrowed; NULL if this quota is not a share of another quota */
};

/* Return how many bytes this quota charges to its `whole`: the used bytes, but at least the reserved bytes. */
static inline uint64_t quota_held(const struct quota *q)
{
    return q->used > q->floor ? q->used : q->floor;
}

/* Return the limit of `used`. The limit of a share depends on how much the other shares use. */
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

/* Charge memory that is already allocated, even if this exceeds the limit. A share always holds at least `floor` bytes
 * of `whole`, even while the share uses less. So only bytes above `floor` are charged to `whole`. */
static inline void quota_charge(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used += bytes;
        bytes = quota_held(q) - held;
    }
}

/* Charge `bytes` and return true. If the quota has fewer bytes left, charge nothing and return false. */
static inline bool quota_use(struct quota *q, uint64_t bytes)
{
    if (bytes > quota_left(q))
        return false;
    quota_charge(q, bytes);
    return true;
}

/* Subtract `bytes` that quota_use or quota_charge has charged before. */
static inline void quota_release(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used -= bytes;
        bytes = held - quota_held(q);
    }
}

/* Make `q` a share of `whole`, and move the charge of `q` to `whole`. If `whole` is NULL, make `q` independent. */
static inline void quota_move(struct quota *q, struct quota *whole)
{
    quota_release(q->whole, quota_held(q));
    q->whole = whole;
    quota_charge(whole, quota_held(q));
}

#endif
