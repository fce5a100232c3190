/* notes.h -- notes of workers, in memory that they share with the benchmark.
 *
 * A worker of tests/prog/probe_worker.c writes the time of an event (CLOCK_MONOTONIC) to its slot in a mapped file. */
#ifndef TESTS_BENCH_NOTES_H
#define TESTS_BENCH_NOTES_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define NOTES_ENV "PROBE_NOTES" /* path of the file of notes */
enum { NOTES_MAX = 256 };

/* Times in ns; 0: the event has not happened. */
struct note {
    _Atomic int pid;
    _Atomic int64_t ready, told, done; /* told: SIGTERM has arrived; done: the worker is about to end */
};

struct notes {
    int workers; /* number of workers, set before they start */
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
