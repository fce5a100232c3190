/* barrier.h -- all ranks of a host wait for each other, or all fail with one reason. A barrier fails if a peer's
 * process ends, the deadline passes, the marks differ, or a rank aborts. The first rank that fails writes the reason to
 * the control page, because all ranks and all later barriers must return the same text. */
#ifndef WORKER_CPU_BARRIER_H
#define WORKER_CPU_BARRIER_H

#include "cpu/shm.h"
#include "ddp/error.h"

#include <stdint.h>

struct pollfd;

/* The pidfds of the other ranks. barrier_close closes them and frees the array. */
struct peers {
    struct pollfd *fds; /* one for each rank; this rank's fd is -1, which poll ignores */
    int world;
};

/* Functions with which a barrier checks and notifies the other hosts. The struct and `user` must outlive the
 * barrier. */
struct barrier_abroad {
    void *user;
    /* Return an error if a rank of another host has ended or given up. This function never waits. */
    ddp_status (*check)(void *user, struct ddp_err *err);
    /* Publish `err` to the other hosts as the reason why this host gives up. If another host gave up earlier, set
     * `err` to that host's reason. The publication may take a few seconds. Any thread may call this function. */
    void (*publish)(void *user, struct ddp_err *err);
};

/* One rank's access to the barrier. A rank writes its mark, which describes its call (struct shm_mark), and then
 * increments `arrivals`. The last rank to arrive compares all marks, begins the next phase and wakes the other ranks. A
 * phase is the time between two barriers. A waiting rank spins for a moment (only if every rank can have a core),
 * yields a few times, then sleeps. */
struct shm_barrier {
    struct shm_control *control;         /* borrowed */
    const struct barrier_abroad *abroad; /* borrowed; NULL if all ranks are on this host */
    struct peers peers;
    int rank, world;
    int spins;           /* iterations of the spin loop before yielding */
    uint64_t passed;     /* number of barriers that this rank has entered */
    uint32_t timeout_ms; /* time limit of the call in progress */
    /* Milliseconds that are added to timeout_ms in the later waits of a call. So a rank in its first wait times out
     * first, and reports the late rank. */
    uint32_t slack_ms;
    /* Deadline of the call, a time of clock_ms(); 0 until the call waits for the first time. */
    uint64_t deadline_ms;
};

/* Open the barrier. The pids of all ranks must be in the control page. If the process of a rank no longer exists,
 * return DDP_ERR_PEER_LOST, and name the rank in `err`. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* Begin a new call. `mark` describes the call; barrier_pass compares the marks of all ranks if its argument
 * `compare` is true. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have called this function as often as this rank. If `compare` is true, fail if the marks of
 * the ranks differ. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* Return DDP_OK if no rank has ended or aborted. This function never waits. `in_call` is true while this rank is in a
 * call, and false between calls. Only the text of the error depends on `in_call`. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err);

/* Make all ranks fail with `err`. If another rank gave up first, set `err` to that rank's reason. Return err->code.
 * Any thread may call this function. */
ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err);

/* Return false if the call in progress has used its timeout plus slack_ms. Otherwise set *slice_ms to the time to
 * wait before the next check. Waits that are not barriers also use this function. */
bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms);

#endif
