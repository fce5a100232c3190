/* comm_thread.h -- a thread that runs jobs one after the other, in the order of posting.
 *
 * A blocking backend (backend.h) uses the thread so that the program continues during a call: the program posts a
 * job, computes, and later drains the thread. A job is a collective, which has a deadline and detects dead peers. So
 * each drain ends and needs no timeout. A job leaves its result in the poster's memory, which the poster may read
 * after a drain. */
#ifndef WORKER_CORE_COMM_THREAD_H
#define WORKER_CORE_COMM_THREAD_H

#include <signal.h>
#include <sched.h>
#include <pthread.h>
#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm_thread;

/* The poster owns the struct and must keep it until the thread is drained. */
struct comm_job {
    void (*run)(void *user, size_t what);
    void *user;
    size_t what;
    uint64_t posted_ns;    /* time of posting, for the flight recorder */
    struct comm_job *next; /* for the thread only */
};

/* Start a thread. Return DDP_ERR_NOMEM if memory is short, or DDP_ERR_LIMIT if the system allows no more threads. */
ddp_status comm_thread_open(struct comm_thread **out, struct ddp_err *err);

void comm_thread_post(struct comm_thread *thread, struct comm_job *job);

/* Wait until all jobs are done. NULL is allowed. Inside a job the function returns at once. */
void comm_thread_drain(struct comm_thread *thread);

/* Wait until all jobs are done, then free the thread. NULL is allowed. Must not be called from a job. */
void comm_thread_close(struct comm_thread *thread);

/* --- threads of the library, and the cores available to them --- */

/* Start a thread that receives no signal, because signals belong to the program. Return 0 or an errno, as
 * pthread_create does. A new thread inherits the signal mask, so the mask is changed around the call. */
static inline int thread_start(pthread_t *thread, void *(*run)(void *), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, run, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Return how many cores this process may use. A container often allows fewer cores than the machine has. */
static inline int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

#endif
