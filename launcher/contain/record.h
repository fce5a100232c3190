/* record.h -- a file for each running job, by which the next start finds what a killed one has left. It lies in the
 * directory of runtime_dir.h, and so do the workers' error files, which go with it. */
#ifndef LAUNCHER_RECORD_H
#define LAUNCHER_RECORD_H

#include "ddp/error.h"

#include <stdbool.h>
#include <sys/types.h>

/* In one of the two, before the first worker: `guardian` and `agent` run `job`. `cgroup` is the directory of the job's
 * control group, "" = none. DDP_ERR_IO: there is no place for it. */
ddp_status record_write(const char *job, const char *cookie, const char *cgroup, pid_t guardian, pid_t agent,
                        struct ddp_err *err);

/* Nothing is left of the job: its files go. */
void record_remove(const char *cookie);

/* Look through the records. Where guardian and agent are both gone, kill what their job has left, say so in a line
 * (unless `quiet`), and remove the record. Jobs that run, jobs of other PID namespaces as long as these are there or may be, and
 * a job that we are a part of ourselves are left alone. */
void record_sweep(bool quiet);

#endif
