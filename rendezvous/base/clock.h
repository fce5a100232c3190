/* clock.h -- the only functions that read the time from the kernel. Pure modules (scripts/pure-modules) get the time as
 * an argument, so that tests can simulate it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return the monotonic clock in milliseconds, microseconds or nanoseconds. */
uint64_t clock_ms(void);
uint64_t clock_us(void);
uint64_t clock_ns(void);

/* Return microseconds since 1970 by the wall clock; only for display. */
uint64_t clock_unix_us(void);

/* Return the monotonic time `us` microseconds from now, as a deadline for pthread_cond_timedwait. */
struct timespec clock_after_us(uint64_t us);

/* Return the earlier of two deadlines; UINT64_MAX never passes. */
static inline uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Time in ms in which a suspended process reads its input before it checks deadlines. The messages of its peers may
 * already have arrived. */
enum { CLOCK_CATCH_UP_MS = 20 };

#endif
