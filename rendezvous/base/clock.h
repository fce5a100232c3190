/* clock.h -- the only calls that ask the kernel for the time. The shells call them; the pure modules get
 * `now_ms`. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return the monotonic clock in milliseconds (microseconds, nanoseconds). Steps of the wall clock have no effect. */
uint64_t clock_ms(void);
uint64_t clock_us(void);
uint64_t clock_ns(void);

/* Return microseconds since 1970 by the wall clock: for display, never to measure with. */
uint64_t clock_unix_us(void);

/* Return the time `us` from now on the monotonic clock, for a pthread_cond_timedwait by that clock. */
struct timespec clock_after_us(uint64_t us);

/* Return the earlier of two deadlines; UINT64_MAX = never. */
static inline uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* After a pause (STOOD_STILL_MS) a process first reads its input for this long. Otherwise it would count peers as
 * late whose messages have arrived. */
enum { CLOCK_CATCH_UP_MS = 20 };

#endif
