/* comm_thread.h -- a thread that runs jobs one after the other, in the order in which they are posted. A program with a
 * blocking backend (backend.h) needs this thread, because otherwise the program could not compute during a
 * collective. */
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

/* A job. The program owns the struct, and keeps it until comm_thread_drain returns. A job writes its result to memory
 * of the program. The program may read the result after comm_thread_drain. */
struct comm_job {
    void (*run)(void *user, size_t what); /* called on the thread, with `user` and `what` */
    void *user;
    size_t what;
    uint64_t posted_ns;    /* time of clock_ns() when the job was posted; 0 without a flight recorder */
    struct comm_job *next; /* set by comm_thread.c */
};

/* Start a thread, which the caller owns. Return DDP_ERR_NOMEM if memory is short, or DDP_ERR_LIMIT if the system allows
 * no more threads. */
ddp_status comm_thread_open(struct comm_thread **out, struct ddp_err *err);

/* Append `job` to the list of jobs, and return without waiting. The program can then compute, and later calls
 * comm_thread_drain. */
void comm_thread_post(struct comm_thread *thread, struct comm_job *job);

/* Wait until all jobs are done. No timeout is needed, because each job is a collective with a deadline. If a job calls
 * this function, return at once. `thread` may be NULL. */
void comm_thread_drain(struct comm_thread *thread);

/* Wait until all jobs are done, and free the thread. A job must not call this function. `thread` may be NULL. */
void comm_thread_close(struct comm_thread *thread);

/* Return the number of cores that this process may use. A container often allows fewer cores than the host has. */
static inline int cores_allowed(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

#endif
