/* gpus.h -- the GPUs that the workers see, and the number of workers that results.
 *
 * LOCAL_RANK is an index into the GPUs that CUDA shows. CUDA_VISIBLE_DEVICES may name any GPUs in any order, by
 * number, UUID or MIG id. ddprun parses it exactly as CUDA does, so that the plan shows which GPU a worker gets. */
#ifndef LAUNCHER_GPUS_H
#define LAUNCHER_GPUS_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stddef.h>

enum { GPUS_MAX = 256, GPU_NAME_MAX = 96 };

struct gpu_list {
    int physical;                       /* GPUs of the machine */
    bool restricted;                    /* CUDA_VISIBLE_DEVICES is set */
    bool hidden;                        /* CUDA_VISIBLE_DEVICES has a value that shows no GPU: "" or "-1" */
    int n;                              /* visible GPUs */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* problem in CUDA_VISIBLE_DEVICES, "" = none */
};

/* List the visible GPUs. `visible` is the value of CUDA_VISIBLE_DEVICES, or NULL if the variable is not set. */
void gpus_list(struct gpu_list *list, const char *visible, int physical);

/* Compute the number of workers for `want`. `cpus` is the number of usable CPUs. Return DDP_ERR_ARG, with both
 * numbers in `err`, if more workers than GPUs are requested. More workers than GPUs are allowed if they share GPUs,
 * if the machine has no GPU, or if CUDA_VISIBLE_DEVICES hides all GPUs (a job on CPUs). */
ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus, int *nproc,
                        struct ddp_err *err);

#endif
