/* comm_thread.h -- a thread that carries out jobs one after the other, in the order in which they were given.
 *
 * It is how a backend whose calls block (comm.h) works while the program goes on: the program posts, computes, and later
 * drains. A job is a collective, which has a deadline of its own and knows of dead peers; so a drain ends, too, and needs
 * no other clock. Whatever a job finds out it leaves in memory of its own: after a drain the poster may read it. */
#ifndef WORKER_CORE_COMM_THREAD_H
#define WORKER_CORE_COMM_THREAD_H

#include "ddp/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane;

/* The poster's memory until the lane is drained. */
struct lane_job {
    void (*run)(void *user, size_t what);
    void *user;
    size_t what;
    uint64_t posted_ns;    /* when, for who wants to know */
    struct lane_job *next; /* the lane's */
};

/* DDP_ERR_NOMEM, or DDP_ERR_LIMIT when there may be no more threads. */
ddp_status lane_open(struct lane **out, struct ddp_err *err);

void lane_post(struct lane *lane, struct lane_job *job);

/* Wait until nothing is left to do. NULL is allowed; from a job itself it returns at once. */
void lane_drain(struct lane *lane);

/* Drains first. NULL is allowed. Not from a job. */
void lane_close(struct lane *lane);

#endif
