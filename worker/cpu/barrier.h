/* barrier.h -- all ranks of a host meet at one point, or get the reason why they cannot.
 *
 * The usual order: a rank writes its mark, which is a description of its call (struct shm_mark). Then the rank adds
 * its arrival. The last rank compares all marks, begins the next phase and wakes the other ranks. A phase is the time
 * between two barriers. A waiting rank spins for a moment (only if every rank can have a core), yields a few times,
 * then sleeps.
 *
 * A barrier fails if a peer's process ends (checked between short sleeps), the deadline passes, the marks differ, or
 * a rank aborts. The reason is written to the control page, so all ranks and all later barriers return the same
 * text. */
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

/* Functions that a barrier calls for the other hosts. */
struct barrier_abroad {
    void *user;
    /* Returns an error if a rank of another host has ended or given up. Returns at once. */
    ddp_status (*check)(void *user, struct ddp_err *err);
    /* Notifies the other hosts that this host gives up because of `err`. If another host gave up earlier, `err`
     * becomes the reason of that host. Takes a moment. May run on any thread. */
    void (*publish)(void *user, struct ddp_err *err);
};

struct shm_barrier {
    struct shm_control *control;         /* borrowed */
    const struct barrier_abroad *abroad; /* borrowed; NULL: all ranks are on this host */
    struct peers peers;
    int rank, world;
    int spins;           /* iterations of the spin loop before yielding */
    uint64_t passed;     /* number of phases that are over */
    uint32_t timeout_ms; /* time limit of the call in progress */
    uint32_t slack_ms;   /* extra time after the limit */
    uint64_t
        deadline_ms; /* 0 until the call in progress has to wait; most calls never do and need no clock */
};

/* Open the barrier after the maker of the page has filled in the pids. DDP_ERR_PEER_LOST names a rank that has
 * already ended. */
ddp_status barrier_open(struct shm_barrier *barrier, struct shm_control *control, int rank, int world,
                        struct ddp_err *err);
void barrier_close(struct shm_barrier *barrier);

/* Begin a new call with its mark and its timeout. */
void barrier_begin(struct shm_barrier *barrier, const struct shm_mark *mark, uint32_t timeout_ms);

/* Wait until all ranks have called this function as often as this rank. With `compare`, fail if the marks of the
 * ranks differ. */
ddp_status barrier_pass(struct shm_barrier *barrier, bool compare, struct ddp_err *err);

/* Return DDP_OK while no rank has ended or aborted. Returns at once. `in_call` is true while this rank is in the call
 * of its mark, and false after that call. */
ddp_status barrier_check(struct shm_barrier *barrier, bool in_call, struct ddp_err *err);

/* Make all ranks fail with `err`. If another rank gave up first, `err` becomes the reason of that rank. Return
 * err->code. May run on any thread. */
ddp_status barrier_give_up(const struct shm_barrier *barrier, struct ddp_err *err);

/* Return false if the time of the call in progress is over. Waits that are not barriers use this function. *slice_ms
 * is the time to wait before the next check. Later barriers of this call get slack_ms more, so that the rank whose
 * wait timed out can report the cause first. */
bool barrier_has_time(struct shm_barrier *barrier, uint32_t *slice_ms);

#endif
