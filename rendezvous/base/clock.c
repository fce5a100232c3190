/* clock.c -- see clock.h. No function returns an error, because clock_gettime cannot fail for CLOCK_MONOTONIC and
 * CLOCK_REALTIME. A condition variable uses CLOCK_REALTIME by default. Pass the result of clock_after_us only to a
 * condition variable that was set to CLOCK_MONOTONIC. */
#include "base/clock.h"

static uint64_t read_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t clock_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t clock_unix_us(void)
{
    return read_us(CLOCK_REALTIME);
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000u;
}

struct timespec clock_after_us(uint64_t us)
{
    const uint64_t until_ns = clock_ns() + us * 1000;
    return (struct timespec){ .tv_sec = (time_t)(until_ns / 1000000000u),
                              .tv_nsec = (long)(until_ns % 1000000000u) };
}
