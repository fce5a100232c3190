/* descendants.h -- signal, reap and kill all descendants of this process. It must be a subreaper (descendants_adopt),
 * so that every orphan becomes its child, even after setsid or a double fork. */
#ifndef LAUNCHER_CONTAIN_DESCENDANTS_H
#define LAUNCHER_CONTAIN_DESCENDANTS_H

#include "base/buf.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Make this process adopt all orphans among its descendants. Return false and set errno if the kernel cannot do
 * this. */
bool descendants_adopt(void);

/* Exclude the present children of this process from all functions below, such as the `tee` of a shell that became
 * ddprun. If an excluded process ends, its children are adopted and killed. A forked process must call this again. */
void descendants_spare(void);

/* Send `signal` to every living descendant, parents first. No other process gets it, even if a pid is reused. */
void descendants_signal(int signal);

/* Append at most `max` descendants of `pid` to `pids`, an array of pid_t: the children, then their children, and so on.
 * Return the number of appended processes. */
size_t descendants_below(pid_t pid, size_t max, struct buf *pids);

/* Return the process that runs the program of a worker: `worker`, or the Python process for which a shell script waits.
 * On a kernel without lists of children, return `worker`. */
pid_t descendants_program(pid_t worker);

/* Return element `i` of an array of descendants_below(). */
static inline pid_t descendants_at(const struct buf *pids, size_t i)
{
    return ((const pid_t *)(const void *)pids->data)[i];
}

/* Send SIGKILL to all descendants and reap them, until none is left. Return false if a process remains after
 * `limit_ms`. No other code may wait for children meanwhile. */
bool descendants_kill_all(uint64_t limit_ms);

/* The priority of this process while it kills a job that forks without end. Start no child while it is raised, because
 * the child would inherit it. Exceptions: it is not raised without CAP_SYS_NICE, with a real-time policy, or with
 * RLIMIT_RTTIME. */
struct killer_priority {
    bool raised;
    int policy, slack_ns; /* scheduling policy and timer slack before */
};

/* Raise the priority and keep the old one in *before; killer_priority_restore restores it. */
void killer_priority_raise(struct killer_priority *before);
void killer_priority_restore(const struct killer_priority *before);

/* Append the pids and names of at most eight children of this process: "1234 (name), 1240 (name)". */
void descendants_names(struct buf *out);

/* --- hanging processes ------------------------------------------------------------------------------------ */

/* Processes that SIGKILL does not end, and the kernel functions in which they hang. */

enum { STUCK_MAX = 8 }; /* largest number of listed processes */

struct stuck {
    int pid;
    int rank;       /* rank of the worker; -1: not a worker */
    char name[32];  /* program name from /proc/PID/comm */
    char state;     /* letter from /proc/PID/stat, 'D' if signals have no effect; '?' if unknown */
    char where[64]; /* the kernel function in which the process waits; "" if unknown */
};

/* List the remaining children of this process, at most STUCK_MAX, and return their number. `pids` has the workers'
 * pids by local rank. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan);

#endif
