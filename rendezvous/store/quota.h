/* quota.h -- limits the memory that clients can make the store allocate. Memory is charged *before* it is allocated, so
 * a full store rejects requests. The charge is the allocated size, which is much larger than a small key. */
#ifndef RENDEZVOUS_QUOTA_H
#define RENDEZVOUS_QUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A limit of memory, in bytes. A quota may be a share of another quota, its `whole`. Its limit is half of the memory
 * that the other shares leave free, but at least `floor`.
 *
 * In ddp-rendezvous, each source (a local user or a network, see hub/job.c) has a share of the store, and each job a
 * share of its source's share. So a source gets no more memory by declaring more jobs. */
struct quota {
    uint64_t used;       /* bytes that are charged now; may exceed the limit (quota_charge) */
    uint64_t max;        /* the limit, if `whole` is NULL */
    uint64_t floor;      /* bytes of `whole` that are reserved for this share, used or not */
    struct quota *whole; /* borrowed; NULL if this quota is not a share */
};

/* Return how many bytes this quota charges to its `whole`. */
static inline uint64_t quota_held(const struct quota *q)
{
    return q->used > q->floor ? q->used : q->floor;
}

/* Return the limit of `used`. */
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

/* Charge memory that is already allocated, even above the limit. `whole` has counted the `floor` bytes of a share from
 * the beginning, so charge it only for the bytes above. */
static inline void quota_charge(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used += bytes;
        bytes = quota_held(q) - held;
    }
}

/* Charge `bytes` and return true, or return false if the quota has fewer bytes left. */
static inline bool quota_use(struct quota *q, uint64_t bytes)
{
    if (bytes > quota_left(q))
        return false;
    quota_charge(q, bytes);
    return true;
}

/* Subtract charged `bytes`. */
static inline void quota_release(struct quota *q, uint64_t bytes)
{
    for (; q != NULL; q = q->whole) {
        const uint64_t held = quota_held(q);
        q->used -= bytes;
        bytes = held - quota_held(q);
    }
}

/* Make `q` a share of `whole`, and move the charge of `q` there. `whole` may be NULL. */
static inline void quota_move(struct quota *q, struct quota *whole)
{
    quota_release(q->whole, quota_held(q));
    q->whole = whole;
    quota_charge(whole, quota_held(q));
}

#endif
