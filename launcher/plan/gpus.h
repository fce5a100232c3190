/* gpus.h -- the GPUs that the workers see, and the number of workers that follows.
 *
 * LOCAL_RANK is an index into the visible GPUs, as CUDA counts them: CUDA_VISIBLE_DEVICES may name any of
 * them in any order, by number, UUID or MIG id. We read it exactly as CUDA does, so that the plan shows what a worker
 * gets. */
#ifndef LAUNCHER_GPUS_H
#define LAUNCHER_GPUS_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stddef.h>

enum { GPUS_MAX = 256, GPU_NAME_MAX = 96 };

struct gpu_list {
    int physical;                       /* GPUs of the machine */
    bool restricted;                    /* CUDA_VISIBLE_DEVICES is set */
    bool hidden;                        /* ... to a value that shows none: "" or "-1" */
    int n;                              /* visible GPUs */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* problem in CUDA_VISIBLE_DEVICES, "" = none */
};

/* `visible` is the value of CUDA_VISIBLE_DEVICES, NULL if it is not set. */
void gpus_list(struct gpu_list *list, const char *visible, int physical);

/* Compute the number of workers for `want` on a machine with these GPUs and `cpus` usable CPUs. DDP_ERR_ARG, with
 * both numbers: more workers than GPUs, unless they share GPUs, there are none, or CUDA_VISIBLE_DEVICES hides all (a
 * job on CPUs). */
ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus, int *nproc,
                        struct ddp_err *err);

#endif
