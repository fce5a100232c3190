/* logdir.h -- make the tree of log files that the plan names. */
#ifndef LAUNCHER_LOGDIR_H
#define LAUNCHER_LOGDIR_H

#include "ddp/error.h"
#include "plan/plan.h"

/* Make the job's directory `root`, a path with a '/', and with `latest` the link of that name beside it, which leads to the
 * job that was started last. The root carries a random text in its name and must be new: what somebody else has put there
 * is refused. */
ddp_status logdir_make(const char *root, bool latest, struct ddp_err *err);

/* Make every worker's directory of the plan's attempt, below the root. */
ddp_status logdir_attempt(const struct plan *plan, struct ddp_err *err);

/* Create one new file for appending, and the directories above it. Never one that is there already. The workers' output
 * gets the mode that the umask leaves of LOGDIR_OUTPUT, what ddprun itself writes LOGDIR_PRIVATE. Returns the descriptor,
 * which the caller closes, or -1 with the reason in err. */
enum { LOGDIR_OUTPUT = 0666, LOGDIR_PRIVATE = 0600 };
int logdir_create(const char *path, int mode, struct ddp_err *err);

/* mkdir for every '/' in `path` but the last part; what exists is fine. Returns an errno, or 0. */
int logdir_parents(const char *path);

#endif
