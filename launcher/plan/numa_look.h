/* numa_look.h -- what --numa_binding asks of this machine: files of /sys, the GPUs' places, our CPUs. */
#ifndef LAUNCHER_NUMA_LOOK_H
#define LAUNCHER_NUMA_LOOK_H

#include "plan/numa.h"

/* Look. DDP_OK: close with numa_look_close, after the last use of `look`. */
ddp_status numa_look_open(struct numa_look *look, struct ddp_err *err);
void numa_look_close(struct numa_look *look);

#endif
