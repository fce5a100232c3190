/* report_cause.h -- private to report*.c: sentences about the first cause. Those that append to `out`
 * append nothing where there is nothing to say, and return false when memory is short. */
#ifndef LAUNCHER_REPORT_CAUSE_H
#define LAUNCHER_REPORT_CAUSE_H

#include "report/report_text.h"

/* Local rank of the first failure, -1 when none failed, or first a worker of another node. */
int cause_first(const struct report *r);

/* That worker; NULL = none. */
const struct agent_worker *cause_worker(const struct report *r);

/* The record of the first failure, wherever it was: one of this node is filled into `room`, without its last lines. NULL = there
 * is none. */
const struct failure *cause_failure(const struct report *r, struct failure *room);

/* Has no worker of this node ever been asked for? The job ended, or never came together, without it. */
bool cause_never_began(const struct report *r);

/* The one sentence that begins the report, without newline. */
bool cause_headline(const struct report *r, struct buf *out);

/* Why it ended like that, as far as the headline does not say it, and what helps. */
bool cause_why(const struct report *r, struct buf *out);
bool cause_remedy(const struct report *r, struct buf *out);
bool cause_core(const struct report *r, struct buf *out);

/* The last `max` lines of the first failure's stderr, or of its stdout when that is empty; *from_stdout says which. Each
 * ends with a newline; of a progress bar only what was visible at the end is kept. Returns how many. */
size_t cause_last_lines(const struct report *r, size_t max, struct buf *out, bool *from_stdout);

/* A sentence about what the last lines say. */
bool cause_hint(const struct report *r, struct buf *out);

/* Wall clock of a moment of the agent's clock, in ms since 1970. */
uint64_t cause_unix_ms(const struct report *r, uint64_t ms);

/* Is the headline, of failure `f`, about a worker that ended with 0 too early? */
bool cause_is_left_waiting(const struct report *r, const struct failure *f);

/* Was somebody waited for in vain, in this way? */
bool cause_has_left(const struct report *r, enum finding_code code);

/* Who has left, with the code of that finding. */
bool cause_put_left(const struct report *r, struct buf *out);

/* The finding of the headline, "WORKER_FAILED", of failure `f`; NULL = it is none. */
const char *cause_code_name(const struct report *r, const struct failure *f);

#endif
