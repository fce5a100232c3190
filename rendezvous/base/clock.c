/* clock.c -- see clock.h. */
#include "clock.h"

#include <time.h>

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
