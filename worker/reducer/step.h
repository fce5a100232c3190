/* step.h -- a step of the reducer: the order of calls, when a bucket is launched, which parameters were used, and the
 * result of a roll call of all ranks. In a roll call each rank reports whether the rank has a batch. Pure: no
 * gradient is read and no rank is called. reducer.c reports events and executes the effects.
 *
 *             forward            ready, unused      finish
 *   IDLE -> FORWARD -> BACKWARD refused: nothing is ready
 *   FORWARD -> FORWARD -> BACKWARD refused, unless find_unused or without sync
 *   BACKWARD refused stays IDLE, when all are ready
 *
 * A step begins with forward. Without uneven inputs a program may leave forward out; then the step begins with the
 * first ready. Steps without sync only record which parameters were used. A parameter used since the last step with
 * sync has a gradient that must be reduced. */
#ifndef WORKER_REDUCER_STEP_H
#define WORKER_REDUCER_STEP_H

#include "reducer/buckets.h"

enum step_phase { STEP_IDLE, STEP_FORWARD, STEP_BACKWARD, STEP_PHASES };

struct reducer_step {
    const struct bucket_plan *plan; /* borrowed, as `params` */
    const ddp_param *params;
    size_t n;
    bool find_unused, keep_order, uneven;

    enum step_phase phase;
    bool sync, next_sync;  /* sync of this step; sync of the next step */
    bool buffers_due;      /* the previous step had sync */
    bool buffers_were_due; /* buffers_due before the last forward */
    bool *ready;           /* for each parameter: ready in this step */
    bool *used;            /* for each parameter: used since the last step with sync */
    size_t *pending;       /* for each bucket: parameters that are not ready yet */
    size_t launched;       /* number of buckets launched in this step */
    size_t *order;         /* order of readiness, in the first step with sync */
    size_t ordered;
    bool recorded; /* `order` is complete: the first step with sync is over */
    bool rebuilt;  /* the plan follows `order`; nothing more is recorded */
};

/* Initialize *step. *step borrows `plan` and `params`. The caller sets the three flags find_unused, keep_order and
 * uneven. After DDP_ERR_NOMEM step_close is still required. */
ddp_status step_open(struct reducer_step *step, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err);
void step_close(struct reducer_step *step);

/* The effects that reducer.c executes first in a forward. */
struct step_effects {
    bool rebuild;      /* make a plan in the order of readiness, then call step_rebuilt() */
    bool send_buffers; /* broadcast rank 0's buffers */
};

/* Begin a step. On error, step_forward, step_ready, step_unused and step_finish return DDP_ERR_ARG, name the
 * parameters and buckets in the wrong state, and change nothing. */
ddp_status step_forward(struct reducer_step *step, struct step_effects *effects, struct ddp_err *err);

/* Mark a parameter as ready or unused. Call one of the two functions once for each parameter in a step with sync.
 * *blank becomes true if this rank has no gradient of the parameter and must use zeros. */
ddp_status step_ready(struct reducer_step *step, size_t i, struct ddp_err *err);
ddp_status step_unused(struct reducer_step *step, size_t i, bool *blank, struct ddp_err *err);

/* Mark all parameters ready for a rank without a batch, which uses zeros in this step. Call this function after
 * step_forward, instead of step_ready. */
void step_shadow(struct reducer_step *step, bool sync);

/* Return true and the next bucket in *bucket if that bucket can be launched. Call this function after every ready. */
bool step_launch(struct reducer_step *step, size_t *bucket);

/* Check that the step may end. Before this check the caller marks as unused all parameters that step_missing()
 * returns. */
ddp_status step_finish(const struct reducer_step *step, struct ddp_err *err);
bool step_missing(const struct reducer_step *step, size_t *i);

/* Undo the forward of a step that will not happen. Afterwards the state equals the state of a rank that has not begun
 * the step. */
void step_cancel(struct reducer_step *step);

/* End the step after all launched buckets are reduced. */
void step_end(struct reducer_step *step);

/* Note that `plan` was replaced. */
void step_rebuilt(struct reducer_step *step);

/* Return true if `order` contains each of n parameters once. The order comes from another rank. `seen` has room for
 * n. */
bool step_is_order(const int64_t *order, size_t n, bool *seen);

/* --- uneven inputs --------------------------------------------------------------------------------------- */

/* A rank's answer to the roll call. ROLL_NONE means that the rank has no batch and follows the other ranks. */
enum roll_answer { ROLL_NONE, ROLL_LOCAL /* a step without sync */, ROLL_SYNC };

struct roll {
    int active;      /* ranks that have a batch */
    int first, last; /* the lowest and the highest rank with a batch */
    bool sync;
};

/* Evaluate the answers. DDP_ERR_MISMATCH names a rank that wants to synchronize and a rank that does not. With
 * DDP_UNEVEN_STOP, DDP_ERR_ARG names the first rank without a batch, except when no rank has a batch. */
ddp_status roll_read(struct roll *out, const int32_t *answers, int world, ddp_uneven uneven,
                     struct ddp_err *err);

#endif
