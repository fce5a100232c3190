/* cores.h -- how many cores this process may use: in a container often fewer than the machine has. */
#ifndef WORKER_CORE_CORES_H
#define WORKER_CORE_CORES_H

#include <sched.h>

static inline int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

#endif
