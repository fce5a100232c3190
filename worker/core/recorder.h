/* recorder.h -- the flight recorder of one context: its memory (record/flight.h) and its file.
 *
 * A recorder is active only in two cases: under ddprun, which shares a page of memory with each worker (DDPRUN_PAGE),
 * or if a file is requested (DDP_FLIGHT_RECORDER). Otherwise `flight` is NULL, and every function below does nothing.
 * Recording a call costs two readings of the clock and a dozen plain stores.
 *
 * The file is written after a collective has failed and left ranks out of step, by ddp_abort, and at SIGUSR1 (ddprun
 * forwards `kill -USR1` to its workers). If a rank is stopped or killed, ddprun writes the file from the shared
 * memory. */
#ifndef WORKER_CORE_RECORDER_H
#define WORKER_CORE_RECORDER_H

#include "record/flight.h"
#include "core/call.h"

#include <stdbool.h>

enum { RECORDER_PATH = 4096 };

/* A function to call at SIGUSR1. `received` runs in the signal handler, on any thread. */
struct sigusr1 {
    void (*received)(struct sigusr1 *listener);
};

/* Call listener->received at each later SIGUSR1. Only the first eight listeners are called. */
void sigusr1_listen(struct sigusr1 *listener);

/* Remove the listener. Return false if a handler is still running; then the listener's memory must not be freed. */
bool sigusr1_leave(struct sigusr1 *listener);

struct recorder {
    struct sigusr1 sigusr1;                             /* first member; SIGUSR1 writes the file */
    struct flight *flight;                              /* owned; NULL = nothing is recorded */
    char path[RECORDER_PATH], temporary[RECORDER_PATH]; /* path of the file; "" = none is written */
    _Atomic int busy;                                   /* the file is being written */
    /* Properties of the next call: */
    int bucket; /* the bucket that the call reduces, -1 = none */
    uint64_t posted_ns;
    struct flight_op *op;  /* the call in progress */
    _Atomic uint64_t done; /* the highest ticket that recorder_settle has received */
};

/* The rank that records; the recorder copies the strings. */
struct recorder_setup {
    int rank, world_size, attempt;
    const char *job, *backend;
    const char *page, *pattern; /* values of DDPRUN_PAGE and DDP_FLIGHT_RECORDER; "" = not set */
};

/* Open the recorder. Failures are not reported, because a job also runs without a record. */
void recorder_open(struct recorder *r, const struct recorder_setup *setup);

/* Close the recorder. Return false if a signal handler is still writing the file to a disk that hangs. That handler
 * uses `r`, so `r` must not be freed then. */
bool recorder_close(struct recorder *r);

/* Return the present time, for `posted_ns`; 0 without a recorder. */
uint64_t recorder_now(const struct recorder *r);

/* Record that call number `seq` begins. With `blocks` the call is over when the backend returns. Otherwise the
 * backend only schedules the call. */
void recorder_begin(struct recorder *r, const struct call *call, uint64_t seq, uint32_t timeout_ms,
                    bool blocks);
/* Record that the call has returned. A call with a ticket (0 = none) is only scheduled, and recorder_settle later
 * records its end. */
void recorder_end(struct recorder *r, ddp_status status, uint64_t ticket);

/* Record that the calls up to this ticket are done. May run on any thread; `r` may be NULL. */
void recorder_settle(struct recorder *r, uint64_t ticket);

/* Record that step `step` is done. */
void recorder_step(struct recorder *r, uint64_t step);

/* Write the whole file or nothing. Return false if no file is requested, the write failed, or another thread is
 * writing. Safe on any thread and in signal handlers. */
bool recorder_write(struct recorder *r, const char *why);

#endif
