/* comm_thread.h -- a thread that carries out jobs one after the other, in the order in which they were given.
 *
 * A backend whose calls block (backend.h) works on it while the program goes on: the program posts, computes, and
 * later drains. A job is a collective, which has a deadline and detects dead peers; so a drain ends, too, and needs
 * no clock. A job leaves its result in memory of the poster, which may read it after a drain. */
#ifndef WORKER_CORE_COMM_THREAD_H
#define WORKER_CORE_COMM_THREAD_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comm_thread;

/* The poster's memory until the thread is drained. */
struct comm_job {
    void (*run)(void *user, size_t what);
    void *user;
    size_t what;
    uint64_t posted_ns;    /* when, for the flight recorder */
    struct comm_job *next; /* the thread's */
};

/* DDP_ERR_NOMEM, or DDP_ERR_LIMIT when there may be no more threads. */
ddp_status comm_thread_open(struct comm_thread **out, struct ddp_err *err);

void comm_thread_post(struct comm_thread *thread, struct comm_job *job);

/* Wait until nothing is left to do. NULL is allowed; from a job itself it returns at once. */
void comm_thread_drain(struct comm_thread *thread);

/* Drains first. NULL is allowed. Not from a job. */
void comm_thread_close(struct comm_thread *thread);

#endif
