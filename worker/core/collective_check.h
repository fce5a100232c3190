/* collective_check.h -- DDPRUN_DEBUG=detail: before each call the ranks compare through the store which call they are
 * about to make, and continue when all agree.
 *
 *     <prefix>/detail/<number>/first     the record of the first rank; each rank compares its own with it
 *     <prefix>/detail/<number>/count     ranks that agree
 *     <prefix>/detail/<number>/go        "+" when all have, or "-7 words" by the first that differs
 *
 * With every backend, ranks that differ do not enter a call that would hang, and each reports both calls. A call
 * costs a few round trips to the store and waits for all ranks, so use it to find a mistake and not for training. The
 * cpu backend compares kind, size, type, operation and root in every run; this also compares the purpose of the call
 * (bucket, parameters) and the result of the previous call. The text of a call is in the store, where `ddpctl keys`
 * shows it; its last three lines must be the same on every rank:
 *
 *     2                                             rank
 *     all_reduce #17 (f32 x 1024, sum)              the call
 *     bucket 2 of 5: fc1.weight and 3 more (1f0c)   what it is for; "" = not known
 *     all_reduce #16 gave 9ae01b77                  what the call before has left; "" = not known, or it differs by its nature */
#ifndef WORKER_CORE_COLLECTIVE_CHECK_H
#define WORKER_CORE_COLLECTIVE_CHECK_H

#include "core/backend.h"
#include "core/environment.h"

struct ddp_ctx;

enum { CHECK_LINE = 192, CHECK_TEXT = 640 };

struct call_record {
    int rank;
    char call[CHECK_LINE], what[CHECK_LINE], before[CHECK_LINE];
};

/* Return its length; newlines in the lines become blanks. */
size_t collective_check_encode(char text[CHECK_TEXT], const struct call_record *said);

/* Parse `text`, which ends with a NUL. False if it is not a record. */
bool collective_check_decode(const char *text, struct call_record *said);

/* DDP_ERR_MISMATCH names both ranks, the lower one first, and the difference: in the call, else in its purpose, else
 * in the result of the previous one. */
ddp_status collective_check_compare(const struct call_record *a, const struct call_record *b,
                                    struct ddp_err *err);

struct collective_check {
    bool on;
    struct ddp_store *store; /* owned; separate from the context's, which another thread may be using */
    char what[CHECK_LINE];   /* purpose of the next call, "" = not known */
    char before[CHECK_LINE]; /* result of the last call */
};

/* Parse the variable's value, off or detail. */
ddp_status collective_check_open(struct collective_check *check, const struct worker_env *env,
                                 struct ddp_err *err);
void collective_check_close(struct collective_check *check);

/* Call number `seq` is about to be made. DDP_ERR_MISMATCH on all ranks when they differ, DDP_ERR_TIMEOUT when not all
 * arrive, or the error of the backend about a lost peer. */
ddp_status collective_check_enter(struct ddp_ctx *ctx, const struct call *call, uint64_t seq,
                                  struct ddp_err *err);

/* The call has succeeded. */
void collective_check_leave(struct ddp_ctx *ctx, const struct call *call, uint64_t seq);

#endif
