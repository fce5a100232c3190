/* descendants.h -- signal, reap and kill all descendants of this process. This process must be a subreaper
 * (descendants_adopt), because every orphan becomes a child of the nearest subreaper. So no process can leave the tree,
 * neither by setsid nor by a double fork. */
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

/* Exclude the present children of this process from all functions below. These children are not part of the job: for
 * example, a shell may start `tee` and then replace itself with ddprun. If an excluded child ends, this process adopts
 * the children of the excluded child. The adopted processes are not excluded, so they are killed with the job. A forked
 * process must call this function again, because the inherited list contains the children of the parent. */
void descendants_spare(void);

/* Send `signal` to every living descendant, parents first. The functions of this file never signal a process that is
 * not a descendant, even if a pid is reused. */
void descendants_signal(int signal);

/* Append at most `max` descendants of `pid` to `pids`, an array of pid_t: first the children, then the children of
 * these children, and so on. Return the number of appended processes. The caller frees `pids` with buf_free. The pids
 * are not held, so a process may end and its pid may be reused at any time. */
size_t descendants_below(pid_t pid, size_t max, struct buf *pids);

/* Return the process that runs the program of a worker. A worker may be a shell script that starts Python, perhaps in a
 * pipe, and waits. In this case return the Python process. In all other cases return `worker`. Return `worker`, too, if
 * the kernel has no lists of children, because a search would take too long. */
pid_t descendants_program(pid_t worker);

/* Return element `i` of the array that descendants_below() has filled. */
static inline pid_t descendants_at(const struct buf *pids, size_t i)
{
    return ((const pid_t *)(const void *)pids->data)[i];
}

/* Send SIGKILL to all descendants, reap them, and repeat until no descendant is left. Return false if a process
 * remains after `limit_ms`, because it hangs in the kernel. No other code may wait for children at the same time. */
bool descendants_kill_all(uint64_t limit_ms);

/* The priority of this process while it kills. Without a higher priority, a job that forks without end leaves too
 * little processor time for this process. The kernel permits a higher priority only with CAP_SYS_NICE. A process with a
 * real-time scheduling policy, or with RLIMIT_RTTIME, keeps its priority. Start no child while the priority is raised,
 * because the child would inherit it. */
struct killer_priority {
    bool raised;
    int policy, slack_ns; /* scheduling policy and timer slack before the priority was raised */
};

/* Raise the priority, and keep the old priority in *before. killer_priority_restore restores the old priority. */
void killer_priority_raise(struct killer_priority *before);
void killer_priority_restore(const struct killer_priority *before);

/* Append the pids and names of at most eight children of this process: "1234 (name), 1240 (name)". */
void descendants_names(struct buf *out);

/* --- hanging processes ------------------------------------------------------------------------------------ */

/* Processes that SIGKILL does not end, and the kernel functions in which they hang. */

enum { STUCK_MAX = 8 }; /* largest number of listed processes */

struct stuck {
    int pid;
    int rank;       /* rank of the worker; -1 if the process is not a worker */
    char name[32];  /* program name from /proc/PID/comm */
    char state;     /* letter from /proc/PID/stat: 'D' if signals have no effect; '?' if it is unknown */
    char where[64]; /* the kernel function in which the process waits; "" if the kernel does not report it */
};

/* List the remaining children of this process, at most STUCK_MAX, and return their number. `pids` has the workers'
 * pids by local rank. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan);

#endif
