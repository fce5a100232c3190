/* shared.h -- bytes with several holders: a value of the store, and the replies that still have to be sent from it.
 *
 * The last holder to release them frees them. Bytes that have another holder must not be changed. One thread. */
#ifndef BASE_SHARED_H
#define BASE_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHARED_MIN = 64 << 10 }; /* it pays to hold so many bytes instead of copying them */

struct shared {
    uint32_t holders;
    size_t size; /* of `bytes` */
    uint8_t bytes[];
};

/* Room for `size` bytes that begins with the first `keep` bytes of `old`, which is released; NULL is an empty one. The same memory
 * if nobody else holds it. NULL when memory is short: `old` is unchanged. */
struct shared *shared_resize(struct shared *old, size_t size, size_t keep);

struct shared *shared_hold(struct shared *s);

/* NULL is allowed. */
void shared_release(struct shared *s);

static inline bool shared_is_held_twice(const struct shared *s)
{
    return s != NULL && s->holders > 1;
}

#endif
