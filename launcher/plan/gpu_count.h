/* gpu_count.h -- how many GPUs and CPUs this machine offers, without CUDA. */
#ifndef LAUNCHER_GPU_COUNT_H
#define LAUNCHER_GPU_COUNT_H

/* GPUs that the driver shows to this process, 0 when there is no driver. */
int gpu_count(void);

/* CPUs that this process may use, at least 1. */
int cpu_count(void);

#endif
