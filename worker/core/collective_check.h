/* collective_check.h -- DDPRUN_DEBUG=detail: before each call, the ranks compare their calls through the store. If two
 * ranks disagree, every rank reports both calls instead of hanging. Use this mode only to find a mistake, because each
 * call costs a few round trips to the store and waits for all ranks. */
#ifndef WORKER_CORE_COLLECTIVE_CHECK_H
#define WORKER_CORE_COLLECTIVE_CHECK_H

#include "core/backend.h"
#include "core/environment.h"

struct ddp_ctx;

/* The record of a call. The last three lines of a record must be equal on all ranks. `ddpctl keys` shows the records.
 *
 *     2                                             rank
 *     all_reduce #17 (f32 x 1024, sum)              the call
 *     bucket 2 of 5: fc1.weight and 3 more (1f0c)   purpose of the call; "" if unknown
 *     all_reduce #16 gave 9ae01b77                  result of the previous call; "" if unknown
 *
 * Sizes in bytes, with the NUL: CHECK_LINE for one line, CHECK_TEXT for the record. */
enum { CHECK_LINE = 192, CHECK_TEXT = 640 };

struct collective_check {
    bool on; /* DDPRUN_DEBUG is "detail" */
    /* The connection to the store for the comparisons, owned. It is NULL before the first compared call. The connection
     * of the context is not used here, because another thread may use it. */
    struct ddp_store *store;
    /* Number of the last compared call. In a job of several hosts, ddp_shared_alloc makes a second call, which has its
     * own number but is not compared. So the number of the next compared call may be higher than last + 1. */
    uint64_t last;
    char what[CHECK_LINE];   /* purpose of the next call; "" if unknown */
    char before[CHECK_LINE]; /* result of the previous call; "" if unknown */
};

/* Read DDPRUN_DEBUG (off or detail) from `env`. The connection to the store is opened at the first compared call. */
ddp_status collective_check_open(struct collective_check *check, const struct worker_env *env,
                                 struct ddp_err *err);
void collective_check_close(struct collective_check *check);

/* Compare the records of all ranks before call number `seq`. All ranks get DDP_ERR_MISMATCH if two records disagree,
 * DDP_ERR_TIMEOUT if a rank does not arrive, or the backend's error if a rank has died. The keys in the store are:
 *
 *     <prefix>/detail/<number>/first     the record of the rank that arrived first
 *     <prefix>/detail/<number>/count     number of ranks whose records agree with `first`
 *     <prefix>/detail/<number>/go        the verdict: "+" from the last rank to agree, or "-7 reason" from any rank
 *
 * This mode works with any backend. Without this mode, the cpu backend compares only kind, size, type, operation and
 * root. This mode also compares the purpose of the call (bucket, parameters) and the result of the previous call. */
ddp_status collective_check_enter(struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                                  struct ddp_err *err);

/* Record the result of a successful call, for the comparison at the next call. */
void collective_check_leave(struct ddp_ctx *ctx, const struct call *call, uint64_t seq);

#endif
