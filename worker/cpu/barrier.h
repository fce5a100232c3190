/* barrier.h -- all ranks of a host come to one point, or learn why not.
 *
 * Happy path: mark what I am doing -> count myself in -> the last one compares all marks, moves the phase on and
 * wakes the others. Waiting is a moment of spinning (only when every rank can have a core), a few sched_yield, then
 * sleep. It goes wrong when: a peer's process ends (noticed at the end of a slice of sleep), the deadline passes, the
 * marks differ, or a rank aborts. Each of these is written into the control page, so all ranks return with the same
 * words, and so do all later barriers. */
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
    /* Has anybody there gone? Never waits. */
    ddp_status (*check)(void *user, struct ddp_err *err);
    /* This host gives up because of `err`. Tell the other hosts, and take over the words of the host that was first;
     * takes a moment. Any thread. */
    void (*publish)(void *user, struct ddp_err *err);
};

struct shm_barrier {
    struct shm_control *control;         /* borrowed */
    const struct barrier_abroad *abroad; /* borrowed; NULL: all ranks are on this host */
    struct peers peers;
    int rank, world;
    int spins;            /* turns of the spin loop before yielding */
    uint64_t passed;      /* phases that are behind us */
    uint32_t timeout_ms;  /* of the call in progress */
    uint32_t slack_ms;    /* beyond it */
    uint64_t deadline_ms; /* 0 until the call in progress has really waited: most never ask the clock */
};

/* Rank 0 has filled in the pids. DDP_ERR_PEER_LOST names one that is gone already. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* A new call begins: its mark, its time. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have called this as often as we have. `compare`: their marks must be equal. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* DDP_OK while no rank has ended or aborted. Never waits. `in_call`: this rank is in the call of its mark, else after
 * it. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err);

/* Break off for all ranks because of `err`, which gets the words of who was first; returns its code. Any thread. */
ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err);

/* The clock of the call in progress, for waits of another kind. *slice_ms: how long to wait before looking around
 * again. False: its time is over. The barriers that follow have a second more, so that who waits for something
 * else than ranks of this host can say what it was. */
bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms);

#endif
