/* step.h -- a step of the reducer. This module decides which call is allowed, when a bucket is launched, and which
 * parameters were used. It is pure: reducer.c passes events to this module and executes the effects. */
#ifndef WORKER_REDUCER_STEP_H
#define WORKER_REDUCER_STEP_H

#include "reducer/buckets.h"

/* The next phase, for each phase and call:
 *
 *     phase       forward      ready, unused    finish
 *     IDLE        FORWARD      BACKWARD         refused
 *     FORWARD     FORWARD      BACKWARD         IDLE with find_unused or without sync, otherwise refused
 *     BACKWARD    refused      BACKWARD         IDLE if all parameters are marked, or with find_unused, or without sync
 *
 * With uneven inputs, three more calls are refused: forward in phase FORWARD, and ready and unused in phase IDLE.
 *
 * A step begins with forward. Without uneven inputs a program may leave out forward. Then the step begins when the
 * first parameter is marked. */
enum step_phase { STEP_IDLE, STEP_FORWARD, STEP_BACKWARD };

/* A step without sync only records which parameters were used, because the next step with sync must reduce their
 * gradients. */
struct reducer_step {
    const struct bucket_plan *plan; /* borrowed, like `params` */
    const ddp_param *params;
    size_t n;
    bool find_unused, keep_order, uneven; /* copies of the options, set by reducer.c */

    enum step_phase phase;
    bool sync, next_sync;  /* sync: this step reduces its gradients; next_sync: the next step does so */
    bool buffers_due;      /* true after a step with sync: the next forward must broadcast the buffers */
    bool buffers_were_due; /* value of buffers_due before the last forward; step_cancel restores it */
    bool *ready;           /* for each parameter: true if it was marked in this step */
    bool *used;            /* for each parameter: true if it was used since the last step with sync */
    size_t *pending;       /* for each bucket: number of parameters that are not ready */
    size_t launched;       /* number of buckets launched in this step */
    size_t *order;         /* parameters in the order of readiness in the first step with sync */
    size_t ordered;        /* number of entries in `order` so far */
    bool recorded;         /* true after the first step with sync: `order` is complete */
    bool rebuilt;          /* true if the plan follows `order` */
};

/* Initialize *step, which borrows `plan` and `params`. The caller then sets the flags find_unused, keep_order and
 * uneven. The caller must close *step, also after DDP_ERR_NOMEM. */
ddp_status step_open(struct reducer_step *step, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err);
void step_close(struct reducer_step *step);

/* The work that reducer.c must do before the forward pass. */
struct step_effects {
    bool rebuild;      /* true: plan the buckets again in the order of readiness, then call step_rebuilt() */
    bool send_buffers; /* true: broadcast the buffers of the lowest rank that has a batch */
};

/* Begin a step. If the call is not allowed now, return DDP_ERR_ARG and change nothing. The text of this error
 * names the parameters and buckets in the wrong state. step_ready, step_unused and step_finish return this error,
 * too. */
ddp_status step_forward(struct reducer_step *step, struct step_effects *effects, struct ddp_err *err);

/* Mark a parameter as ready or as unused. In a step with sync, call either step_ready or step_unused once for each
 * parameter. step_unused sets *blank to true if this rank has no gradient of the parameter and must use zeros. */
ddp_status step_ready(struct reducer_step *step, size_t i, struct ddp_err *err);
ddp_status step_unused(struct reducer_step *step, size_t i, bool *blank, struct ddp_err *err);

/* Mark all parameters as ready on a rank without a batch. Call this function after step_forward, instead of
 * step_ready. */
void step_shadow(struct reducer_step *step, bool sync);

/* Set *bucket and return true if the next bucket can be launched. After each call that marks
 * parameters as ready or unused, call this function until it returns false. */
bool step_launch(struct reducer_step *step, size_t *bucket);

/* Check that the step may end. With find_unused, the caller then calls step_missing() until it returns false, and marks
 * each parameter *i as unused. step_missing() returns false if all parameters are marked, or if the step has no
 * sync. */
ddp_status step_finish(const struct reducer_step *step, struct ddp_err *err);
bool step_missing(const struct reducer_step *step, size_t *i);

/* Undo step_forward after a failure, so that the program may call forward again. */
void step_cancel(struct reducer_step *step);

/* End the step. Call this function only after all launched buckets are reduced. */
void step_end(struct reducer_step *step);

/* Record that reducer.c has replaced the contents of `plan`. */
void step_rebuilt(struct reducer_step *step);

/* Return true if `order` contains each number below n exactly once. `seen` has room for n values, which are
 * overwritten. */
bool step_is_order(const int64_t *order, size_t n, bool *seen);

/* --- uneven inputs --------------------------------------------------------------------------------------- */

/* A rank's answer at the beginning of a step. BATCH_NONE: the rank has no batch. */
enum batch_answer { BATCH_NONE, BATCH_LOCAL /* a step without sync */, BATCH_SYNC };

struct batch_ranks {
    int active;      /* number of ranks that have a batch */
    int first, last; /* the lowest and the highest rank with a batch; both 0 if `active` is 0 */
    bool sync;       /* true if this step has sync on the ranks with a batch */
};

/* Evaluate the answers of all ranks. If the ranks with a batch differ in sync, return DDP_ERR_MISMATCH, whose text
 * names two such ranks. With DDP_UNEVEN_STOP, return DDP_ERR_ARG if only some ranks have a batch. */
ddp_status batch_ranks_decode(struct batch_ranks *out, const int32_t *answers, int world, ddp_uneven uneven,
                              struct ddp_err *err);

#endif
