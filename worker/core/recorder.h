/* recorder.h -- the flight recorder of one context: its memory (record/flight.h) and its file.
 *
 * It records only when the record can be read: under ddprun, which shares the memory with each worker (DDPRUN_PAGE),
 * or when a file is requested (DDP_FLIGHT_RECORDER). Otherwise `flight` is NULL, and every call below does nothing. A
 * call costs two readings of the clock and a dozen plain stores.
 *
 * The file is written when a collective has failed in a way that puts ranks out of step, by ddp_abort, and at SIGUSR1
 * (`kill -USR1` of ddprun reaches all of its workers). If a rank cannot write it (stopped, killed), ddprun does, from
 * the same memory. */
#ifndef WORKER_CORE_RECORDER_H
#define WORKER_CORE_RECORDER_H

#include "record/flight.h"
#include "core/call.h"

#include <stdbool.h>

enum { RECORDER_PATH = 4096 };

/* `received` is called in the signal handler, on any thread. */
struct sigusr1 {
    void (*received)(struct sigusr1 *listener);
};

/* Call listener->received at each SIGUSR1 from now on. Up to eight listeners; the next ones are ignored. */
void sigusr1_listen(struct sigusr1 *listener);

/* Remove the listener. False when a running handler does not end: then its memory must stay. */
bool sigusr1_leave(struct sigusr1 *listener);

struct recorder {
    struct sigusr1 sigusr1;                             /* first: SIGUSR1 writes the file */
    struct flight *flight;                              /* owned; NULL = nothing is recorded */
    char path[RECORDER_PATH], temporary[RECORDER_PATH]; /* path of the file; "" = none is written */
    _Atomic int busy;                                   /* the file is being written */
    /* Facts about the next call: */
    int bucket; /* the bucket that it reduces, -1 = none */
    uint64_t posted_ns;
    struct flight_op *op;  /* the call in progress */
    _Atomic uint64_t done; /* the highest ticket that is settled */
};

/* The rank that records; texts are copied. */
struct recorder_setup {
    int rank, world_size, attempt;
    const char *job, *backend;
    const char *page, *pattern; /* values of the two variables; "" = none */
};

/* Never an error, because a job also runs without a record. */
void recorder_open(struct recorder *r, const struct recorder_setup *setup);

/* False: a signal handler is still writing the file, to a disk that hangs. It uses `r`, which must stay in place. */
bool recorder_close(struct recorder *r);

/* Return the present time, for `posted_ns`; 0 without a recorder. */
uint64_t recorder_now(const struct recorder *r);

/* Call number `seq` begins. `blocks`: it is over when it returns, otherwise it is only scheduled. */
void recorder_begin(struct recorder *r, const struct call *call, uint64_t seq, uint32_t timeout_ms,
                    bool blocks);
/* It has returned. With a ticket (0 = none) it is only scheduled, and recorder_settle reports later that it is done. */
void recorder_end(struct recorder *r, ddp_status status, uint64_t ticket);

/* The calls up to this ticket are done. Any thread; `r` may be NULL. */
void recorder_settle(struct recorder *r, uint64_t ticket);

/* Step `step` is done. */
void recorder_step(struct recorder *r, uint64_t step);

/* Write the file, whole or not at all. False when no file is requested, it could not be written, or another thread is
 * writing it. Any thread, and signal handlers. */
bool recorder_write(struct recorder *r, const char *why);

#endif
