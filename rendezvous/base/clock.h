/* clock.h -- the one place that asks the kernel for the time. Only shells ask; the core gets `now_ms`. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Milliseconds (microseconds, nanoseconds) of the monotonic clock: steps of the wall clock have no effect. */
uint64_t clock_ms(void);
uint64_t clock_us(void);
uint64_t clock_ns(void);

/* Microseconds since 1970 by the wall clock: for people, never to measure with. */
uint64_t clock_unix_us(void);

/* That much from now on the monotonic clock, for a pthread_cond_timedwait by that clock. */
struct timespec clock_after_us(uint64_t us);

/* Of two deadlines; UINT64_MAX = never. */
static inline uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Before a process that stood still (STOOD_STILL_MS) judges anybody for being late, it reads for a moment what has come in
 * meanwhile. */
enum { CLOCK_CATCH_UP_MS = 20 };

#endif
