/* shm_barrier.h -- all ranks of a host come to one point, or learn why not.
 *
 * Happy path: mark what I am doing -> count myself in -> the last one compares all marks, moves the phase
 * on and wakes the others. Waiting is a moment of spinning (only when every rank can have a core of its
 * own), a few sched_yield, then sleep. It goes wrong when: a peer's process ends (noticed at the end of a
 * slice of sleep), the deadline passes, the marks differ, or somebody aborts. Each of these is written
 * into the control page, so all ranks return with the same words, and so do all later barriers. */
#ifndef WORKER_SHM_BARRIER_H
#define WORKER_SHM_BARRIER_H

#include "cpu/peers.h"
#include "cpu/shm_control.h"

struct shm_barrier {
    struct shm_control *control; /* borrowed */
    struct peers peers;
    int rank, world;
    int spins;            /* turns of the spin loop before yielding */
    uint64_t passed;      /* phases that are behind us */
    uint32_t timeout_ms;  /* of the call in progress */
    uint64_t deadline_ms; /* 0 until the call in progress has really waited: most never ask the clock */
};

/* Rank 0 has filled in the pids. DDP_ERR_PEER_LOST names one that is gone already. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* A new call begins: its mark, its time. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have come as often as we have. `compare`: their marks must be equal. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* DDP_OK while nobody has ended or aborted. Never waits. */
ddp_status barrier_check(struct shm_barrier *barrier, struct ddp_err *err);

#endif
