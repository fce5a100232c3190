/* gpus.h -- the GPUs that the workers see, and the number of workers that follows from the number of GPUs. LOCAL_RANK
 * is an index into the GPUs that CUDA shows. ddprun parses CUDA_VISIBLE_DEVICES exactly as CUDA does, so the plan
 * shows the GPU of each worker. */
#ifndef LAUNCHER_GPUS_H
#define LAUNCHER_GPUS_H

#include "cli/cli.h"

#include <stdbool.h>
#include <stddef.h>

enum { GPUS_MAX = 256, GPU_NAME_MAX = 96 };

struct gpu_list {
    int physical;                       /* number of GPUs in the machine */
    bool hidden;                        /* CUDA_VISIBLE_DEVICES is "" or negative, which hides all GPUs */
    int n;                              /* visible GPUs */
    char names[GPUS_MAX][GPU_NAME_MAX]; /* as in CUDA_VISIBLE_DEVICES: "3", "GPU-8932f937...", "MIG-..." */
    char note[256];                     /* what is wrong in CUDA_VISIBLE_DEVICES, or "" */
};

/* List the visible GPUs. `visible` is CUDA_VISIBLE_DEVICES, or NULL if the variable is not set. The variable may name
 * GPUs in any order, by number, UUID or MIG id. `physical` is the number of GPUs in the machine. */
void gpus_list(struct gpu_list *list, const char *visible, int physical);

/* Compute the number of workers from --nproc_per_node (`want`) and the number of usable CPUs. Return DDP_ERR_ARG if
 * `want` exceeds the number of visible GPUs. But allow any number if the machine has no GPU, if all GPUs are hidden (a
 * job on CPUs), or if `share` is true. */
ddp_status gpus_workers(const struct gpu_list *list, struct cli_nproc want, bool share, int cpus, int *nproc,
                        struct ddp_err *err);

/* Return the name of the GPU of worker `local_rank` of `nproc` workers, or NULL if the worker has no GPU. If `share` is
 * true, several workers get the same GPU. */
const char *gpus_of_worker(const struct gpu_list *list, int local_rank, int nproc, bool share);

/* Return the name of the GPU for the scheduler's task `local_rank`, or NULL if the list has too few GPUs. */
const char *gpus_of_task(const struct gpu_list *list, int local_rank);

#endif
