/* futex.h -- sleep until a word in shared memory changes. A thin cover over futex(2). */
#ifndef WORKER_FUTEX_H
#define WORKER_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Return when *word is not `seen`, at a wake-up, or after `ms`; the caller looks for itself which it was. */
static inline void futex_wait(_Atomic uint32_t *word, uint32_t seen, uint32_t ms)
{
    struct timespec limit = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static inline void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
