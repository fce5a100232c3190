/* recorder.h -- the flight recorder of a context: its memory (record/flight.h) and its file. The memory may be a page
 * that ddprun shares, so that ddprun can write the file of a rank that was stopped or killed. */
#ifndef WORKER_CORE_RECORDER_H
#define WORKER_CORE_RECORDER_H

#include "record/flight.h"
#include "core/call.h"

#include <stdbool.h>

enum { RECORDER_PATH = 4096 };

/* A listener for SIGUSR1. `received` runs in the signal handler, on any thread, so it may use only functions that are
 * safe in signal handlers. */
struct sigusr1 {
    void (*received)(struct sigusr1 *listener);
};

/* A recorder is active if ddprun shares a page of memory with the worker (DDPRUN_FLIGHT_SHM), or if a file is requested
 * (DDP_FLIGHT_RECORDER). Otherwise `flight` is NULL, and the functions do nothing. */
struct recorder {
    /* This listener writes the file at SIGUSR1. The listener is the first member, so its address is also the
     * recorder's address. */
    struct sigusr1 sigusr1;
    struct flight *flight; /* owned; NULL if the recorder is not active */
    /* Final name of the file, and its name while it is written; "" without a file. */
    char path[RECORDER_PATH], temporary[RECORDER_PATH];
    _Atomic int busy; /* 1 while a thread writes the file */
    /* Set by the reducer before it makes a call: */
    int bucket;            /* number of the bucket that the next call reduces, or -1 */
    uint64_t posted_ns;    /* time of clock_ns() when the job of `bucket` was posted; 0 if unknown */
    struct flight_op *op;  /* the entry of the latest call */
    _Atomic uint64_t done; /* the highest ticket that recorder_complete has received; 0 before its first call
                            * */
};

/* Values for the head of the record. The texts are copied. */
struct recorder_setup {
    int rank, world_size, attempt;
    const char *job, *backend;
    const char *page, *pattern; /* values of DDPRUN_FLIGHT_SHM and DDP_FLIGHT_RECORDER; "" if not set */
};

/* Open the recorder. Ignore failures, because a job also runs without a record. */
void recorder_open(struct recorder *r, const struct recorder_setup *setup);

/* Close the recorder. If the result is false, a signal handler is still writing the file, and `r` must not be
 * freed. */
bool recorder_close(struct recorder *r);

/* Return the current time for comm_job.posted_ns, or 0 if the recorder is not active. */
uint64_t recorder_now(const struct recorder *r);

/* Record the beginning of call number `seq`. If `blocks` is true, the call ends when the backend returns. Otherwise the
 * backend only puts the call on a stream. `timeout_ms` applies if call->timeout_ms is 0. Recording a call costs two
 * readings of the clock and about twelve writes to memory. */
void recorder_begin(struct recorder *r, const struct call *call, uint64_t seq, uint32_t timeout_ms,
                    bool blocks);
/* Record that the backend has returned. A call with a ticket may still run on its stream; recorder_complete records its
 * end. `ticket` is 0 if the call has no ticket. */
void recorder_end(struct recorder *r, ddp_status status, uint64_t ticket);

/* Record that all calls with a ticket of at most `ticket` are done. Any thread may call this function. `r` may be
 * NULL. */
void recorder_complete(struct recorder *r, uint64_t ticket);

/* Record that the program's training step `step` is done. */
void recorder_step(struct recorder *r, uint64_t step);

/* Write the file, whole or not at all. `why` is written into the file as the reason. Call this function in ddp_abort,
 * at SIGUSR1, if the backend fails to start, and after a failed collective that leaves the ranks at different calls.
 * Return false if no file is requested, the write failed, or another thread is writing. Any thread and any signal
 * handler may call this function. */
bool recorder_write(struct recorder *r, const char *why);

#endif
