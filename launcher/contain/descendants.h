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

/* Make this process adopt orphans below it. False: the kernel cannot (errno). */
bool descendants_adopt(void);

/* Send `signal` to every living descendant, parents first. */
void descendants_signal(int signal);

/* Append at most `max` processes below `pid` to `pids`, an array of pid_t: its children, their children, and so on. Return their number. */
size_t descendants_below(pid_t pid, size_t max, struct buf *pids);

/* Return the i-th of such a list. */
static inline pid_t descendants_at(const struct buf *pids, size_t i)
{
    return ((const pid_t *)(const void *)pids->data)[i];
}

/* Send SIGKILL to all, reap, and repeat for new ones until none is left. False when some are still there after
 * `limit_ms` (unkillable: they hang in the kernel). No other code may wait for children at the same time. */
bool descendants_kill_all(uint64_t limit_ms);

/* Run before all other processes while killing, if CAP_SYS_NICE allows it. Linux shares the processor between
 * sessions (autogroup), so a job that forks without end leaves its killer one percent of it and is never caught. A
 * process with another scheduling policy, or with RLIMIT_RTTIME, is left unchanged. Start no child in this state. */
struct killer_priority {
    bool raised;
    int policy, slack_ns; /* previous values; a timer may be late by the slack */
};

void killer_priority_raise(struct killer_priority *before);
void killer_priority_restore(const struct killer_priority *before);

/* Append "1234 (name), 1240 (name)" of the remaining processes, for a message. At most eight are named. */
void descendants_names(struct buf *out);

/* --- hanging processes ------------------------------------------------------------------------------------ */

/* Processes that SIGKILL does not end, and where in the kernel they hang. */

enum { STUCK_MAX = 8 }; /* at most this many are listed */

struct stuck {
    int pid;
    int rank;       /* rank of the worker; -1 = a process that a worker has started */
    char name[32];  /* name of its program, as the kernel keeps it */
    char state;     /* as in /proc/PID/stat, 'D' = does not react to signals; '?' = unknown */
    char where[64]; /* the kernel function it waits in; "" = the kernel does not report it */
};

/* List our remaining children, at most STUCK_MAX; return how many. `pids` by local rank. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan);

#endif
