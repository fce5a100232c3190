/* heartbeat.h -- the part of a heartbeat that describes each worker's process: only the changes since the last one.
 *
 * It separates a rank that waits for others from one that is stopped, hangs in the kernel or uses its CPU, without a
 * login on its node. */
#ifndef LAUNCHER_NODE_HEARTBEAT_H
#define LAUNCHER_NODE_HEARTBEAT_H

#include "record/flight.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

enum { BEAT_WHERE_MAX = 48, BEAT_CPU_STEP = 20, BEAT_CPU_SHARE = 5 };

/* A sample of a process. */
struct beat_look {
    uint64_t at_us;             /* when */
    char state;                 /* the letter of /proc/PID/stat; 0 = it is gone, or was not read */
    uint64_t cpu_ticks;         /* used since its start */
    char where[BEAT_WHERE_MAX]; /* the kernel function it sleeps in; "" = none, or not known */
};

/* The last state of a worker that the store has. Zeroed: none. */
struct beat_known {
    int pid; /* its process; a new one starts a new record */
    char state;
    int cpu_percent; /* percent of one processor */
    char where[BEAT_WHERE_MAX];
    uint64_t at_us, cpu_ticks; /* of the last sample, for the share of time */
};

/* Sample worker `local_rank`, process `pid`; if it has changed, append a row to the array `workers`: [local_rank,
 * "S", cpu percent, "futex_wait_queue"]. A share that moves by less than BEAT_CPU_STEP is not a change. */
void beat_take(struct beat_known *known, int local_rank, int pid, const struct beat_look *look,
               uint64_t ticks_per_s, struct cJSON *workers);

/* A sample of a worker's page (record/flight.h). */
struct beat_step_look {
    uint64_t step, records, call; /* from the page's head; `records` 0 = it writes none */
    char word[FLIGHT_WORD];       /* the call it waits in; "" = it computes */
};

/* The last state of a worker's steps that the store has. Zeroed: none. */
struct beat_step {
    int pid;
    uint64_t step, call;
};

/* If the worker has moved since the last sample, or is new, append a row to the array `steps` (NULL = not wanted):
 * [local_rank, step or -1, number of the call, "all_reduce" or ""]. */
void beat_take_step(struct beat_step *known, int local_rank, int pid, const struct beat_step_look *look,
                    struct cJSON *steps);

#endif
