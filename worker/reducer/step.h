/* step.h -- a step of the reducer: the order of calls, when a bucket is launched, which parameters were used, and the
 * result of a roll call of all ranks. Pure: it touches no gradient and calls no rank. reducer.c reports events and
 * carries out the effects.
 *
 *             forward            ready, unused      finish
 *   IDLE      -> FORWARD         -> BACKWARD        refused: nothing is ready
 *   FORWARD   -> FORWARD         -> BACKWARD        as below; all may be unused
 *   BACKWARD  refused            stays              IDLE, when all are ready
 *
 * A step begins with forward, or with the first ready of a program that leaves forward out (not with uneven inputs).
 * Steps without sync only record which parameters were used: a parameter used since the last step with sync has a
 * gradient that counts. */
#ifndef WORKER_REDUCER_STEP_H
#define WORKER_REDUCER_STEP_H

#include "reducer/buckets.h"

enum step_phase { STEP_IDLE, STEP_FORWARD, STEP_BACKWARD, STEP_PHASES };

struct reducer_step {
    const struct bucket_plan *plan; /* borrowed, like the parameters */
    const ddp_param *params;
    size_t n;
    bool find_unused, keep_order, uneven;

    enum step_phase phase;
    bool sync, next_sync;  /* sync of this step; sync requested for the next */
    bool buffers_due;      /* the previous step had sync */
    bool buffers_were_due; /* before the last forward */
    bool *ready;           /* of each parameter, in this step */
    bool *used;            /* of each parameter, since the last step with sync */
    size_t *pending;       /* for each bucket: parameters that are not ready yet */
    size_t launched;       /* launched buckets, in this step */
    size_t *order;         /* order of readiness, in the first step with sync */
    size_t ordered;
    bool recorded; /* `order` is complete: the first step with sync is over */
    bool rebuilt;  /* no more will be recorded */
};

/* Borrows `plan` and `params`; the caller sets the three flags. DDP_ERR_NOMEM: step_close is still required. */
ddp_status step_open(struct reducer_step *step, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err);
void step_close(struct reducer_step *step);

/* The first step of a forward in reducer.c. */
struct step_effects {
    bool rebuild;      /* make a plan in the order of readiness, then step_rebuilt() */
    bool send_buffers; /* broadcast rank 0's buffers */
};

/* DDP_ERR_ARG, also from the next three, names the parameters and buckets in the wrong state; nothing has changed
 * then. */
ddp_status step_forward(struct reducer_step *step, struct step_effects *effects, struct ddp_err *err);

/* Call it in a step with sync, once for each parameter. *blank: this rank has no gradient of it, and must count as
 * zero. */
ddp_status step_ready(struct reducer_step *step, size_t i, struct ddp_err *err);
ddp_status step_unused(struct reducer_step *step, size_t i, bool *blank, struct ddp_err *err);

/* This rank has no batch: it counts as zero everywhere in this step. Call it after step_forward, instead of marking
 * parameters ready. */
void step_shadow(struct reducer_step *step, bool sync);

/* Return the next bucket to launch, if it is its turn. Call it after every ready. */
bool step_launch(struct reducer_step *step, size_t *bucket);

/* Check that the step may end. Before that, step_missing() names the parameters to mark as unused. */
ddp_status step_finish(const struct reducer_step *step, struct ddp_err *err);
bool step_missing(const struct reducer_step *step, size_t *i);

/* Undo the forward of a step that will not happen, so that the state equals that of ranks which have not begun it. */
void step_cancel(struct reducer_step *step);

/* All launched buckets are reduced. */
void step_end(struct reducer_step *step);

/* `plan` was replaced. */
void step_rebuilt(struct reducer_step *step);

/* True if `order` has each of n parameters once. `seen` has room for n. The order comes from another rank. */
bool step_is_order(const int64_t *order, size_t n, bool *seen);

/* --- uneven inputs --------------------------------------------------------------------------------------- */

/* A rank without a batch does what the others do. */
enum roll_answer { ROLL_NONE, ROLL_LOCAL /* a step without sync */, ROLL_SYNC };

struct roll {
    int active;      /* ranks that have a batch */
    int first, last; /* the smallest and the largest of them */
    bool sync;
};

/* DDP_ERR_MISMATCH: some ranks want to synchronise and some do not; names one of each. With DDP_UNEVEN_STOP,
 * DDP_ERR_ARG names the first rank without a batch, unless no rank has one. */
ddp_status roll_read(struct roll *out, const int32_t *answers, int world, ddp_uneven uneven,
                     struct ddp_err *err);

#endif
