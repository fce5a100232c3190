/* gpu_look.h -- the GPUs of this machine and the processors near them, without CUDA.
 *
 * How many GPUs and CPUs this machine offers, without CUDA. */
#ifndef LAUNCHER_PLAN_GPU_LOOK_H
#define LAUNCHER_PLAN_GPU_LOOK_H

#include "plan/numa.h"

/* GPUs that the driver shows to this process, 0 when there is no driver. */
int gpu_count(void);

/* CPUs that this process may use, at least 1. */
int cpu_count(void);

/* --- numa look -------------------------------------------------------------------------------------------- */

/* What --numa_binding asks of this machine: files of /sys, the GPUs' places, our CPUs. */

/* Look. DDP_OK: close with numa_look_close, after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

#endif
