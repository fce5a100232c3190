/* clock.h -- the only functions that read the time from the kernel. Modules with sockets or processes call these
 * functions. Pure modules (scripts/pure-modules) get the time as an argument, so that tests can simulate the time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return the monotonic clock in milliseconds, microseconds or nanoseconds. The clock has no defined start, and does
 * not change when the wall clock is set. */
uint64_t clock_ms(void);
uint64_t clock_us(void);
uint64_t clock_ns(void);

/* Return microseconds since 1970 by the wall clock. Use this time only for display, not to measure durations. */
uint64_t clock_unix_us(void);

/* Return the monotonic time `us` microseconds from now, as a deadline for pthread_cond_timedwait. */
struct timespec clock_after_us(uint64_t us);

/* Return the earlier of two deadlines. UINT64_MAX is a deadline that never passes. */
static inline uint64_t earlier_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* After a suspension, a process first reads its input for this many ms, and then checks deadlines. Otherwise the
 * process would treat peers as late, although their messages have arrived meanwhile. */
enum { CLOCK_CATCH_UP_MS = 20 };

#endif
