/* gpus.h -- which GPUs the workers see, and how many workers that makes.
 *
 * LOCAL_RANK is an index into the visible GPUs, as CUDA counts them: CUDA_VISIBLE_DEVICES may name any of
 * them in any order, by number, UUID or MIG id. We read it exactly as CUDA does, so that the plan shows what
 * the worker will get. */
#ifndef LAUNCHER_GPUS_H
#define LAUNCHER_GPUS_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stddef.h>

enum { GPUS_MAX = 256, GPU_NAME_MAX = 96 };

struct gpu_list {
    int physical;                       /* how many the machine has */
    bool restricted;                    /* CUDA_VISIBLE_DEVICES is set */
    bool hidden;                        /* ... and explicitly shows none: "" or "-1" */
    int n;                              /* how many are visible */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* what looks wrong in CUDA_VISIBLE_DEVICES, "" if nothing does */
};

/* `visible` is the value of CUDA_VISIBLE_DEVICES, NULL when it is not set. */
void gpus_list(struct gpu_list *list, const char *visible, int physical);

/* The number of workers for `want` on a machine with these GPUs and `cpus` usable CPUs. More workers than GPUs is
 * DDP_ERR_ARG with both numbers, except where they share GPUs, and without GPUs or where CUDA_VISIBLE_DEVICES hides
 * all: a CPU job. */
ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus, int *nproc,
                        struct ddp_err *err);

#endif
