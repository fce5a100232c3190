/* collective_check_text.h -- what a rank says about a call before it makes it, with DDPRUN_DEBUG=detail, and how two of them differ. Pure.
 *
 *     2                                             rank
 *     all_reduce #17 (f32 x 1024, sum)              the call
 *     bucket 2 of 5: fc1.weight and 3 more (1f0c)   what it is for; "" = nothing is known
 *     all_reduce #16 gave 9ae01b77                  what the call before has left; "" = it is not known, or differs by its nature
 *
 * As text, because it lies in the store, where people look with `ddpctl keys`. The last three lines must be the same on every
 * rank. */
#ifndef WORKER_CORE_COLLECTIVE_CHECK_TEXT_H
#define WORKER_CORE_COLLECTIVE_CHECK_TEXT_H

#include "core/call.h"

enum { DETAIL_LINE = 192, DETAIL_TEXT = 640 };

struct detail_said {
    int rank;
    char call[DETAIL_LINE], what[DETAIL_LINE], before[DETAIL_LINE];
};

/* Returns its length; newlines in the lines become blanks. */
size_t detail_put(char text[DETAIL_TEXT], const struct detail_said *said);

/* False when `text`, which ends with a NUL, is none. */
bool detail_take(const char *text, struct detail_said *said);

/* DDP_ERR_MISMATCH names both ranks, the lower one first, and what differs: the call, else what it is for, else what was left by
 * the one before. */
ddp_status detail_compare(const struct detail_said *a, const struct detail_said *b, struct ddp_err *err);

/* Does a call of that kind leave the same values on all ranks? */
bool detail_leaves_same(enum call_kind kind);

#endif
