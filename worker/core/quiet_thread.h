/* quiet_thread.h -- a thread of the library. Signals are the program's: its handlers run on its own threads. */
#ifndef WORKER_CORE_QUIET_THREAD_H
#define WORKER_CORE_QUIET_THREAD_H

#include <pthread.h>
#include <signal.h>

/* 0 or an errno, as pthread_create. The mask is inherited, so it is set around the call. */
static inline int quiet_thread(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
