/* collective_check.h -- DDPRUN_DEBUG=detail: before each call the ranks tell each other through the store what they are about to do, and go on
 * when all have told the same.
 *
 *     <prefix>/detail/<number>/first     what the first rank said; each rank compares its own with it
 *     <prefix>/detail/<number>/count     ranks that have told the same
 *     <prefix>/detail/<number>/go        "+" when all have, or "-7 words" by the first that differs
 *
 * Whatever the backend, ranks that differ then do not enter a call that would hang, and each is told both calls. A call costs a few
 * round trips to the store, and waits for all ranks: it is for looking for a mistake, not for training. The cpu backend compares
 * kind, size, type, operation and root by itself in every run; here also what the call is for (bucket, parameters), and the values
 * that the call before has left. */
#ifndef WORKER_CORE_COLLECTIVE_CHECK_H
#define WORKER_CORE_COLLECTIVE_CHECK_H

#include "core/comm.h"
#include "core/collective_check_text.h"
#include "core/environment.h"

struct ddp_ctx;

struct detail {
    bool on;
    struct ddp_store
        *store; /* owned; a connection of its own, the context's may be in use on another thread */
    char what[DETAIL_LINE];   /* what the next call is for, "" = not known */
    char before[DETAIL_LINE]; /* what the last one has left */
};

/* From the variable's value: off and detail are known. */
ddp_status detail_open(struct detail *detail, const struct worker_env *env, struct ddp_err *err);
void detail_close(struct detail *detail);

/* Call number `seq` is about to be made. DDP_ERR_MISMATCH on all ranks when they differ, DDP_ERR_TIMEOUT when not all come, or
 * what the backend knows of a peer that has gone. */
ddp_status detail_meet(struct ddp_ctx *ctx, const struct call *call, uint64_t seq, struct ddp_err *err);

/* It was made, well. */
void detail_left(struct ddp_ctx *ctx, const struct call *call, uint64_t seq);

#endif
