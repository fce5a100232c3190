/* reducer_core.h -- a step of the reducer: what may come after what, which bucket is to be launched when, and who has used
 * what. Pure: no rank is met here, and no gradient touched. The shell (reducer.c) tells what has happened and carries
 * out what is wished.
 *
 *             forward            ready, unused      finish
 *   IDLE      -> FORWARD         -> BACKWARD        refused: nothing is ready
 *   FORWARD   -> FORWARD         -> BACKWARD        as below; all may be unused
 *   BACKWARD  refused            stays              IDLE, when all are ready
 *
 * A step begins with forward, or with the first ready of a program that leaves forward out (not with uneven inputs). Steps without sync only
 * remember which parameters were used: whatever was used since the last step with sync has a gradient that counts. */
#ifndef WORKER_REDUCER_REDUCER_CORE_H
#define WORKER_REDUCER_REDUCER_CORE_H

#include "reducer/buckets.h"

enum core_phase { CORE_IDLE, CORE_FORWARD, CORE_BACKWARD, CORE_PHASES };

struct reducer_core {
    const struct bucket_plan *plan; /* borrowed, as are the parameters */
    const ddp_param *params;
    size_t n;
    bool find_unused, keep_order, uneven;

    enum core_phase phase;
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
ddp_status core_open(struct reducer_core *core, const struct bucket_plan *plan, const ddp_param *params,
                     size_t n, struct ddp_err *err);
void core_close(struct reducer_core *core);

/* What the shell has to do in a forward before anything else happens. */
struct core_wish {
    bool rebuild;      /* make a plan in the order of readiness, then core_rebuilt() */
    bool send_buffers; /* rank 0's for all */
};

/* DDP_ERR_ARG, also of the next three, says which parameters and buckets are in the wrong state; nothing has changed then. */
ddp_status core_forward(struct reducer_core *core, struct core_wish *wish, struct ddp_err *err);

/* In a step with sync, once for each parameter. *blank: this rank has no gradient of it, and must count as zero. */
ddp_status core_ready(struct reducer_core *core, size_t i, struct ddp_err *err);
ddp_status core_unused(struct reducer_core *core, size_t i, bool *blank, struct ddp_err *err);

/* This rank has no batch: its part in the step is to count as zero everywhere. Behind core_forward, in place of all ready. */
void core_shadow(struct reducer_core *core, bool sync);

/* The next bucket to launch, if it is its turn: to be asked after every ready. */
bool core_launch(struct reducer_core *core, size_t *bucket);

/* May the step be ended? Before it is: core_missing() names parameters to be marked as unused. */
ddp_status core_finish(const struct reducer_core *core, struct ddp_err *err);
bool core_missing(const struct reducer_core *core, size_t *i);

/* The step that has just begun will not be: all is as before its forward, as on ranks that have not come to it. */
void core_cancel(struct reducer_core *core);

/* All that was launched has come back. */
void core_end(struct reducer_core *core);

/* `plan` has been made anew. */
void core_rebuilt(struct reducer_core *core);

/* Is `order` one of n parameters, each once? `seen` has room for n. It comes from another rank. */
bool core_is_order(const int64_t *order, size_t n, bool *seen);

#endif
