/* reducer_state.h -- the insides of ddp_reducer, shared by its files, from the top down (each uses those below it):
 *
 *     reducer.c          made and freed; a step: what the program calls
 *     reducer_join.c     uneven inputs: the roll call, and shadowing
 *     reducer_sync.c     what rank 0 tells the others: parameters, buffers, the order of readiness; who used what
 *     reducer_bucket.c   one bucket is launched, and reduced
 *     reducer_verify.c   the same model on all ranks?
 *     reducer_memory.c   copies where the gradients lie
 *
 * and pure: reducer_core.c (what may come after what), reducer_words.c (misuse in words), reducer_options.c,
 * reducer_roll.c, buckets.c (which gradients travel together), values.c. */
#ifndef WORKER_REDUCER_REDUCER_STATE_H
#define WORKER_REDUCER_REDUCER_STATE_H

#include "core/context.h"
#include "reducer/reducer_core.h"
#include "reducer/reducer_roll.h"

/* What the rebuild works in, until it is over; NULLs when there will be none. */
struct sync_spare {
    int64_t *sent;
    size_t *order;
    bool *seen;
    char *copy; /* of the arena */
};

struct ddp_reducer {
    ddp_group *group;
    ddp_param *params; /* owned copy; names and data are the caller's. The buffers follow the parameters */
    size_t n;
    ddp_param *buffers; /* in `params` */
    ddp_reducer_options options;
    struct bucket_plan plan;
    struct reducer_core core;
    char *arena;           /* shared block: the gradients, bucket after bucket */
    char *packed;          /* shared block: all buffers one after the other; NULL without buffers */
    uint16_t *wire;        /* shared block: a bucket on its way; NULL without compression */
    size_t wire_elements;  /* room in it */
    struct comm_job *jobs; /* for each bucket */
    bool threaded;         /* buckets go to the context's lane */
    ddp_work *last; /* owned; of the last bucket, where calls go on by themselves; NULL = none is under way */
    struct ddp_err
        failed; /* what no step can follow: the first bucket that was not reduced, a rebuild that went wrong;
                              written by who reduces, read after a drain */

    int32_t *used; /* find_unused: how many ranks have used each parameter, in the step before */
    char
        *kept; /* find_unused: gradients as they were before they counted as zero; as the arena is laid out */
    struct sync_spare spare;
    bool *blank;      /* ... of which parameters, in this step */
    struct roll roll; /* the last roll call */
    int32_t *answers; /* ... of each rank */
    int order_root;   /* whose order of readiness counts */
};

/* Keep `err` for ddp_last_error(); returns its code. */
static inline ddp_status reducer_fail(const ddp_reducer *reducer, struct ddp_err *err)
{
    return ctx_fail(reducer->group->ctx, err);
}

/* --- reducer_bucket.c ---------------------------------------------------------------------------------------- */

/* Memory for what the plan needs; again after a rebuild. Collective. */
ddp_status bucket_wire_open(ddp_reducer *reducer);

/* Launch every bucket whose turn it is. An error may also show later, in bucket_wait(). */
ddp_status bucket_launch(ddp_reducer *reducer);

/* All that was launched has come back. */
ddp_status bucket_wait(ddp_reducer *reducer);

/* --- reducer_sync.c ------------------------------------------------------------------------------------------ */

/* Memory for all of the below, behind the plan and the core: a step must not fail for want of it on one rank of many. */
ddp_status sync_get_memory(ddp_reducer *reducer, struct ddp_err *err);
void sync_spare_close(struct sync_spare *spare);

/* Parameters and buffers of rank `root` for all. Collective, as are the begin and the end of a step. */
ddp_status sync_model(ddp_reducer *reducer, int root);

/* What a forward does once it is known that all ranks are in it. After a rebuild that failed no step can follow. */
ddp_status sync_begin(ddp_reducer *reducer, const struct core_wish *wish);

/* The end of a step: all buckets that are left, then what they were for. */
ddp_status sync_end(ddp_reducer *reducer);

/* This rank's gradient of parameter i counts as zero; kept for the case that all ranks say so. */
void sync_blank(ddp_reducer *reducer, size_t i);

/* --- reducer_join.c ------------------------------------------------------------------------------------------ */

/* The roll call of a step that this rank has a batch for. */
ddp_status join_answer(ddp_reducer *reducer);

#endif
