/* logdir.h -- make the tree of log files that the plan names. */
#ifndef LAUNCHER_LOGDIR_H
#define LAUNCHER_LOGDIR_H

#include "ddp/error.h"
#include "plan/plan.h"

/* Make plan->log_root, and the link `latest` beside it. The root carries a random text in its name and must be
 * new: what somebody else has put there is refused. DDP_OK also when the plan has no log directory. */
ddp_status logdir_make(const struct plan *plan, struct ddp_err *err);

/* Make every worker's directory of the plan's attempt, below the root. */
ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err);

/* Create one new log file for appending, and the directories above it. Never one that is there already. Returns
 * the descriptor (yours), or -1 with the reason in err. */
int logdir_create(const char *path, struct ddp_err *err);

/* mkdir for every '/' in `path` but the last part; what exists is fine. Returns an errno, or 0. */
int logdir_parents(const char *path);

#endif
