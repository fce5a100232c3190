/* line_prefix.h -- the prefix of one line: the plan's template with the numbers of who printed it. */
#ifndef LAUNCHER_OUTPUT_LINE_PREFIX_H
#define LAUNCHER_OUTPUT_LINE_PREFIX_H

#include "output/lines.h"
#include "plan/plan.h"
#include "tables/rank_set.h"

struct line_origin {
    int local_rank, which;        /* STD_OUT or STD_ERR */
    int pid;                      /* 0 = not known */
    const struct rank_set *ranks; /* local ranks of a line that several printed, else NULL */
    struct line_time at;
};

/* Append it, in the rank's colour if `colour`. Where several ranks printed the line they are shown in any case, even
 * when the template has no field for them. False when memory is short. */
bool line_prefix(const struct plan *plan, const struct line_origin *from, bool colour, struct buf *out);

#endif
