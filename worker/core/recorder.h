/* recorder.h -- the flight recorder of one context: what it writes into (base/flight.h), and the file that it leaves.
 *
 * It records when the record can be read: under ddprun, which shares the memory with each worker (DDPRUN_PAGE), or
 * when a file is asked for (DDP_FLIGHT_RECORDER). Else `flight` is NULL, and every call below does nothing. A call
 * costs two looks at the clock and a dozen plain stores.
 *
 * The file is written when a collective has failed in a way that puts ranks out of step, by ddp_abort, and at SIGUSR1
 * (`kill -USR1` of ddprun reaches all of its workers). Of a rank that cannot write it any more (stopped, killed)
 * ddprun writes it, from the same memory. */
#ifndef WORKER_CORE_RECORDER_H
#define WORKER_CORE_RECORDER_H

#include "base/flight.h"
#include "core/call.h"

#include <stdbool.h>

enum { RECORDER_PATH = 4096 };

/* `received` is called in the signal handler, on any thread. */
struct sigusr1 {
    void (*received)(struct sigusr1 *listener);
};

/* Call listener->received at each SIGUSR1 from now on. Up to eight listeners; the next ones are ignored. */
void sigusr1_listen(struct sigusr1 *listener);

/* The end of that. False when a handler that has begun does not end: then what it may still use must stay. */
bool sigusr1_leave(struct sigusr1 *listener);

struct recorder {
    struct sigusr1 sigusr1;                             /* first: SIGUSR1 writes the file */
    struct flight *flight;                              /* owned; NULL = nothing is recorded */
    char path[RECORDER_PATH], temporary[RECORDER_PATH]; /* of the file; "" = none is written */
    _Atomic int busy;                                   /* it is being written */
    /* About the call that comes next: */
    int bucket; /* it reduces this one, -1 = none */
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

/* Never an error: a job is not worth less for that. */
void recorder_open(struct recorder *r, const struct recorder_setup *setup);

/* False: a signal handler is still writing the file, to a disk that hangs. It uses `r`, which must stay where it is. */
bool recorder_close(struct recorder *r);

/* Now, for `posted_ns`; 0 without a recorder. */
uint64_t recorder_now(const struct recorder *r);

/* Call number `seq` begins. `blocks`: it is over when it returns, else it is scheduled only. */
void recorder_begin(struct recorder *r, const struct call *call, uint64_t seq, uint32_t timeout_ms,
                    bool blocks);
/* It has returned. With a ticket (0 = none) it is only scheduled; recorder_settle will say that it is done. */
void recorder_end(struct recorder *r, ddp_status status, uint64_t ticket);

/* The calls up to this ticket are done. Any thread; `r` may be NULL. */
void recorder_settle(struct recorder *r, uint64_t ticket);

/* Step `step` is done. */
void recorder_step(struct recorder *r, uint64_t step);

/* Write the file, whole or not at all. False when no file is asked for, it could not be written, or another thread is
 * writing it. Any thread, and signal handlers. */
bool recorder_write(struct recorder *r, const char *why);

#endif
