/* reducer_roll.h -- uneven inputs: what the answers of all ranks to "have you a batch?" mean. Pure. */
#ifndef WORKER_REDUCER_REDUCER_ROLL_H
#define WORKER_REDUCER_REDUCER_ROLL_H

#include "ddp/reducer.h"

#include <stdbool.h>

/* A rank without a batch does what the others do. */
enum roll_answer { ROLL_NONE, ROLL_LOCAL /* a step without sync */, ROLL_SYNC };

struct roll {
    int active;      /* ranks that have a batch */
    int first, last; /* the smallest and the largest of them */
    bool sync;
};

/* DDP_ERR_MISMATCH: some want to synchronise, some do not; names one of each. With DDP_UNEVEN_STOP DDP_ERR_ARG names the
 * first rank that has none, unless it is all of them. */
ddp_status roll_read(struct roll *out, const int32_t *answers, int world, ddp_uneven uneven,
                     struct ddp_err *err);

#endif
