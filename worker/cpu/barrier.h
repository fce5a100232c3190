/* barrier.h -- all ranks of a host meet at one point, or get the reason why not.
 *
 * Happy path: write the mark of this call -> count the arrival -> the last rank compares all marks, advances the
 * phase and wakes the others. Waiting is a moment of spinning (only when every rank can have a core), a few
 * sched_yield, then sleep. Failures: a peer's process ends (detected at the end of a slice of sleep), the deadline
 * passes, the marks differ, or a rank aborts. Each is written to the control page, so all ranks return the same text,
 * and so do all later barriers. */
#ifndef WORKER_CPU_BARRIER_H
#define WORKER_CPU_BARRIER_H

#include "cpu/shm.h"
#include "ddp/error.h"

#include <stdint.h>

struct pollfd;

struct peers {
    struct pollfd *fds; /* one for each rank; our own is -1, which poll ignores */
    int world;
};

/* The calls of a barrier that concern other hosts. */
struct barrier_abroad {
    void *user;
    /* True if a rank of another host has gone. Never waits. */
    ddp_status (*check)(void *user, struct ddp_err *err);
    /* This host gives up because of `err`. Notify the other hosts, and take over the reason of the host that was
     * first; takes a moment. Any thread. */
    void (*publish)(void *user, struct ddp_err *err);
};

struct shm_barrier {
    struct shm_control *control;         /* borrowed */
    const struct barrier_abroad *abroad; /* borrowed; NULL: all ranks are on this host */
    struct peers peers;
    int rank, world;
    int spins;           /* iterations of the spin loop before yielding */
    uint64_t passed;     /* number of phases that have passed */
    uint32_t timeout_ms; /* deadline of the call in progress */
    uint32_t slack_ms;   /* beyond it */
    uint64_t
        deadline_ms; /* 0 until the call in progress has really waited, because most never need the clock */
};

/* Rank 0 has filled in the pids. DDP_ERR_PEER_LOST names one that has already ended. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* Begin a new call: its mark, its time. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have called this as often as this one. `compare`: their marks must be equal. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* DDP_OK while no rank has ended or aborted. Never waits. `in_call`: this rank is in the call of its mark, otherwise
 * after it. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err);

/* Break off for all ranks because of `err`, which gets the reason of the first rank; return its code. Any thread. */
ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err);

/* Return the time left for the call in progress, for other kinds of waits. *slice_ms: how long to wait before the
 * next check. False: its time is over. The barriers that follow have a second more, so that a rank that waits for
 * something else than ranks of this host can report it. */
bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms);

#endif
