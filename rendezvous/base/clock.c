/* clock.c -- see clock.h. */
#include "clock.h"

#include <time.h>

uint64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

uint64_t clock_ms(void)
{
    return clock_us() / 1000u;
}
