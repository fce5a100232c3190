/* notes.h -- notes of workers, in memory that they share with the benchmark.
 *
 * A launcher's output shows when a text was printed, not when the event happened. So a worker of
 * tests/prog/probe_worker.c writes the time to its own slot, in a file that all workers map. The clock is
 * CLOCK_MONOTONIC, which is the same in all processes. */
#ifndef TESTS_BENCH_NOTES_H
#define TESTS_BENCH_NOTES_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define NOTES_ENV "PROBE_NOTES" /* environment variable with the path of the file of notes */
enum { NOTES_MAX = 256 };

/* Times in ns; 0 = the event has not happened. */
struct note {
    _Atomic int pid;
    _Atomic int64_t ready, told, done; /* told: SIGTERM has arrived; done: the worker is about to end by
                                        * itself */
};

struct notes {
    int workers; /* number of workers; set before the first worker starts */
    struct note of[NOTES_MAX];
};

/* Return the time in ns. Safe in a signal handler. */
static inline int64_t notes_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
