/* machine.h -- what a plan needs from this machine: GPUs without CUDA, CPUs, files of /sys, the file that a scheduler names. */
#ifndef LAUNCHER_PLAN_MACHINE_H
#define LAUNCHER_PLAN_MACHINE_H

#include "plan/numa.h"

/* GPUs that the driver shows to this process, 0 when there is no driver. */
int gpu_count(void);

/* CPUs that this process may use, at least 1. */
int cpu_count(void);

/* What --numa_binding asks of this machine: files of /sys, the GPUs' places, our CPUs. */

/* DDP_OK: close with numa_look_close, after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

/* The text of the file at `path`; yours to free. NULL: there is none, it cannot be read, it is no plain file, or it is longer
 * than SCHEDULER_FILE_MAX. A NULL path is allowed. */
char *scheduler_read_file(const char *path);

#endif
