/* descendants.h -- signal, reap and kill all descendants of this process.
 *
 * Works for a subreaper (descendants_adopt): every orphan becomes our child, so nothing can leave the tree, neither
 * by setsid nor by a double fork. A pid is signalled only while it is certain that it still is a descendant. */
#ifndef LAUNCHER_CONTAIN_DESCENDANTS_H
#define LAUNCHER_CONTAIN_DESCENDANTS_H

#include "base/buf.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Become the one who adopts orphans below us. False: the kernel cannot (errno). */
bool descendants_adopt(void);

/* Send `signal` to every living descendant, parents first. */
void descendants_signal(int signal);

/* Append at most `max` processes below `pid` to `pids`, an array of pid_t: what it has started, and so on. Return how many. */
size_t descendants_below(pid_t pid, size_t max, struct buf *pids);

/* The i-th of such a list. */
static inline pid_t descendants_at(const struct buf *pids, size_t i)
{
    return ((const pid_t *)(const void *)pids->data)[i];
}

/* SIGKILL to all, reap, and again for those born meanwhile, until none is left. False when some are still there after
 * `limit_ms` (unkillable: they hang in the kernel). No other code may wait for children meanwhile. */
bool descendants_kill_all(uint64_t limit_ms);

/* While processes are killed: run before all others, if CAP_SYS_NICE allows it. Linux shares the processor between
 * sessions (autogroup), so a job that forks without end leaves its killer one part in a hundred, and is never caught.
 * Nothing changes for a process with another scheduling policy, nor where the kernel would kill it for this
 * (RLIMIT_RTTIME). Start no child meanwhile. */
struct killer_priority {
    bool raised;
    int policy, slack_ns; /* as they were; a timer may be late by the slack */
};

void killer_priority_raise(struct killer_priority *before);
void killer_priority_restore(const struct killer_priority *before);

/* "1234 (name), 1240 (name)" of the remaining processes, for a message. At most eight are named. */
void descendants_names(struct buf *out);

/* --- stuck ------------------------------------------------------------------------------------------------ */

/* Processes that SIGKILL does not end, and where in the kernel they hang. */

enum { STUCK_MAX = 8 }; /* as many are named */

struct stuck {
    int pid;
    int rank;       /* of the worker; -1 = a process that a worker has started */
    char name[32];  /* of its program, as the kernel keeps it */
    char state;     /* as in /proc/PID/stat, 'D' = does not react to signals; '?' = unknown */
    char where[64]; /* the kernel's function it waits in; "" = the kernel does not tell us */
};

/* Our children that are still there, at most STUCK_MAX; how many. `pids` by local rank. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan);

#endif
