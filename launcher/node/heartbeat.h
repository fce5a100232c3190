/* heartbeat.h -- the part of a heartbeat that describes the workers' processes. This part contains only the changes
 * since the previous heartbeat.
 *
 * From this part the store knows which ranks only wait for other ranks, and which rank is stopped, hangs in the kernel
 * or computes. */
#ifndef LAUNCHER_NODE_HEARTBEAT_H
#define LAUNCHER_NODE_HEARTBEAT_H

#include "record/flight.h"

#include <stdint.h>

struct cJSON;

enum {
    BEAT_WHERE_MAX = 48, /* bytes of the name of a kernel function, with the NUL; a longer name is cut */
    BEAT_CPU_STEP = 20,  /* smallest change of the CPU share that is reported, in percent of one processor */
    /* smallest CPU share of a process that counts as running, in percent of one processor */
    BEAT_CPU_SHARE = 5
};

/* A sample of a process. */
struct heartbeat_sample {
    uint64_t at_us;             /* time of the sample, monotonic, in us */
    char state;                 /* state letter in /proc/PID/stat; 0 if the process is gone or was not read */
    uint64_t cpu_ticks;         /* CPU time since the start of the process, in clock ticks */
    char where[BEAT_WHERE_MAX]; /* the kernel function in which the process sleeps; "" if none is known */
};

/* The state of a worker in the last report to the store. A zeroed struct means that no state was reported. */
struct heartbeat_known {
    int pid; /* pid of the process; a change of this pid resets the struct */
    char state;
    int cpu_percent; /* CPU share in percent of one processor */
    char where[BEAT_WHERE_MAX];
    uint64_t at_us, cpu_ticks; /* time and CPU time of the last sample, to compute the CPU share */
};

/* Compare a sample of process `pid` with `known`, the last reported state of worker `local_rank`. If the state has
 * changed, append a row to the array `workers`: [local_rank, "S", CPU share in percent, "futex_wait_queue"]. Ignore a
 * change of the CPU share that is smaller than BEAT_CPU_STEP and does not cross BEAT_CPU_SHARE. `program` is 0 if `pid`
 * is the worker itself. If `pid` is a program that the worker started, `program` is the pid of this program outside the
 * PID namespace. The row then ends with `program`. */
void heartbeat_compare(struct heartbeat_known *known, int local_rank, int pid, int program,
                       const struct heartbeat_sample *sample, uint64_t ticks_per_s, struct cJSON *workers);

/* The position of a worker: its training step and its latest collective call. A sample is read from the worker's page
 * of shared memory (record/flight.h). */
struct heartbeat_step_sample {
    /* copied from struct flight; `records` is 0 if the worker has recorded no call or has no page */
    uint64_t step, records, call;
    char word[FLIGHT_WORD]; /* the call in which the worker waits; "" if it waits in no call */
};

/* Read a worker's position from its page. `page` is NULL if the worker has no page. */
struct heartbeat_step_sample beat_read_step(const struct flight *page);

/* The position of a worker in the last report to the store. A zeroed struct means that no position was reported. */
struct heartbeat_step {
    int pid;
    uint64_t step, call;
};

/* Append a row to the array `steps`: [local_rank, step or -1, number of the call, "all_reduce" or ""]. Then copy pid,
 * step and call to `known`, the last reported position. Do nothing if pid, step and call have not changed, if the
 * worker has recorded no call, or if `steps` is NULL. */
void heartbeat_compare_step(struct heartbeat_step *known, int local_rank, int pid,
                            const struct heartbeat_step_sample *sample, struct cJSON *steps);

#endif
