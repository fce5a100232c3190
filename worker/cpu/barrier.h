/* barrier.h -- all ranks of a host wait for each other, or all fail with one reason. The first failing rank writes
 * the reason to the control page, because all ranks and all later barriers must return the same text. A barrier fails
 * if a peer's process ends, the deadline passes, the marks differ, or a rank aborts. */
#ifndef WORKER_CPU_BARRIER_H
#define WORKER_CPU_BARRIER_H

#include "cpu/shm.h"
#include "ddp/error.h"

#include <stdint.h>

struct pollfd;

struct peers {
    struct pollfd *fds; /* one for each rank; this rank's fd is -1, which poll ignores */
    int world;
};

/* Functions with which a barrier checks and notifies the other hosts. */
struct barrier_abroad {
    void *user;
    /* Returns an error if a rank of another host has ended or given up. Never waits. */
    ddp_status (*check)(void *user, struct ddp_err *err);
    /* Publishes `err` as the reason why this host gives up, or sets `err` to the reason of an earlier host. May
     * take a few seconds. Any thread may call this function. */
    void (*publish)(void *user, struct ddp_err *err);
};

/* One rank's access to the barrier. A phase is the time between two barriers. The last rank to arrive compares all
 * marks (struct shm_mark), begins the next phase and wakes the other ranks. */
struct shm_barrier {
    struct shm_control *control;         /* borrowed */
    const struct barrier_abroad *abroad; /* borrowed; NULL if all ranks are on this host */
    struct peers peers;
    int rank, world;
    int spins;           /* iterations of the spin loop before yielding */
    uint64_t passed;     /* number of barriers that this rank has entered */
    uint32_t timeout_ms; /* time limit of the call in progress */
    /* Added to timeout_ms in the later waits of a call. So a rank in its first wait times out first, and reports
     * the late rank. */
    uint32_t slack_ms;
    /* deadline of the call in clock_ms(); 0 before its first wait */
    uint64_t deadline_ms;
};

/* Open the barrier. The pids of all ranks must be in the control page. If a process no longer exists, return
 * DDP_ERR_PEER_LOST, whose text names the rank. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* Begin a new call, which `mark` describes. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have called this function as often. If `compare` is true, fail if their marks differ. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* Return DDP_OK if no rank has ended or aborted. Never waits. `in_call` changes only the text of the error. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err);

/* Make all ranks fail with `err`, or set `err` to the reason of a rank that gave up first. Return err->code. Any
 * thread may call this function. */
ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err);

/* Return false if the call has used its timeout plus slack_ms. Otherwise set *slice_ms to the time until the next
 * check. */
bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms);

#endif
