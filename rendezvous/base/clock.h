/* clock.h -- the one place that asks the kernel for the time. Only shells include this; the core gets `now_ms`. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Milliseconds (microseconds) of the monotonic clock: steps of the wall clock have no effect. */
uint64_t clock_ms(void);
uint64_t clock_us(void);

/* Microseconds since 1970 by the wall clock: for people, never to measure with. */
uint64_t clock_unix_us(void);

/* A timer that rings so much too late says that this process stood still (stopped, or its virtual machine was): before
 * it judges anybody for being late, it reads for a moment what has come in meanwhile. */
enum { CLOCK_STOOD_STILL_MS = 500, CLOCK_CATCH_UP_MS = 20 };

#endif
