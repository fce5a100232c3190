/* stuck.h -- processes that SIGKILL does not end, and where in the kernel they hang. */
#ifndef LAUNCHER_STUCK_H
#define LAUNCHER_STUCK_H

#include "plan/plan.h"

#include <sys/types.h>

enum { STUCK_MAX = 8 }; /* as many are named */

struct stuck {
    int pid;
    int rank;       /* of the worker; -1 = a process that a worker has started */
    char name[32];  /* of its program, as the kernel keeps it */
    char state;     /* as in /proc/PID/stat, 'D' = does not hear signals; '?' = not to be learnt */
    char where[64]; /* the kernel's function it waits in; "" = the kernel does not tell us */
};

/* Our children that are still there, at most STUCK_MAX; how many. `pids` by local rank. */
size_t stuck_find(struct stuck found[STUCK_MAX], const pid_t *pids, const struct plan *plan);

#endif
