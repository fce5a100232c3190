/* error_dir.h -- the private directory for the workers' error files when there is no log directory. It
 * lives as long as the job. */
#ifndef LAUNCHER_ERROR_DIR_H
#define LAUNCHER_ERROR_DIR_H

#include "plan/plan.h"

/* Make plan->error_dir, if the plan has one. On failure the plan goes on without error files: a worker's
 * own words are missing then, not the job. */
void error_dir_make(struct plan *plan);

/* Remove it with all files in it. Any number of times, by either process. */
void error_dir_remove(const struct plan *plan);

#endif
