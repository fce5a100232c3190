/* step.h -- a step of the reducer: which call may follow which, when a bucket is launched, which parameters were
 * used, and the meaning of the answers of all ranks to a roll call. Pure: it touches no gradient and calls no rank.
 * reducer.c reports what has happened and carries out the effects.
 *
 *             forward            ready, unused      finish
 *   IDLE      -> FORWARD         -> BACKWARD        refused: nothing is ready
 *   FORWARD   -> FORWARD         -> BACKWARD        as below; all may be unused
 *   BACKWARD  refused            stays              IDLE, when all are ready
 *
 * A step begins with forward, or with the first ready of a program that leaves forward out (not with uneven inputs).
 * Steps without sync only remember which parameters were used: whatever was used since the last step with sync has a
 * gradient that counts. */
#ifndef WORKER_REDUCER_STEP_H
#define WORKER_REDUCER_STEP_H

#include "reducer/buckets.h"

enum step_phase { STEP_IDLE, STEP_FORWARD, STEP_BACKWARD, STEP_PHASES };

struct reducer_step {
    const struct bucket_plan *plan; /* borrowed, as are the parameters */
    const ddp_param *params;
    size_t n;
    bool find_unused, keep_order, uneven;

    enum step_phase phase;
    bool sync, next_sync;  /* of this step; as asked for the next */
    bool buffers_due;      /* the step before this one had sync */
    bool buffers_were_due; /* before the last forward */
    bool *ready;           /* of each parameter, in this step */
    bool *used;            /* of each parameter, since the last step with sync */
    size_t *pending;       /* of each bucket: parameters that are not ready yet */
    size_t launched;       /* buckets, in this step */
    size_t *order;         /* of readiness, in the first step with sync */
    size_t ordered;
    bool recorded; /* `order` is whole: the first step with sync is over */
    bool rebuilt;  /* no more will be */
};

/* Borrows `plan` and `params`; the three flags are the caller's to set. DDP_ERR_NOMEM: close it all the same. */
ddp_status step_open(struct reducer_step *step, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err);
void step_close(struct reducer_step *step);

/* The effects that reducer.c carries out first in a forward. */
struct step_effects {
    bool rebuild;      /* make a plan in the order of readiness, then step_rebuilt() */
    bool send_buffers; /* rank 0's for all */
};

/* DDP_ERR_ARG, also of the next three, says which parameters and buckets are in the wrong state; nothing has changed
 * then. */
ddp_status step_forward(struct reducer_step *step, struct step_effects *effects, struct ddp_err *err);

/* In a step with sync, once for each parameter. *blank: this rank has no gradient of it, and must count as zero. */
ddp_status step_ready(struct reducer_step *step, size_t i, struct ddp_err *err);
ddp_status step_unused(struct reducer_step *step, size_t i, bool *blank, struct ddp_err *err);

/* This rank has no batch: its part in the step is to count as zero everywhere. Behind step_forward, in place of all
 * ready. */
void step_shadow(struct reducer_step *step, bool sync);

/* The next bucket to launch, if it is its turn: to be asked after every ready. */
bool step_launch(struct reducer_step *step, size_t *bucket);

/* May the step be ended? Before it is: step_missing() names parameters to be marked as unused. */
ddp_status step_finish(const struct reducer_step *step, struct ddp_err *err);
bool step_missing(const struct reducer_step *step, size_t *i);

/* Undo the forward of a step that will not happen, so the state is that of ranks which have not begun it. */
void step_cancel(struct reducer_step *step);

/* All launched buckets are reduced. */
void step_end(struct reducer_step *step);

/* `plan` has been made anew. */
void step_rebuilt(struct reducer_step *step);

/* Is `order` one of n parameters, each once? `seen` has room for n. It comes from another rank. */
bool step_is_order(const int64_t *order, size_t n, bool *seen);

/* --- uneven inputs --------------------------------------------------------------------------------------- */

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
