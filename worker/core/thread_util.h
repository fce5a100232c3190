/* thread_util.h -- threads of the library, and the cores that they may use. */
#ifndef WORKER_CORE_THREAD_UTIL_H
#define WORKER_CORE_THREAD_UTIL_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* Start a thread that receives no signal, because signals belong to the program. Returns 0 or an errno, as
 * pthread_create. The mask is inherited, so it is set around the call. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Return how many cores this process may use: in a container often fewer than the machine has. */
static inline int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

#endif
